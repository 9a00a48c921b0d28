// Gradients by central differences: compare_differences of comparison.h.
#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "comparison.h"
#include "data.h"
#include "execution.h"
#include "table.h"

namespace fuseblock::cli {
namespace {

constexpr int kDirections = 2;
constexpr std::array<double, 4> kSteps = {1e-5, 1e-6, 1e-7, 1e-4};
constexpr double kRelativeBound = 1e-5;
constexpr double kOutputShare = 1e-3;

TensorType in_f64(TensorType type) {
  type.dtype = DType::kF64;
  return type;
}

// The block with a cast to f64 behind each output, since a dtype that the block itself asks for would round
// the differences away, and with all arguments in f64.
TypedBlock in_f64(const TypedBlock& block) {
  std::string statements = block.block().to_statements();
  statements.erase(statements.rfind("return "));
  std::vector<std::string> outputs;
  for (const NamedType& output : block.outputs()) {
    outputs.push_back(output.name + "_f64");
    while (block.block().find(outputs.back())) outputs.back() += "_";
    statements += outputs.back() + " = cast(" + output.name + ", f64); ";
  }
  TypeMap others;
  for (const NamedType& argument : block.arguments())
    if (argument.name != "x") others.emplace(argument.name, in_f64(argument.type));
  return TypedBlock::infer(Block::parse(statements + "return " + join(outputs, ", ")),
                           in_f64(block.type(Value{0})), others);
}

TensorMap in_f64(const TensorMap& tensors) {
  TensorMap result;
  for (const auto& [name, tensor] : tensors) result.emplace(name, converted(tensor, in_f64(tensor.type())));
  return result;
}

// The gradients of a block's outputs as those of its f64 twin.
TensorMap output_gradients_in_f64(const TypedBlock& block, const TypedBlock& exact,
                                  const TensorMap& gradients) {
  TensorMap result;
  const std::vector<NamedType> names = output_gradients(block);
  const std::vector<NamedType> exact_names = output_gradients(exact);
  for (std::size_t i = 0; i < names.size(); ++i)
    result.emplace(exact_names[i].name,
                   converted(gradients.find(names[i].name)->second, exact_names[i].type));
  return result;
}

double dot(const Tensor& a, const Tensor& b) {
  double sum = 0;
  for (std::int64_t i = 0; i < a.type().element_count(); ++i) sum += a.get(i) * b.get(i);
  return sum;
}

// Everything in f64: the forward plan bound to `arguments`, one of which is moved about.
class Differences {
 public:
  Differences(const TypedBlock& block, TensorMap arguments, TensorMap gradients_of_outputs)
      : arguments_(std::move(arguments)),
        output_gradients_(std::move(gradients_of_outputs)),
        forward_(Plan::make(block, Device::reference()), {&arguments_}) {
    const std::vector<NamedType> names = output_gradients(block);
    for (std::size_t i = 0; i < names.size(); ++i)
      pairs_.emplace_back(&output_gradients_.find(names[i].name)->second,
                          &forward_.outputs().find(block.outputs()[i].name)->second);
    forward_.run();
    for (const auto& [gradient, output] : pairs_)
      for (std::int64_t i = 0; i < output->type().element_count(); ++i)
        magnitude_ += std::abs(gradient->get(i) * output->get(i));
  }

  TensorMap gradients(const TypedBlock& backward) const {
    return outputs_of(Plan::make(backward, Device::reference()), {&output_gradients_, &arguments_});
  }

  // The sum over |d_o * o|.
  double magnitude() const { return magnitude_; }
  const Tensor& argument(const std::string& name) const { return arguments_.find(name)->second; }

  // The slope of the sum over d_o * o along a direction of one argument.
  double slope(const std::string& name, const Tensor& direction, double step) {
    Tensor& tensor = arguments_.find(name)->second;
    const Tensor centre = converted(tensor, tensor.type());
    const double above = objective(tensor, centre, direction, step);
    const double below = objective(tensor, centre, direction, -step);
    move(tensor, centre, direction, 0);
    return (above - below) / (2 * step);
  }

