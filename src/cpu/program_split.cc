#include "cpu/program_split.h"

#include <algorithm>

namespace fuseblock::cpu {
namespace {

std::size_t at(std::int32_t i) { return static_cast<std::size_t>(i); }

class Splitter {
 public:
  Splitter(std::span<const Formula::Step> steps, std::span<const Variation> inputs)
      : steps_(steps), variations_(steps.size()) {
    for (std::size_t i = 0; i < steps.size(); ++i) {
      Variation& variation = variations_[i];
      if (steps[i].primitive == Primitive::kInput) variation = inputs[at(steps[i].input)];
      for (std::int32_t operand : {steps[i].a, steps[i].b, steps[i].c}) {
        if (operand < 0) continue;
        variation.channels = variation.channels || variations_[at(operand)].channels;
        variation.positions = variation.positions || variations_[at(operand)].positions;
      }
    }
  }

  ProgramSplit run(const std::vector<int>& wanted) const {
    ProgramSplit split;
    const std::vector<bool> needed = closure(wanted, true);
    std::vector<int> by_channel;
    std::vector<int> by_position;
    for (std::size_t i = 0; i < steps_.size(); ++i) {
      if (!needed[i] || !is_cut(i)) continue;
      (variations_[i].positions ? by_position : by_channel).push_back(static_cast<int>(i));
      if (!variations_[i].positions) split.channel_varies.push_back(variations_[i].channels);
    }
    split.by_channel = part(closure(by_channel, false), by_channel, {});
    split.by_position = part(closure(by_position, false), by_position, {});
    by_channel.insert(by_channel.end(), by_position.begin(), by_position.end());
    split.rest = part(needed, wanted, by_channel);
    return split;
  }

 private:
  // Whether the rest takes the step from another part. Numbers that the program knows are its own.
  bool is_cut(std::size_t i) const {
    const Variation& variation = variations_[i];
    return steps_[i].primitive != Primitive::kConstant && !(variation.channels && variation.positions);
  }

  // Everything that the wanted steps need; with `cuts`, no further than to steps that are cut.
  std::vector<bool> closure(const std::vector<int>& wanted, bool cuts) const {
    std::vector<bool> needed(steps_.size(), false);
    for (int step : wanted) needed[at(step)] = true;
    for (std::size_t i = steps_.size(); i-- > 0;) {
      if (!needed[i] || (cuts && is_cut(i))) continue;
      for (std::int32_t operand : {steps_[i].a, steps_[i].b, steps_[i].c})
        if (operand >= 0) needed[at(operand)] = true;
    }
    return needed;
  }

  // The needed steps, those in `given` as further inputs.
  ProgramPart part(const std::vector<bool>& needed, const std::vector<int>& wanted,
                   const std::vector<int>& given) const {
    ProgramPart part;
    auto place_of = [](const std::vector<int>& list, int value) {
      return static_cast<std::int32_t>(std::find(list.begin(), list.end(), value) - list.begin());
    };
    auto is_given = [&](std::size_t i) {
      return std::find(given.begin(), given.end(), static_cast<int>(i)) != given.end();
    };
    for (std::size_t i = 0; i < steps_.size(); ++i)
      if (needed[i] && steps_[i].primitive == Primitive::kInput && !is_given(i) &&
          std::find(part.inputs.begin(), part.inputs.end(), steps_[i].input) == part.inputs.end())
        part.inputs.push_back(steps_[i].input);
    std::vector<std::int32_t> places(steps_.size(), -1);
    for (std::size_t i = 0; i < steps_.size(); ++i) {
      if (!needed[i]) continue;
      Formula::Step step = steps_[i];
      if (is_given(i)) {
        step = {};
        step.primitive = Primitive::kInput;
        step.input = static_cast<std::int32_t>(part.inputs.size()) + place_of(given, static_cast<int>(i));
      } else if (step.primitive == Primitive::kInput) {
        step.input = place_of(part.inputs, step.input);
      }
      for (std::int32_t* operand : {&step.a, &step.b, &step.c})
        if (*operand >= 0) *operand = places[at(*operand)];
      places[i] = static_cast<std::int32_t>(part.steps.size());
      part.steps.push_back(step);
    }
    for (int step : wanted) part.wanted.push_back(places[at(step)]);
    return part;
  }

  std::span<const Formula::Step> steps_;
  std::vector<Variation> variations_;
};

}  // namespace

ProgramSplit split_program(std::span<const Formula::Step> steps, std::span<const Variation> inputs,
                           const std::vector<int>& wanted) {
  return Splitter(steps, inputs).run(wanted);
}

}  // namespace fuseblock::cpu
