// fuseblock demo: the four reference blocks on the best engine there is, at extents that take it well under a
// second each.
#include <algorithm>
#include <array>
#include <chrono>

#include <nlohmann/json.hpp>

#include "commands.h"
#include "data.h"
#include "execution.h"
#include "fuseblock/reference_blocks.h"
#include "table.h"

namespace fuseblock::cli {
namespace {

constexpr std::array<const char*, 4> kBlocks = {"conv3d_gn_mean", "conv_transpose3d_relu_gn",
                                                "conv3d_hardswish_gn_mean",
                                                "conv2d_gn_tanh_hardswish_residual_lse"};
constexpr double kOperationBudget = 1.5e8;  // a few tenths of a second on the reference engine

struct Row {
  std::string block;
  TensorType input;
  TensorType output;
  double seconds = 0;
};

// The users' input made smaller: first the batch, then the positions.
TensorType reduced_input(const Block& block, TensorType type) {
  while (operation_count(TypedBlock::infer(block, type)) > kOperationBudget) {
    const auto first = type.extents.begin();
    if (*first > 1) {
      *first /= 2;
    } else if (*std::max_element(first + 2, type.extents.end()) > 8) {
      for (auto extent = first + 2; extent != type.extents.end(); ++extent)
        *extent = std::max<std::int64_t>(*extent / 2, 6);
    } else {
      break;
    }
  }
  return type;
}

Row run_one(const std::string& name) {
  const ReferenceBlock* reference = find_reference_block(name);
  if (reference == nullptr) throw InternalError("the reference block " + name + " is missing");
  const Block block = Block::parse(reference->notation);
  const TensorType input = reduced_input(block, TensorType::parse(reference->input));
  const Plan plan = Plan::make(block, input, {}, Device::best());
  const TensorMap arguments = generate_arguments(plan.block(), 0);
  Execution execution(plan, {&arguments});
  const auto begin = std::chrono::steady_clock::now();
  execution.run();
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  return {name, input, plan.outputs().front().type, seconds};
}

constexpr const char* kNext = R"(
What to try next:
  fuseblock explain @conv3d_gn_mean                                what a block computes, its parameters, its cost
  fuseblock run "group_norm(4) | silu" --input 'f32[2,8,16,16]'    a block of your own
  fuseblock check @conv3d_hardswish_gn_mean --small                are its results and gradients right?
  fuseblock ops                                                    everything a block may be made of
  make test                                                        all tests, with PyTorch beside
)";

}  // namespace

int run_demo(const Console& console) {
  std::vector<Row> rows;
  for (std::size_t i = 0; i < kBlocks.size(); ++i) {
    console.progress("running " + std::string(kBlocks[i]) + " (" + std::to_string(i + 1) + " of " +
                     std::to_string(kBlocks.size()) + ")");
    rows.push_back(run_one(kBlocks[i]));
  }
  console.progress("");
  const Device device = Device::best();
  if (console.json()) {
    Json json;
    json["engine"] = device.name();
    json["rows"] = Json::array();
    for (const Row& row : rows)
      json["rows"].push_back({{"block", row.block},
                              {"input", to_string(row.input)},
                              {"output", to_string(row.output)},
                              {"milliseconds", row.seconds * 1e3}});
    console.print_json(json);
    return kSuccess;
  }
  Table table({{"block"}, {"input"}, {"output"}, {"time", true}});
  for (const Row& row : rows)
    table.add({row.block, to_string(row.input), to_string(row.output), time_text(row.seconds)});
  console.print("The reference blocks, made small, on the " + device.name() + " engine:\n\n" +
                table.text(console) + kNext);
  return kSuccess;
}

}  // namespace fuseblock::cli
