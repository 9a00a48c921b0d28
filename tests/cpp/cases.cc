#include "cases.h"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <numbers>
#include <set>

namespace fuseblock::cases {
namespace {

std::string trimmed(const std::string& text) {
  const auto begin = text.find_first_not_of(" \t\r");
  return begin == std::string::npos ? "" : text.substr(begin, text.find_last_not_of(" \t\r") - begin + 1);
}

bool is_identifier(const std::string& text) {
  return !text.empty() &&
         text.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789_") == std::string::npos;
}

// Parts between the commas that stand outside of brackets.
std::vector<std::string> split_types(const std::string& text) {
  std::vector<std::string> parts(1);
  int depth = 0;
  for (char c : text) {
    depth += c == '[' ? 1 : (c == ']' ? -1 : 0);
    if (c == ',' && depth == 0)
      parts.emplace_back();
    else
      parts.back() += c;
  }
  for (std::string& part : parts) part = trimmed(part);
  return parts;
}

Case parse_line(const std::string& line, const std::string& location) {
  auto fail = [&](const std::string& what) { throw UserError(location + ": " + what + ": " + line); };
  const auto colon = line.find(':');
  const auto at = line.rfind(" @ ");
  if (colon == std::string::npos || at == std::string::npos || at < colon)
    fail("a case is written `name: block @ type`");
  Case result;
  result.location = location;
  result.name = trimmed(line.substr(0, colon));
  result.block = trimmed(line.substr(colon + 1, at - colon - 1));
  if (!is_identifier(result.name)) fail("the name of a case has small letters, digits and underscores");
  const std::vector<std::string> types = split_types(line.substr(at + 3));
  result.input = types[0];
  for (std::size_t i = 1; i < types.size(); ++i) {
    const auto equals = types[i].find('=');
    if (equals == std::string::npos || types[i].find('[') < equals)
      fail("expected `name=type` behind the first type");
    result.others[types[i].substr(0, equals)] = types[i].substr(equals + 1);
  }
  return result;
}

Block with_casts_to(const Block& block, DType dtype) {
  auto json = nlohmann::ordered_json::parse(block.to_json());
  for (auto& statement : json["statements"])
    if (statement.value("op", "") == "cast") statement["args"]["dtype"] = to_string(dtype);
  return Block::from_json(json.dump());
}

std::string quoted(const std::string& text) { return "'" + text + "'"; }

// A stream of normal numbers that depends on nothing but its seed.
class Normals {
 public:
  explicit Normals(std::uint64_t seed) : state_(seed) {}

  // Box and Muller's method; the second number of each pair is not used.
  double next() {
    const double radius = std::sqrt(-2 * std::log(1 - uniform()));
    return radius * std::cos(2 * std::numbers::pi * uniform());
  }

 private:
  // In [0, 1), from splitmix64.
  double uniform() {
    state_ += 0x9e3779b97f4a7c15ULL;
    std::uint64_t bits = state_;
    bits = (bits ^ (bits >> 30)) * 0xbf58476d1ce4e5b9ULL;
    bits = (bits ^ (bits >> 27)) * 0x94d049bb133111ebULL;
    bits ^= bits >> 31;
    return static_cast<double>(bits >> 11) * 0x1p-53;
  }

