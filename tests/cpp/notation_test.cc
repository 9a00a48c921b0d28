// The notation: what reads as what, how it is written, and that everything written reads back as the same block.
#include <gtest/gtest.h>

#include "cases.h"
#include "fuseblock/block.h"

namespace fuseblock {

// So that a failure shows the blocks; GoogleTest looks for this name. NOLINTNEXTLINE(readability-identifier-naming)
inline void PrintTo(const Block& block, std::ostream* stream) { *stream << block.to_string(); }

namespace {

Block parse(const std::string& text) { return Block::parse(text); }

// The names of the arguments: x, extra inputs, parameters.
std::vector<std::string> argument_names(const Block& block) {
  std::vector<std::string> names;
  for (Value value : block.arguments()) names.push_back(block.value(value).name);
  return names;
}

using Names = std::vector<std::string>;

TEST(Notation, PipesAreSugarForStatements) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"relu", "relu = relu(x); return relu"},
      {"relu | tanh", "relu = relu(x); tanh = tanh(relu); return tanh"},
      {"relu | relu", "relu = relu(x); relu2 = relu(relu); return relu2"},
      {"conv2d(64, k=3) as y | group_norm(16) | add(y)",
       "y = conv2d(x, 64, k=3); group_norm = group_norm(y, 16); add = add(group_norm, y); return add"},
      {"add(skip) | mul(2)", "add = add(x, skip); mul = mul(add, 2); return mul"},
      {"mean(c,h, keepdim)", "mean = mean(x, c, h, keepdim=true); return mean"},
      {"conv2d(4, k=1) as y | conv2d(4, k=1, weight=y.weight)",
       "y = conv2d(x, 4, 1); conv2d = conv2d(y, 4, 1, weight=y.weight); return conv2d"},
  };
  for (const auto& [pipe, statements] : cases) EXPECT_EQ(parse(pipe), parse(statements)) << pipe;
}

