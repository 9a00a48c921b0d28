// The loops that measuring the CPU times: multiply-adds in registers, and a copy by plain vector loads and stores, which
// is how sweeps move data. They know nothing of threads or clocks.
#pragma once

#include <cstddef>
#include <cstdint>

namespace fuseblock::cpu {

// Floats in a vector of this machine.
int vector_lanes();
// Whether it multiplies and adds in one instruction.
bool has_fused_multiply_add();

// Runs `rounds` of independent multiply-adds and gives the number of operations, a multiply-add counting two.
template <class T>
double multiply_adds(std::int64_t rounds);
extern template double multiply_adds<float>(std::int64_t rounds);
extern template double multiply_adds<double>(std::int64_t rounds);

void copy_floats(const float* from, float* to, std::size_t count);

}  // namespace fuseblock::cpu
