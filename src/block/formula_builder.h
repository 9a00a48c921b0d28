// Makes formulas step by step: every step is made once, however often it is asked for.
#pragma once

#include <map>
#include <tuple>
#include <vector>

#include "fuseblock/formula.h"

namespace fuseblock {

class FormulaBuilder {
 public:
  using Id = std::int32_t;

  Id constant(double value);
  Id input(int number);
  // Applies a primitive as it is written; only the sign of a constant is folded, so that `-3` is a constant.
  Id apply(Primitive primitive, Id a, Id b = -1, Id c = -1);
  // Applies a primitive and folds what is exact for every value of the operands: constants, x * 1, x / 1, a
  // selection that a constant decides or whose branches are equal, a comparison that holds for no value the operands
  // can have (`tanh(x) >= 3`; one that always holds stays, because it does not for NaN).
  Id apply_folded(Primitive primitive, Id a, Id b = -1, Id c = -1);
  // In addition leaves out terms that are absent: + 0, - 0, * 0, 0 / x.
  Id apply_derived(Primitive primitive, Id a, Id b = -1, Id c = -1);
  // All steps of a formula with its inputs replaced, folded; returns the id of its result.
  Id insert(const Formula& formula, std::span<const Id> inputs);

  const Formula::Step& step(Id id) const { return steps_[static_cast<std::size_t>(id)]; }
  bool is_constant(Id id) const { return step(id).primitive == Primitive::kConstant; }
  bool is_constant(Id id, double value) const { return is_constant(id) && step(id).constant == value; }
  // The formula whose result is `root`: its steps alone, in the order of a walk from the root, operands from
  // left to right.
  Formula finish(Id root) const;

 private:
  // What a step's result can be if it is not NaN.
  struct Bounds {
    double low;
    double high;
  };

  Id add(const Formula::Step& step);
  Bounds bounds(Id id) const;
  bool never_holds(Primitive comparison, Id a, Id b) const;

  using Key = std::tuple<Primitive, Id, Id, Id, std::int32_t, std::uint64_t>;
  std::vector<Formula::Step> steps_;
  std::map<Key, Id> known_;
};

}  // namespace fuseblock
