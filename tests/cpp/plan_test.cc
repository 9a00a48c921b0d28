// Plans at their borders: tensors that do not fit, tensors of any strides, workspaces of any contents, several threads.
#include "fuseblock/plan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <nlohmann/json.hpp>
#include <thread>

#include "cases.h"
#include "refusal.h"

namespace fuseblock {
namespace {

using cases::TensorMap;
using Extents = std::vector<std::int64_t>;

Plan make(const std::string& block, const std::string& x) {
  return Plan::make(Block::parse(block), x, {}, Device::reference());
}

// Bytes of a workspace, all of one value, with more of them behind.
class PoisonedWorkspace {
 public:
  PoisonedWorkspace(std::size_t bytes, int poison)
      : memory_(bytes + 2 * kGuard, static_cast<std::byte>(poison)), poison_(static_cast<std::byte>(poison)) {
    const std::size_t past = reinterpret_cast<std::uintptr_t>(memory_.data()) % kGuard;
    span_ = std::span(memory_).subspan(kGuard - past, bytes);
  }
  std::span<std::byte> span() { return span_; }
  bool guards_are_intact() const {
    const auto same = [&](std::byte byte) { return byte == poison_; };
    return std::all_of(memory_.data(), static_cast<const std::byte*>(span_.data()), same) &&
           std::all_of(static_cast<const std::byte*>(span_.data()) + span_.size(),
                       memory_.data() + memory_.size(), same);
  }

 private:
  static constexpr std::size_t kGuard = 64;
  std::vector<std::byte> memory_;
  std::byte poison_;
  std::span<std::byte> span_;
};

// A copy of a tensor (or room for one) with strides of its own in the middle of guarded memory.
class StridedCopy {
 public:
  // How the copy lies in memory. `misaligned` starts on an odd multiple of the element; `flipped` has negative strides.
  enum class Kind { kDense, kTransposed, kWithGaps, kMisaligned, kFlipped };

  StridedCopy(const TensorType& type, Kind kind) : type_(type) {
    std::vector<std::size_t> order(type.extents.size());  // axes from the fastest on
    for (std::size_t i = 0; i < order.size(); ++i)
      order[i] = kind == Kind::kTransposed ? i : order.size() - 1 - i;
    strides_.assign(order.size(), 0);
    std::int64_t step = kind == Kind::kWithGaps ? 3 : 1;
    for (std::size_t axis : order) {
      strides_[axis] = step;
      step *= type.extents[axis] + (kind == Kind::kWithGaps ? 1 : 0);
    }
    first_ = kGuard + (kind == Kind::kMisaligned ? 1 : 0);
    if (kind == Kind::kFlipped) {
      for (std::size_t axis = 0; axis < strides_.size(); ++axis) {
        first_ += strides_[axis] * (type.extents[axis] - 1);
        strides_[axis] = -strides_[axis];
      }
    }
    memory_.assign(static_cast<std::size_t>((step + 2 * kGuard + 2) * byte_size(type.dtype)), kPattern);
  }

  TensorView view() {
    return {memory_.data() + first_ * byte_size(type_.dtype), type_.dtype, type_.extents, strides_};
  }

  void copy_from(const Tensor& tensor) {
    for (std::int64_t i = 0; i < type_.element_count(); ++i)
      store_element(view().data, type_.dtype, offset(i), tensor.get(i));
  }
  std::vector<double> to_doubles() {
    std::vector<double> numbers;
    for (std::int64_t i = 0; i < type_.element_count(); ++i)
      numbers.push_back(load_element(view().data, type_.dtype, offset(i)));
    return numbers;
  }
  // Whether all bytes that belong to no element are as they were.
  bool guards_are_intact() {
    const std::int64_t size = byte_size(type_.dtype);
    std::vector<bool> owned(memory_.size(), false);
    for (std::int64_t i = 0; i < type_.element_count(); ++i)
      for (std::int64_t byte = 0; byte < size; ++byte)
        owned[static_cast<std::size_t>((first_ + offset(i)) * size + byte)] = true;
    for (std::size_t i = 0; i < memory_.size(); ++i)
      if (!owned[i] && memory_[i] != kPattern) return false;
    return true;
  }

