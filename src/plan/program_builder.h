// Makes the program of a sweep: the formulas of all parts it needs as one list of steps, equal steps made once.
#pragma once

#include <functional>
#include <map>
#include <vector>

#include "block/formula_builder.h"
#include "plan/graph.h"

namespace fuseblock {

class ProgramBuilder {
 public:
  // `is_read` tells whether the program reads a part rather than computing it, `slot_of` from which slot (-1 for the
  // element of the sweep's source).
  ProgramBuilder(const Graph& graph, std::function<bool(int)> is_read, std::function<int(int)> slot_of)
      : graph_(graph), is_read_(std::move(is_read)), slot_of_(std::move(slot_of)) {}

  // Has the program compute a part.
  void want(int part);
  // The steps in order, and where each wanted part ended up, in the order of the calls.
  std::vector<std::int32_t> finish(std::vector<Formula::Step>& steps) const;
  // The slots that the program's inputs are read from.
  const std::vector<int>& inputs() const { return inputs_; }

 private:
  const Graph& graph_;
  std::function<bool(int)> is_read_;
  std::function<int(int)> slot_of_;
  FormulaBuilder builder_;
  std::map<int, FormulaBuilder::Id> ids_;
  std::vector<FormulaBuilder::Id> roots_;
  std::vector<int> inputs_;
};

// The parts that a program for `part` reads, given which ones are read rather than computed.
std::vector<int> parts_read(const Graph& graph, int part, const std::function<bool(int)>& is_read);

}  // namespace fuseblock
