// Mistakes in notation, in shapes and in JSON: the message, and where in the text it points.
#include "fuseblock/error.h"

#include <gtest/gtest.h>

#include "fuseblock/typed_block.h"
#include "refusal.h"

namespace fuseblock {
namespace {

std::string how_to_write(const std::string& operation) {
  return "; it is " + signature(*find_operation(operation));
}

struct TextMistake {
  std::string text;
  int column;
  std::string message;
};

void expect_refused(const std::vector<TextMistake>& mistakes) {
  for (const TextMistake& mistake : mistakes) {
    const Refusal got = refusal([&] { Block::parse(mistake.text); });
    EXPECT_EQ(got.message, mistake.message) << mistake.text;
    EXPECT_EQ(got.line, 1) << mistake.text;
    EXPECT_EQ(got.column, mistake.column) << mistake.text;
  }
}

const std::string kFilter = "a whole number from 1 or a list of one for each spatial axis";

TEST(TextMistakes, Pipes) {
  expect_refused({
      {"", 1, "the block is empty"},
      {"# only a comment", 17, "the block is empty"},
      {"|relu", 1, "expected an operation, got `|`"},
      {"relu |", 7, "expected an operation, got the end of the text"},
      {"relu || tanh", 7, "expected an operation, got `|`"},
      {"relu tanh", 6, "expected `|`, `as` or the end of the block, got `tanh`"},
      {"relu)", 5, "expected `|`, `as` or the end of the block, got `)`"},
      {"relu; tanh", 5, "expected `|`, `as` or the end of the block, got `;`"},
      {"relu & tanh", 6, "a character that does not belong into the notation: `&`"},
      {"3", 1, "expected an operation, got `3`"},
      {"rleu", 1, "no operation `rleu`; did you mean relu?"},
      {"relu | conv2(4, k=3)", 8, "no operation `conv2`; did you mean conv1d or conv2d or conv3d?"},
      {"frobnicate", 1, "no operation `frobnicate`"},
      {"relu as", 8, "expected a name after `as`, got the end of the text"},
      {"relu as 3", 9, "expected a name after `as`, got `3`"},
      {"relu as c", 9, "`c` is a word of the notation and cannot name a value"},
      {"relu as return", 9, "`return` is a word of the notation and cannot name a value"},
      {"relu as x", 9, "the name `x` is taken already"},
      {"relu as y | tanh as y", 21, "the name `y` is taken already"},
      {"add(y) | tanh as y", 18, "the name `y` is taken already"},
      {"relu as y z", 11, "expected `|`, `as` or the end of the block, got `z`"},
  });
}

TEST(TextMistakes, Operands) {
  expect_refused({
      {"relu(y)", 6, "relu: `y` is one item too many" + how_to_write("relu")},
      {"relu(", 6, "expected an operand or argument of relu, got the end of the text"},
      {"add", 1, "add: operand `other` is missing" + how_to_write("add")},
      {"add(1, 2, 3)", 11, "add: `3` is one item too many" + how_to_write("add")},
      {"add(1 2)", 7, "expected `,` or `)` in add, got `2`"},
      {"add(1,)", 7, "expected an operand or argument of add, got `)`"},
      {"add(c)", 5, "add: operand `other`: expected the name of a value or a number, got `c`"},
      {"add(true)", 5, "add: operand `other`: expected the name of a value or a number, got `true`"},
      {"add(tanh(x))", 5, "add: operand `other` is a name; give tanh(...) a statement of its own"},
      {"add(\"y\")", 5, "a character that does not belong into the notation: `\"`"},
      {"conv2d(64, k=3, weight=3)", 24, "conv2d: operand `weight`: expected the name of a value, got `3`"},
      {"conv2d(64, k=3, weight=a, weight=b)", 27, "conv2d: parameter `weight` is given twice"},
      {"conv2d(64, k=3, bias=false, bias=b)", 1, "conv2d: parameter `bias` is given, but its flag is off"},
      {"conv2d(64, k=3, x=y)", 17, "conv2d: operand `x` is given twice"},
  });
}

TEST(TextMistakes, Arguments) {
  expect_refused({
      {"conv2d", 1, "conv2d: argument `channels` is missing (output channels)" + how_to_write("conv2d")},
      {"conv2d(64)", 1, "conv2d: argument `k` is missing (extent of the filter)" + how_to_write("conv2d")},
      {"layer_norm", 1,
       "layer_norm: argument `axes` is missing (the axes to normalise over)" + how_to_write("layer_norm")},
      {"conv2d(64, kk=3)", 12, "conv2d: there is no argument `kk`" + how_to_write("conv2d")},
      {"conv2d(64, k=)", 14, "expected " + kFilter + " for `k` of conv2d, got `)`"},
      {"conv2d(64, k=0)", 12, "conv2d: k=0: expected " + kFilter},
      {"conv2d(64, k=-3)", 12, "conv2d: k=-3: expected " + kFilter},
      {"conv2d(64, k=3.5)", 12, "conv2d: k=3.5: expected " + kFilter},
      {"conv2d(64, k=three)", 12, "conv2d: k=three: expected " + kFilter},
      {"conv2d(64, k=none)", 12, "conv2d: k=none: expected " + kFilter},
      {"conv2d(64, k=2147483648)", 12, "conv2d: k=2147483648: expected at most 2147483647"},
      {"conv2d(64.5, k=3)", 8, "conv2d: channels=64.5: expected a whole number from 1"},
      {"conv2d(64, k=3, k=5)", 17, "conv2d: argument `k` is given twice"},
      {"conv2d(64, k=3, kernel_size=5)", 17, "conv2d: argument `k` is given twice"},
      {"conv2d(64, 3, k=5)", 15, "conv2d: argument `k` is given twice"},
      {"conv2d(64, k=(3,x))", 17, "conv2d: `k`: expected " + kFilter + ", got `x`"},
      {"conv2d(64, k=(3,3", 18, "expected `,` or `)` in the list, got the end of the text"},
      {"conv2d(64, k=(1,2,3,4))", 12, "conv2d: k=(1,2,3,4): expected " + kFilter},
      {"conv2d(64, k=3, bias=1)", 17, "conv2d: bias=1: expected true or false"},
      {"conv2d(64, k=3, pad=full)", 17,
       "conv2d: pad=full: expected a whole number from 0 or a list of one for each spatial axis, or same or "
       "valid"},
      {"conv2d(64, k=3, pad_mode=mirror)", 17,
       "conv2d: pad_mode=mirror: expected one of zeros, reflect, replicate, circular"},
      {"group_norm(8, eps=-1)", 15, "group_norm: eps=-1: expected a number from 0"},
      {"leaky_relu(nan)", 12, "leaky_relu: negative_slope=nan: expected a number"},
      {"gelu(erf)", 6, "gelu: approximate=erf: expected one of none, tanh"},
      {"cast(int8)", 6, "cast: dtype=int8: expected one of f64, f32, bf16, f16"},
      {"mean(z)", 6, "mean: `z` is neither an axis (n, c, d, h, w) nor a flag" + how_to_write("mean")},
      {"mean(c,c)", 8, "mean: axis `c` is named twice"},
      {"mean(axes=(c,c))", 14, "mean: `axes`: expected axes out of n, c, d, h, w, got `c`"},
      {"mean(c, axes=h)", 9, "mean: argument `axes` is given twice"},
      {"mean(keepdim, keepdim)", 15, "mean: argument `keepdim` is given twice"},
  });
}

TEST(TextMistakes, Statements) {
  expect_refused({
      {"y = relu(x)", 12, "expected `;` after a statement, got the end of the text"},
      {"y = relu(x);", 13, "expected `name = ...` or `return`, got the end of the text"},
      {"y = relu(x) return y", 13, "expected `;` after a statement, got `return`"},
      {"y = relu(x);; return y", 13, "expected `name = ...` or `return`, got `;`"},
      {"y = relu(); return y", 5, "relu: operand `x` is missing" + how_to_write("relu")},
      {"y = foo(x); return y", 5, "no operation `foo`"},
      {"c = relu(x); return c", 1, "`c` is a word of the notation and cannot name a value"},
      {"y = relu(x); y = tanh(x); return y", 14, "the name `y` is taken already"},
      {"y = relu(y); return y", 5, "the name `y` is taken already"},
      {"y = relu(x); z = tanh(x); return y", 18, "`z` is never used"},
      {"return", 7, "expected the name of a value to return, got the end of the text"},
      {"return x", 8, "return: `x` is an input; outputs are results"},
      {"y = relu(x); return z", 21, "return: there is no value named `z`"},
      {"y = relu(x); return y, y", 24, "return: `y` is named twice"},
      {"y = relu(x); return y z", 23, "expected `,` or the end of the block, got `z`"},
  });
}

TEST(TextMistakes, Formulas) {
  const std::string function = "; a formula calls primitives and pointwise operations";
  expect_refused({
      {"y = 3 + 4; return y", 1, "a formula needs at least one value"},
      {"y = x +; return y", 8, "expected a number, a name, a call or `(`, got `;`"},
      {"y = x + * 2; return y", 9, "expected a number, a name, a call or `(`, got `*`"},
      {"y = (x; return y", 7, "expected `)`, got `;`"},
      {"y = x < 1 < 2; return y", 11, "expected `;` after a statement, got `<`"},
      {"y = x = 2; return y", 7, "expected `;` after a statement, got `=`"},
      {"y = x + c; return y", 9, "`c` is a word of the notation and cannot name a value"},
      {"y = x + foo(x); return y", 9, "no function `foo`" + function},
      {"y = x + conv2d(x, 4, k=3); return y", 9, "no function `conv2d`" + function},
      {"y = exp(x, 2) + 1; return y", 10, "expected `)`: exp takes 1 operand, got `,`"},
      {"y = select(x, 1) + 1; return y", 16, "expected `,`: select takes 3 operands, got `)`"},
      {"y = x + leaky_relu(x, slope=2); return y", 23, "leaky_relu has no argument `slope`"},
      {"y = x + leaky_relu(x, 1, 2); return y", 26,
       "leaky_relu: `2` is one item too many" + how_to_write("leaky_relu")},
      {"y = x + gelu(x, approximate=erf); return y", 17, "gelu: approximate=erf: expected one of none, tanh"},
  });
}

TEST(TextMistakes, LineColumnAndCaret) {
  const Refusal third_line = refusal([] { Block::parse("relu\n| tanh\n  | rleu # here\n| silu"); });
  EXPECT_EQ(third_line.line, 3);
  EXPECT_EQ(third_line.column, 5);
  EXPECT_EQ(third_line.excerpt, "    | rleu # here\n      ^~~~");
  const Refusal behind = refusal([] { Block::parse("relu |\n"); });
  EXPECT_EQ(behind.line, 2);
  EXPECT_EQ(behind.column, 1);
  EXPECT_EQ(behind.excerpt, "  \n  ^");
  try {
    Block::parse("conv2d(64, k=0)");
    FAIL();
  } catch (const UserError& error) {
    EXPECT_EQ(error.report(), "conv2d: k=0: expected " + kFilter +
                                  "\n  at line 1, column 12\n  conv2d(64, k=0)\n             ^~~");
  }
}

// A long line is shown as a window around the place.
TEST(TextMistakes, LongLinesAreCut) {
  std::string text;
  for (int i = 0; i < 100; ++i) text += "relu | ";
  const Refusal got = refusal([&] { Block::parse(text + "rleu" + text); });
  EXPECT_EQ(got.column, 701);
  const std::size_t end = got.excerpt.find('\n');
  EXPECT_LT(end, 120U);
  EXPECT_EQ(got.excerpt.substr(got.excerpt.find('^') - end - 1, 4), "rleu");
  EXPECT_EQ(got.excerpt.substr(0, 5), "  ...");
  EXPECT_EQ(got.excerpt.substr(end - 3, 3), "...");
}

TEST(TextMistakes, StrangeBytesAreShownEscaped) {
  const std::string nul("relu | \0tanh", 12);
  const Refusal got = refusal([&] { Block::parse(nul); });
  EXPECT_EQ(got.message, "a character that does not belong into the notation: `\\x00`");
  EXPECT_EQ(got.excerpt, "  relu | \\x00tanh\n         ^~~~");
  EXPECT_EQ(refusal([] { Block::parse("relu \xc3\xa9"); }).message,
            "a character that does not belong into the notation: `\\xc3`");
  EXPECT_EQ(Block::parse("relu # \xc3\xa9 \xff").to_string(), "relu");
}

struct JsonMistake {
  std::string json;
  std::string pointer;
  std::string message;
};

// A block of one statement, which the test spoils.
std::string one(const std::string& statement, const std::string& outputs = R"(["y"])") {
  return R"({"statements": [)" + statement + R"(], "outputs": )" + outputs + "}";
}

TEST(JsonMistakes, HavePointers) {
  const std::string relu = R"({"name": "y", "op": "relu", "operands": ["x"]})";
  const auto conv = [](const std::string& args) {
    return one(R"({"name": "y", "op": "conv2d", "operands": ["x"], "args": {"channels": 4, )" + args + "}}");
  };
  const std::vector<JsonMistake> mistakes = {
      {"[]", "/statements", "this member is missing"},
      {R"({"statements": 3})", "/statements", "expected a list of statements"},
      {R"({"statements": []})", "/outputs", "this member is missing"},
      {one("3"), "/statements/0", "expected an object"},
      {one("{}"), "/statements/0/name", "this member is missing"},
      {one(R"({"name": 3})"), "/statements/0/name", "expected a string"},
      {one(R"({"name": "", "op": "relu", "operands": ["x"]})"), "/statements/0/name",
       "a statement needs a name"},
      {one(R"({"name": "x", "op": "relu", "operands": ["x"]})"), "/statements/0",
       "the name `x` is taken already"},
      {one(R"({"name": "y"})"), "/statements/0/op", "this member is missing"},
      {one(R"({"name": "y", "op": "rleu"})"), "/statements/0/op", "no operation `rleu`; did you mean relu?"},
      {one(R"({"name": "y", "op": "relu"})"), "/statements/0/operands", "this member is missing"},
      {one(R"({"name": "y", "op": "relu", "operands": "x"})"), "/statements/0/operands", "expected a list"},
      {one(R"({"name": "y", "op": "relu", "operands": []})"), "/statements/0",
       "relu: expected 1 operand, got 0"},
      {one(R"({"name": "y", "op": "relu", "operands": ["x", "x"]})"), "/statements/0/operands",
       "more operands than relu takes"},
      {one(R"({"name": "y", "op": "relu", "operands": [2]})"), "/statements/0",
       "relu: operand `x` is a value, got the number 2"},
      {one(R"({"name": "y", "op": "relu", "operands": ["c"]})"), "/statements/0/operands/0",
       "`c` is a word of the notation"},
      {one(R"({"name": "y", "op": "relu", "operands": ["x"], "args": []})"), "/statements/0/args",
       "expected an object"},
      {conv(R"("stride": 2)"), "/statements/0", "conv2d: argument `k` is missing"},
      {conv(R"("k": 0)"), "/statements/0/args/k", "conv2d: k=0: expected " + kFilter},
      {conv(R"("k": [3, 18446744073709551615])"), "/statements/0/args/k",
       "a whole number below 2^63 was expected"},
      {conv(R"("k": 3, "kernel_size": 3)"), "/statements/0", "conv2d: argument `kernel_size` is given twice"},
      {conv(R"("a/b": 3)"), "/statements/0/args", "conv2d: there is no argument `a/b`"},
      {one(R"({"name": "y", "op": "mean", "operands": ["x"], "args": {"axes": ["c", "c"]}})"),
       "/statements/0/args/axes", "expected a list of different axes out of n, c, d, h, w"},
      {one(R"({"name": "y", "op": "linear", "operands": ["x", 3], "args": {"channels": 4}})"),
       "/statements/0/operands/1", "expected a string"},
      {one(R"({"name": "y", "formula": "x +"})"), "/statements/0/formula",
       "expected a number, a name, a call or `(`"},
      {one(R"({"name": "y", "formula": "2"})"), "/statements/0/formula",
       "a formula needs at least one value"},
      {one(relu, "[]"), "/outputs", "a block needs at least one output"},
      {one(relu, "[3]"), "/outputs/0", "expected a string"},
      {one(relu, R"(["z"])"), "/outputs/0", "there is no value named `z`"},
      {one(relu, R"(["x"])"), "/outputs", "output `x` is an input"},
      {one(relu, R"(["y", "y"])"), "/outputs", "output `y` is named twice"},
      {one(relu + R"(, {"name": "z", "op": "tanh", "operands": ["x"]})"), "/statements/1",
       "`z` is never used"},
  };
  for (const JsonMistake& mistake : mistakes) {
    const Refusal got = refusal([&] { Block::from_json(mistake.json); });
    EXPECT_EQ(got.pointer, mistake.pointer) << mistake.json << "\n" << got;
    EXPECT_TRUE(got.says(mistake.message)) << mistake.json << "\n" << got;
  }
}

TEST(JsonMistakes, InTheTextHaveLineAndColumn) {
  const Refusal cut = refusal([] { Block::from_json("{\"statements\": [\n  {\"name\": }"); });
  EXPECT_EQ(cut.message, "block in JSON: this is not JSON");
  EXPECT_EQ(cut.line, 2);
  EXPECT_EQ(cut.column, 12);
  const Refusal large =
      refusal([] { Block::from_json(one(R"({"name": "y", "op": "mul", "operands": ["x", 1e999]})")); });
  EXPECT_EQ(large.message, "block in JSON: a number beyond the range of double");
  EXPECT_EQ(large.column, 62);
  const Refusal bytes = refusal([] { Block::from_json("{\"\xff\": 1}"); });
  EXPECT_EQ(bytes.column, 3);
}

TEST(JsonMistakes, OfWordsArePrintable) {
  const Refusal word = refusal([] {
    Block::from_json(R"({"statements":[{"name":"y","op":"gelu","operands":["x"],)"
                     "\"args\":{\"approximate\":\"no\xc3\xa9ne\"}}],\"outputs\":[\"y\"]}");
  });
  EXPECT_EQ(word.message, "block in JSON: gelu: approximate=no\\xc3\\xa9ne: expected one of none, tanh");
}

TEST(JsonMistakes, OfShapesPointToTheStatement) {
  const Block block =
      Block::from_json(one(R"({"name": "y", "op": "group_norm", "operands": ["x"], "args": {"groups": 7}})"));
  const Refusal got = refusal([&] { TypedBlock::infer(block, TensorType::parse("f32[2,24,5]")); });
  EXPECT_EQ(got.message, "group_norm(7): 24 channels do not divide into 7 groups");
  EXPECT_EQ(got.pointer, "/statements/0");
}

}  // namespace
}  // namespace fuseblock
