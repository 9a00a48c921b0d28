#include "random_blocks.h"

#include <algorithm>
#include <array>
#include <ranges>
#include <set>

#include "fuzz_support.h"
#include "placed_tensor.h"

namespace fuseblock::random_blocks {
namespace {

using fuzz::Random;

std::string formula_text(const Stage& stage) {
  std::string text;
  for (std::size_t i = 0; i < stage.formula.size(); ++i) {
    if (stage.formula[i] == '$')
      text += stage.operands[static_cast<std::size_t>(stage.formula[++i] - '1')];
    else
      text += stage.formula[i];
  }
  return text;
}

std::string stage_text(const Stage& stage) {
  if (stage.operation.empty()) return stage.name + " = " + formula_text(stage);
  std::string items;
  for (const std::string& operand : stage.operands) items += (items.empty() ? "" : ", ") + operand;
  for (const auto& [key, value] : stage.arguments) items += ", " + key + "=" + value;
  return stage.name + " = " + stage.operation + "(" + items + ")";
}

// Names of the stages that the outputs need.
std::set<std::string> needed(const RandomBlock& block) {
  std::set<std::string> names(block.outputs.begin(), block.outputs.end());
  for (const auto& stage : std::ranges::reverse_view(block.stages))
    if (names.contains(stage.name)) names.insert(stage.operands.begin(), stage.operands.end());
  return names;
}

std::string labelled(const TensorType& type) {
  std::string extents;
  const std::vector<Axis> axes = type.axes.list();
  for (std::size_t i = 0; i < axes.size(); ++i)
    extents += (i > 0 ? "," : "") + std::string(1, letter(axes[i])) + "=" + std::to_string(type.extents[i]);
  return std::string(to_string(type.dtype)) + "[" + extents + "]" +
         (type.layout == Layout::kChannelsLast ? ":cl" : "");
}

TensorType narrowed(const TensorType& type, const ExtraInput& extra) {
  TensorType result = type;
  result.extents.clear();
  for (Axis axis : type.axes.list()) {
    const bool one = extra.ones.contains(axis);
    if (one && extra.left_out)
      result.axes.erase(axis);
    else
      result.extents.push_back(one ? 1 : type.extent(axis));
  }
  if (result.rank() < 3) result.layout = Layout::kContiguous;
  return result;
}

// Adds stages to a block one by one, keeping it valid.
class Generator {
 public:
  explicit Generator(std::uint64_t seed) : random_(seed * 0x9e3779b97f4a7c15ULL + 1) { block_.seed = seed; }

  RandomBlock make() {
    choose_input();
    const std::size_t stages = 1 + random_.below(6);
    while (block_.stages.size() < stages && trials_ < 400) add();
    choose_outputs();
    if (random_.below(2) == 0) block_.oddities = static_cast<unsigned>(random_.below(cases::kAnyInput + 1));
    return block_;
  }

 private:
  template <class T, std::size_t N>
  T pick(const std::array<T, N>& list) {
    return list[random_.below(N)];
  }
  bool chance(std::size_t one_in) { return random_.below(one_in) == 0; }
  std::int64_t between(std::int64_t low, std::int64_t high) {
    return low + static_cast<std::int64_t>(random_.below(static_cast<std::size_t>(high - low + 1)));
  }
  std::int64_t divisor_of(std::int64_t number) {
    std::vector<std::int64_t> divisors;
    for (std::int64_t i = 1; i <= number; ++i)
      if (number % i == 0) divisors.push_back(i);
    return divisors[random_.below(divisors.size())];
  }

  void choose_input() {
    constexpr std::array<std::int64_t, 12> kChannels = {1, 2, 3, 4, 5, 6, 6, 8, 10, 12, 20, 30};
    constexpr std::array<int, 10> kSpatialRanks = {0, 1, 1, 1, 2, 2, 2, 2, 3, 3};
    const int rank = pick(kSpatialRanks);
    // Some blocks are larger than the tiles and chunks of the engine.
    const bool large = rank > 0 && chance(12);
    std::vector<std::int64_t> extents = {between(1, 3), pick(kChannels)};
    constexpr std::array<std::int64_t, 4> kMost = {0, 17, 9, 5};
    constexpr std::array<std::int64_t, 4> kMostLarge = {0, 1300, 40, 12};
    const std::int64_t most = (large ? kMostLarge : kMost)[static_cast<std::size_t>(rank)];
    if (large) extents = {between(1, 2), between(1, 6)};
    for (int i = 0; i < rank; ++i) extents.push_back(large ? between(most / 2, most) : between(1, most));
    const DType dtype = chance(4) ? DType::kF32 : DType::kF64;
    const Layout layout = rank > 0 && chance(3) ? Layout::kChannelsLast : Layout::kContiguous;
    block_.x = TensorType::make(dtype, std::move(extents), layout);
    types_["x"] = block_.x;
    current_ = "x";
  }

