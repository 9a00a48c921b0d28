#include "plan/program_builder.h"

#include <algorithm>

namespace fuseblock {
namespace {

std::size_t at(int i) { return static_cast<std::size_t>(i); }

// A part and all that it is computed from, down to what is read.
std::vector<int> parts_needed(const Graph& graph, int part, const std::function<bool(int)>& is_read) {
  std::vector<int> needed = {part};
  std::vector<bool> seen(graph.parts.size(), false);
  seen[at(part)] = true;
  for (std::size_t i = 0; i < needed.size(); ++i) {
    if (is_read(needed[i])) continue;
    for (int operand : graph[needed[i]].operands) {
      if (seen[at(operand)]) continue;
      seen[at(operand)] = true;
      needed.push_back(operand);
    }
  }
  return needed;
}

}  // namespace

std::vector<int> parts_read(const Graph& graph, int part, const std::function<bool(int)>& is_read) {
  std::vector<int> result;
  for (int needed : parts_needed(graph, part, is_read))
    if (is_read(needed)) result.push_back(needed);
  return result;
}

void ProgramBuilder::want(int part) {
  // Parts are numbered after their operands, so that one pass in order does it.
  std::vector<int> needed = parts_needed(graph_, part, is_read_);
  std::sort(needed.begin(), needed.end());
  for (int which : needed) {
    if (ids_.contains(which)) continue;
    if (is_read_(which)) {
      const int slot = slot_of_(which);
      auto place = std::find(inputs_.begin(), inputs_.end(), slot);
      if (place == inputs_.end()) place = inputs_.insert(inputs_.end(), slot);
      ids_[which] = builder_.input(static_cast<int>(place - inputs_.begin()));
    } else {
      std::vector<FormulaBuilder::Id> operands;
      for (int operand : graph_[which].operands) operands.push_back(ids_.at(operand));
      ids_[which] = builder_.insert(graph_[which].formula, operands);
    }
  }
  roots_.push_back(ids_.at(part));
}

std::vector<std::int32_t> ProgramBuilder::finish(std::vector<Formula::Step>& steps) const {
  const FormulaBuilder::Id last = roots_.empty() ? -1 : *std::max_element(roots_.begin(), roots_.end());
  std::vector<bool> needed(at(last + 1), false);
  for (FormulaBuilder::Id root : roots_) needed[at(root)] = true;
  for (FormulaBuilder::Id id = last; id >= 0; --id) {
    if (!needed[at(id)]) continue;
    for (std::int32_t operand : {builder_.step(id).a, builder_.step(id).b, builder_.step(id).c})
      if (operand >= 0) needed[at(operand)] = true;
  }
  std::vector<std::int32_t> place(at(last + 1), -1);
  for (FormulaBuilder::Id id = 0; id <= last; ++id) {
    if (!needed[at(id)]) continue;
    Formula::Step step = builder_.step(id);
    for (std::int32_t* operand : {&step.a, &step.b, &step.c})
      if (*operand >= 0) *operand = place[at(*operand)];
    place[at(id)] = static_cast<std::int32_t>(steps.size());
    steps.push_back(step);
  }
  std::vector<std::int32_t> result;
  for (FormulaBuilder::Id root : roots_) result.push_back(place[at(root)]);
  return result;
}

}  // namespace fuseblock
