// Pairs of plans for training: their gradients are those of Plan::backward on every case, whatever is saved; what the
// blocks save and how many sweeps their backward takes is part of the design, so fixed here.
#include <gtest/gtest.h>

#include <cmath>

#include "cases.h"
#include "fuseblock/reference_blocks.h"
#include "plan/saved.h"
#include "refusal.h"

namespace fuseblock::cases {
namespace {

const std::vector<Case>& all_cases() {
  static const std::vector<Case> kCases = read_cases(case_files());
  return kCases;
}

TypedBlock typed(const std::string& block, const std::string& input) {
  return TypedBlock::infer(Block::parse(block), TensorType::parse(input));
}

TypedBlock reference_block(const std::string& name) {
  const ReferenceBlock* block = find_reference_block(name);
  if (block == nullptr) throw InternalError("no reference block " + name);
  return typed(std::string(block->notation), std::string(block->input));
}

// The largest finite magnitude of all of them. A gradient that is zero but for rounding, such as that of a bias in
// front of a norm, has the rounding errors of the others.
double magnitude(const TensorMap& tensors) {
  double largest = 0;
  for (const auto& [name, tensor] : tensors)
    for (double value : tensor.to_doubles())
      if (std::isfinite(value)) largest = std::max(largest, std::fabs(value));
  return largest;
}

void expect_close(const Tensor& expected, const Tensor& actual, double tolerance, const std::string& what) {
  for (std::int64_t i = 0; i < expected.type().element_count(); ++i) {
    const double wanted = expected.get(i);
    const double got = actual.get(i);
    if (std::isnan(wanted)) {
      ASSERT_TRUE(std::isnan(got)) << what << ": NaN expected at " << i << ", got " << got;
    } else if (std::isinf(wanted)) {
      ASSERT_EQ(wanted, got) << what << " at " << i;
    } else {
      ASSERT_LE(std::fabs(wanted - got), tolerance)
          << what << " at " << i << ": " << wanted << " and " << got;
    }
  }
}

// Arguments and gradients of the outputs, always the same.
TensorMap training_arguments(const TypedBlock& block) {
  TensorMap tensors = random_arguments(block, 1);
  for (auto& [name, tensor] : random_output_gradients(block, 2))
    tensors.insert_or_assign(name, std::move(tensor));
  return tensors;
}

void compare(const TypedBlock& block, Reuse reuse, double tolerance) {
  TensorMap tensors = training_arguments(block);
  const Plan plan = Plan::make(block, Device::by_name("cpu"), {.reuse = reuse});
  const TensorMap outputs = run(plan, tensors);
  const TensorMap expected = run(plan.backward(), tensors);

  const TrainingPlans both = plan.for_training();
  for (auto& [name, tensor] : run(both.forward, tensors)) {
    if (outputs.contains(name)) expect_close(outputs.at(name), tensor, tolerance * magnitude(outputs), name);
    tensors.insert_or_assign(name, std::move(tensor));
  }
  const TensorMap actual = run(both.backward, tensors);
  ASSERT_EQ(expected.size(), actual.size());
  for (const auto& [name, tensor] : expected)
    expect_close(tensor, actual.at(name), tolerance * magnitude(expected), name);
}

void compare_all(DType dtype, Reuse reuse, double tolerance) {
  for (const Case& each : all_cases()) {
    SCOPED_TRACE(each.command("cpu"));
    const TypedBlock block = each.typed(dtype);
    if (!block.differentiable().empty()) compare(block, reuse, tolerance);
  }
}

// Enough samples and groups for norms to go unit by unit.
TEST(Training, GradientsAreThoseOfBackwardWhereSweepsGoUnitByUnit) {
  for (const char* block : {"group_norm(4) | silu", "relu | group_norm(2) | mean(h,w)",
                            "instance_norm | relu", "group_norm(4) | tanh | add(x) | group_norm(2)"})
    for (Reuse reuse : {Reuse::kByCost, Reuse::kStore, Reuse::kRecompute}) {
      SCOPED_TRACE(block);
      compare(typed(block, "f64[5,8,9,7]"), reuse, 1e-10);
      compare(typed(block, "f32[5,8,9,7]"), reuse, 1e-6);
    }
}

TEST(Training, GradientsAreThoseOfBackwardByCost) {
  compare_all(DType::kF32, Reuse::kByCost, 1e-6);
  compare_all(DType::kF64, Reuse::kByCost, 1e-10);
}

TEST(Training, GradientsAreThoseOfBackwardWithEverythingSaved) {
  compare_all(DType::kF32, Reuse::kStore, 1e-6);
  compare_all(DType::kF64, Reuse::kStore, 1e-10);
}

TEST(Training, GradientsAreThoseOfBackwardWithStatisticsSaved) {
  compare_all(DType::kF32, Reuse::kRecompute, 1e-6);
  compare_all(DType::kF64, Reuse::kRecompute, 1e-10);
}

std::string list_text(const std::vector<NamedType>& values) {
  std::string text;
  for (const NamedType& value : values)
    text += (text.empty() ? "" : ", ") + value.name + " " + to_string(value.type);
  return text;
}

std::int64_t byte_count(const std::vector<NamedType>& values) {
  std::int64_t bytes = 0;
  for (const NamedType& value : values) bytes += value.type.byte_count();
  return bytes;
}

struct SavedExpectation {
  std::string block;  // a reference block's name, or notation
  std::string input;
  std::string saved;
  std::int64_t bytes;
};

void expect_saved(const std::vector<SavedExpectation>& expectations, Reuse reuse) {
  for (const SavedExpectation& expected : expectations) {
    const TypedBlock block =
        expected.input.empty() ? reference_block(expected.block) : typed(expected.block, expected.input);
    const TrainingPlans both = Plan::make(block, Device::by_name("cpu"), {.reuse = reuse}).for_training();
    EXPECT_EQ(list_text(both.forward.saved()), expected.saved) << expected.block;
    EXPECT_EQ(byte_count(both.forward.saved()), expected.bytes) << expected.block;
  }
}

TEST(Training, SavesStatisticsOfTheReferenceBlocks) {
  const std::string norm = "saved.group_norm.mean f32[16,8], saved.group_norm.rstd f32[16,8]";
  const std::string lse_norm = "saved.group_norm.mean f32[128,16], saved.group_norm.rstd f32[128,16]";
  const std::string hardswish =
      "saved.group_norm.mean f32[1024,4], saved.group_norm.rstd f32[1024,4], saved.hardswish.mean "
      "f32[1024,16]";
  expect_saved(
      {{"conv3d_gn_mean", "",
        "saved.group_norm.mean f32[128,8], saved.group_norm.rstd f32[128,8], saved.conv3d.mean f32[128,24]",
        20480},
       {"conv_transpose3d_relu_gn", "", norm, 1024},
       {"conv3d_hardswish_gn_mean", "", hardswish, 98304},
       {"conv3d_hardswish_gn_mean_k3", "", hardswish, 98304},
       {"conv2d_gn_tanh_hardswish_residual_lse", "", lse_norm, 16384},
       {"conv3d_gn_mean_tail", "",
        "saved.group_norm.mean f32[128,8], saved.group_norm.rstd f32[128,8], saved.x.mean f32[128,24]",
        20480},
       {"conv_transpose3d_relu_gn_tail", "", norm, 1024},
       {"conv3d_hardswish_gn_mean_tail", "", hardswish, 98304},
       {"conv2d_gn_tanh_hardswish_residual_lse_tail", "", lse_norm, 16384}},
      Reuse::kRecompute);
}

TEST(Training, SavesConvolutionsAndReductionsOverChannelsWhenAskedTo) {
  expect_saved(
      {{"conv_transpose3d_relu_gn", "",
        "saved.conv_transpose3d f32[16,128,34,34,34], saved.group_norm.mean f32[16,8], "
        "saved.group_norm.rstd f32[16,8]",
        321978368 + 1024},
       {"conv2d_gn_tanh_hardswish_residual_lse", "",
        "saved.y f32[128,64,126,126], saved.group_norm.mean f32[128,16], saved.group_norm.rstd f32[128,16], "
        "saved.logsumexp f32[128,1,126,126]",
        520224768 + 16384 + 8128512},
       {"conv2d_gn_tanh_hardswish_residual_lse_tail", "",
        "saved.group_norm.mean f32[128,16], saved.group_norm.rstd f32[128,16], "
        "saved.logsumexp f32[128,1,126,126]",
        16384 + 8128512}},
      Reuse::kStore);
}

TEST(Training, SavesStatisticsOfRealBlocks) {
  expect_saved(
      {{"group_norm(32) | silu", "f32[2,64,8,8]",
        "saved.group_norm.mean f32[2,32], saved.group_norm.rstd f32[2,32]", 512},
       {"group_norm(32) | silu", "bf16[2,64,8,8]",
        "saved.group_norm.mean f32[2,32], saved.group_norm.rstd f32[2,32]", 512},
       {"group_norm(32) | silu", "f64[2,64,8,8]",
        "saved.group_norm.mean f64[2,32], saved.group_norm.rstd f64[2,32]", 1024},
       {"conv3d(8, k=3, pad=1) | instance_norm(affine=true) | leaky_relu(0.01)", "f32[2,4,6,6,6]",
        "saved.instance_norm.mean f32[2,8], saved.instance_norm.rstd f32[2,8]", 128},
       {"group_norm(4) | silu | conv2d(8, k=3, pad=1) | group_norm(4) | silu | conv2d(8, k=3, pad=1) | "
        "add(x)",
        "f32[1,8,12,12]",
        "saved.group_norm.mean f32[1,4], saved.group_norm.rstd f32[1,4], saved.group_norm2.mean f32[1,4], "
        "saved.group_norm2.rstd f32[1,4]",
        64},
       {"softmax(h,w)", "f32[2,8,5,5]", "saved.softmax.max f32[2,8], saved.softmax.sum_exp f32[2,8]", 128},
       {"y = mean(x, h,w); z = linear(y, 8); s = sigmoid(z); o = mul(x, s); return o", "f32[2,8,5,5]",
        "saved.y f32[2,8]", 64},
       {"relu | add(skip)", "f32[2,8,5,5]", "", 0},
       {"relu | add(skip)", "f32[0,8,5,5]", "", 0},
       {"group_norm(2)", "f32[0,8,5,5]", "saved.group_norm.mean f32[0,2], saved.group_norm.rstd f32[0,2]", 0},
       {"conv2d(8, k=3) | relu", "f32[2,8,5,5]", "", 0}},
      Reuse::kRecompute);
  expect_saved({{"l2_normalize(c) | mul(gamma) | silu", "f32[1,32,4,6,6]",
                 "saved.l2_normalize.square_sum f32[1,1,4,6,6]", 576},
                {"rms_norm(c)", "f32[2,16,6,6]", "saved.rms_norm.mean_square f32[2,1,6,6]", 288},
                {"layer_norm(c)", "f32[2,16,6,6]",
                 "saved.layer_norm.mean f32[2,1,6,6], saved.layer_norm.rstd f32[2,1,6,6]", 576}},
               Reuse::kStore);
}

// What is an output already is not saved once more: it could be read, but backward takes what it takes.
TEST(Training, SavesNoOutputs) {
  expect_saved({{"max(h,w)", "f32[2,8,5,5]", "", 0},
                {"y = conv2d(x, 8, k=3); z = group_norm(y, 4); return z, y", "f32[2,3,8,8]",
                 "saved.z.mean f32[2,4], saved.z.rstd f32[2,4]", 64}},
               Reuse::kStore);
}

// The passes of backward: `conv` or `load`, with what each contracts and takes statistics of.
std::string passes(const Schedule& schedule) {
  std::string text;
  for (const ScheduleStep& step : schedule.steps) {
    if (step.kind != StepKind::kSweep) continue;
    text += text.empty() ? "" : "; ";
    text += step.sweep.source < 0 ? "load" : "conv";
    bool statistic = false;
    bool contract = false;
    bool output = false;
    bool stored = false;
    for (const Sink& sink : step.sweep.sinks) {
      statistic = statistic || sink.kind == SinkKind::kStatistic;
      contract = contract || sink.kind == SinkKind::kContract;
      if (sink.kind != SinkKind::kStore) continue;
      const SlotKind kind = schedule.slots[static_cast<std::size_t>(sink.slots[0])].kind;
      output = output || kind == SlotKind::kOutput;
      stored = stored || kind == SlotKind::kStored;
    }
    if (statistic) text += " statistics";
    if (contract) text += " contract";
    if (stored) text += " store";
    if (output) text += " output";
  }
  return text;
}

const DeviceDescription& h200() {
  static const Device kDevice = Device::by_name("h200");
  return kDevice.description();
}

struct PassExpectation {
  std::string block;
  std::string weights;  // for the gradients of the parameters alone
  std::string all;
};

TEST(Training, PassesOfBackward) {
  const std::vector<PassExpectation> expectations = {
      // One pass: the means that the norm's adjoint needs are those of an affine formula, from saved means.
      {"conv3d_gn_mean", "conv contract", "conv contract store; conv output"},
      {"conv3d_hardswish_gn_mean", "conv statistics contract", "conv statistics contract store; conv output"},
      {"conv_transpose3d_relu_gn", "conv statistics; conv contract",
       "conv statistics; conv contract store; conv output"},
      {"conv2d_gn_tanh_hardswish_residual_lse", "conv statistics; conv statistics; conv statistics contract",
       "conv statistics; conv statistics; conv statistics contract store; conv output"},
      {"conv3d_gn_mean_tail", "", "load output"},
      {"conv3d_hardswish_gn_mean_tail", "", "load output"},
      {"conv_transpose3d_relu_gn_tail", "load statistics", "load statistics; load output"},
      {"conv2d_gn_tanh_hardswish_residual_lse_tail", "load statistics; load statistics",
       "load statistics; load statistics; load output"},
  };
  for (const PassExpectation& expected : expectations) {
    const TypedBlock block = reference_block(expected.block);
    std::vector<std::string> parameters;
    for (const NamedType& parameter : block.parameters()) parameters.push_back(parameter.name);
    auto passes_for = [&](const std::vector<std::string>& wanted) {
      return passes(make_training_schedules(block, block.backward(wanted), DType::kF32, h200(),
                                            {.reuse = Reuse::kRecompute})
                        .second);
    };
    EXPECT_EQ(passes_for(parameters), expected.weights) << expected.block;
    EXPECT_EQ(passes_for({}), expected.all) << expected.block;
  }
}

// Forward takes no pass more than it does without saving.
TEST(Training, PassesOfForwardStayTheSame) {
  for (const ReferenceBlock& each : reference_blocks()) {
    const TypedBlock block = reference_block(std::string(each.name));
    for (Reuse reuse : {Reuse::kByCost, Reuse::kStore, Reuse::kRecompute}) {
      const Schedule plain = make_schedule(block, h200(), reuse);
      const Schedule forward =
          make_training_schedules(block, block.backward(), DType::kF32, h200(), {.reuse = reuse}).first;
      EXPECT_EQ(plain.sweep_count(), forward.sweep_count()) << each.name;
    }
  }
}

TEST(Training, BothPlansListTheSameValues) {
  const TypedBlock block = typed("conv2d(8, k=3) | group_norm(4) | relu", "f32[2,3,8,8]");
  const Plan plan = Plan::make(block, Device::by_name("cpu"), {.reuse = Reuse::kStore});
  const TrainingPlans both = plan.for_training({"conv2d.weight"});
  EXPECT_EQ(list_text(both.forward.saved()), list_text(both.backward.saved()));
  const std::string saved = list_text(both.forward.saved());
  ASSERT_FALSE(saved.empty());
  EXPECT_EQ(list_text(both.forward.inputs()), list_text(plan.inputs()));
  EXPECT_EQ(list_text(both.forward.outputs()), list_text(plan.outputs()) + ", " + saved);
  const Plan backward = plan.backward({"conv2d.weight"});
  EXPECT_EQ(list_text(both.backward.inputs()), list_text(backward.inputs()) + ", " + saved);
  EXPECT_EQ(list_text(both.backward.outputs()), list_text(backward.outputs()));
  EXPECT_TRUE(plan.saved().empty());
  EXPECT_TRUE(backward.saved().empty());
}

TEST(Training, OnTheReferenceEngineNothingIsSaved) {
  const Plan plan = Plan::make(typed("group_norm(4) | silu", "f32[2,8,5,5]"), Device::reference());
  const TrainingPlans both = plan.for_training();
  EXPECT_TRUE(both.forward.saved().empty());
  EXPECT_TRUE(both.backward.saved().empty());
  EXPECT_EQ(list_text(both.forward.outputs()), list_text(plan.outputs()));
  EXPECT_EQ(list_text(both.backward.inputs()), list_text(plan.backward().inputs()));
}

TEST(Training, RefusesSavedTensorsThatDoNotFit) {
  const TypedBlock block = typed("group_norm(4) | silu", "f32[2,8,5,5]");
  const TrainingPlans both = Plan::make(block, Device::by_name("cpu")).for_training();
  TensorMap tensors = random_arguments(block, 1);
  Tensor output(TensorType::parse("f32[2,8,5,5]"));
  Tensor wrong(TensorType::parse("f32[2,8]"));
  Tensor right(TensorType::parse("f32[2,4]"));
  std::map<std::string, ConstTensorView, std::less<>> inputs;
  for (const auto& [name, tensor] : tensors) inputs.emplace(name, tensor.view());
  std::map<std::string, TensorView, std::less<>> outputs = {{"silu", output.view()},
                                                            {"saved.group_norm.mean", right.view()}};
  EXPECT_TRUE(refusal([&] {
                both.forward.bind(inputs, outputs);
              }).says("no tensor for the output `saved.group_norm.rstd`, expected f32[2,4]"));
  outputs.emplace("saved.group_norm.rstd", wrong.view());
  Workspace workspace(both.forward.workspace_bytes());
  EXPECT_TRUE(refusal([&] {
                both.forward.run(both.forward.bind(inputs, outputs), workspace.bytes());
              }).says("saved.group_norm.rstd: expected f32[2,4], got f32[2,8]"));
  inputs.emplace("d_silu", output.view());
  Tensor d_x(TensorType::parse("f32[2,8,5,5]"));
  EXPECT_TRUE(refusal([&] {
                both.backward.bind(inputs, {});
              }).says("no tensor for the input `saved.group_norm.mean`, expected f32[2,4]"));
}

// Saved tensors may lie in memory as they like, as any other may.
TEST(Training, SavedTensorsMayBeStrided) {
  const TypedBlock block = typed("conv2d(8, k=3) | group_norm(4) | silu", "f32[2,3,7,6]");
  const TrainingPlans both =
      Plan::make(block, Device::by_name("cpu"), {.reuse = Reuse::kStore}).for_training();
  TensorMap dense = training_arguments(block);
  TensorMap strided = training_arguments(block);
  TensorMap saved = run(both.forward, dense);
  for (const NamedType& value : both.forward.saved()) {
    TensorType type = value.type;
    type.layout = Layout::kChannelsLast;
    Tensor copy(type);
    for (std::int64_t i = 0; i < type.element_count(); ++i) copy.set(i, saved.at(value.name).get(i));
    dense.insert_or_assign(value.name, std::move(saved.at(value.name)));
    strided.insert_or_assign(value.name, std::move(copy));
  }
  const TensorMap expected = run(both.backward, dense);
  const TensorMap actual = run(both.backward, strided);
  for (const auto& [name, tensor] : expected) expect_close(tensor, actual.at(name), 0, name);
}

TEST(Training, ExplainListsWhatIsSaved) {
  const TypedBlock block = typed("conv2d(8, k=3) | group_norm(4) | relu", "f32[2,3,8,8]");
  const TrainingPlans both =
      Plan::make(block, Device::by_name("cpu"), {.reuse = Reuse::kStore}).for_training();
  const std::string line = "saved.group_norm.mean f32[2,4], 32 bytes, spares a pass over conv2d\n";
  EXPECT_NE(both.forward.explain().find("saved for backward: " + line), std::string::npos)
      << both.forward.explain();
  EXPECT_NE(both.backward.explain().find("saved by forward: " + line), std::string::npos);
  EXPECT_NE(both.forward.explain().find("choice for conv2d for backward: save, asked for"),
            std::string::npos);
  EXPECT_NE(both.backward.explain_json().find("\"side\": \"read\""), std::string::npos);
}

}  // namespace
}  // namespace fuseblock::cases