  void choose_outputs() {
    block_.outputs = {current_ == "x" ? block_.stages.back().name : current_};
    while (chance(3)) {
      const std::string& name = block_.stages[random_.below(block_.stages.size())].name;
      if (std::find(block_.outputs.begin(), block_.outputs.end(), name) == block_.outputs.end())
        block_.outputs.push_back(name);
    }
    const std::set<std::string> names = needed(block_);
    std::erase_if(block_.stages, [&](const Stage& stage) { return !names.contains(stage.name); });
    std::erase_if(block_.extra_inputs, [&](const auto& extra) { return !names.contains(extra.first); });
  }

  // One stage, or a few that belong together, on the current value or an earlier one.
  void add() {
    ++trials_;
    const RandomBlock before = block_;
    if (chance(6) && !block_.stages.empty())
      current_ = chance(3) ? "x" : block_.stages[random_.below(block_.stages.size())].name;
    const std::string start = current_;
    add_some();
    try {
      block_.outputs = {current_};
      const TypedBlock typed = block_.typed();
      for (int node = 0; node < static_cast<int>(typed.block().nodes().size()); ++node)
        if (typed.operation_count(node) > 4e6) throw UserError("too large");
      for (const Stage& stage : block_.stages)
        if (const auto value = typed.block().find(stage.name)) types_[stage.name] = typed.type(*value);
    } catch (const Error&) {
      block_ = before;
      current_ = start;
    }
  }

  void add_some() {
    const TensorType& type = types_.at(current_);
    const bool plain = type.rank() >= 2 && type.axes == default_axes(type.rank());
    const std::size_t what = random_.below(100);
    if (plain && what < 25) return type.rank() == 2 ? add_linear() : add_convolution();
    if (plain && what < 32 && type.rank() > 2) return add_pool();
    if (what < 50) return add_norm();
    if (what < 72) return add_unary();
    if (what < 84) return add_binary();
    if (what < 92) return add_reduction();
    if (what < 98) return add_formula();
    apply("cast", {current_}, {{"dtype", "f64"}});
  }

  void apply(const std::string& operation, std::vector<std::string> operands,
             std::vector<std::pair<std::string, std::string>> arguments = {},
             const std::string& formula = {}) {
    current_ = "v" + std::to_string(++names_);
    block_.stages.push_back({current_, operation, std::move(operands), std::move(arguments), formula});
  }

  // One number for all spatial axes, or one for each.
  std::string per_axis(int rank, std::int64_t low, std::int64_t high) {
    if (chance(2)) return std::to_string(between(low, high));
    std::string list;
    for (int i = 0; i < rank; ++i) list += (i > 0 ? "," : "") + std::to_string(between(low, high));
    return rank == 1 ? list : "(" + list + ")";
  }

  void add_linear() { apply("linear", {current_}, {{"channels", std::to_string(between(1, 12))}}); }

  void add_convolution() {
    const TensorType& type = types_.at(current_);
    const int rank = type.rank() - 2;
    const bool transposed = chance(3);
    const std::int64_t groups = chance(2) ? 1 : divisor_of(type.extent(Axis::kC));
    const std::int64_t channels = groups * between(1, std::max<std::int64_t>(12 / groups, 1));
    std::vector<std::pair<std::string, std::string>> arguments = {
        {"channels", std::to_string(channels)}, {"k", per_axis(rank, 1, rank == 3 ? 3 : 5)}};
    const bool same = !transposed && chance(6);
    if (!same && chance(3)) arguments.emplace_back("stride", per_axis(rank, 1, 3));
    if (chance(4)) arguments.emplace_back("dilation", per_axis(rank, 1, 3));
    if (same)
      arguments.emplace_back("pad", "same");
    else if (chance(2))
      arguments.emplace_back("pad", per_axis(rank, 0, 2));
    if (!transposed && chance(4))
      arguments.emplace_back("pad_mode", pick(std::array{"reflect", "replicate", "circular"}));
    if (transposed && chance(3)) arguments.emplace_back("output_pad", per_axis(rank, 0, 1));
    if (groups > 1) arguments.emplace_back("groups", std::to_string(groups));
    if (chance(3)) arguments.emplace_back("bias", "false");
    apply((transposed ? "conv_transpose" : "conv") + std::to_string(rank) + "d", {current_},
          std::move(arguments));
  }

