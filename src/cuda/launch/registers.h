// What launches have in common whose kernels keep vectors in registers from the first sweep to the last: `slices_cluster`,
// `rows_registers`, `slices` with chunks in registers.
#pragma once

#include <cstdint>

#include "cuda/gpu.h"
#include "plan/schedule.h"

namespace fuseblock::cuda {

inline constexpr int kRegisterBytes = 4;

// Whether divisions into clusters, which were measured on an H200, hold for a GPU.
bool has_measured_clusters(const Gpu& gpu);
// Clusters that are at work at once where a multiprocessor has so many blocks.
int clusters_at_once(int cluster, int blocks);

// Registers that a thread may have where a multiprocessor has so many blocks of so many threads.
int registers_of(std::int64_t threads, int blocks);

// Whether a sweep's program leaves registers for vectors that stay there, as compiled code for sm_90a has shown: a norm with its
// parameters, and arithmetic and sigmoids behind it. With other functions, or more numbers of a channel, some of it is in local memory.
bool leaves_registers(const Sweep& sweep);

}  // namespace fuseblock::cuda
