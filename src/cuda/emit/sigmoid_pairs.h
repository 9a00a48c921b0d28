// Programs whose only sigmoid is taken by pairs of elements (device/sigmoids.cuh), where results are rounded to 16 bits: first the sigmoids'
// arguments of all elements of a vector, then what takes the sigmoids.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "cuda/emit/text.h"
#include "fuseblock/formula.h"

namespace fuseblock::cuda {

// The only sigmoid of a program; -1 where there is none, or several.
std::int32_t only_sigmoid(std::span<const Formula::Step> steps);

// The program behind it: the sigmoid is the input of number `input`.
std::vector<Formula::Step> behind_sigmoid(std::span<const Formula::Step> steps, std::int32_t sigmoid,
                                          int input);

// A member of a sweep: whether all results are right, by what `sigmoids` has returned of all vectors together.
void write_pairs_hold(Text& text, bool pairs);

}  // namespace fuseblock::cuda
