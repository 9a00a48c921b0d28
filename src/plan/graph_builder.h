// Makes the parts of a lowered block; equal parts are made once.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "plan/graph.h"

namespace fuseblock {

class GraphBuilder {
 public:
  // Each returns the number of the part.
  int argument(Value value, const Extents& extents, std::string name);
  // A formula over parts. Its extents are those the operands broadcast to, or larger where given.
  int pointwise(const Formula& formula, std::vector<int> operands);
  int pointwise(const Formula& formula, std::vector<int> operands, const Extents& extents);
  // The formula of a text whose names are a, b, c, ... for the operands in order.
  int formula(std::string_view text, std::vector<int> operands);
  int window(PartKind kind, int node, std::vector<int> operands, const Extents& extents);
  // A statistic over axes (and over c in groups, if `groups` > 1, its result standing at every channel of a
  // group). Where positions are among the axes it is taken for each sample and channel first and merged over
  // n and c afterwards, so that all statistics of one value share one pass.
  int statistic(Statistic statistic, int part, AxisSet axes, std::int64_t groups = 1);
  int component(int statistic, int component);

  // Means and sums, by the shortest way there is: through affine formulas, from moments that are needed
  // anyway.
  int mean(int part, AxisSet axes, std::int64_t groups = 1);
  int sum(int part, AxisSet axes);
  int rstd(int part, AxisSet axes, double eps, std::int64_t groups = 1);

  const Part& operator[](int part) const { return parts_[static_cast<std::size_t>(part)]; }
  Part& at(int part) { return parts_[static_cast<std::size_t>(part)]; }
  // The graph of what the outputs need.
  Graph finish(const std::vector<int>& outputs) const;

 private:
  int add(Part part);
  int reduce(Statistic statistic, int part, AxisSet axes);
  int merge(Statistic statistic, int part, AxisSet axes, std::int64_t groups);
  // The operand that carries all variation of a pointwise part along `axes`, if the formula is affine in it;
  // else -1.
  int affine_operand(int part, AxisSet axes) const;
  // An equal part of the form s w, if there is a factor s that does not vary along `axes`; else the part itself.
  int factored(int part, AxisSet axes);
  // The part itself, or where it repeats a smaller value along some axes that value; and the way back.
  int narrowed(int part);
  int widened(int part, const Extents& extents);
  int find_moments(int part, AxisSet axes, std::int64_t groups) const;

  std::vector<Part> parts_;
  std::map<std::string, int> known_;
  Extents main_ = {0, 0, 0, 0, 0};  // of the main input
};

}  // namespace fuseblock
