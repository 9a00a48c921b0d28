// The GPU architectures that kernels are compiled for, and which of them a device runs.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace fuseblock::jit {

// Limits are those of NVIDIA's tables of compute capabilities; bytes of shared memory without the KiB that the system
// keeps of each block.
struct Architecture {
  const char* name;  // as NVRTC takes it
  int compute_major;
  int compute_minor;
  int shared_bytes_block;           // the most that one block may ask for
  int shared_bytes_multiprocessor;  // a block takes what it asks for and shared_bytes_reserved
  int shared_bytes_reserved;
  int threads_multiprocessor;
  int blocks_multiprocessor;
  bool clusters;
  bool exact;  // runs on its own compute capability alone; others also on later minor ones
};

// sm_80, sm_89, sm_90a, sm_100a, sm_120.
std::span<const Architecture> architectures();

// By the name, as in `--arch sm_90a`. Throws UserError that lists the names there are.
const Architecture& architecture(std::string_view name);
// That of a device of the planner's table (h200, a100, ...); null for a name that is none.
const Architecture* architecture_of_device(std::string_view device);
// The newest whose code a GPU of this compute capability runs. Throws NotSupportedError where there is none.
const Architecture& architecture_for(int compute_major, int compute_minor);

}  // namespace fuseblock::jit
