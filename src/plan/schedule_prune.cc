#include <cstdint>
#include <utility>
#include <vector>

#include "plan/schedule.h"

namespace fuseblock {
namespace {

std::size_t at(int i) { return static_cast<std::size_t>(i); }

}  // namespace

void prune(Sweep& sweep) {
  std::vector<bool> needed(sweep.steps.size(), false);
  for (const Sink& sink : sweep.sinks) needed[at(sink.step)] = true;
  for (std::size_t i = sweep.steps.size(); i-- > 0;)
    if (needed[i])
      for (std::int32_t operand : {sweep.steps[i].a, sweep.steps[i].b, sweep.steps[i].c})
        if (operand >= 0) needed[at(operand)] = true;
  std::vector<std::int32_t> places(sweep.steps.size(), -1);
  std::vector<std::int32_t> input_places(sweep.inputs.size(), -1);
  std::vector<Formula::Step> steps;
  std::vector<int> inputs;
  for (std::size_t i = 0; i < sweep.steps.size(); ++i) {
    if (!needed[i]) continue;
    Formula::Step step = sweep.steps[i];
    for (std::int32_t* operand : {&step.a, &step.b, &step.c})
      if (*operand >= 0) *operand = places[at(*operand)];
    if (step.primitive == Primitive::kInput) {
      std::int32_t& place = input_places[at(step.input)];
      if (place < 0) {
        place = static_cast<std::int32_t>(inputs.size());
        inputs.push_back(sweep.inputs[at(step.input)]);
      }
      step.input = place;
    }
    places[i] = static_cast<std::int32_t>(steps.size());
    steps.push_back(step);
  }
  for (Sink& sink : sweep.sinks) sink.step = places[at(sink.step)];
  sweep.steps = std::move(steps);
  sweep.inputs = std::move(inputs);
}

}  // namespace fuseblock
