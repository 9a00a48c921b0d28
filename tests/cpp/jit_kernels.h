// Small kernels for the tests of the run-time compiler.
#pragma once

#include <gtest/gtest.h>

#include <string>

#include "cuda/jit/compiler.h"

// Skips the test where there is no run-time compiler. The project's own test runs name one in FUSEBLOCK_NVRTC.
#define FUSEBLOCK_NEEDS_COMPILER() \
  if (compiler_version().empty()) GTEST_SKIP() << no_compiler_reason()

namespace fuseblock::jit {

// y = factor * x, and the block's first element through shared memory.
inline KernelSource scale_kernel(int factor = 3) {
  KernelSource source;
  source.name = "scale";
  source.entry = "scale_entry";
  source.text = "constexpr int kFactor = " + std::to_string(factor) + R"(;
extern "C" __global__ void __launch_bounds__(256) scale_entry(float* y, const float* x, long long count) {
  __shared__ float first[64];
  const long long i = 256LL * blockIdx.x + threadIdx.x;
  if (threadIdx.x < 64) first[threadIdx.x] = kFactor;
  __syncthreads();
  if (i < count) y[i] = first[threadIdx.x % 64] * x[i];
}
)";
  source.options = {"--std=c++17"};
  source.description = "block: mul(3) on f32[2,3]; factor = " + std::to_string(factor);
  return source;
}

}  // namespace fuseblock::jit
