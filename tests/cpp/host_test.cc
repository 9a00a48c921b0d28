// Host calls: a fake embedder that computes convolutions by the obvious loops takes all convolutions of every case; what
// it is shown, when it is asked, and what becomes of its refusals and exceptions.
#include "fuseblock/host.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <optional>

#include "block/geometry.h"
#include "cases.h"
#include "plan/host.h"
#include "refusal.h"

namespace fuseblock::cases {
namespace {

// A view's element at [n, c, positions...], positions always three.
class Reader {
 public:
  Reader(const ConstTensorView& view, int spatial_axes) : view_(view), rank_(spatial_axes) {}

  std::int64_t extent(int axis) const {
    return axis < 2 || axis - 5 + rank_ >= 0 ? at(view_.extents, axis) : 1;
  }
  std::int64_t offset(const std::array<std::int64_t, 5>& position) const {
    std::int64_t sum = 0;
    for (int axis = 0; axis < 5; ++axis)
      if (axis < 2 || axis - 5 + rank_ >= 0)
        sum += position[static_cast<std::size_t>(axis)] * at(view_.strides, axis);
    return sum;
  }
  double get(const std::array<std::int64_t, 5>& position) const {
    return load_element(view_.data, view_.dtype, offset(position));
  }

 private:
  // The last `rank_` axes of a view are positions.
  std::int64_t at(const std::vector<std::int64_t>& list, int axis) const {
    const int place = axis < 2 ? axis : axis - 3 + rank_;
    return list[static_cast<std::size_t>(place)];
  }

