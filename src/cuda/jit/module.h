// Cubins in a GPU: loaded once for each context, and their kernels launched.
//
//   const jit::Kernel kernel = jit::load_kernel(*cubin, {.dynamic_shared_bytes = 96 * 1024});
//   void* parameters[] = {&y, &x, &count};
//   jit::launch(driver, {.function = kernel.function, .grid = {132}, .block = {512}, .stream = stream,
//                        .parameters = parameters, .name = kernel.name});
#pragma once

#include <array>

#include "cuda/jit/compiler.h"
#include "cuda/jit/driver.h"

namespace fuseblock::jit {

// A kernel of a cubin in one context, for the life of the process. Figures are the driver's.
struct Kernel {
  CUfunction function = nullptr;
  const char* name = "";  // for messages
  int registers = 0;      // a thread
  int shared_bytes = 0;   // static, a block
  int local_bytes = 0;    // a thread
  int max_threads = 0;    // a block
};

struct KernelLimits {
  int dynamic_shared_bytes = 0;       // the most that a launch will ask for
  bool nonportable_clusters = false;  // clusters of more than 8 blocks
};

// The cubin's entry in the current context, loaded where this is the first time, able to launch within the limits (the
// widest of all calls count). Throws InternalError where no context is current or the driver refuses the cubin or the
// limits. Not while a stream is captured (see is_capturing).
Kernel load_kernel(const Cubin& cubin, const KernelLimits& limits = {});

struct Launch {
  CUfunction function = nullptr;
  std::array<unsigned int, 3> grid = {1, 1, 1};
  std::array<unsigned int, 3> block = {1, 1, 1};
  std::array<unsigned int, 3> cluster = {1, 1, 1};  // blocks; all ones: no cluster
  unsigned int dynamic_shared_bytes = 0;
  bool cooperative = false;  // all blocks run at the same time, or the driver refuses
  bool overlaps = false;  // begins beside the kernel before it in the stream, and waits for its end by itself
  CUstream stream = nullptr;
  void** parameters = nullptr;  // the address of each
  const char* name = "";        // for messages
};

// Puts the launch into its stream and returns. Allocates nothing. Throws InternalError with the driver's words.
void launch(const Driver& driver, const Launch& launch);

// How many blocks of such a launch a multiprocessor holds at a time.
int blocks_per_multiprocessor(const Driver& driver, const Launch& launch);
// How many clusters of such a launch the GPU holds at a time.
int active_clusters(const Driver& driver, const Launch& launch);

// True while the stream is captured into a CUDA graph: nothing may be compiled, loaded or waited for then.
bool is_capturing(const Driver& driver, CUstream stream);

}  // namespace fuseblock::jit