  void add_pool() {
    const int rank = types_.at(current_).rank() - 2;
    const bool average = chance(2);
    std::vector<std::pair<std::string, std::string>> arguments = {{"k", per_axis(rank, 1, 3)}};
    if (chance(2)) arguments.emplace_back("stride", per_axis(rank, 1, 3));
    if (chance(2)) arguments.emplace_back("pad", per_axis(rank, 0, 1));
    if (!average && chance(3)) arguments.emplace_back("dilation", per_axis(rank, 1, 2));
    if (chance(3)) arguments.emplace_back("ceil_mode", "true");
    if (average && chance(3)) arguments.emplace_back("count_include_pad", "false");
    if (average && chance(5)) arguments.emplace_back("divisor_override", std::to_string(between(1, 4)));
    apply(average ? "avg_pool" : "max_pool", {current_}, std::move(arguments));
  }

  // Some of the value's axes, as the notation lists them.
  std::string some_axes() {
    const std::vector<Axis> all = types_.at(current_).axes.list();
    if (all.empty()) return "(c)";
    std::string list;
    while (list.empty())
      for (Axis axis : all)
        if (chance(2)) list += (list.empty() ? "" : ",") + std::string(1, letter(axis));
    return "(" + list + ")";
  }

  void add_norm() {
    std::vector<std::pair<std::string, std::string>> arguments;
    const auto groups = [&] { return std::to_string(divisor_of(types_.at(current_).extent(Axis::kC))); };
    std::string name = pick(std::array{"group_norm", "group_norm", "group_norm", "instance_norm",
                                       "layer_norm", "rms_norm", "batch_norm", "l2_normalize", "softmax"});
    if (name == "group_norm") arguments.emplace_back("groups", groups());
    if (name == "layer_norm" || name == "rms_norm" || name == "l2_normalize" || name == "softmax")
      arguments.emplace_back("axes", some_axes());
    if (name != "softmax" && name != "l2_normalize" && chance(3))
      arguments.emplace_back("affine", name == "instance_norm" ? "true" : "false");
    if (name != "softmax" && chance(3)) arguments.emplace_back("eps", pick(std::array{"0.1", "0.001", "1"}));
    apply(name, {current_}, std::move(arguments));
  }

  void add_unary() {
    const std::string name =
        pick(std::array{"relu",      "leaky_relu", "relu6", "elu",  "sigmoid", "silu",     "hardsigmoid",
                        "hardswish", "hardtanh",   "clamp", "tanh", "gelu",    "softplus", "mish",
                        "square",    "abs",        "neg",   "exp",  "log",     "sqrt"});
    std::vector<std::pair<std::string, std::string>> arguments;
    const auto maybe = [&](const std::string& key, const std::string& value) {
      if (chance(2)) arguments.emplace_back(key, value);
    };
    if (name == "exp") apply("tanh", {current_});
    if (name == "log" || name == "sqrt") {
      apply("square", {current_});
      apply("add", {current_, "0.5"});
    }
    if (name == "leaky_relu") maybe("negative_slope", "0.2");
    if (name == "elu") maybe("alpha", "0.7");
    if (name == "hardtanh") maybe("min_val", "-0.5"), maybe("max_val", "1.5");
    if (name == "clamp") maybe("min", "-0.7"), maybe("max", "0.9");
    if (name == "gelu") maybe("approximate", "tanh");
    if (name == "softplus") maybe("beta", "2"), maybe("threshold", "3");
    apply(name, {current_}, std::move(arguments));
  }

  void add_binary() {
    const std::string name = pick(std::array{"add", "add", "sub", "mul", "div", "minimum", "maximum"});
    std::vector<std::pair<std::string, std::string>> arguments;
    if ((name == "add" || name == "sub") && chance(3)) arguments.emplace_back("alpha", "-0.5");
    apply(name, {current_, name == "div" ? "1.7" : other_operand()}, std::move(arguments));
  }

