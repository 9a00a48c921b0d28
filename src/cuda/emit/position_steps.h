// A program taken apart: what is the same for all channels of a position, computed once, and the rest.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "fuseblock/formula.h"

namespace fuseblock::cuda {

struct PositionSteps {
  std::vector<Formula::Step> position;  // steps over inputs that do not vary over channels
  std::vector<std::int32_t> results;    // of these the ones that `element` takes, as steps of `position`
  // The others. An input whose number is `first_result + k` is result k.
  std::vector<Formula::Step> element;
  std::vector<std::int32_t> places;           // by step of the program: its place in `element`, -1 for none
  std::vector<std::int32_t> position_places;  // the same in `position`
  std::int32_t first_result = 0;
};

// `varies` says of an input whether it varies over channels; `taken` are the steps that sinks take. The same takes a program
// apart into what is the same for all positions and the rest, where `varies` says that.
PositionSteps split_by_channels(const std::vector<Formula::Step>& steps, int inputs,
                                const std::function<bool(int)>& varies,
                                const std::vector<std::int32_t>& taken);

}  // namespace fuseblock::cuda