  std::uint64_t state_;
};

std::uint64_t seed_of(const std::string& name, std::uint64_t seed) {
  for (char c : name) seed = seed * 1099511628211ULL + static_cast<unsigned char>(c);
  return seed;
}

// offset + deviation * normal, or its absolute value.
struct Distribution {
  double offset = 0;
  double deviation = 1;
  bool positive = false;
};

Distribution distribution(const TypedBlock& block, const ValueInfo& argument, const TensorType& type) {
  if (argument.kind == ValueKind::kInput) return {0, 1.5};
  const std::string last = argument.name.substr(argument.name.rfind('.') + 1);
  if (last == "running_var") return {0.5, 1, true};
  if (last != "weight") return {0, 0.3};
  const bool convolution =
      argument.node >= 0 &&
      block.block().nodes()[static_cast<std::size_t>(argument.node)].operation->code == OpCode::kConvolution;
  if (!convolution) return {1, 0.3};
  const auto outer = static_cast<double>(std::max<std::int64_t>(type.extent(Axis::kN), 1));
  return {0, 1 / std::sqrt(std::max(static_cast<double>(type.element_count()) / outer, 1.0))};
}

Tensor draw(const TensorType& type, const Distribution& from, std::uint64_t seed) {
  Normals normals(seed);
  Tensor tensor(type);
  for (std::int64_t i = 0; i < type.element_count(); ++i) {
    const double number = from.deviation * normals.next();
    tensor.set(i, from.offset + (from.positive ? std::fabs(number) : number));
  }
  return tensor;
}

}  // namespace

TypedBlock Case::typed(std::optional<DType> dtype) const {
  auto type = [&](const std::string& text) {
    TensorType result = TensorType::parse(text);
    if (dtype) result.dtype = *dtype;
    return result;
  };
  const Block parsed = Block::parse(block);
  TypeMap types;
  for (const auto& [other, text] : others) types[other] = type(text);
  return TypedBlock::infer(dtype ? with_casts_to(parsed, *dtype) : parsed, type(input), types);
}

std::string Case::command(const std::string& engine) const {
  std::string text = "build/fuseblock check " + quoted(block) + " --input " + quoted(input);
  for (const auto& [other, type] : others) text += " --input " + quoted(other + "=" + type);
  return text + " --engine " + engine;
}

std::vector<Case> read_cases(const std::filesystem::path& file) {
  std::ifstream stream(file);
  if (!stream) throw UserError(file.string() + ": cannot be read");
  std::vector<Case> cases;
  std::string line;
  for (int number = 1; std::getline(stream, line); ++number) {
    const std::string text = trimmed(line);
    if (text.empty() || text[0] == '#') continue;
    cases.push_back(parse_line(text, file.filename().string() + ":" + std::to_string(number)));
  }
  return cases;
}

std::vector<Case> read_cases(const std::vector<std::filesystem::path>& files) {
  std::vector<Case> cases;
  std::set<std::string> names;
  for (const auto& file : files) {
    for (Case& each : read_cases(file)) {
      if (!names.insert(each.name).second)
        throw UserError(each.location + ": there is another case named " + each.name);
      cases.push_back(std::move(each));
    }
  }
  return cases;
}

std::vector<std::filesystem::path> case_files() {
  std::vector<std::filesystem::path> files;
  for (const auto& entry :
       std::filesystem::directory_iterator(std::filesystem::path(FUSEBLOCK_SOURCE_DIR) / "tests" / "cases"))
    if (entry.path().extension() == ".cases") files.push_back(entry.path());
  std::sort(files.begin(), files.end());
  return files;
}

TensorMap random_arguments(const TypedBlock& block, std::uint64_t seed) {
  TensorMap tensors;
  for (Value value : block.block().arguments()) {
    const ValueInfo& argument = block.block().value(value);
    const TensorType& type = block.type(value);
    tensors[argument.name] = draw(type, distribution(block, argument, type), seed_of(argument.name, seed));
  }
  return tensors;
}

TensorMap random_output_gradients(const TypedBlock& block, std::uint64_t seed) {
  TensorMap tensors;
  for (const NamedType& output : block.outputs()) {
    const std::string name = "d_" + output.name;
    tensors[name] = draw(output.type, {}, seed_of(name, seed));
  }
  return tensors;
}

TensorMap run(const Plan& plan, const TensorMap& arguments) {
  Arguments bound;
  for (const NamedType& input : plan.inputs()) {
    const auto found = arguments.find(input.name);
    if (found == arguments.end()) throw UserError("there is no tensor for the argument " + input.name);
    bound.inputs.push_back(found->second.view());
  }
  TensorMap outputs;
  for (const NamedType& output : plan.outputs())
    bound.outputs.push_back(outputs.emplace(output.name, Tensor(output.type)).first->second.view());
  constexpr std::size_t kAlignment = 64;
  std::vector<std::byte> memory(plan.workspace_bytes() + kAlignment, std::byte{0xa5});
  const std::size_t past = reinterpret_cast<std::uintptr_t>(memory.data()) % kAlignment;
  plan.run(bound, std::span(memory).subspan(kAlignment - past, plan.workspace_bytes()));
  return outputs;
}

}  // namespace fuseblock::cases
