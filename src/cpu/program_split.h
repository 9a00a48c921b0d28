// A program taken apart by what its steps vary along: what depends on channels alone and what depends on positions
// alone is worked out once for many elements, apart from the rest.
#pragma once

#include <span>
#include <vector>

#include "fuseblock/formula.h"

namespace fuseblock::cpu {

// What a value varies along inside one sample.
struct Variation {
  bool channels = false;
  bool positions = false;
};

struct ProgramPart {
  std::vector<Formula::Step> steps;
  std::vector<int> inputs;  // of the whole program; steps name them by their place here
  std::vector<int> wanted;  // steps whose results are taken
};

struct ProgramSplit {
  ProgramPart by_channel;   // varies along channels at most
  ProgramPart by_position;  // varies along positions at most
  // Everything else, and all wanted results. Its inputs are `rest.inputs`, then the wanted results of by_channel,
  // then those of by_position.
  ProgramPart rest;
  std::vector<bool> channel_varies;  // for each wanted result of by_channel: along channels, or a number
};

// `inputs` tells what each input varies along; `wanted` are the steps whose results the caller takes.
ProgramSplit split_program(std::span<const Formula::Step> steps, std::span<const Variation> inputs,
                           const std::vector<int>& wanted);

}  // namespace fuseblock::cpu
