// The CPU engine against the reference engine on one random block: outputs and every gradient, on views of
// every kind, with each way to treat a convolution that is needed twice, by pairs of plans for training, and
// on several numbers of threads.
//
// The bound is 1e-10 (1 + max|ref|) for f64, and for f32 1e-4 (1 + max|ref|) with the maximum over all
// results of the block. A block whose exact results themselves move by more than a quarter of that when its
// arguments change in their last digits (a value at a kink, a quotient of rounding errors) says nothing about
// the engine and counts as ill-conditioned.
#pragma once

#include <functional>
#include <string>

#include "random_blocks.h"

namespace fuseblock::random_blocks {

enum class Verdict : std::uint8_t { kAgrees, kDiffers, kIllConditioned };

struct Agreement {
  Verdict verdict = Verdict::kAgrees;
  // What differs: the tensor, the place, both numbers.
  std::string difference;
};

// Changes the results of the CPU engine before they are compared: for the test of the test.
using Tamper = std::function<void(const RandomBlock& block, cases::TensorMap& results)>;

Agreement compare_engines(const RandomBlock& block, const Tamper& tamper = {});

}  // namespace fuseblock::random_blocks
