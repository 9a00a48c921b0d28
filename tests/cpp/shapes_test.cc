// A block meets types: the type of every value, and the mistakes, one at least for each structural operation.
#include <gtest/gtest.h>

#include <set>

#include "fuseblock/typed_block.h"
#include "refusal.h"

namespace fuseblock {
namespace {

TypeMap types(const std::map<std::string, std::string>& texts) {
  TypeMap result;
  for (const auto& [name, text] : texts) result[name] = TensorType::parse(text);
  return result;
}

TypedBlock infer(const std::string& block, const std::string& x,
                 const std::map<std::string, std::string>& others = {}) {
  return TypedBlock::infer(Block::parse(block), TensorType::parse(x), types(others));
}

struct ShapeMistake {
  std::string block;
  std::string x;
  std::string message;
};

const std::vector<ShapeMistake>& shape_mistakes() {
  static const std::vector<ShapeMistake> kMistakes = {
      // norms
      {"group_norm(7)", "f32[2,24,5,5]", "group_norm(7): 24 channels do not divide into 7 groups"},
      {"mean(c) | group_norm(2)", "f32[2,24,5]",
       "group_norm(2): expects a value with the axes n and c, got f32[n=2,w=5] with the axes n,w"},
      {"instance_norm", "f32[2,24]", "instance_norm: needs at least one spatial axis, got f32[2,24]"},
      {"mean(n) | batch_norm", "f32[2,3,8]",
       "batch_norm: expects a value with the axes n and c, got f32[c=3,w=8] with the axes c,w"},
      {"layer_norm(d)", "f32[2,24,5,5]",
       "layer_norm(d): there is no axis d; the value is f32[2,24,5,5] with the axes n,c,h,w"},
      {"rms_norm(h)", "f32[2,24]",
       "rms_norm(h): there is no axis h; the value is f32[2,24] with the axes n,c"},
      {"l2_normalize(w)", "f32[2,24]",
       "l2_normalize(w): there is no axis w; the value is f32[2,24] with the axes n,c"},
      {"softmax(d)", "f32[2,24,5]",
       "softmax(d): there is no axis d; the value is f32[2,24,5] with the axes n,c,w"},
      {"group_norm(2, weight=x)", "f32[2,4,5]", "group_norm(2, weight=x): x: expected [4], got [2,4,5]"},
      // reductions
      {"mean(d)", "f32[2,24,5,5]",
       "mean(d): there is no axis d; the value is f32[2,24,5,5] with the axes n,c,h,w"},
      {"sum(h)", "f32[2,24]", "sum(h): there is no axis h; the value is f32[2,24] with the axes n,c"},
      {"max(h) | max(h)", "f32[2,24,5,5]",
       "max(h): there is no axis h; the value is f32[2,24,5] with the axes n,c,w"},
      {"min(n)", "f32[0,3]", "min(n): there is nothing to take the min of in f32[0,3]"},
      {"logsumexp(w)", "f32[2,24]",
       "logsumexp(w): there is no axis w; the value is f32[2,24] with the axes n,c"},
      {"mean(h,w, keepdim, groups=2)", "f32[2,24,5,5]",
       "mean(h,w, keepdim, groups=2): groups needs c among the axes"},
      {"mean(c, groups=2)", "f32[2,24,5,5]", "mean(c, groups=2): groups needs keepdim"},
      {"rstd(c, groups=7)", "f32[2,24,5]", "rstd(c, groups=7): 24 channels do not divide into 7 groups"},
      // convolutions
      {"conv1d(4, k=3)", "f32[2,3,9,9]",
       "conv1d(4, k=3): expects a value with the axes n,c,w, got f32[2,3,9,9] with the axes n,c,h,w"},
      {"conv2d(4, k=3)", "f32[2,3,9]",
       "conv2d(4, k=3): expects a value with the axes n,c,h,w, got f32[2,3,9] with the axes n,c,w"},
      {"conv3d(4, k=3)", "f32[2,3]",
       "conv3d(4, k=3): expects a value with the axes n,c,d,h,w, got f32[2,3] with the axes n,c"},
      {"linear(4)", "f32[2,3,9]",
       "linear(4): expects a value with the axes n,c, got f32[2,3,9] with the axes n,c,w"},
      {"conv2d(4, k=3, stride=(1,2,3))", "f32[2,3,9,9]",
       "conv2d(4, k=3, stride=(1,2,3)): stride=(1,2,3): expected 2 numbers, got 3"},
      {"conv2d(4, k=(3,3,3))", "f32[2,3,9,9]", "conv2d(4, k=(3,3,3)): k=(3,3,3): expected 2 numbers, got 3"},
      {"conv2d(4, k=3, groups=2)", "f32[2,3,9,9]",
       "conv2d(4, k=3, groups=2): 3 input channels do not divide into 2 groups"},
      {"conv2d(5, k=3, groups=2)", "f32[2,4,9,9]",
       "conv2d(5, k=3, groups=2): 5 output channels do not divide into 2 groups"},
      {"conv2d(4, k=3)", "f32[2,0,9,9]", "conv2d(4, k=3): expected 1 or more input channels, got 0"},
      {"conv2d(4, k=11)", "f32[2,3,9,9]",
       "conv2d(4, k=11): along h the filter reaches over 11 positions, but the padded input has 9"},
      {"conv2d(4, k=3, dilation=(1,5))", "f32[2,3,9,9]",
       "conv2d(4, k=3, dilation=(1,5)): along w the filter reaches over 11 positions, but the padded input "
       "has 9"},
      {"conv2d(4, k=3, stride=2, pad=same)", "f32[2,3,9,9]",
       "conv2d(4, k=3, stride=2, pad=same): pad=same needs stride=1, as in PyTorch"},
      {"conv2d(4, k=3, pad=9, pad_mode=reflect)", "f32[2,3,9,9]",
       "conv2d(4, k=3, pad=9, pad_mode=reflect): along h an extent of 9 cannot be padded by 9 with "
       "pad_mode=reflect"},
      {"conv1d(4, k=3, pad=10, pad_mode=circular)", "f32[2,3,9]",
       "conv1d(4, k=3, pad=10, pad_mode=circular): along w an extent of 9 cannot be padded by 10 with "
       "pad_mode=circular"},
      {"conv_transpose1d(4, k=1, pad=5)", "f32[2,3,9]",
       "conv_transpose1d(4, k=1, pad=5): along w nothing is left of the output (its extent would be -1)"},
      {"conv_transpose2d(4, k=3, output_pad=1)", "f32[2,3,9,9]",
       "conv_transpose2d(4, k=3, output_pad=1): output_pad=1 must be smaller than stride or dilation (1)"},
      {"conv_transpose3d(4, k=3, groups=2)", "f32[2,3,9,9,9]",
       "conv_transpose3d(4, k=3, groups=2): 3 input channels do not divide into 2 groups"},
      {"linear(4, weight=x)", "f32[2,3]", "linear(4, weight=x): x: expected [4,3], got [2,3]"},
      // pools
      {"max_pool(2)", "f32[2,3]",
       "max_pool(2): expects a value with the axes n, c and at least one spatial axis, got f32[2,3]"},
      {"max_pool((2,3))", "f32[2,3,8]", "max_pool((2,3)): k=(2,3): expected 1 number, got 2"},
      {"max_pool(3, pad=2)", "f32[2,3,8,8]",
       "max_pool(3, pad=2): along h pad=2 is more than half the window's reach of 3"},
      {"avg_pool(9)", "f32[2,3,8,8]",
       "avg_pool(9): along h the window reaches over 9 positions, but the padded input has 8"},
      // pointwise
      {"max_pool(2) | add(x)", "f32[2,3,8]",
       "add(x): x has the type f32[2,3,8] and does not broadcast with f32[2,3,4]: along w 8 meets 4"},
      {"p = max_pool(x, 2); z = x * p; return z", "f32[2,3,8]",
       "z = x * p: p has the type f32[2,3,4] and does not broadcast with f32[2,3,8]: along w 4 meets 8"},
      // operations of backward blocks
      {"m = mean(x, c); z = expand(x, m); return z", "f32[2,3,8]",
       "expand(m): f32[2,3,8] cannot be expanded to f32[n=2,w=8] along c"},
      {"p = max_pool(x, 2); z = max_pool_put(x, p, 2); return z", "f32[2,3,8]",
       "max_pool_put(p, 2): x: expected [2,3,2], got [2,3,8]"},
      {"p = max_pool(x, 2); z = max_pool_take(p, x, 2); return z", "f32[2,3,8]",
       "max_pool_take(x, 2): p: expected [2,3,8], got [2,3,4]"},
      {"p = max_pool(x, 2); z = avg_pool_grad(x, p, 2); return z", "f32[2,3,8]",
       "avg_pool_grad(p, 2): x: expected [2,3,2], got [2,3,8]"},
      {"z = linear_grad_input(x, f, x, 4); return z", "f32[2,3]",
       "linear_grad_input(f, x, 4): x: expected [2,4], got [2,3]"},
      {"z = linear_grad_weight(x, x, f, 4); return z", "f32[2,3]",
       "linear_grad_weight(x, f, 4): x: expected [2,4], got [2,3]"},
  };
  return kMistakes;
}

TEST(ShapeMistakes, NameTheStageAndWhatCame) {
  for (const ShapeMistake& mistake : shape_mistakes()) {
    const Refusal got = refusal([&] { infer(mistake.block, mistake.x); });
    EXPECT_EQ(got.message, mistake.message) << mistake.block;
    EXPECT_EQ(got.line, 1) << mistake.block;
  }
}

// The gradients of convolutions are refused by the code of their convolution.
TEST(ShapeMistakes, AreListedForEveryStructuralOperation) {
  std::set<std::string> refused;
  for (const ShapeMistake& mistake : shape_mistakes())
    refused.insert(mistake.message.substr(0, mistake.message.find_first_of("(:")));
  for (const Operation* operation : operations()) {
    const bool cannot_fail = operation->code == OpCode::kCast || operation->code == OpCode::kZeros;
    const bool by_family = operation->spatial_rank > 0 && operation->adjoint;
    if (operation->code == OpCode::kPointwise || cannot_fail || by_family) continue;
    EXPECT_TRUE(refused.contains(operation->name)) << operation->name;
  }
}

TEST(ShapeMistakes, PointToTheStage) {
  const Refusal got = refusal([] { infer("relu\n| silu | group_norm(7)", "f32[2,24,5]"); });
  EXPECT_EQ(got.line, 2);
  EXPECT_EQ(got.column, 10);
  EXPECT_EQ(got.excerpt, "  | silu | group_norm(7)\n           ^~~~~~~~~~~~~");
}

TEST(TypeMistakes, OfTheInput) {
  EXPECT_EQ(refusal([] { infer("relu", "f32[3]"); }).message,
            "x: an input has at least the axes n,c; got f32[3]");
  EXPECT_EQ(refusal([] { infer("relu", "f32[c=3,h=4]"); }).message,
            "x: an input has at least the axes n,c; got f32[c=3,h=4]");
  const TensorType negative = TensorType::make(DType::kF32, {2, -3});
  EXPECT_EQ(refusal([&] { TypedBlock::infer(Block::parse("relu"), negative); }).message,
            "x: extents are not negative; got f32[2,-3]");
  const TensorType large = TensorType::make(DType::kF32, {1LL << 31, 1LL << 31});
  EXPECT_EQ(refusal([&] { TypedBlock::infer(Block::parse("relu"), large); }).message,
            "x: f32[2147483648,2147483648] has more than 2^63 bytes");
}

TEST(TypeMistakes, OfExtraInputsAndParameters) {
  EXPECT_EQ(
      refusal([] { infer("add(skip)", "f32[2,3,5]", {{"skip", "f32[2,3,4]"}}); }).message,
      "add(skip): skip has the type f32[2,3,4] and does not broadcast with f32[2,3,5]: along w 4 meets 5");
  EXPECT_EQ(refusal([] { infer("add(skip)", "f32[2,3]", {{"skap", "f32[2,3]"}}); }).message,
            "a type is given for `skap`, but the block has the extra inputs and parameters skip");
  EXPECT_EQ(refusal([] { infer("relu", "f32[2,3]", {{"x", "f32[2,3]"}}); }).message,
            "a type is given for `x`, but the block has no extra input or parameter");
  EXPECT_EQ(refusal([] { infer("linear(4)", "f32[2,3]", {{"linear.weight", "f32[3,4]"}}); }).message,
            "linear(4): linear.weight: expected [4,3], got [3,4]");
  EXPECT_EQ(refusal([] { infer("group_norm(3)", "f32[2,3,4]", {{"group_norm.bias", "f32[n=3]"}}); }).message,
            "group_norm(3): group_norm.bias: expected the axes c, got n");
  TypeMap negative;
  negative["skip"] = TensorType::make(DType::kF32, {-2, 1});
  EXPECT_EQ(refusal([&] {
              TypedBlock::infer(Block::parse("add(skip)"), TensorType::parse("f32[1,1]"), negative);
            }).message,
            "skip: extents are not negative; got f32[-2,1]");
}

// A value's type as text, by its name.
std::string type_of(const TypedBlock& block, const std::string& name) {
  return to_string(block.type(*block.block().find(name)));
}

TEST(Shapes, OfEveryKindOfStage) {
  struct Case {
    std::string block;
    std::string x;
    std::string output;
  };
  const std::vector<Case> cases = {
      {"conv3d(24, k=3)", "f32[128,3,24,32,32]", "f32[128,24,22,30,30]"},
      {"conv2d(64, k=3, stride=2, pad=1, dilation=2)", "bf16[2,3,33,33]:cl", "bf16[2,64,16,16]:cl"},
      {"conv2d(8, k=(2,4), pad=same)", "f32[2,3,5,6]", "f32[2,8,5,6]"},
      {"conv_transpose3d(128, k=3)", "f32[16,64,32,32,32]", "f32[16,128,34,34,34]"},
      {"conv_transpose1d(4, k=3, stride=2, pad=1, output_pad=1)", "f32[2,3,9]", "f32[2,4,18]"},
      {"linear(10)", "f16[2,3]", "f16[2,10]"},
      {"group_norm(2) | instance_norm | layer_norm(c) | softmax(w)", "f32[2,4,5]:cl", "f32[2,4,5]:cl"},
      {"mean(c,d,h,w)", "f32[128,24,2,3,4]", "f32[128]"},
      {"mean(c)", "f32[2,4,5,6]:cl", "f32[n=2,h=5,w=6]"},
      {"mean(c, keepdim)", "f32[2,4,5,6]:cl", "f32[2,1,5,6]:cl"},
      {"mean(c,h,w, keepdim, groups=2)", "f32[2,4,5,6]", "f32[2,4,1,1]"},
      {"sum", "f32[2,4]", "f32[]"},
      {"max_pool(3, stride=2, pad=1, ceil_mode)", "f32[2,4,6,8]", "f32[2,4,4,5]"},
      {"avg_pool((2,3))", "f32[2,4,7,9]", "f32[2,4,3,3]"},
      // A last window that would start in the padding is left out.
      {"avg_pool(2, stride=3, pad=1, ceil_mode)", "f32[2,4,5,8]", "f32[2,4,2,3]"},
      {"cast(f64) | relu", "f32[2,4]", "f64[2,4]"},
      {"add(2) | mul(x)", "f32[0,4]", "f32[0,4]"},
      {"max(c) | add(x)", "f32[2,3,4,5]:cl", "f32[2,3,4,5]:cl"},
  };
  for (const Case& each : cases)
    EXPECT_EQ(to_string(infer(each.block, each.x).outputs()[0].type), each.output) << each.block;
}

TEST(Shapes, ExtraInputsAreAlignedFromTheRightOrByLabel) {
  EXPECT_EQ(type_of(infer("add(skip)", "f32[2,3,5,7]"), "skip"), "f32[2,3,5,7]");
  const TypedBlock right = infer("add(skip)", "f32[2,3,5,7]", {{"skip", "f32[5,1]"}});
  EXPECT_EQ(to_string(right.type(*right.block().find("skip")).axes), "h,w");
  const TypedBlock labelled = infer("add(skip)", "f32[2,3,5,7]", {{"skip", "f32[n=2,h=5]"}});
  EXPECT_EQ(to_string(labelled.outputs()[0].type), "f32[2,3,5,7]");
  const TypedBlock larger = infer("mean(h,w) | add(skip)", "f32[2,3,5,7]", {{"skip", "f32[2,3,5,7]"}});
  EXPECT_EQ(to_string(larger.outputs()[0].type), "f32[2,3,5,7]");
  const TypedBlock parameter =
      infer("y = x * block.scale; return y", "f32[2,3,5,3]", {{"block.scale", "f32[3]"}});
  EXPECT_EQ(to_string(parameter.type(*parameter.block().find("block.scale")).axes), "c");
}

TEST(Shapes, DtypesPromoteAndParametersMayDiffer) {
  EXPECT_EQ(type_of(infer("linear(4)", "bf16[2,3]"), "linear.weight"), "bf16[4,3]");
  const TypedBlock mixed =
      infer("linear(4) | add(skip)", "bf16[2,3]", {{"linear.weight", "f32[4,3]"}, {"skip", "f16[2,4]"}});
  EXPECT_EQ(type_of(mixed, "linear.weight"), "f32[4,3]");
  EXPECT_EQ(type_of(mixed, "linear"), "bf16[2,4]");
  EXPECT_EQ(type_of(mixed, "add"), "f32[2,4]");
}

TEST(Shapes, ParametersHaveTheShapesTheirStageAsksFor) {
  const TypedBlock block =
      infer("conv2d(8, k=(3,5), groups=2) | group_norm(4) | layer_norm(c,w) | batch_norm", "f32[2,4,9,9]");
  std::string text;
  for (const NamedType& parameter : block.parameters())
    text += parameter.name + " " + to_string(parameter.type) + "\n";
  EXPECT_EQ(
      text,
      "conv2d.weight f32[8,2,3,5]\nconv2d.bias f32[8]\ngroup_norm.weight f32[8]\ngroup_norm.bias f32[8]\n"
      "layer_norm.weight f32[c=8,w=5]\nlayer_norm.bias f32[c=8,w=5]\n"
      "batch_norm.running_mean f32[8]\nbatch_norm.running_var f32[8]\nbatch_norm.weight "
      "f32[8]\nbatch_norm.bias f32[8]\n");
  EXPECT_EQ(infer("conv_transpose1d(8, k=3, groups=2)", "f32[2,4,9]").parameters()[0].type.extents,
            (std::vector<std::int64_t>{4, 4, 3}));
}

}  // namespace
}  // namespace fuseblock
