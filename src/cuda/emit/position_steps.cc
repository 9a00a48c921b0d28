#include "cuda/emit/position_steps.h"

#include <algorithm>
#include <array>

namespace fuseblock::cuda {
namespace {

enum class Level : std::uint8_t { kConstant, kPosition, kElement };

std::size_t at(std::int32_t i) { return static_cast<std::size_t>(i); }

std::array<std::int32_t, 3> operands(const Formula::Step& step) { return {step.a, step.b, step.c}; }

Formula::Step renumbered(Formula::Step step, const std::vector<std::int32_t>& places) {
  for (std::int32_t* operand : {&step.a, &step.b, &step.c})
    if (*operand >= 0) *operand = places[at(*operand)];
  return step;
}

}  // namespace

PositionSteps split_by_channels(const std::vector<Formula::Step>& steps, int inputs,
                                const std::function<bool(int)>& varies,
                                const std::vector<std::int32_t>& taken) {
  std::vector<Level> levels;
  for (const Formula::Step& step : steps) {
    Level level = Level::kConstant;
    if (step.primitive == Primitive::kInput) level = varies(step.input) ? Level::kElement : Level::kPosition;
    for (std::int32_t operand : operands(step))
      if (operand >= 0) level = std::max(level, levels[at(operand)]);
    levels.push_back(level);
  }
  std::vector<bool> wanted(steps.size(), false);
  for (std::int32_t step : taken) wanted[at(step)] = true;
  for (std::size_t i = 0; i < steps.size(); ++i)
    for (std::int32_t operand : operands(steps[i]))
      if (operand >= 0 && levels[i] == Level::kElement) wanted[at(operand)] = true;

  PositionSteps split;
  split.first_result = inputs;
  split.places.assign(steps.size(), -1);
  std::vector<std::int32_t>& position_places = split.position_places;
  position_places.assign(steps.size(), -1);
  for (std::size_t i = 0; i < steps.size(); ++i) {
    if (levels[i] != Level::kElement) {
      position_places[i] = static_cast<std::int32_t>(split.position.size());
      split.position.push_back(renumbered(steps[i], position_places));
    }
    if (levels[i] == Level::kPosition && !wanted[i]) continue;
    Formula::Step own = steps[i];
    if (levels[i] == Level::kPosition) {
      own = {};
      own.primitive = Primitive::kInput;
      own.input = inputs + static_cast<std::int32_t>(split.results.size());
      split.results.push_back(position_places[i]);
    } else {
      own = renumbered(own, split.places);
    }
    split.places[i] = static_cast<std::int32_t>(split.element.size());
    split.element.push_back(own);
  }
  return split;
}

}  // namespace fuseblock::cuda
