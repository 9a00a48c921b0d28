// Reductions, and expand, the adjoint of sum.
//   mean        d_x = d_y / count at every element           sum   d_x = d_y at every element
//   max, min    d_x = d_y (x == y) / (how many are equal)    logsumexp   d_x = d_y exp(x - y)
//   rstd        d_x = -r r h (d_y / count), h = (x - mean) r
#include "block/adjoint.h"
#include "block/geometry.h"

namespace fuseblock {
namespace {

// d_y at every element of x over the number of elements that share it. With groups each result stands at
// every channel of its group: those copies are brought together first, as the mean over the group, since the
// share divides by the rest.
Value shared_out(Adjoint& adjoint, const Node& which, Value d_y) {
  const std::int64_t groups = which.integer("groups");
  if (groups > 1)
    d_y = adjoint.build().apply("mean", {d_y},
                                {{"axes", AxisSet{Axis::kC}}, {"keepdim", true}, {"groups", groups}});
  return adjoint.build().apply("expand", {d_y, adjoint.here(which.operand(0))}, {{"share", true}});
}

}  // namespace

void differentiate_reduction(Adjoint& adjoint, int node, Value d_y) {
  const Node& which = adjoint.forward().block().nodes()[static_cast<std::size_t>(node)];
  const Value x = which.operand(0);
  if (!adjoint.needs(x)) return;
  const Value x_here = adjoint.here(x);
  const Value y_here = adjoint.here(which.result);
  const StatisticsGeometry statistics = which.operation->code == OpCode::kExpand
                                            ? StatisticsGeometry{}
                                            : statistics_geometry(adjoint.forward(), node);
  switch (which.operation->code) {
    case OpCode::kMean: adjoint.add(x, shared_out(adjoint, which, d_y)); return;
    case OpCode::kSum: adjoint.add(x, adjoint.build().apply("expand", {d_y, x_here})); return;
    case OpCode::kMax:
    case OpCode::kMin: {
      const Value ties = adjoint.formula("x == y", {{"x", x_here}, {"y", y_here}});
      const Value count = adjoint.build().apply(
          "sum", {ties}, {{"axes", statistics.axes}, {"keepdim", which.flag("keepdim")}});
      adjoint.add(x, adjoint.formula("dy * t / k", {{"dy", d_y}, {"t", ties}, {"k", count}}));
      return;
    }
    case OpCode::kLogSumExp:
      adjoint.add(x, adjoint.formula("dy * exp(x - y)", {{"dy", d_y}, {"x", x_here}, {"y", y_here}}));
      return;
    case OpCode::kRstd: {
      const Value mean = adjoint.build().apply(
          "mean", {x_here}, {{"axes", statistics.axes}, {"keepdim", true}, {"groups", statistics.groups}});
      adjoint.add(x,
                  adjoint.formula(
                      "-(r * r * r * (x - m) * e)",
                      {{"r", y_here}, {"x", x_here}, {"m", mean}, {"e", shared_out(adjoint, which, d_y)}}));
      return;
    }
    case OpCode::kExpand:
      adjoint.add_reduced(x, d_y, adjoint.forward().type(which.result), which.flag("share"));
      return;
    default: throw InternalError("not a reduction: " + which.operation->name);
  }
}

}  // namespace fuseblock
