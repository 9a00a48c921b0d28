// Sweeps over channels_last values: which of them walk memory in its order, and their results where the extents cross
// chunks, blocks and tasks, against the reference engine, on strided views, on difficult data, on several threads.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "cases.h"
#include "cpu/channels_last.h"
#include "cpu/program_split.h"
#include "plan/schedule.h"

namespace fuseblock {
namespace {

using cases::TensorMap;

TypedBlock typed(const std::string& block, const std::string& type, const TypeMap& others = {}) {
  return TypedBlock::infer(Block::parse(block), TensorType::parse(type), others);
}

// How many sweeps a block has, how many of them are channels_last ones, how many run after an earlier one.
struct Counts {
  int sweeps = 0;
  int channels_last = 0;
  int together = 0;
  friend bool operator==(const Counts&, const Counts&) = default;
};

std::ostream& operator<<(std::ostream& out, const Counts& counts) {
  return out << counts.channels_last << " of " << counts.sweeps << ", " << counts.together << " together";
}

Counts count(const TypedBlock& block) {
  const Schedule schedule = make_schedule(block, Device::by_name("h200").description());
  const cpu::ChannelsLastChoice choice = cpu::find_channels_last(schedule);
  Counts counts;
  for (std::size_t i = 0; i < schedule.steps.size(); ++i) {
    counts.sweeps += schedule.steps[i].kind == StepKind::kSweep ? 1 : 0;
    counts.channels_last += choice.steps[i] ? 1 : 0;
    counts.together += choice.together[i] < static_cast<int>(i) ? 1 : 0;
  }
  return counts;
}

TEST(ChannelsLast, SweepsThatAreFound) {
  EXPECT_EQ(count(typed("group_norm(2) | silu", "f32[2,8,5,7]:cl")), (Counts{2, 2, 0}));
  EXPECT_EQ(count(typed("group_norm(2) | silu", "f32[2,8,5,7]:cl").backward()), (Counts{3, 3, 0}));
  EXPECT_EQ(count(typed("layer_norm(c)", "f32[2,8,5,7]:cl")), (Counts{2, 2, 1}));
  EXPECT_EQ(count(typed("layer_norm(c)", "f32[2,8,5,7]:cl").backward()), (Counts{3, 3, 2}));
  EXPECT_EQ(count(typed("softmax(c)", "f32[2,8,5,7]:cl")), (Counts{2, 2, 1}));
  // Without positions the samples are the positions, whatever the layout.
  EXPECT_EQ(count(typed("layer_norm(c)", "f32[5,8]")), (Counts{2, 2, 1}));
  EXPECT_EQ(count(typed("group_norm(2) | silu", "f32[5,8]").backward()), (Counts{3, 3, 0}));
  EXPECT_EQ(count(typed("relu", "f32[2,8,1,1]")), (Counts{1, 1, 0}));
  // Pools between them take any layout.
  EXPECT_EQ(count(typed("relu | max_pool(2) | neg", "f32[2,8,6,8]:cl")), (Counts{2, 2, 0}));
  EXPECT_EQ(count(typed("max_pool(2)", "bf16[2,8,6,8]:cl").backward()), (Counts{1, 1, 0}));
  EXPECT_EQ(count(typed("relu | max_pool(2) | neg", "f32[2,8,6,8]")).channels_last, 0);
  EXPECT_EQ(count(typed("conv2d(4, k=1) | max_pool(2)", "f32[2,8,6,8]:cl")).channels_last, 0);
  // Contiguous, one channel, one element of a channel, a convolution, two layouts, exponentials over positions.
  EXPECT_EQ(count(typed("group_norm(2) | silu", "f32[2,8,5,7]")).channels_last, 0);
  EXPECT_EQ(count(typed("relu", "f32[2,1,5,7]:cl")).channels_last, 0);
  EXPECT_EQ(count(typed("relu", "f32[1,8,1,1]:cl")).channels_last, 0);
  EXPECT_EQ(count(typed("conv2d(4, k=1)", "f32[2,8,5,7]:cl")).channels_last, 0);
  EXPECT_EQ(count(typed("mul(gate)", "f32[2,8,5,7]:cl", {{"gate", TensorType::parse("f32[2,8,5,7]")}}))
                .channels_last,
            0);
  EXPECT_EQ(count(typed("logsumexp(h,w)", "f32[2,8,5,7]:cl")).channels_last, 0);
}

TEST(ChannelsLast, ProgramsAreSplitByWhatTheyVaryAlong) {
  // (x - mean[position]) * (1 / rstd[position] * weight[channel]) + bias[channel] * 2, and the bias itself.
  using Step = Formula::Step;
  auto input = [](int number) { return Step{Primitive::kInput, -1, -1, -1, number, 0}; };
  auto apply = [](Primitive primitive, int a, int b) { return Step{primitive, a, b, -1, -1, 0}; };
  const std::vector<Step> steps = {
      input(0),  // 0 x
      input(1),  // 1 mean
      input(2),  // 2 rstd
      input(3),  // 3 weight
      input(4),  // 4 bias
      Step{Primitive::kConstant, -1, -1, -1, -1, 1},
      Step{Primitive::kConstant, -1, -1, -1, -1, 2},
      apply(Primitive::kSub, 0, 1),    // 7
      apply(Primitive::kDiv, 5, 2),    // 8 positions
      apply(Primitive::kMul, 8, 3),    // 9
      apply(Primitive::kMul, 7, 9),    // 10
      apply(Primitive::kMul, 4, 6),    // 11 channels
      apply(Primitive::kAdd, 10, 11),  // 12
  };
  const cpu::Variation varies[] = {{true, true}, {false, true}, {false, true}, {true, false}, {true, false}};
  const cpu::ProgramSplit split = cpu::split_program(steps, varies, {12, 4});
  EXPECT_EQ(split.by_channel.inputs, (std::vector<int>{3, 4}));
  EXPECT_EQ(split.by_channel.wanted.size(), 3U);  // weight, bias, bias * 2
  EXPECT_EQ(split.channel_varies, (std::vector<bool>{true, true, true}));
  EXPECT_EQ(split.by_position.inputs, (std::vector<int>{1, 2}));
  EXPECT_EQ(split.by_position.wanted.size(), 2U);  // mean, 1 / rstd
  EXPECT_EQ(split.rest.inputs, (std::vector<int>{0}));
  EXPECT_EQ(split.rest.wanted.size(), 2U);
  const auto arithmetic =
      std::count_if(split.rest.steps.begin(), split.rest.steps.end(), [](const Step& step) {
        return step.primitive != Primitive::kInput && step.primitive != Primitive::kConstant;
      });
  EXPECT_EQ(arithmetic, 4);  // 7, 9, 10, 12
}

TensorMap results(const TypedBlock& block, const Device& device, const TensorMap& tensors, int threads = 0) {
  const Plan forward = Plan::make(block, device, {.threads = threads});
  TensorMap result = cases::run(forward, tensors);
  if (block.differentiable().empty()) return result;
  for (auto& [name, tensor] : cases::run(forward.backward(), tensors))
    result.insert_or_assign(name, std::move(tensor));
  return result;
}

TensorMap random_tensors(const TypedBlock& block) {
  TensorMap tensors = cases::random_arguments(block, 5);
  for (auto& [name, tensor] : cases::random_output_gradients(block, 6))
    tensors.insert_or_assign(name, std::move(tensor));
  return tensors;
}

// The largest distance, as a share of the largest element.
double error(const Tensor& expected, const Tensor& actual) {
  double largest = 0;
  double distance = 0;
  for (std::int64_t i = 0; i < expected.type().element_count(); ++i) {
    largest = std::max(largest, std::fabs(expected.get(i)));
    distance = std::max(distance, std::fabs(expected.get(i) - actual.get(i)));
    if (std::isnan(actual.get(i))) return std::numeric_limits<double>::infinity();
  }
  return distance / (1 + largest);
}

struct Shape {
  std::string block;
  std::string extents;
};

// Few and many channels, odd ones, more than a chunk holds; positions that end inside a chunk, a block, a task.
const Shape kShapes[] = {
    {"group_norm(1) | silu", "[2,2,61,47]"},
    {"group_norm(3)", "[1,3,97,101]"},
    {"group_norm(2) | gelu", "[3,10,29,31]"},
    {"group_norm(8) | silu", "[1,64,37,23]"},
    {"group_norm(13) | relu", "[2,65,17,19]"},
    {"group_norm(32) | silu", "[2,320,9,11]"},
    {"instance_norm(affine=true)", "[1,1100,5,7]"},
    {"batch_norm | relu", "[3,24,21,23]"},
    {"group_norm(4) | silu", "[1,12,9,10,11]"},
    {"layer_norm(c)", "[2,3,40,41]"},
    {"layer_norm(c)", "[1,40,33,31]"},
    {"layer_norm(c) | gelu", "[2,200,9,11]"},
    {"layer_norm(c)", "[1,1100,7,5]"},
    {"rms_norm(c)", "[2,48,23,19]"},
    {"softmax(c)", "[2,19,31,17]"},
    {"logsumexp(c, keepdim)", "[1,300,13,11]"},
    {"max(c)", "[2,21,31,17]"},
    {"mean(h,w)", "[2,21,61,37]"},
    {"max(h,w)", "[2,5,61,37]"},
    {"min(c,h,w)", "[2,70,31,17]"},
    {"l2_normalize(c)", "[2,33,17,19]"},
    {"y = softmax(x, c); z = layer_norm(y, c); m = mean(z, h,w); p = z * x; return p, m", "[2,20,23,29]"},
    // Without positions: samples and channels beyond a chunk, a block, a task of a finalise step.
    {"group_norm(5) | silu", "[40,20,1,1]"},
    {"group_norm(3) | gelu", "[150,333,1,1]"},
    {"batch_norm | relu", "[701,33,1,1]"},
    {"layer_norm(c) | gelu", "[67,200,1,1]"},
    {"layer_norm(c)", "[2,9000,1,1]"},
    {"rms_norm(c)", "[700,3,1,1]"},
    {"softmax(c)", "[3,5000,1,1]"},
    {"logsumexp(c, keepdim)", "[300,13,1,1]"},
    {"logsumexp(h,w)", "[33,21,1,1]"},
    {"max(c)", "[33,21,1,1]"},
    {"max(h,w)", "[33,21,1,1]"},
    {"sum(n)", "[701,33,1,1]"},
    {"max(n)", "[701,33,1,1]"},
    {"mean(n,c)", "[301,33,1,1]"},
    {"logsumexp(n)", "[33,21,1,1]"},
    {"y = softmax(x, c); z = layer_norm(y, c); m = mean(z, h,w); p = z * x; return p, m", "[29,20,1,1]"},
};

TEST(ChannelsLast, AgreesWithTheReference) {
  for (const Shape& shape : kShapes) {
    SCOPED_TRACE(shape.block + " on " + shape.extents);
    const TypedBlock block = typed(shape.block, "f64" + shape.extents + ":cl");
    const Counts counts = count(block);
    EXPECT_EQ(counts.channels_last, counts.sweeps);
    const TensorMap tensors = random_tensors(block);
    const TensorMap expected = results(block, Device::reference(), tensors);
    const TensorMap actual = results(block, Device::by_name("cpu"), tensors);
    for (const auto& [name, tensor] : expected) EXPECT_LE(error(tensor, actual.at(name)), 1e-10) << name;
  }
}

TEST(ChannelsLast, HasTheSameBitsOnAnyNumberOfThreads) {
  for (const Shape& shape : kShapes)
    for (const char* dtype : {"f32", "bf16"}) {
      SCOPED_TRACE(shape.block + " on " + dtype + shape.extents);
      const TypedBlock block = typed(shape.block, dtype + shape.extents + ":cl");
      const TensorMap tensors = random_tensors(block);
      const TensorMap one = results(block, Device::by_name("cpu"), tensors, 1);
      for (int threads : {2, 3}) {
        const TensorMap more = results(block, Device::by_name("cpu"), tensors, threads);
        for (const auto& [name, tensor] : one)
          EXPECT_EQ(0, std::memcmp(tensor.data(), more.at(name).data(),
                                   static_cast<std::size_t>(tensor.type().byte_count())))
              << name << " on " << threads << " threads";
      }
    }
}

// The input in a larger tensor: a part of its positions and of its channels, or plainly contiguous.
TEST(ChannelsLast, ViewsOfAnyStridesGiveTheSameBits) {
  constexpr std::int64_t kN = 2, kC = 24, kH = 19, kW = 23;
  for (const char* dtype : {"f32", "bf16"})
    for (const char* text : {"group_norm(4) | silu", "layer_norm(c)"}) {
      const TypedBlock block = typed(text, std::string(dtype) + "[2,24,19,23]:cl");
      const Plan plan = Plan::make(block, Device::by_name("cpu"));
      const TensorMap tensors = cases::random_arguments(block, 5);
      const TensorMap expected = cases::run(plan, tensors);
      const Tensor& dense = expected.begin()->second;
      const std::int64_t wide = kC + 3;
      const std::vector<std::int64_t> layouts[] = {
          {(kH + 2) * (kW + 1) * kC, 1, (kW + 1) * kC, kC},        // rows with a gap
          {(kH + 2) * (kW + 1) * wide, 1, (kW + 1) * wide, wide},  // positions with a gap
          {kC * kH * kW, kH * kW, kW, 1},                          // contiguous
          {2 * kH * kW * kC, 2, kW * kC * 2, kC * 2},              // every second channel
      };
      for (const std::vector<std::int64_t>& strides : layouts) {
        SCOPED_TRACE(std::string(text) + " " + dtype + ", stride of channels " + std::to_string(strides[1]));
        auto offset = [&](std::int64_t i) {
          const std::int64_t w = i % kW, h = i / kW % kH, c = i / kW / kH % kC, n = i / kW / kH / kC;
          return n * strides[0] + c * strides[1] + h * strides[2] + w * strides[3];
        };
        const auto room = static_cast<std::size_t>(kN * strides[0]) * 4 + 4096;
        std::vector<std::byte> in(room), out(room, std::byte{0xa5});
        const TensorType& type = dense.type();
        const std::int64_t size = byte_size(type.dtype);
        for (std::int64_t i = 0; i < type.element_count(); ++i)
          store_element(in.data(), type.dtype, offset(i), tensors.at("x").get(i));
        Arguments bound;
        for (const NamedType& input : plan.inputs())
          bound.inputs.push_back(input.name == "x"
                                     ? ConstTensorView{in.data(), type.dtype, type.extents, strides}
                                     : tensors.at(input.name).view());
        bound.outputs.push_back({out.data(), type.dtype, type.extents, strides});
        std::vector<std::byte> workspace(plan.workspace_bytes() + 64, std::byte{0xff});
        const std::size_t past = reinterpret_cast<std::uintptr_t>(workspace.data()) % 64;
        plan.run(bound, std::span(workspace).subspan(64 - past, plan.workspace_bytes()));
        std::vector<bool> owned(room, false);
        for (std::int64_t i = 0; i < type.element_count(); ++i) {
          ASSERT_EQ(load_element(out.data(), type.dtype, offset(i)), dense.get(i)) << i;
          std::fill_n(owned.begin() + offset(i) * size, size, true);
        }
        for (std::size_t i = 0; i < room; ++i)
          ASSERT_TRUE(owned[i] || out[i] == std::byte{0xa5}) << "byte " << i << " belongs to no element";
      }
    }
}

// x, with the other arguments at random, through both layouts and the reference: the errors.
struct Errors {
  double channels_last = 0;
  double contiguous = 0;
};

template <class Element>
Errors errors(const std::string& text, const std::string& extents, Element element) {
  auto run_on = [&](const std::string& type, const Device& device) {
    const TypedBlock block = typed(text, type);
    TensorMap tensors = cases::random_arguments(block, 5);
    Tensor& x = tensors.at("x");
    for (std::int64_t i = 0; i < x.type().element_count(); ++i)
      x.set(i, static_cast<double>(static_cast<float>(element(i))));
    TensorMap result = cases::run(Plan::make(block, device), tensors);
    return std::move(result.begin()->second);
  };
  const Tensor expected = run_on("f64" + extents, Device::reference());
  return {error(expected, run_on("f32" + extents + ":cl", Device::by_name("cpu"))),
          error(expected, run_on("f32" + extents, Device::by_name("cpu")))};
}

double wave(std::int64_t i) { return std::sin(static_cast<double>(i) * 12.9898) * 1.7; }

TEST(ChannelsLast, MomentsAreAsGoodAsThoseOfRows) {
  constexpr const char* kBlock = "instance_norm";
  for (const char* extents : {"[1,10,50,60]", "[1,80,50,60]"}) {
    SCOPED_TRACE(extents);
    // A mean far above the deviation; one that drifts; one that jumps after the first position, and half way through.
    const Errors far = errors(kBlock, extents, [](std::int64_t i) { return 1e4 + wave(i); });
    EXPECT_LE(far.channels_last, 1e-5 + 2 * far.contiguous);
    const Errors drift =
        errors(kBlock, extents, [](std::int64_t i) { return static_cast<double>(i % 3000) * 0.1 + wave(i); });
    EXPECT_LE(drift.channels_last, 1e-6 + 2 * drift.contiguous);
    const Errors first =
        errors(kBlock, extents, [](std::int64_t i) { return i % 3000 == 0 ? 1e3 : 7 + 0.01 * wave(i); });
    EXPECT_LE(first.channels_last, 1e-6 + 2 * first.contiguous);
    const Errors half =
        errors(kBlock, extents, [](std::int64_t i) { return (i % 3000 < 1500 ? 0 : 1e4) + wave(i); });
    EXPECT_LE(half.channels_last, 1e-6 + 2 * half.contiguous);
    // No variance at all, and squares beyond the range of float.
    const Errors equal = errors(kBlock, extents, [](std::int64_t) { return 0.1; });
    EXPECT_LE(equal.channels_last, 1e-6 + 2 * equal.contiguous);
    const Errors large = errors(kBlock, extents, [](std::int64_t i) { return 1e25 * wave(i); });
    EXPECT_LE(large.channels_last, 1e-6 + 2 * large.contiguous);
  }
}

TEST(ChannelsLast, NaNAndInfinityStayInTheirGroup) {
  for (double odd : {std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity()}) {
    const TypedBlock block = typed("group_norm(4)", "f32[2,8,30,40]:cl");
    TensorMap tensors = cases::random_arguments(block, 5);
    const std::int64_t plane = 30 * 40;
    tensors.at("x").set(3 * plane + 777, odd);  // channel 3 of the first sample: group 1
    const TensorMap result = cases::run(Plan::make(block, Device::by_name("cpu")), tensors);
    const Tensor& y = result.begin()->second;
    for (std::int64_t i = 0; i < y.type().element_count(); ++i)
      ASSERT_EQ(std::isnan(y.get(i)), i / plane == 2 || i / plane == 3) << i;
  }
}

}  // namespace
}  // namespace fuseblock