 private:
  static constexpr std::int64_t kGuard = 16;
  static constexpr std::byte kPattern = std::byte{0xa5};

  std::int64_t offset(std::int64_t index) const {
    std::int64_t result = 0;
    for (std::size_t axis = strides_.size(); axis-- > 0;) {
      result += index % type_.extents[axis] * strides_[axis];
      index /= type_.extents[axis];
    }
    return result;
  }

  TensorType type_;
  Extents strides_;
  std::int64_t first_ = 0;  // in elements
  std::vector<std::byte> memory_;
};

using Kind = StridedCopy::Kind;

TEST(PlanViews, AnyStridesGiveTheSameResults) {
  const Block block = Block::parse(
      "y = conv2d(x, 4, k=3); g = group_norm(y, 2); s = silu(g + skip); m = mean(s, h,w); p = max_pool(s, "
      "2); return p, m");
  for (const char* type : {"f64[2,3,7,6]", "f32[2,3,7,6]", "bf16[2,3,7,6]:cl", "f16[2,3,7,6]"}) {
    const Plan plan = Plan::make(block, type, {}, Device::reference());
    const TensorMap arguments = cases::random_arguments(plan.block(), 3);
    const TensorMap expected = cases::run(plan, arguments);
    for (Kind kind : {Kind::kDense, Kind::kTransposed, Kind::kWithGaps, Kind::kMisaligned, Kind::kFlipped}) {
      SCOPED_TRACE(std::string(type) + ", kind " + std::to_string(static_cast<int>(kind)));
      std::map<std::string, StridedCopy> inputs;
      std::map<std::string, StridedCopy> outputs;
      Arguments bound;
      for (const NamedType& input : plan.inputs()) {
        StridedCopy& copy = inputs.try_emplace(input.name, input.type, kind).first->second;
        copy.copy_from(arguments.at(input.name));
        bound.inputs.push_back(copy.view());
      }
      for (const NamedType& output : plan.outputs())
        bound.outputs.push_back(outputs.try_emplace(output.name, output.type, kind).first->second.view());
      PoisonedWorkspace workspace(plan.workspace_bytes(), 0xff);
      plan.run(bound, workspace.span());
      EXPECT_TRUE(workspace.guards_are_intact());
      for (auto& [name, output] : outputs) {
        EXPECT_EQ(output.to_doubles(), expected.at(name).to_doubles()) << name;
        EXPECT_TRUE(output.guards_are_intact()) << name;
      }
      for (auto& [name, input] : inputs)
        EXPECT_EQ(input.to_doubles(), arguments.at(name).to_doubles()) << name;
    }
  }
}

TEST(PlanViews, ExpandedInputsAreReadAgainAndAgain) {
  for (const char* dtype : {"f64", "f32", "bf16", "f16"}) {
    const Plan plan = make("softmax(w) | add(skip)", std::string(dtype) + "[2,3,4]");
    const TensorType row = TensorType::make(plan.inputs()[0].type.dtype, {1, 3, 1});
    Tensor values(row);
    for (std::int64_t i = 0; i < 3; ++i) values.set(i, static_cast<double>(i) - 0.5);
    TensorMap arguments = cases::random_arguments(plan.block(), 3);
    for (std::int64_t i = 0; i < 24; ++i) arguments.at("skip").set(i, values.get(i / 4 % 3));
    const TensorMap expected = cases::run(plan, arguments);
    ConstTensorView expanded = std::as_const(values).view();
    expanded.extents = {2, 3, 4};
    expanded.strides = {0, 1, 0};
    Tensor output(plan.outputs()[0].type);
    Workspace workspace(plan.workspace_bytes());
    plan.run(plan.bind({{"x", std::as_const(arguments.at("x")).view()}, {"skip", expanded}},
                       {{"add", output.view()}}),
             workspace.bytes());
    EXPECT_EQ(output.to_doubles(), expected.at("add").to_doubles()) << dtype;
  }
}

// Forward and backward of every case: what the workspace held before does not matter, and nothing is written behind it.
TEST(PlanWorkspace, ContentsDoNotMatter) {
  for (const cases::Case& each : cases::read_cases(cases::case_files())) {
    const Plan forward = Plan::make(each.typed(), Device::reference());
    for (const Plan& plan : {forward, forward.backward()}) {
      TensorMap arguments = cases::random_arguments(plan.block(), 5);
      std::vector<std::vector<std::byte>> results;
      for (const int poison : {0x00, 0xff, 0x7f}) {
        Arguments bound;
        TensorMap outputs;
        for (const NamedType& input : plan.inputs())
          bound.inputs.push_back(std::as_const(arguments.at(input.name)).view());
        for (const NamedType& output : plan.outputs())
          bound.outputs.push_back(outputs.emplace(output.name, Tensor(output.type)).first->second.view());
        PoisonedWorkspace workspace(plan.workspace_bytes(), poison);
        plan.run(bound, workspace.span());
        EXPECT_TRUE(workspace.guards_are_intact()) << each.name;
        std::vector<std::byte>& bytes = results.emplace_back();
        for (const auto& [name, output] : outputs)
          bytes.insert(bytes.end(), output.data(), output.data() + output.type().byte_count());
      }
      EXPECT_TRUE(results[0] == results[1] && results[0] == results[2])
          << each.name << ": " << each.command("reference");
    }
  }
}

TEST(PlanThreads, MayRunTheSamePlanAtOnce) {
  const Plan plan =
      make("conv2d(8, k=3, pad=1) | group_norm(4) | silu | add(skip) | logsumexp(c)", "f32[2,8,9,9]");
  const TensorMap arguments = cases::random_arguments(plan.block(), 5);
  const std::vector<double> expected = cases::run(plan, arguments).at("logsumexp").to_doubles();
  std::vector<std::vector<double>> results(4);
  std::vector<std::thread> threads;
  for (auto& result : results)
    threads.emplace_back([&] {
      for (int i = 0; i < 5; ++i) result = cases::run(plan, arguments).at("logsumexp").to_doubles();
    });
  for (std::thread& thread : threads) thread.join();
  for (const auto& result : results) EXPECT_EQ(result, expected);
}

// A plan with one extra input and everything it takes, which tests then spoil.
class PlanMistakes : public ::testing::Test {
 protected:
  std::string refused(const Arguments& arguments) {
    return refusal([&] { plan_.run(arguments, workspace_.bytes()); }).message;
  }
  Arguments good() { return {{x_.view(), skip_.view()}, {y_.view()}}; }