// All spellings of a row are the same block; the first is how the printer writes it.
TEST(Notation, SpellingsOfTheSameBlock) {
  const std::vector<std::vector<std::string>> rows = {
      // whole numbers, by place, by name and by PyTorch's name; a list for each spatial axis
      {"conv2d(64, k=3)", "conv2d(64, 3)", "conv2d(k=3, channels=64)",
       "conv2d(out_channels=64, kernel_size=3)", "conv2d(64, k=(3))", "conv2d(64, 3, bias)",
       "conv2d(64,k=3,stride=1,pad=0,dilation=1,groups=1,bias=true)",
       "conv2d(64, 3, 1, 0, zeros, 1, 1, true)"},
      {"conv2d(64, k=(3,3))", "conv2d(64, (3,3))", "conv2d(64, k=( 3 , 3 ))"},
      {"conv2d(64, k=(3,5), pad=(1,2))", "conv2d(64, (3,5), padding=(1,2))", "conv2d(64, (3,5), 1, (1,2))"},
      {"conv2d(64, k=3, pad=same)", "conv2d(64, 3, 1, same)",
       "conv2d(64, 3, padding=same, padding_mode=zeros)"},
      {"conv_transpose2d(8, k=3, stride=2, output_pad=1)", "conv_transpose2d(8, 3, 2, 0, 1)",
       "conv_transpose2d(8, 3, stride=2, output_padding=1)"},
      {"linear(10, bias=false)", "linear(10, false)", "linear(out_features=10, bias=false)"},
      // numbers
      {"group_norm(8, eps=0.001)", "group_norm(8, 1e-3)", "group_norm(groups=8, eps=.001)",
       "group_norm(8, 1E-03, affine)"},
      {"leaky_relu(negative_slope=1)", "leaky_relu(1)", "leaky_relu(1.0)"},
      {"leaky_relu(negative_slope=-0.5)", "leaky_relu(-0.5)", "leaky_relu(- .5)"},
      {"clamp(max=6)", "clamp(-inf, 6)", "clamp(min=-inf, max=6)"},
      {"rms_norm(c)", "rms_norm(c, none)", "rms_norm(c, eps=none)", "rms_norm(axes=c)"},
      // flags
      {"instance_norm(affine)", "instance_norm(affine=true)", "instance_norm(1e-5, true)",
       "instance_norm(affine, eps=1e-5)"},
      {"group_norm(8, affine=false)", "group_norm(8, 1e-5, false)"},
      {"max_pool(2, ceil_mode)", "max_pool(k=2, ceil_mode=true)", "max_pool(2, none, ceil_mode)"},
      // keywords
      {"gelu(approximate=tanh)", "gelu(tanh)"},
      {"gelu", "gelu()", "gelu(none)", "gelu(approximate=none)"},
      {"cast(bf16)", "cast(dtype=bf16)"},
      // axes, in any order
      {"mean(c,d,h,w)", "mean(w, h, d, c)", "mean(axes=(c,d,h,w))", "mean(c,d,h,w, keepdim=false, groups=1)",
       "mean(axes=(d,c,w,h))"},
      {"mean", "mean()", "mean(keepdim=false)"},
      {"layer_norm(c, affine=false)", "layer_norm(c, elementwise_affine=false)",
       "layer_norm(c, 1e-5, false)"},
      // operands
      {"add(2)", "add(other=2)", "add(2, 1)", "add(2, alpha=1)"},
      {"add(skip, alpha=2)", "add(skip, 2)", "add(alpha=2, other=skip)"},
      {"mul(-inf)", "mul(-1e999)"},
      {"mul(nan)", "mul(-nan)"},
      // white space and comments
      {"relu | tanh", "relu|tanh", "\n relu \t|\r\n tanh # the end",
       "# two stages\nrelu # the first\n| # then\ntanh"},
  };
  for (const std::vector<std::string>& row : rows) {
    EXPECT_EQ(parse(row[0]).to_string(), row[0]);
    for (const std::string& spelling : row) EXPECT_EQ(parse(spelling), parse(row[0])) << spelling;
  }
}

TEST(Notation, ArgumentsAreReadIntoTheNode) {
  const Block block =
      parse("conv2d(64, k=(3,5), pad=same, pad_mode=reflect, bias=false) | group_norm(8, eps=0) | mean(h,w)");
  const Node& conv = block.nodes()[0];
  EXPECT_EQ(conv.integer("channels"), 64);
  EXPECT_EQ(conv.argument("k"), ArgumentValue(std::vector<std::int64_t>{3, 5}));
  EXPECT_EQ(conv.argument("stride"), ArgumentValue(std::int64_t{1}));
  EXPECT_EQ(conv.argument("pad"), ArgumentValue(std::string("same")));
  EXPECT_EQ(conv.keyword("pad_mode"), "reflect");
  EXPECT_FALSE(conv.flag("bias"));
  EXPECT_EQ(conv.operands.size(), 2U);  // x and the weight
  EXPECT_EQ(block.nodes()[1].number("eps"), 0);
  EXPECT_EQ(block.nodes()[2].axes("axes"), (AxisSet{Axis::kH, Axis::kW}));
  EXPECT_EQ(block.nodes()[2].operand(0), block.nodes()[1].result);
}

