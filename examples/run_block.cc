// Runs a block once: notation, plan, memory, result.
//
// The input is an image with a bright square and the parameters are made by hand, so that the result can be followed: both
// channels of the convolution have the mean 1, the norm takes it away and adds its bias, the residual brings it back.
#include <cstdint>
#include <iostream>
#include <map>
#include <string>
#include <vector>

#include <fuseblock/fuseblock.h>

namespace {

using fuseblock::Tensor;

void fill(Tensor& tensor, double value) {
  for (std::int64_t i = 0; i < tensor.type().element_count(); ++i) tensor.set(i, value);
}

}  // namespace

int main() {
  // What to compute: docs/notation.md describes the notation.
  const std::string text = "conv2d(2, k=3, pad=1) as y | group_norm(1) | add(y) | mean(h,w)";
  const auto block = fuseblock::Block::parse(text);

  // How to compute it, for one input type. Every mistake in block and types is found here.
  const auto plan = fuseblock::Plan::make(block, "f32[1,1,6,6]");
  std::cout << "block   " << block.to_string() << "\nengine  " << plan.device().name() << "\n";

  // A tensor for each input and parameter; fresh ones hold zeros.
  std::map<std::string, Tensor> tensors;
  for (const auto& [name, type] : plan.inputs()) {
    std::cout << "takes   " << name << " " << to_string(type) << "\n";
    tensors.emplace(name, Tensor(type));
  }
  for (int h = 2; h < 4; ++h)
    for (int w = 2; w < 4; ++w) tensors["x"].set(h * 6 + w, 9);
  // Channel 0 is the mean of each 3 x 3 window, channel 1 the image itself.
  for (int tap = 0; tap < 9; ++tap) tensors["y.weight"].set(tap, 1.0 / 9);
  tensors["y.weight"].set(9 + 4, 1);
  fill(tensors["group_norm.weight"], 1);
  tensors["group_norm.bias"].set(1, 10);

  // `bind` puts the tensors into the plan's order. The run itself allocates nothing, and can be repeated.
  std::map<std::string, fuseblock::ConstTensorView, std::less<>> inputs;
  for (const auto& [name, tensor] : tensors) inputs.emplace(name, tensor.view());
  Tensor mean(plan.outputs()[0].type);
  fuseblock::Workspace workspace(plan.workspace_bytes());
  plan.run(plan.bind(inputs, {{"mean", mean.view()}}), workspace.bytes());

  std::cout << "gives   mean " << to_string(mean.type()) << " = " << mean.get(0) << ", " << mean.get(1)
            << "\n";
  std::cout << "\n";

  // A mistake is reported with its place in the notation.
  try {
    fuseblock::Plan::make(fuseblock::Block::parse("conv2d(24, k=3) | group_norm(7)"), "f32[1,3,8,8]");
  } catch (const fuseblock::UserError& error) {
    std::cout << error.report() << "\n";
  }
  return 0;
}
