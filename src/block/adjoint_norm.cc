// Norms. With h the normalised value, r its scale, u = weight * d_y and M the mean over the elements of one
// statistic:
//   group, instance, layer   d_x = r (u - M(u) - h M(u h))        d_weight = sum(d_y h)     d_bias = sum(d_y)
//   rms                      d_x = r (u - h M(u h))
//   batch (evaluation)       d_x = u / sqrt(running_var + eps)
//   l2_normalize             d_x = d_y / m - (x / n) (sum(d_y y) / m) where the norm n counts, m = max(n, eps)
//   softmax                  d_x = y (d_y - sum(d_y y))
#include "block/adjoint.h"
#include "block/geometry.h"

namespace fuseblock {
namespace {

class NormRule {
 public:
  NormRule(Adjoint& adjoint, int node, Value d_y)
      : adjoint_(adjoint),
        node_(node),
        which_(adjoint.forward().block().nodes()[static_cast<std::size_t>(node)]),
        statistics_(statistics_geometry(adjoint.forward(), node)),
        x_(which_.operand(0)),
        d_y_(d_y) {}

  void run() {
    switch (which_.operation->code) {
      case OpCode::kGroupNorm:
      case OpCode::kInstanceNorm:
      case OpCode::kLayerNorm: centred(); return;
      case OpCode::kRmsNorm: root_mean_square(); return;
      case OpCode::kBatchNorm: batch(); return;
      case OpCode::kL2Normalize: l2_normalize(); return;
      case OpCode::kSoftmax: softmax(); return;
      default: throw InternalError("not a norm: " + which_.operation->name);
    }
  }

 private:
  void centred() {
    const Value h = normalised();
    if (adjoint_.needs(x_)) {
      const Value r = adjoint_.build().apply(
          "rstd", {x()},
          {{"axes", statistics_.axes}, {"eps", statistics_.eps}, {"groups", statistics_.groups}});
      const Value u = weighted();
      const Value u_h = adjoint_.formula("u * hat", {{"u", u}, {"hat", h}});
      adjoint_.add(x_,
                   adjoint_.formula(
                       "r * (u - a - hat * b)",
                       {{"r", r}, {"u", u}, {"hat", h}, {"a", grouped_mean(u)}, {"b", grouped_mean(u_h)}}));
    }
    parameters(h, 1);
  }

  void root_mean_square() {
    const Value h = normalised();
    if (adjoint_.needs(x_)) {
      const Value mean_square = grouped_mean(adjoint_.formula("x * x", {{"x", x()}}));
      const Value u = weighted();
      const Value u_h = adjoint_.formula("u * hat", {{"u", u}, {"hat", h}});
      adjoint_.add(x_, adjoint_.formula("(u - hat * b) / sqrt(s + eps)", {{"s", mean_square},
                                                                          {"u", u},
                                                                          {"hat", h},
                                                                          {"b", grouped_mean(u_h)},
                                                                          {"eps", statistics_.eps}}));
    }
    parameters(h, 1);
  }

  void batch() {
    if (adjoint_.needs(which_.operand(1)) || adjoint_.needs(which_.operand(2)))
      adjoint_.forward().block().fail_unsupported(
          node_, "a gradient through running statistics is wanted; they count as constants");
    const Value mean = adjoint_.here(which_.operand(1));
    const Value variance = adjoint_.here(which_.operand(2));
    if (adjoint_.needs(x_))
      adjoint_.add(x_, adjoint_.formula("u / sqrt(v + eps)",
                                        {{"u", weighted()}, {"v", variance}, {"eps", statistics_.eps}}));
    if (which_.flag("affine") && adjoint_.needs(which_.operand(3)))
      parameters(adjoint_.formula("(x - m) / sqrt(v + eps)",
                                  {{"x", x()}, {"m", mean}, {"v", variance}, {"eps", statistics_.eps}}),
                 3);
    else
      parameters(x(), 3);
  }

  void l2_normalize() {
    if (!adjoint_.needs(x_)) return;
    const Value square_sum = sum(adjoint_.formula("x * x", {{"x", x()}}));
    const Value n = adjoint_.formula("sqrt(s)", {{"s", square_sum}});
    const Value m =
        adjoint_.formula("select(norm < eps, eps, norm)", {{"norm", n}, {"eps", statistics_.eps}});
    const Value y = adjoint_.here(which_.result);
    const Value t = sum(adjoint_.formula("dy * y", {{"dy", d_y_}, {"y", y}}));
    adjoint_.add(x_,
                 adjoint_.formula(
                     "dy / m - select(norm < eps, 0, x / norm * (t / m))",
                     {{"dy", d_y_}, {"m", m}, {"norm", n}, {"eps", statistics_.eps}, {"x", x()}, {"t", t}}));
  }

  void softmax() {
    if (!adjoint_.needs(x_)) return;
    const Value y = adjoint_.here(which_.result);
    const Value t = sum(adjoint_.formula("dy * y", {{"dy", d_y_}, {"y", y}}));
    adjoint_.add(x_, adjoint_.formula("y * (dy - t)", {{"y", y}, {"dy", d_y_}, {"t", t}}));
  }

  Value x() const { return adjoint_.here(x_); }

  // The norm without weight and bias.
  Value normalised() {
    if (!which_.flag("affine")) return adjoint_.here(which_.result);
    Builder::NamedArguments arguments = named_arguments(which_);
    for (auto& [name, value] : arguments)
      if (name == "affine") value = false;
    const std::string& stage = adjoint_.forward().block().value(which_.result).name;
    return adjoint_.build().apply(which_.operation->name, {x()}, arguments,
                                  adjoint_.build().free_name(stage + "_hat"));
  }

  // weight * d_y, or d_y where there is no weight.
  Value weighted() {
    if (!which_.flag("affine")) return d_y_;
    const int weight = which_.operation->code == OpCode::kBatchNorm ? 3 : 1;
    return adjoint_.formula("dy * weight", {{"dy", d_y_}, {"weight", adjoint_.here(which_.operand(weight))}});
  }

  Value grouped_mean(Value value) {
    return adjoint_.build().apply(
        "mean", {value}, {{"axes", statistics_.axes}, {"keepdim", true}, {"groups", statistics_.groups}});
  }

  Value sum(Value value) {
    return adjoint_.build().apply("sum", {value}, {{"axes", statistics_.axes}, {"keepdim", true}});
  }

  // The gradients of weight (operand `first`) and bias (the next one), where there are such.
  void parameters(Value h, int first) {
    const TensorType& type = adjoint_.forward().type(which_.result);
    const int count = static_cast<int>(which_.operands.size());
    if (first < count && adjoint_.needs(which_.operand(first)))
      adjoint_.add_reduced(which_.operand(first), adjoint_.formula("dy * hat", {{"dy", d_y_}, {"hat", h}}),
                           type);
    if (first + 1 < count) adjoint_.add_reduced(which_.operand(first + 1), d_y_, type);
  }

  Adjoint& adjoint_;
  int node_;
  const Node& which_;
  StatisticsGeometry statistics_;
  Value x_;
  Value d_y_;
};

}  // namespace

void differentiate_norm(Adjoint& adjoint, int node, Value d_y) { NormRule(adjoint, node, d_y).run(); }

}  // namespace fuseblock