TEST(Notation, NamesOfValuesAndParameters) {
  EXPECT_EQ(argument_names(parse("conv2d(4, k=3) | group_norm(2) | conv2d(4, k=3) | group_norm(2)")),
            (Names{"x", "conv2d.weight", "conv2d.bias", "group_norm.weight", "group_norm.bias",
                   "conv2d2.weight", "conv2d2.bias", "group_norm2.weight", "group_norm2.bias"}));
  EXPECT_EQ(
      argument_names(parse("conv2d(4, k=3) as stem | batch_norm as bn")),
      (Names{"x", "stem.weight", "stem.bias", "bn.running_mean", "bn.running_var", "bn.weight", "bn.bias"}));
  // Extra inputs stand before parameters; x comes first even where it is not used.
  EXPECT_EQ(argument_names(parse("y = linear(emb, 4); z = y * gate; return z")),
            (Names{"x", "emb", "gate", "y.weight", "y.bias"}));
  // A name that is mentioned before is not given to a stage.
  const Block block = parse("add(relu) | relu | relu");
  EXPECT_EQ(block.value(block.nodes()[1].result).name, "relu2");
  EXPECT_EQ(block.value(block.nodes()[2].result).name, "relu3");
  EXPECT_EQ(block.value(*block.find("relu")).kind, ValueKind::kInput);
}

TEST(Notation, SharedParameters) {
  const Block shared = parse("a = linear(x, 6); b = linear(a, 6, weight=a.weight, bias=a.bias); return b");
  EXPECT_EQ(argument_names(shared), (Names{"x", "a.weight", "a.bias"}));
  EXPECT_EQ(shared.nodes()[0].operand(1), shared.nodes()[1].operand(1));
  // A stage whose own parameter is mentioned, before it or by itself, takes that one.
  for (const char* text :
       {"add(z.bias) | linear(6) as z", "linear(6, weight=z.weight) as z", "linear(6) as z"}) {
    const Block block = parse(text);
    EXPECT_EQ(parse(block.to_string()), block) << text;
    EXPECT_EQ(block.value(*block.find("z.weight")).node, static_cast<int>(block.nodes().size()) - 1) << text;
  }
  // The parameter of a stage that is not in the block belongs to none.
  const Block foreign = parse("linear(6, weight=other.weight)");
  EXPECT_EQ(foreign.value(*foreign.find("other.weight")).node, -1);
  EXPECT_EQ(foreign.value(*foreign.find("other.weight")).kind, ValueKind::kParameter);
}

TEST(Notation, Formulas) {
  EXPECT_EQ(parse("y = x * sigmoid(1.702 * x); return y").to_string(),
            "y = x * sigmoid(1.702 * x); return y");
  // One call on names is the operation; anything around it makes a formula.
  EXPECT_EQ(parse("y = tanh(x); return y").nodes()[0].operation->code, OpCode::kPointwise);
  EXPECT_EQ(parse("y = (tanh(x)); return y").nodes()[0].operation->code, OpCode::kFormula);
  EXPECT_EQ(parse("y = tanh(x) + 1; return y").nodes()[0].operation->code, OpCode::kFormula);
  EXPECT_EQ(parse("y = tanh(-x); return y").nodes()[0].operation->code, OpCode::kFormula);
  EXPECT_EQ(parse("y = add(x, 2); return y").nodes()[0].operation->code, OpCode::kPointwise);
  EXPECT_EQ(parse("y = add(x, 2 * z); return y").nodes()[0].operation->code, OpCode::kFormula);
  EXPECT_EQ(parse("y = select(x > 0, x, 0); return y").nodes()[0].operation->code, OpCode::kFormula);
  // Operands in the order in which the formula mentions them, each once.
  const Block block = parse("y = b * x + a * b; return y");
  EXPECT_EQ(block.nodes()[0].operands.size(), 3U);
  EXPECT_EQ(block.value(block.nodes()[0].operand(0)).name, "b");
  EXPECT_EQ(block.value(block.nodes()[0].operand(2)).name, "a");
}

