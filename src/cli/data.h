// Generated tensors: the same numbers for the same seed and name on every machine, whatever else is in the
// block.
//
// Number j of a tensor's stream is splitmix64's output function at key + (j + 1) * 0x9e3779b97f4a7c15 (modulo
// 2^64), where key is that function at seed + FNV-1a(name). From it come
//   uniform   the upper 24 bits / 2^24, in [0, 1), as torch.rand draws f32; element i takes number i;
//   normal    the sum of the twelve 16-bit parts of numbers 3i, 3i+1, 3i+2, centred, / 2^16: mean 0,
//             variance 1, within 6.
// Both are exact in f32, and what is computed from them is rounded to f32 first, so that all dtypes get the
// same data up to their own rounding.
//
//   tensor                                   values
//   x and extra inputs                       uniform
//   weight and bias of a convolution         uniform in (-b, b), b = 1 / sqrt(fan_in), as PyTorch initialises
//   weight of a norm                         1 + 0.3 normal
//   bias of a norm, running_mean             0.3 normal
//   running_var                              0.5 + uniform
//   other parameters, gradients d_*          normal
#pragma once

#include <cstdint>
#include <string_view>

#include "tensors.h"

namespace fuseblock::cli {

// Numbers by index, as above.
class Stream {
 public:
  Stream(std::uint64_t seed, std::string_view name);

  double uniform(std::int64_t index) const;
  double normal(std::int64_t index) const;

 private:
  std::uint64_t bits(std::uint64_t index) const;

  std::uint64_t key_;
};

// Every argument of a block.
TensorMap generate_arguments(const TypedBlock& block, std::uint64_t seed);

// The gradients of the outputs, which a backward block takes: `d_` + name with the output's type, and a
// number from 2 on where the block has a value of that name.
std::vector<NamedType> output_gradients(const TypedBlock& block);
TensorMap generate_output_gradients(const TypedBlock& block, std::uint64_t seed);

}  // namespace fuseblock::cli
