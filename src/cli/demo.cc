// fuseblock demo: the four reference blocks with the extents their users have, fused and unfused on the same engine: times,
// memory, and the error against the reference engine; then the plan of one of them in words.
#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>

#include <nlohmann/json.hpp>

#include "commands.h"
#include "comparison.h"
#include "data.h"
#include "execution.h"
#include "fuseblock/reference_blocks.h"
#include "table.h"

namespace fuseblock::cli {
namespace {

constexpr std::array<const char*, 4> kBlocks = {"conv3d_gn_mean", "conv_transpose3d_relu_gn",
                                                "conv3d_hardswish_gn_mean",
                                                "conv2d_gn_tanh_hardswish_residual_lse"};
constexpr const char* kExplained = "conv3d_hardswish_gn_mean";
constexpr double kOperationBudget = 1.2e10;        // of a run: some tenths of a second on two cores
constexpr double kReferenceOperationBudget = 3e8;  // about a second on the reference engine
constexpr std::int64_t kMostSamples = 4;
constexpr int kMostRepeats = 3;
constexpr double kSecondsPerBlock = 2;

struct Row {
  std::string name;
  TensorType input;
  TensorType output;
  std::int64_t users_batch = 0;
  double fused_seconds = 0;
  double unfused_seconds = 0;
  double fused_bytes = 0;
  double unfused_bytes = 0;
  TensorType compared_input;
  Comparison comparison;
  std::string explain;
};

const ReferenceBlock& require_block(const std::string& name) {
  const ReferenceBlock* block = find_reference_block(name);
  if (block == nullptr) throw InternalError("the reference block " + name + " is missing");
  return *block;
}

// Two plans of the same block, and what they need together.
struct Plans {
  Plan fused;
  Plan unfused;