 private:
  static void move(Tensor& tensor, const Tensor& centre, const Tensor& direction, double step) {
    for (std::int64_t i = 0; i < tensor.type().element_count(); ++i)
      tensor.set(i, centre.get(i) + step * direction.get(i));
  }

  double objective(Tensor& tensor, const Tensor& centre, const Tensor& direction, double step) {
    move(tensor, centre, direction, step);
    forward_.run();
    double sum = 0;
    for (const auto& [gradient, output] : pairs_) sum += dot(*gradient, *output);
    return sum;
  }

  TensorMap arguments_;
  TensorMap output_gradients_;
  Execution forward_;
  std::vector<std::pair<const Tensor*, const Tensor*>> pairs_;  // d_o, o
  double magnitude_ = 0;
};

Tensor direction_along(const Tensor& tensor, std::uint64_t seed, const std::string& name) {
  const Stream stream(seed, name);
  Tensor direction(tensor.type());
  for (std::int64_t i = 0; i < tensor.type().element_count(); ++i) {
    const double size = std::abs(tensor.get(i));
    direction.set(i, stream.normal(i) * (size > 0 ? size : 1));
  }
  return direction;
}

// The size of the sum over d_t * v for a random direction v.
double expected_size(const Tensor& gradient, const Tensor& tensor) {
  double sum = 0;
  for (std::int64_t i = 0; i < gradient.type().element_count(); ++i) {
    const double size = std::abs(tensor.get(i));
    sum += std::pow(gradient.get(i) * (size > 0 ? size : 1), 2);
  }
  return std::sqrt(sum);
}

Comparison compare_one(Differences& differences, const NamedType& gradient_type, const std::string& name,
                       const Tensor& gradient, std::uint64_t seed, double tolerance) {
  Comparison comparison{gradient_type.name, gradient_type.type};
  const double size =
      expected_size(gradient, differences.argument(name)) + kOutputShare * differences.magnitude();
  comparison.bound = tolerance * kRelativeBound * size;
  for (int i = 0; i < kDirections; ++i) {
    const Tensor direction =
        direction_along(differences.argument(name), seed, name + "/" + std::to_string(i));
    const double derived = dot(gradient, direction);
    double error = std::numeric_limits<double>::infinity();
    for (double step : kSteps) {
      const double measured = differences.slope(name, direction, step);
      if (std::isfinite(measured)) error = std::min(error, std::abs(measured - derived));
      if (!std::isfinite(derived) || error <= comparison.bound) break;
    }
    comparison.max_abs_error = std::max(comparison.max_abs_error, error);
  }
  comparison.max_rel_error = comparison.max_abs_error == 0 ? 0 : comparison.max_abs_error / size;
  comparison.ok = comparison.max_abs_error <= comparison.bound;
  return comparison;
}

}  // namespace

std::vector<Comparison> compare_differences(const TypedBlock& block, const TensorMap& arguments,
                                            const TensorMap& gradients_of_outputs,
                                            const std::vector<std::string>& wanted, std::uint64_t seed,
                                            double tolerance, const Console& console) {
  const TypedBlock exact = in_f64(block);
  const std::vector<std::string> names = wanted.empty() ? block.differentiable() : wanted;
  const TypedBlock exact_backward = exact.backward(names);
  const std::vector<NamedType> types = block.backward(names).outputs();
  const std::vector<NamedType> exact_types = exact_backward.outputs();
  Differences differences(exact, in_f64(arguments),
                          output_gradients_in_f64(block, exact, gradients_of_outputs));
  const TensorMap gradients = differences.gradients(exact_backward);

  std::vector<Comparison> result;
  for (std::size_t i = 0; i < names.size(); ++i) {
    console.progress("checking the gradient of " + names[i] + " (" + std::to_string(i + 1) + " of " +
                     std::to_string(names.size()) + ")");
    const Tensor& gradient = gradients.find(exact_types[i].name)->second;
    const Statistics found = statistics(gradient);
    if (std::isfinite(differences.magnitude()) && found.nan_count + found.inf_count == 0) {
      result.push_back(compare_one(differences, types[i], names[i], gradient, seed, tolerance));
    } else {
      result.push_back({types[i].name, types[i].type});
      result.back().skipped = true;
    }
  }
  console.progress("");
  return result;
}

}  // namespace fuseblock::cli
