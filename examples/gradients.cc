// Trains a small block: a block made by the builder, its backward plan, steps down the gradient.
//
// The block convolves an image, normalises, and measures the distance to a target image; the loss is part of the block.
// The target is the same block's own output for other parameters, so the loss can come close to 0.
#include <cmath>
#include <cstdint>
#include <iostream>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include <fuseblock/fuseblock.h>

namespace {

using fuseblock::Block;
using fuseblock::Builder;
using fuseblock::Plan;
using fuseblock::Tensor;
using fuseblock::Value;
using Tensors = std::map<std::string, Tensor>;

struct alignas(64) Line {
  std::byte bytes[64];
};

// y = silu(group_norm(conv2d(x))); with_loss: the mean of (y - target)^2, else y itself.
Block make_block(bool with_loss) {
  Builder build;
  Value y = build.apply("conv2d", {build.x()}, {{"channels", 4}, {"k", 3}});
  y = build.apply("group_norm", {y}, {{"groups", 2}});
  y = build.apply("silu", {y}, {}, "y");
  if (!with_loss) return build.finish({y});
  // `target` is a name that was not introduced, so it becomes an extra input.
  const Value square = build.formula("(y - target) * (y - target)", "square");
  return build.finish({build.apply("mean", {square}, {}, "loss")});
}

// The outputs of a plan, by name. `known` has all it takes.
Tensors run(const Plan& plan, const Tensors& known) {
  fuseblock::Arguments arguments;
  for (const auto& [name, type] : plan.inputs()) arguments.inputs.push_back(known.at(name).view());
  Tensors outputs;
  for (const auto& [name, type] : plan.outputs())
    arguments.outputs.push_back(outputs.emplace(name, Tensor(type)).first->second.view());
  fuseblock::Workspace workspace(plan.workspace_bytes());
  plan.run(arguments, workspace.bytes());
  return outputs;
}

// Some smooth numbers around `centre`.
void fill(Tensor& tensor, double centre, double phase) {
  for (std::int64_t i = 0; i < tensor.type().element_count(); ++i)
    tensor.set(i, centre + 0.5 * std::sin(1.7 * static_cast<double>(i) + phase));
}

}  // namespace

int main() {
  const Block block = make_block(true);
  std::cout << block.to_string() << "\n\n";

  const Plan plan = Plan::make(block, "f64[1,2,8,8]");
  // The gradients of the parameters alone: what x and target would need is not computed.
  std::vector<std::string> trained;
  for (const auto& [name, type] : plan.parameters()) trained.push_back(name);
  const Plan backward = plan.backward(trained);

  Tensors tensors;
  for (const auto& [name, type] : plan.inputs()) {
    tensors.emplace(name, Tensor(type));
    fill(tensors[name], 0, 1);
  }
  fill(tensors["group_norm.weight"], 1, 1);
  tensors["target"] = std::move(run(Plan::make(make_block(false), "f64[1,2,8,8]"), tensors)["y"]);

  // Start elsewhere and walk down. The gradient of the loss by itself is 1.
  for (const std::string& name : trained) fill(tensors[name], name == "group_norm.weight" ? 1 : 0, 2);
  tensors.emplace("d_loss", Tensor(plan.outputs()[0].type)).first->second.set(0, 1);
  const double first_loss = run(plan, tensors)["loss"].get(0);
  double loss = first_loss;
  for (int step = 0; step <= 200; ++step) {
    if (step % 50 == 0) {
      loss = run(plan, tensors)["loss"].get(0);
      std::cout << "step " << step << "\tloss " << loss << "\n";
    }
    const Tensors gradients = run(backward, tensors);
    for (const std::string& name : trained) {
      Tensor& parameter = tensors[name];
      const Tensor& gradient = gradients.at("d_" + name);
      for (std::int64_t i = 0; i < parameter.type().element_count(); ++i)
        parameter.set(i, parameter.get(i) - 0.5 * gradient.get(i));
    }
  }
  return loss < 0.01 * first_loss ? 0 : 1;
}
