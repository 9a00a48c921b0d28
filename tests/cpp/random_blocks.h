// Random valid blocks over the whole catalogue, and their reduction to the smallest one that still fails a
// test.
//
// A block is kept as a list of stages in statement form, so that stages, operands and arguments can be taken
// away one by one. Nothing here knows what makes a block valid: a candidate that TypedBlock::infer refuses is
// dropped.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "cases.h"

namespace fuseblock::random_blocks {

struct Stage {
  std::string name;
  // Empty for a formula, which is then the only operand's text.
  std::string operation;
  // Names of values, of extra inputs, or numbers; a formula's names are among `operands` too.
  std::vector<std::string> operands;
  std::vector<std::pair<std::string, std::string>> arguments;
  // With $1, $2 for the operands.
  std::string formula;
};

// An extra input: the axes of the value it is combined with along which it has extent 1, and whether these
// are left out.
struct ExtraInput {
  AxisSet ones;
  bool left_out = false;
};

struct RandomBlock {
  std::uint64_t seed = 0;
  TensorType x;
  std::vector<Stage> stages;
  std::vector<std::string> outputs;
  std::map<std::string, ExtraInput> extra_inputs;
  // cases::Oddity: how inputs and outputs may lie in memory.
  unsigned oddities = 0;

  // The notation of the stages that the outputs need.
  std::string text() const;
  // Meets the types. Throws what TypedBlock::infer throws.
  TypedBlock typed() const;
  // Stages that the outputs need.
  int stage_count() const;
  // `block @ type, ...` as a line of a .cases file has it.
  std::string case_text() const;
  // The block, its types and its seed on one line, with the commands that repeat it.
  std::string repeat_line() const;
};

// The block of a seed; the same one everywhere.
RandomBlock generate(std::uint64_t seed);

// The smallest block found for which `fails` still holds, by dropping outputs and stages, simplifying
// arguments, operands and views, and shrinking extents. `fails` is called with valid blocks only, at most
// `most_trials` times.
RandomBlock shrink(RandomBlock block, const std::function<bool(const RandomBlock&)>& fails,
                   int most_trials = 3000);

}  // namespace fuseblock::random_blocks