TEST(Notation, WritesPipesWhereTheySuffice) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"y = relu(x); z = tanh(y); return z", "relu as y | tanh as z"},
      {"y = relu(x); z = add(y, x); return z", "relu as y | add(x) as z"},
      {"y = relu(x); z = add(x, y); return z", "y = relu(x); z = add(x, y); return z"},
      {"y = relu(x); z = tanh(y); return z, y", "y = relu(x); z = tanh(y); return z, y"},
      {"y = relu(x); z = tanh(y); return y, z", "y = relu(x); z = tanh(y); return y, z"},
      {"y = relu(skip); return y", "y = relu(skip); return y"},
      {"relu as relu2 | relu as relu | relu", "relu as relu2 | relu | relu"},
  };
  for (const auto& [text, written] : cases) {
    const Block block = parse(text);
    EXPECT_EQ(block.to_string(), written);
    EXPECT_EQ(parse(block.to_string()), block) << text;
  }
  EXPECT_EQ(parse("relu | tanh").to_statements(), "relu = relu(x); tanh = tanh(relu); return tanh");
  EXPECT_EQ(parse("conv2d(64, k=3) | group_norm(8)").stage_text(1), "group_norm(8)");
}

TEST(Notation, AnEndingSemicolonMayStand) {
  EXPECT_EQ(parse("y = relu(x); return y;"), parse("y = relu(x); return y"));
}

TEST(Notation, BlocksAreComparedByTheirParts) {
  const std::vector<std::string> different = {"relu",
                                              "relu as y",
                                              "tanh",
                                              "leaky_relu",
                                              "leaky_relu(0.02)",
                                              "add(2)",
                                              "add(2, 3)",
                                              "add(y)",
                                              "add(x)",
                                              "y = relu(x); z = tanh(y); return y, z",
                                              "y = relu(x); z = tanh(y); return z, y",
                                              "y = x + 1; return y",
                                              "y = x + 2; return y"};
  for (std::size_t i = 0; i < different.size(); ++i)
    for (std::size_t j = 0; j < different.size(); ++j)
      EXPECT_EQ(parse(different[i]) == parse(different[j]), i == j)
          << different[i] << " and " << different[j];
}

void expect_round_trips(const Block& block, const std::string& what) {
  EXPECT_EQ(parse(block.to_string()), block) << what << ": " << block.to_string();
  EXPECT_EQ(parse(block.to_statements()), block) << what << ": " << block.to_statements();
  EXPECT_EQ(Block::from_json(block.to_json()), block) << what << ": " << block.to_json();
}

// Also the gradients, and the gradients of those, which name every kind of value.
TEST(RoundTrip, EveryCaseAndItsGradients) {
  for (const cases::Case& each : cases::read_cases(cases::case_files())) {
    const TypedBlock block = each.typed();
    const TypedBlock backward = block.backward();
    const TypedBlock second = backward.backward();
    expect_round_trips(block.block(), each.name);
    expect_round_trips(backward.block(), each.name + ", backward");
    expect_round_trips(second.block(), each.name + ", backward of backward");
  }
}

TEST(RoundTrip, SpecialNumbers) {
  for (const std::string number : {"inf", "-inf", "nan", "-0", "1e-300", "0.1", "123456789012345680000"}) {
    expect_round_trips(parse("mul(" + number + ")"), "operand");
    expect_round_trips(parse("y = x * " + number + "; return y"), "formula");
    if (number != "nan") expect_round_trips(parse("leaky_relu(" + number + ")"), "argument");
  }
  EXPECT_EQ(parse("mul(-0)").to_string(), "mul(-0)");
  EXPECT_NE(parse("mul(-0)"), parse("mul(0)"));
}

TEST(RoundTrip, KeepsTheTypes) {
  const Block block = parse("conv2d(8, k=3) as y | group_norm(2) | silu | add(y)");
  const TypedBlock typed = TypedBlock::infer(block, TensorType::parse("bf16[2,4,9,9]:cl"));
  const TypedBlock again =
      TypedBlock::infer(Block::from_json(block.to_json()), TensorType::parse("bf16[2,4,9,9]:cl"));
  for (std::int32_t id = 0; id < static_cast<std::int32_t>(block.values().size()); ++id)
    EXPECT_EQ(typed.type(Value{id}), again.type(Value{id}));
}

}  // namespace
}  // namespace fuseblock