  ConstTensorView view_;
  int rank_;
};

PadMode pad_mode(const std::string& name) {
  if (name == "reflect") return PadMode::kReflect;
  if (name == "replicate") return PadMode::kReplicate;
  return name == "circular" ? PadMode::kCircular : PadMode::kZeros;
}

// Each weight joins a position of the narrow side (the convolution's output, a transposed one's input) to a position of
// the wide side.
void compute(const HostConvolution& convolution, std::span<const ConstTensorView> operands,
             const TensorView& result) {
  const bool forward = convolution.piece == ConvolutionPiece::kForward;
  const bool by_weight = convolution.piece == ConvolutionPiece::kGradWeight;
  const int rank = static_cast<int>(convolution.stride.size());
  const Reader first(operands[0], rank);
  const Reader second(operands[1], rank);
  const Reader target(result, rank);
  // Which of the three is the narrow side, the wide side, the weight.
  const Reader& weight = by_weight ? target : second;
  const Reader& x = forward ? first : by_weight ? second : target;
  const Reader& y = forward ? target : first;
  const Reader& narrow = convolution.transposed ? x : y;
  const Reader& wide = convolution.transposed ? y : x;

  std::vector<double> sums;
  std::array<std::int64_t, 5> extents{};
  std::int64_t count = 1;
  for (int axis = 0; axis < 5; ++axis) count *= extents[static_cast<std::size_t>(axis)] = target.extent(axis);
  sums.assign(static_cast<std::size_t>(count), 0);
  auto sum_at = [&](const std::array<std::int64_t, 5>& p) -> double& {
    return sums[static_cast<std::size_t>(
        (((p[0] * extents[1] + p[1]) * extents[2] + p[2]) * extents[3] + p[3]) * extents[4] + p[4])];
  };
  const std::int64_t narrow_per_group = narrow.extent(1) / convolution.groups;
  const std::int64_t wide_per_group = wide.extent(1) / convolution.groups;
  auto parameter = [&](const std::vector<std::int64_t>& list, int axis, std::int64_t elsewhere) {
    const int place = axis - 3 + rank;
    return place < 0 ? elsewhere : list[static_cast<std::size_t>(place)];
  };
  std::array<std::int64_t, 3> tap{};
  std::array<std::int64_t, 3> q{};
  auto join = [&](std::int64_t n, std::int64_t k, std::int64_t wc) {
    std::array<std::int64_t, 3> p{};
    for (int axis = 0; axis < 3; ++axis) {
      const auto i = static_cast<std::size_t>(axis);
      p[i] = padded_coordinate(q[i] * parameter(convolution.stride, axis, 1) -
                                   parameter(convolution.pad, axis, 0) +
                                   tap[i] * parameter(convolution.dilation, axis, 1),
                               wide.extent(axis + 2), pad_mode(convolution.pad_mode));
      if (p[i] < 0) return;
    }
    const std::array<std::int64_t, 5> at_narrow = {n, k, q[0], q[1], q[2]};
    const std::array<std::int64_t, 5> at_wide = {n, k / narrow_per_group * wide_per_group + wc, p[0], p[1],
                                                 p[2]};
    const std::array<std::int64_t, 5> at_weight = {k, wc, tap[0], tap[1], tap[2]};
    if (by_weight)
      sum_at(at_weight) += narrow.get(at_narrow) * wide.get(at_wide);
    else if (&narrow == &target)
      sum_at(at_narrow) += weight.get(at_weight) * wide.get(at_wide);
    else
      sum_at(at_wide) += weight.get(at_weight) * narrow.get(at_narrow);
  };
  for (std::int64_t n = 0; n < narrow.extent(0); ++n)
    for (std::int64_t k = 0; k < narrow.extent(1); ++k)
      for (std::int64_t wc = 0; wc < wide_per_group; ++wc)
        for (tap[0] = 0; tap[0] < weight.extent(2); ++tap[0])
          for (tap[1] = 0; tap[1] < weight.extent(3); ++tap[1])
            for (tap[2] = 0; tap[2] < weight.extent(4); ++tap[2])
              for (q[0] = 0; q[0] < narrow.extent(2); ++q[0])
                for (q[1] = 0; q[1] < narrow.extent(3); ++q[1])
                  for (q[2] = 0; q[2] < narrow.extent(4); ++q[2]) join(n, k, wc);
  std::array<std::int64_t, 5> p{};
  for (p[0] = 0; p[0] < extents[0]; ++p[0])
    for (p[1] = 0; p[1] < extents[1]; ++p[1])
      for (p[2] = 0; p[2] < extents[2]; ++p[2])
        for (p[3] = 0; p[3] < extents[3]; ++p[3])
          for (p[4] = 0; p[4] < extents[4]; ++p[4]) {
            const double bias = operands.size() > 2 ? load_element(operands[2].data, operands[2].dtype,
                                                                   p[1] * operands[2].strides[0])
                                                    : 0;
            store_element(result.data, result.dtype, target.offset(p), sum_at(p) + bias);
          }
}

// A host that remembers what it was shown.
struct Seen {
  HostConvolution convolution;
  std::vector<ConstTensorView> operands;
  TensorView result;
};

std::shared_ptr<HostFunctions> host(std::vector<Seen>* seen = nullptr) {
  auto functions = std::make_shared<HostFunctions>();
  functions->convolution = [seen](const HostConvolution& convolution,
                                  std::span<const ConstTensorView> operands, const TensorView& result) {
    if (seen != nullptr) seen->push_back({convolution, {operands.begin(), operands.end()}, result});
    compute(convolution, operands, result);
  };
  functions->copy = [](const ConstTensorView& from, const TensorView& to) {
    EXPECT_EQ(from.extents, to.extents);
    std::int64_t count = 1;
    for (std::int64_t extent : to.extents) count *= extent;
    for (std::int64_t i = 0; i < count; ++i) {
      std::int64_t rest = i;
      std::int64_t source = 0;
      std::int64_t target = 0;
      for (std::size_t axis = to.extents.size(); axis-- > 0; rest /= to.extents[axis]) {
        source += rest % to.extents[axis] * from.strides[axis];
        target += rest % to.extents[axis] * to.strides[axis];
      }
      store_element(to.data, to.dtype, target, load_element(from.data, from.dtype, source));
    }
  };
  return functions;
}

const std::vector<Case>& all_cases() {
  static const std::vector<Case> kCases = read_cases(case_files());
  return kCases;
}

TypedBlock typed(const std::string& block, const std::string& input) {
  return TypedBlock::infer(Block::parse(block), TensorType::parse(input));
}

int convolution_count(const TypedBlock& block) {
  int count = 0;
  for (const Node& node : block.block().nodes()) {
    const OpCode code = node.operation->code;
    if (code == OpCode::kConvolution || code == OpCode::kConvolutionGradInput ||
        code == OpCode::kConvolutionGradWeight)
      ++count;
  }
  return count;
}

double magnitude(const TensorMap& tensors) {
  double largest = 0;
  for (const auto& [name, tensor] : tensors)
    for (double value : tensor.to_doubles())
      if (std::isfinite(value)) largest = std::max(largest, std::fabs(value));
  return largest;
}

void expect_close(const TensorMap& expected, const TensorMap& actual, double tolerance) {
  const double bound = tolerance * (1 + magnitude(expected));
  for (const auto& [name, tensor] : expected) {
    ASSERT_TRUE(actual.contains(name)) << name;
    for (std::int64_t i = 0; i < tensor.type().element_count(); ++i) {
      const double wanted = tensor.get(i);
      const double got = actual.at(name).get(i);
      if (std::isnan(wanted)) {
        ASSERT_TRUE(std::isnan(got)) << name << ": NaN expected at " << i << ", got " << got;
      } else if (std::isinf(wanted)) {
        ASSERT_EQ(wanted, got) << name << " at " << i;
      } else {
        ASSERT_LE(std::fabs(wanted - got), bound) << name << " at " << i << ": " << wanted << " and " << got;
      }
    }
  }
}

TensorMap training_arguments(const TypedBlock& block) {
  TensorMap tensors = random_arguments(block, 1);
  for (auto& [name, tensor] : random_output_gradients(block, 2))
    tensors.insert_or_assign(name, std::move(tensor));
  return tensors;
}

void compare_all(DType dtype, Reuse reuse, double tolerance) {
  for (const Case& each : all_cases()) {
    SCOPED_TRACE(each.command("cpu"));
    const TypedBlock block = each.typed(dtype);
    if (convolution_count(block) == 0) continue;
    TensorMap tensors = training_arguments(block);
    std::vector<Seen> seen;
    const Plan expected = Plan::make(block, Device::reference());
    const Plan plan = Plan::make(block, Device::by_name("cpu"),
                                 {.reuse = reuse, .host = host(&seen), .keep_convolutions = true});
    expect_close(run(expected, tensors), run(plan, tensors), tolerance);
    ASSERT_GT(seen.size(), 0U);
    seen.clear();
    const TensorMap gradients = run(expected.backward(), tensors);
    expect_close(gradients, run(plan.backward(), tensors), tolerance);
    ASSERT_GT(seen.size(), 0U);
    const TrainingPlans both = plan.for_training();
    for (auto& [name, tensor] : run(both.forward, tensors)) tensors.insert_or_assign(name, std::move(tensor));
    expect_close(gradients, run(both.backward, tensors), tolerance);
  }
}

TEST(Host, ComputesTheConvolutionsOfEveryCase) { compare_all(DType::kF64, Reuse::kByCost, 1e-10); }
TEST(Host, ComputesTheConvolutionsOfEveryCaseAgain) { compare_all(DType::kF64, Reuse::kRecompute, 1e-10); }
TEST(Host, ComputesTheConvolutionsOfEveryCaseInF32) { compare_all(DType::kF32, Reuse::kByCost, 1e-5); }

TEST(Host, IsShownGeometryAndViews) {
  std::vector<Seen> seen;
  const TypedBlock block =
      typed("conv2d(6, k=(3,2), stride=(2,1), pad=(2,1), dilation=(1,2), groups=3) | relu", "f32[2,6,8,9]");
  const Plan plan =
      Plan::make(block, Device::by_name("cpu"), {.host = host(&seen), .keep_convolutions = true});
  run(plan, random_arguments(block, 1));
  ASSERT_EQ(seen.size(), 1U);
  const HostConvolution& convolution = seen[0].convolution;
  EXPECT_EQ(convolution.piece, ConvolutionPiece::kForward);
  EXPECT_EQ(convolution.operation, "conv2d");
  EXPECT_EQ(convolution.stage, block.block().stage_text(0));
  EXPECT_EQ(convolution.stride, (std::vector<std::int64_t>{2, 1}));
  EXPECT_EQ(convolution.pad, (std::vector<std::int64_t>{2, 1}));
  EXPECT_EQ(convolution.pad_back, (std::vector<std::int64_t>{2, 1}));
  EXPECT_EQ(convolution.dilation, (std::vector<std::int64_t>{1, 2}));
  EXPECT_EQ(convolution.groups, 3);
  ASSERT_EQ(seen[0].operands.size(), 3U);
  EXPECT_EQ(seen[0].operands[0].extents, (std::vector<std::int64_t>{2, 6, 8, 9}));
  EXPECT_EQ(seen[0].operands[1].extents, (std::vector<std::int64_t>{6, 2, 3, 2}));
  EXPECT_EQ(seen[0].operands[2].extents, (std::vector<std::int64_t>{6}));
  EXPECT_EQ(seen[0].result.extents, block.type(block.block().nodes()[0].result).extents);
}

TEST(Host, IsToldPaddingOfBothSides) {
  const TypedBlock same = typed("conv1d(4, k=4, pad=same, pad_mode=circular)", "f32[2,3,9]");
  const HostConvolution padded = host_convolution(same, 0);
  EXPECT_EQ(padded.pad, (std::vector<std::int64_t>{1}));
  EXPECT_EQ(padded.pad_back, (std::vector<std::int64_t>{2}));
  EXPECT_EQ(padded.pad_mode, "circular");
  const HostConvolution transposed =
      host_convolution(typed("conv_transpose2d(4, k=3, stride=2, pad=1, output_pad=1)", "f32[1,3,5,6]"), 0);
  EXPECT_TRUE(transposed.transposed);
  EXPECT_EQ(transposed.output_pad, (std::vector<std::int64_t>{1, 1}));
  const HostConvolution linear = host_convolution(typed("linear(4)", "f32[2,6]"), 0);
  EXPECT_EQ(linear.operation, "linear");
  EXPECT_TRUE(linear.stride.empty());
}

// A result that is an output is written there, not copied; x is read where it is.
TEST(Host, ReadsAndWritesTheCallersMemory) {
  std::vector<Seen> seen;
  const TypedBlock block = typed("conv2d(4, k=3)", "f32[2,3,6,7]");
  const Plan plan =
      Plan::make(block, Device::by_name("cpu"), {.host = host(&seen), .keep_convolutions = true});
  EXPECT_EQ(plan.workspace_bytes(), 0U);
  TensorMap tensors = random_arguments(block, 1);
  Tensor output(block.outputs()[0].type);
  std::map<std::string, ConstTensorView, std::less<>> inputs;
  for (const auto& [name, tensor] : tensors) inputs.emplace(name, tensor.view());
  Workspace workspace(plan.workspace_bytes());
  plan.run(plan.bind(inputs, {{"conv2d", output.view()}}), workspace.bytes());
  ASSERT_EQ(seen.size(), 1U);
  EXPECT_EQ(seen[0].operands[0].data, tensors.at("x").data());
  EXPECT_EQ(seen[0].result.data, output.data());
}

TEST(Host, IsShownTheLayoutOfTheBlock) {
  for (const char* input : {"f32[2,8,6,7]:cl", "f32[2,8,6,7]"}) {
    std::vector<Seen> seen;
    const TypedBlock block = typed("group_norm(4) | silu | conv2d(6, k=3) | group_norm(3) | silu", input);
    const PlanOptions options = {.host = host(&seen), .keep_convolutions = true};
    const Plan plan = Plan::make(block, Device::by_name("cpu"), options);
    const TensorMap tensors = training_arguments(block);
    expect_close(run(Plan::make(block, Device::reference()), tensors), run(plan, tensors), 1e-5);
    expect_close(run(Plan::make(block, Device::reference()).backward(), tensors),
                 run(plan.backward(), tensors), 1e-5);
    ASSERT_GE(seen.size(), 2U);
    const bool channels_last = block.type(Value{0}).layout == Layout::kChannelsLast;
    EXPECT_EQ(seen[0].operands[0].strides[1], channels_last ? 1 : 6 * 7);
    EXPECT_EQ(seen[0].result.strides[1], channels_last ? 1 : 4 * 5);
  }
}

TEST(Host, IsShownOneType) {
  for (const char* input : {"bf16[2,8,6,7]", "f16[2,8,6,7]", "f64[2,8,6,7]"}) {
    std::vector<Seen> seen;
    const TypedBlock block = typed("group_norm(4) | silu | conv2d(6, k=3) | group_norm(3) | silu", input);
    const Plan plan =
        Plan::make(block, Device::by_name("cpu"), {.host = host(&seen), .keep_convolutions = true});
    const TensorMap tensors = training_arguments(block);
    run(plan, tensors);
    run(plan.backward(), tensors);
    EXPECT_EQ(seen.size(), 4U) << input;
    for (const Seen& each : seen) {
      EXPECT_EQ(each.result.dtype, block.type(Value{0}).dtype);
      for (const ConstTensorView& operand : each.operands)
        EXPECT_EQ(operand.dtype, block.type(Value{0}).dtype);
    }
  }
  std::vector<Seen> seen;
  const TypedBlock mixed = typed("cast(bf16) | conv2d(4, k=3) | relu", "f32[2,3,6,7]");
  const Plan plan =
      Plan::make(mixed, Device::by_name("cpu"), {.host = host(&seen), .keep_convolutions = true});
  const TensorMap tensors = random_arguments(mixed, 1);
  expect_close(run(Plan::make(mixed, Device::reference()), tensors), run(plan, tensors), 0.02);
  ASSERT_EQ(seen.size(), 1U);
  EXPECT_EQ(seen[0].operands[0].dtype, DType::kBF16);
}

// A block whose convolutions the host computes, on a GPU in the program's own memory and on the CPU. `keep`: all of them;
// else gradients, and those that the GPU has no good kernel for.
void compare_with_cpu(const TypedBlock& block, const Device& gpu, bool keep = true) {
  SCOPED_TRACE(block.block().to_string());
  std::vector<Seen> seen;
  const PlanOptions options = {.host = host(&seen), .keep_convolutions = keep};
  const Plan expected =
      Plan::make(block, Device::by_name("cpu"), keep ? options : PlanOptions{.host = nullptr});
  const Plan plan = Plan::make(block, gpu, options);
  TensorMap tensors = training_arguments(block);
  const double tolerance = block.type(Value{0}).dtype == DType::kF32 ? 1e-5 : 1e-2;
  expect_close(run(expected, tensors), run(plan, tensors), tolerance);
  const TensorMap gradients = run(expected.backward(), tensors);
  seen.clear();
  expect_close(gradients, run(plan.backward(), tensors), tolerance);
  ASSERT_GT(seen.size(), 0U);
  for (const Seen& each : seen)
    for (const ConstTensorView& operand : each.operands) EXPECT_EQ(operand.dtype, each.convolution.dtype);
  const TrainingPlans both = plan.for_training();
  for (auto& [name, tensor] : run(both.forward, tensors)) tensors.insert_or_assign(name, std::move(tensor));
  expect_close(gradients, run(both.backward, tensors), tolerance);
}

// On the GPU of tests/emulator, whose memory is the program's own. With each piece, results that are spread and converted
// (the gradient of a mean), layouts, and 16-bit types; with FUSEBLOCK_LONG=1 every case that has convolutions.
TEST(HostOnAnEmulatedGpu, ComputesConvolutions) {
  const std::vector<Device> devices = Device::available();
  const auto gpu = std::find_if(devices.begin(), devices.end(), [](const Device& each) {
    return each.name() == "cuda" && each.description().model.find("emulated") != std::string::npos;
  });
  if (gpu == devices.end()) GTEST_SKIP() << "there is no emulated GPU";
  const std::vector<std::pair<const char*, const char*>> blocks = {
      {"group_norm(4) | silu | conv2d(6, k=3) | group_norm(3) | silu", "f32[2,8,6,7]:cl"},
      {"conv3d(4, k=2) | group_norm(2) | mean(c,d,h,w)", "bf16[2,3,4,5,4]"},
      {"linear(6) | layer_norm(c) | relu", "f32[5,4]"},
      {"m = mean(x, h,w); e = linear(m, 6); y = x * e; return y", "f32[2,6,5,7]"},
  };
  for (const auto& [text, input] : blocks) compare_with_cpu(typed(text, input), *gpu);
  const std::vector<std::pair<const char*, const char*>> weighed = {
      {"conv3d(16, k=2) | hardswish | group_norm(4) | mean(d,h,w)", "f32[2,3,4,5,6]"},
      {"conv2d(8, k=3) as y | group_norm(2) | tanh | hardswish | add(y) | logsumexp(c, keepdim)",
       "f32[2,4,6,7]"},
      {"conv_transpose2d(16, k=3, bias=false) | relu | group_norm(4)", "f32[2,16,5,7]:cl"},
      {"group_norm(4) | silu | conv2d(8, k=3, pad=1) | add(x)", "f32[1,8,6,6]"},
      {"conv2d(8, k=3) | silu | conv2d(4, k=1) | group_norm(2)", "bf16[2,3,6,7]"},
  };
  for (const auto& [text, input] : weighed) compare_with_cpu(typed(text, input), *gpu, false);
  if (std::getenv("FUSEBLOCK_LONG") == nullptr) return;
  for (const Case& each : all_cases()) {
    SCOPED_TRACE(each.command("cuda"));
    const TypedBlock block = each.typed(DType::kF32);
    const std::vector<NamedType> arguments = block.arguments();
    if (convolution_count(block) > 0 &&
        std::all_of(arguments.begin(), arguments.end(),
                    [](const NamedType& argument) { return argument.type.element_count() > 0; }))
      for (const bool keep : {true, false}) compare_with_cpu(block, *gpu, keep);
  }
}

TEST(Host, StatesItsConvolutionsAsSaved) {
  const TypedBlock block = typed("conv2d(6, k=3) | group_norm(3) | silu", "bf16[2,3,6,7]:cl");
  const Plan plan = Plan::make(block, Device::by_name("cpu"), {.host = host(), .keep_convolutions = true});
  const std::vector<NamedType> saved = plan.for_training().forward.saved();
  ASSERT_EQ(saved.size(), 3U);
  EXPECT_EQ(saved[0].name, "saved.conv2d");
  EXPECT_EQ(to_string(saved[0].type), "bf16[2,6,4,5]:cl");
  EXPECT_EQ(to_string(saved[1].type), "f32[2,3]");
}

TEST(Host, ItsExceptionsPassThrough) {
  struct OutOfMemory {};
  auto functions = std::make_shared<HostFunctions>();
  bool broken = true;
  functions->convolution = [&](const HostConvolution& convolution, std::span<const ConstTensorView> operands,
                               const TensorView& result) {
    if (broken) throw OutOfMemory{};
    compute(convolution, operands, result);
  };
  const TypedBlock block = typed("conv2d(6, k=3) | group_norm(3) | silu", "f32[2,3,6,7]");
  const Plan plan = Plan::make(block, Device::by_name("cpu"), {.host = functions, .keep_convolutions = true});
  const TensorMap tensors = random_arguments(block, 1);
  EXPECT_THROW(run(plan, tensors), OutOfMemory);
  broken = false;
  expect_close(run(Plan::make(block, Device::reference()), tensors), run(plan, tensors), 1e-5);
}

TEST(Host, MayRefuse) {
  auto functions = host();
  functions->refuses = [](const HostConvolution& convolution) {
    return convolution.piece == ConvolutionPiece::kGradWeight ? "no gradients by weights" : "";
  };
  functions->operations_per_second = 1e18;
  const TypedBlock block = typed("conv2d(6, k=3) | relu", "f32[2,3,6,7]");
  const Plan kept = Plan::make(block, Device::by_name("cpu"), {.host = functions, .keep_convolutions = true});
  const Refusal refused = refusal([&] { kept.backward(); });
  EXPECT_TRUE(refused.says("conv2d_grad_weight")) << refused;
  EXPECT_TRUE(refused.says("the host, which refuses this one: no gradients by weights")) << refused;
  EXPECT_NO_THROW(kept.backward({"x"}));

  const Plan weighed = Plan::make(block, Device::by_name("cpu"), {.host = functions});
  const TensorMap tensors = training_arguments(block);
  expect_close(run(Plan::make(block, Device::reference()).backward(), tensors),
               run(weighed.backward(), tensors), 1e-5);
  EXPECT_NE(weighed.backward().explain().find(", the host refuses: no gradients by weights"),
            std::string::npos);
}

TEST(Host, MustBeThereForConvolutionsToBeKept) {
  const TypedBlock block = typed("conv2d(6, k=3)", "f32[2,3,6,7]");
  EXPECT_TRUE(refusal([&] {
                Plan::make(block, Device::by_name("cpu"), {.keep_convolutions = true});
              }).says("keep_convolutions: expected a table of host functions to leave them to, got none"));
  EXPECT_TRUE(refusal([&] {
                Plan::make(block, Device::by_name("cpu"), {.host = std::make_shared<HostFunctions>()});
              }).says("host: expected a function `convolution`, got none"));
}

struct Weighed {
  double rate;
  double call_seconds;
  std::string chosen;
  std::string reason;
};

TEST(Host, IsWeighedByItsRate) {
  const TypedBlock block = typed("conv2d(64, k=3) | group_norm(8) | relu", "f32[8,64,32,32]");
  const std::vector<Weighed> expectations = {{0, 0, "own sweep", "the host states no rate"},
                                             {1e18, 0, "host call", "the smallest estimate"},
                                             {1e18, 10, "own sweep", "the smallest estimate"},
                                             {1e6, 0, "own sweep", "the smallest estimate"}};
  for (const Weighed& expected : expectations) {
    auto functions = host();
    functions->operations_per_second = expected.rate;
    functions->call_seconds = expected.call_seconds;
    const Plan plan = Plan::make(block, Device::by_name("cpu"), {.host = functions});
    const std::string text = plan.explain();
    EXPECT_NE(text.find("choice for conv2d: " + expected.chosen + ", " + expected.reason), std::string::npos)
        << text;
    EXPECT_EQ(text.find("host call: conv2d(64, k=3) of x, about ") != std::string::npos,
              expected.chosen == "host call")
        << text;
  }
}

TEST(Host, LeavesTheSweepsOfTheRest) {
  const TypedBlock block = typed("conv2d(8, k=3) | group_norm(4) | silu", "f32[2,3,8,8]");
  const Schedule schedule = make_schedule(block, Device::by_name("h200").description(),
                                          PlanOptions{.host = host(), .keep_convolutions = true});
  std::string kinds;
  for (const ScheduleStep& step : schedule.steps)
    kinds += step.kind == StepKind::kHostCall   ? "host "
             : step.kind == StepKind::kFinalise ? "finalise "
             : step.sweep.source < 0            ? "load "
                                                : "conv ";
  EXPECT_EQ(kinds, "host load finalise load ");
}

}  // namespace
}  // namespace fuseblock::cases