  Plan plan_ = make("add(skip) as y", "f32[2,3]");
  Tensor x_{TensorType::parse("f32[2,3]")};
  Tensor skip_{TensorType::parse("f32[2,3]")};
  Tensor y_{TensorType::parse("f32[2,3]")};
  Workspace workspace_{plan_.workspace_bytes()};
};

TEST_F(PlanMistakes, Bind) {
  const auto bind = [&](const std::map<std::string, ConstTensorView, std::less<>>& inputs,
                        const std::map<std::string, TensorView, std::less<>>& outputs) {
    return refusal([&] { plan_.bind(inputs, outputs); }).message;
  };
  EXPECT_EQ(bind({{"x", x_.view()}, {"skip", skip_.view()}}, {{"y", y_.view()}}), "");
  EXPECT_EQ(bind({{"x", x_.view()}}, {{"y", y_.view()}}),
            "no tensor for the input `skip`, expected f32[2,3]");
  EXPECT_EQ(bind({{"x", x_.view()}, {"skip", skip_.view()}}, {}),
            "no tensor for the output `y`, expected f32[2,3]");
  EXPECT_EQ(bind({{"x", x_.view()}, {"skip", skip_.view()}, {"z", x_.view()}}, {{"y", y_.view()}}),
            "the plan has no input `z`");
  EXPECT_EQ(bind({{"x", x_.view()}, {"skip", skip_.view()}}, {{"y", y_.view()}, {"x", x_.view()}}),
            "the plan has no output `x`");
}

TEST_F(PlanMistakes, Tensors) {
  EXPECT_EQ(refused(good()), "");
  Arguments few = good();
  few.inputs.pop_back();
  EXPECT_EQ(refused(few), "expected 2 inputs and 1 outputs, got 1 and 1");
  Arguments wrong_dtype = good();
  wrong_dtype.inputs[1].dtype = DType::kBF16;
  EXPECT_EQ(refused(wrong_dtype), "skip: expected f32[2,3], got bf16[2,3]");
  Arguments wrong_extents = good();
  wrong_extents.outputs[0].extents = {3, 2};
  EXPECT_EQ(refused(wrong_extents), "y: expected f32[2,3], got f32[3,2]");
  Arguments wrong_rank = good();
  wrong_rank.inputs[0].extents = {6};
  EXPECT_EQ(refused(wrong_rank), "x: expected f32[2,3], got f32[6]");
  Arguments few_strides = good();
  few_strides.inputs[0].strides = {1};
  EXPECT_EQ(refused(few_strides), "x: expected 2 strides, got 1");
  Arguments null = good();
  null.outputs[0].data = nullptr;
  EXPECT_EQ(refused(null), "y: the tensor has no memory (null)");
}

TEST_F(PlanMistakes, OutputsThatOverlapThemselves) {
  for (const Extents& strides : std::vector<Extents>{{0, 1}, {3, 0}, {1, 1}, {2, 1}, {-2, 1}, {1, -1}}) {
    Arguments overlapping = good();
    overlapping.outputs[0].strides = strides;
    EXPECT_EQ(refused(overlapping), "y: an output must not overlap itself; extents [2,3], strides [" +
                                        std::to_string(strides[0]) + "," + std::to_string(strides[1]) + "]");
  }
  Arguments transposed = good();
  transposed.outputs[0].strides = {1, 2};
  EXPECT_EQ(refused(transposed), "");
}

TEST_F(PlanMistakes, OutputsInTheMemoryOfOtherTensors) {
  Arguments in_place = good();
  in_place.outputs[0].data = skip_.data();
  EXPECT_EQ(refused(in_place), "y: an output must not lie in the memory of skip");
  const Plan two = make("y = silu(x); z = neg(y); return y, z", "f32[2,3]");
  Workspace workspace(two.workspace_bytes());
  const Arguments shared = {{x_.view()}, {y_.view(), y_.view()}};
  EXPECT_EQ(refusal([&] { two.run(shared, workspace.bytes()); }).message,
            "z: an output must not lie in the memory of y");
}

// Inputs may share memory, and empty tensors share nothing.
TEST_F(PlanMistakes, NoneInSharedMemoryThatIsOnlyRead) {
  Arguments squared = good();
  squared.inputs[1].data = squared.inputs[0].data;
  EXPECT_EQ(refused(squared), "");
  const Plan empty = make("silu", "f32[0,3]");
  Workspace workspace(empty.workspace_bytes());
  const TensorView nothing = {x_.data(), DType::kF32, {0, 3}, {3, 1}};
  EXPECT_EQ(refusal([&] { empty.run({{nothing}, {nothing}}, workspace.bytes()); }).message, "");
}

TEST(PlanOptions, WorkersAreOneOrMore) {
  class NoWorkers : public Workers {
   public:
    explicit NoWorkers(int count) : count_(count) {}
    int count() const override { return count_; }
    void run(std::int64_t, const std::function<void(std::int64_t, int)>&) const override {}

   private:
    int count_;
  };
  const Block block = Block::parse("group_norm(1)");
  for (const int count : {0, -1}) {
    PlanOptions options;
    options.workers = std::make_shared<NoWorkers>(count);
    const std::string expected = "workers: expected a count of 1 or more, got " + std::to_string(count);
    EXPECT_EQ(refusal([&] { Plan::make(block, "f32[1,2]", {}, Device::by_name("cpu"), options); }).message,
              expected);
    const TypedBlock typed = TypedBlock::infer(block, TensorType::parse("f32[1,2]"));
    EXPECT_EQ(refusal([&] { Plan::make_training(typed, {}, Device::by_name("cpu"), options); }).message,
              expected);
  }
}

TEST(Workspaces, HaveTheBytesTheySay) {
  for (const std::size_t bytes : {0, 1, 7, 8, 9, 64, 65}) {
    Workspace workspace(bytes);
    EXPECT_EQ(workspace.bytes().size(), bytes);
    std::memset(workspace.bytes().data(), 1, bytes);
  }
  const std::size_t most = std::numeric_limits<std::size_t>::max();
  EXPECT_EQ(refusal([&] { Workspace workspace(most); }).message,
            "tensor: f64[2305843009213693952] has more than 2^63 bytes");
}

TEST_F(PlanMistakes, Workspaces) {
  const std::size_t bytes = plan_.workspace_bytes();
  ASSERT_GT(bytes, 64U);
  PoisonedWorkspace room(bytes + 64, 0);
  const auto run = [&](std::span<std::byte> workspace) {
    return refusal([&] { plan_.run(good(), workspace); }).message;
  };
  EXPECT_EQ(run(room.span()), "");
  EXPECT_EQ(run(room.span().first(bytes - 1)), "the workspace has " + std::to_string(bytes - 1) +
                                                   " bytes, the plan needs " + std::to_string(bytes));
  EXPECT_EQ(run({}), "the workspace has 0 bytes, the plan needs " + std::to_string(bytes));
  EXPECT_EQ(run(room.span().subspan(8)), "the workspace must be aligned to 64 bytes");
}

TEST(Plans, EmptyTensorsNeedNoMemory) {
  const Plan plan = make("silu", "f32[0,3]");
  const Arguments arguments = {{{nullptr, DType::kF32, {0, 3}, {3, 1}}},
                               {{nullptr, DType::kF32, {0, 3}, {3, 1}}}};
  Workspace workspace(plan.workspace_bytes());
  EXPECT_EQ(refusal([&] { plan.run(arguments, workspace.bytes()); }).message, "");
}

TEST(Plans, KnowTheirTensors) {
  const Plan plan = make("add(skip) | linear(4) | batch_norm", "bf16[2,3]");
  std::string names;
  for (const NamedType& input : plan.inputs()) names += input.name + " ";
  EXPECT_EQ(names,
            "x skip linear.weight linear.bias batch_norm.running_mean batch_norm.running_var "
            "batch_norm.weight batch_norm.bias ");
  EXPECT_EQ(plan.parameters().size(), 6U);
  EXPECT_EQ(plan.outputs()[0].name, "batch_norm");
  EXPECT_EQ(plan.device().name(), "reference");
  EXPECT_EQ(plan.backward({"linear.weight"}).outputs()[0].name, "d_linear.weight");
  EXPECT_TRUE(refusal([] { Device::by_name("abacus"); }).says("there is no device `abacus`; there is"));
  EXPECT_TRUE(
      refusal([] { make("group_norm(7)", "f32[2,24]"); }).says("24 channels do not divide into 7 groups"));
}

TEST(Plans, ExplainThemselves) {
  for (const cases::Case& each : cases::read_cases(cases::case_files())) {
    const Plan forward = Plan::make(each.typed(), Device::reference());
    for (const Plan& plan : {forward, forward.backward()}) {
      const auto json = nlohmann::json::parse(plan.explain_json());
      EXPECT_EQ(Block::parse(json["block"].get<std::string>()), plan.block().block()) << each.name;
      EXPECT_EQ(Block::from_json(json["graph"].dump()), plan.block().block()) << each.name;
      EXPECT_EQ(json["outputs"].size(), plan.outputs().size()) << each.name;
      EXPECT_EQ(json["parameters"].size(), plan.parameters().size()) << each.name;
      EXPECT_EQ(json["values"].size(), plan.block().block().nodes().size()) << each.name;
      for (const NamedType& output : plan.outputs())
        EXPECT_NE(plan.explain().find(output.name + " "), std::string::npos) << each.name;
    }
  }
}

}  // namespace
}  // namespace fuseblock