  static Plans make(const Block& block, const TensorType& input) {
    return {Plan::make(block, input), Plan::make(block, input, {}, Device::best(), {.fuse = false})};
  }
  double bytes() const {
    return total_bytes(fused.inputs()) + 2 * total_bytes(fused.outputs()) +
           static_cast<double>(fused.workspace_bytes() + unfused.workspace_bytes());
  }
};

// The users' input, its batch halved until a run is short and the memory suffices.
Plans affordable_plans(const Block& block, TensorType input) {
  std::int64_t& batch = input.extents.front();
  while (batch > 1 && operation_count(TypedBlock::infer(block, input)) > kOperationBudget) batch /= 2;
  for (;; batch /= 2) {
    Plans plans = Plans::make(block, input);
    try {
      require_memory(plans.bytes(), "the demo");
      return plans;
    } catch (const UserError&) {
      if (batch == 1) throw;
    }
  }
}

// As many samples of the input as the reference engine does in about a second; where one takes longer, its positions are
// halved.
TensorType compared_input(const Block& block, TensorType input) {
  const std::int64_t batch = input.extents.front();
  input.extents.front() = 1;
  auto operations = [&] { return operation_count(TypedBlock::infer(block, input)); };
  while (operations() > kReferenceOperationBudget &&
         *std::max_element(input.extents.begin() + 2, input.extents.end()) > 8)
    std::for_each(input.extents.begin() + 2, input.extents.end(),
                  [](std::int64_t& extent) { extent = std::max<std::int64_t>(extent / 2, 6); });
  const auto samples = static_cast<std::int64_t>(kReferenceOperationBudget / operations());
  input.extents.front() = std::clamp<std::int64_t>(samples, 1, std::min(batch, kMostSamples));
  return input;
}

bool same_positions(const TensorType& a, const TensorType& b) {
  return std::equal(a.extents.begin() + 1, a.extents.end(), b.extents.begin() + 1);
}

// The first samples of a batch, which lie one behind the other.
Tensor first_samples(const Tensor& batch, const TensorType& type) {
  Tensor samples(type);
  std::copy_n(batch.data(), type.byte_count(), samples.data());
  return samples;
}

// The output of the run beside that of the reference engine, for the first samples. Generated data is the same whatever the
// batch; where the positions are fewer the engine runs again.
void compare_with_reference(const Block& block, const Tensor& output, Row& row) {
  const TypedBlock part = TypedBlock::infer(block, row.compared_input);
  const TensorMap arguments = generate_arguments(part, 0);
  const NamedType named = part.outputs().front();
  const TensorMap expected = outputs_of(Plan::make(part, Device::reference()), {&arguments});
  const Tensor found =
      same_positions(row.compared_input, row.input)
          ? first_samples(output, named.type)
          : std::move(outputs_of(Plan::make(part, Device::best()), {&arguments}).at(named.name));
  row.comparison = compare(named, expected.at(named.name), found, 1);
}

// Fused and unfused in turns after one run each for warming up: the medians.
void measure(Execution& fused, Execution& unfused, Row& row) {
  using Clock = std::chrono::steady_clock;
  auto seconds_of = [](Execution& execution) {
    const Clock::time_point begin = Clock::now();
    execution.run();
    return std::chrono::duration<double>(Clock::now() - begin).count();
  };
  auto median = [](std::vector<double> times) {
    std::sort(times.begin(), times.end());
    return times[times.size() / 2];
  };
  double total = seconds_of(fused) + seconds_of(unfused);
  std::vector<double> fused_times;
  std::vector<double> unfused_times;
  do {
    fused_times.push_back(seconds_of(fused));
    unfused_times.push_back(seconds_of(unfused));
    total += fused_times.back() + unfused_times.back();
  } while (static_cast<int>(fused_times.size()) < kMostRepeats && total < kSecondsPerBlock);
  row.fused_seconds = median(fused_times);
  row.unfused_seconds = median(unfused_times);
}

Row run_one(const std::string& name, bool small, const std::string& step, const Console& console) {
  const ReferenceBlock& reference = require_block(name);
  const Block block = Block::parse(reference.notation);
  const TensorType users_input = TensorType::parse(small ? reference.small_input : reference.input);
  const Plans plans = affordable_plans(block, users_input);
  Row row;
  row.name = name;
  row.input = plans.fused.inputs().front().type;
  row.output = plans.fused.outputs().front().type;
  row.users_batch = TensorType::parse(reference.input).extents.front();
  row.fused_bytes = static_cast<double>(plans.fused.workspace_bytes());
  row.unfused_bytes = static_cast<double>(plans.unfused.workspace_bytes());
  row.explain = plans.fused.explain();

  console.progress(step + ": making the input");
  const TensorMap arguments = generate_arguments(plans.fused.block(), 0);
  Execution fused(plans.fused, {&arguments});
  Execution unfused(plans.unfused, {&arguments});
  console.progress(step + ": fused and unfused in turns");
  measure(fused, unfused, row);
  console.progress(step + ": comparing with the reference engine");
  row.compared_input = compared_input(block, row.input);
  compare_with_reference(block, fused.outputs().begin()->second, row);
  return row;
}

Json to_json(const Row& row) {
  return {{"block", row.name},
          {"input", to_string(row.input)},
          {"output", to_string(row.output)},
          {"users_batch", row.users_batch},
          {"fused_ms", row.fused_seconds * 1e3},
          {"unfused_ms", row.unfused_seconds * 1e3},
          {"ratio", row.unfused_seconds / row.fused_seconds},
          {"fused_workspace_bytes", static_cast<std::int64_t>(row.fused_bytes)},
          {"unfused_workspace_bytes", static_cast<std::int64_t>(row.unfused_bytes)},
          {"compared_input", to_string(row.compared_input)},
          {"max_abs_error", row.comparison.max_abs_error},
          {"max_rel_error", row.comparison.max_rel_error},
          {"bound", row.comparison.bound},
          {"ok", row.comparison.ok}};
}

std::string ratio_text(double ratio) {
  std::array<char, 32> buffer{};
  std::snprintf(buffer.data(), buffer.size(), "%.2fx", ratio);
  return buffer.data();
}

std::string error_text(double error) {
  std::array<char, 32> buffer{};
  std::snprintf(buffer.data(), buffer.size(), "%.1e", error);
  return buffer.data();
}

std::string table_text(const std::vector<Row>& rows, const Console& console) {
  Table table({{"block"},
               {"input"},
               {"users' batch", true},
               {"fused", true},
               {"unfused", true},
               {"ratio", true},
               {"memory fused", true},
               {"unfused", true},
               {"error", true}});
  for (const Row& row : rows)
    table.add({row.name, to_string(row.input), std::to_string(row.users_batch), time_text(row.fused_seconds),
               time_text(row.unfused_seconds), ratio_text(row.unfused_seconds / row.fused_seconds),
               bytes_text(row.fused_bytes), bytes_text(row.unfused_bytes),
               error_text(row.comparison.max_rel_error)});
  return table.text(console);
}

std::string notes(const std::vector<Row>& rows) {
  std::string text = R"(
fused: as few sweeps over memory as the block allows; unfused: one operation after the other, each result
written to memory. memory: the workspace beside input and output. error: the largest difference from the
reference engine (double precision), relative to the largest value, in the first samples of the batch)";
  for (const Row& row : rows)
    if (!same_positions(row.compared_input, row.input))
      text += ";\nfor " + row.name + " on " + to_string(row.compared_input);
  return text + ".\n";
}

constexpr const char* kNext = R"(
What to try next:
  fuseblock explain @conv3d_gn_mean --backward                     the same for the gradients
  fuseblock run "group_norm(4) | silu" --input 'f32[2,8,16,16]'    a block of your own
  fuseblock check @conv3d_hardswish_gn_mean --small                are its results and gradients right?
  fuseblock bench @conv3d_gn_mean --backward                       how long it takes; with --unfused, unfused
  fuseblock ops                                                    everything a block may be made of
  make test                                                        all tests, with PyTorch beside
  make bench                                                       times beside PyTorch's
)";

}  // namespace

int run_demo(const DemoOptions& options, const Console& console) {
  std::vector<Row> rows;
  for (std::size_t i = 0; i < kBlocks.size(); ++i) {
    const std::string step = std::string(kBlocks[i]) + " (" + std::to_string(i + 1) + " of " +
                             std::to_string(kBlocks.size()) + ")";
    rows.push_back(run_one(kBlocks[i], options.small, step, console));
  }
  console.progress("");
  const bool ok = std::all_of(rows.begin(), rows.end(), [](const Row& row) { return row.comparison.ok; });
  const Device device = Device::best();
  if (console.json()) {
    Json json;
    json["engine"] = device.name();
    json["rows"] = Json::array();
    for (const Row& row : rows) json["rows"].push_back(to_json(row));
    console.print_json(json);
    return ok ? kSuccess : kCheckFailed;
  }
  console.print("The reference blocks on the " + device.name() + " engine, fused and unfused:\n\n" +
                table_text(rows, console) + notes(rows));
  const auto explained =
      std::find_if(rows.begin(), rows.end(), [](const Row& row) { return row.name == kExplained; });
  console.print("\nThe plan of " + console.bold(kExplained) + ", as `fuseblock explain` shows it:\n\n" +
                explained->explain + kNext);
  if (!ok) console.warn("an error is larger than its bound: please report it");
  return ok ? kSuccess : kCheckFailed;
}

}  // namespace fuseblock::cli