  // A number, an earlier value or a new extra input.
  std::string other_operand() {
    const std::size_t what = random_.below(5);
    if (what == 0) return pick(std::array{"2", "-0.3", "0", "0.5"});
    if (what < 3) {
      std::vector<std::string> names = {"x"};
      for (const Stage& stage : block_.stages)
        if (types_.contains(stage.name)) names.push_back(stage.name);
      return names[random_.below(names.size())];
    }
    std::string name = "e" + std::to_string(++names_);
    ExtraInput extra;
    extra.left_out = chance(2);
    for (Axis axis : kAllAxes)
      if (chance(3)) extra.ones.insert(axis);
    block_.extra_inputs[name] = extra;
    return name;
  }

  void add_reduction() {
    const std::string name = pick(std::array{"mean", "mean", "sum", "max", "min", "logsumexp"});
    std::vector<std::pair<std::string, std::string>> arguments;
    if (!chance(6)) arguments.emplace_back("axes", some_axes());
    const bool keepdim = !chance(3);
    if (keepdim) arguments.emplace_back("keepdim", "true");
    const std::int64_t channels = types_.at(current_).extent(Axis::kC);
    if (name == "mean" && keepdim && channels > 1 && chance(2))
      arguments.emplace_back("groups", std::to_string(divisor_of(channels)));
    apply(name, {current_}, std::move(arguments));
  }

  void add_formula() {
    const std::string formula = pick(
        std::array{"$1 * sigmoid(1.702 * $1)", "$1 / (1 + abs($2))", "select($1 > $2, $1 - $2, 0.5 * $1)",
                   "exp(-$1 * $1)", "tanh($1 + $2) * $1", "log(1 + $1 * $1) - $2", "$1 * ($2 < 0.3) + $2",
                   "0.5 * $1 * (1 + erf($1)) + $2", "minimum($1, $2) * maximum($1, -0.5)",
                   "expm1(0.1 * $1) + sqrt(1 + $2 * $2)", "log1pexp($1) * $2"});
    std::vector<std::string> operands = {current_};
    if (formula.find("$2") != std::string::npos) {
      std::string other = other_operand();
      operands.push_back(other[0] == '-' ? "x" : std::move(other));
    }
    apply("", std::move(operands), {}, formula);
  }

  Random random_;
  RandomBlock block_;
  std::string current_;
  std::map<std::string, TensorType> types_;
  int names_ = 0;
  int trials_ = 0;
};

}  // namespace

std::string RandomBlock::text() const {
  const std::set<std::string> names = needed(*this);
  std::string text;
  for (const Stage& stage : stages)
    if (names.contains(stage.name)) text += stage_text(stage) + "; ";
  text += "return ";
  for (std::size_t i = 0; i < outputs.size(); ++i) text += (i > 0 ? ", " : "") + outputs[i];
  return text;
}

TypedBlock RandomBlock::typed() const {
  const Block parsed = Block::parse(text());
  TypedBlock typed = TypedBlock::infer(parsed, x);
  TypeMap types;
  for (const auto& [name, extra] : extra_inputs)
    if (const auto value = parsed.find(name)) types[name] = narrowed(typed.type(*value), extra);
  return types.empty() ? typed : TypedBlock::infer(parsed, x, types);
}

int RandomBlock::stage_count() const {
  const std::set<std::string> names = needed(*this);
  return static_cast<int>(
      std::count_if(stages.begin(), stages.end(), [&](const Stage& s) { return names.contains(s.name); }));
}

std::string RandomBlock::case_text() const {
  const TypedBlock block = typed();
  std::string text = block.block().to_string() + " @ " + labelled(x);
  for (const NamedType& argument : block.arguments())
    if (extra_inputs.contains(argument.name)) text += ", " + argument.name + "=" + labelled(argument.type);
  return text;
}

std::string RandomBlock::repeat_line() const {
  const TypedBlock block = typed();
  cases::Case as_case;
  as_case.block = block.block().to_string();
  as_case.input = labelled(x);
  for (const NamedType& argument : block.arguments())
    if (extra_inputs.contains(argument.name)) as_case.others[argument.name] = labelled(argument.type);
  const std::string number = std::to_string(seed);
  return case_text() + "; seed " + number + ", views " + std::to_string(oddities) +
         "; repeat with: " + as_case.command("cpu") + " --seed " + number +
         ", or with this very data: FUSEBLOCK_RANDOM_SEED=" + number + " build/tests/cpp/random_blocks_test";
}

RandomBlock generate(std::uint64_t seed) { return Generator(seed).make(); }

}  // namespace fuseblock::random_blocks
