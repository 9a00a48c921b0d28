#include "data.h"

#include <algorithm>
#include <cmath>

namespace fuseblock::cli {
namespace {

std::uint64_t splitmix64(std::uint64_t state) {
  state = (state ^ (state >> 30)) * 0xbf58476d1ce4e5b9ULL;
  state = (state ^ (state >> 27)) * 0x94d049bb133111ebULL;
  return state ^ (state >> 31);
}

std::uint64_t fnv1a(std::string_view text) {
  std::uint64_t hash = 0xcbf29ce484222325ULL;
  for (char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3ULL;
  return hash;
}

// offset + factor * (uniform or normal).
struct Draw {
  double offset = 0;
  double factor = 1;
  bool uniform = false;
};

constexpr Draw kUniform = {0, 1, true};
constexpr Draw kNormal = {0, 1, false};
constexpr Draw kScale = {1, 0.3, false};
constexpr Draw kShift = {0, 0.3, false};
constexpr Draw kVariance = {0.5, 1, true};

// For a convolution's weight [K, C, filter] or [C, K, filter], and for its bias.
Draw convolution_draw(const TensorType& weight) {
  const double outer = static_cast<double>(std::max<std::int64_t>(weight.extent(Axis::kN), 1));
  const double fan_in = std::max(static_cast<double>(weight.element_count()) / outer, 1.0);
  const double bound = 1 / std::sqrt(fan_in);
  return {-bound, 2 * bound, true};
}

Draw parameter_draw(const TypedBlock& block, const ValueInfo& parameter, const TensorType& type) {
  const std::string_view name = parameter.name;
  const std::string_view last = name.substr(name.rfind('.') + 1);
  if (last == "running_mean") return kShift;
  if (last == "running_var") return kVariance;
  if (parameter.node < 0) {  // its stage is not in the block: a weight on n and c is a convolution's
    if (last == "bias") return kShift;
    if (last != "weight") return kNormal;
    return type.axes.contains_all({Axis::kN, Axis::kC}) ? convolution_draw(type) : kScale;
  }
  const Node& node = block.block().nodes()[static_cast<std::size_t>(parameter.node)];
  if (node.operation->code == OpCode::kConvolution) return convolution_draw(block.type(node.operand(1)));
  if (last == "weight") return kScale;
  if (last == "bias") return kShift;
  return kNormal;
}

Draw argument_draw(const TypedBlock& block, const ValueInfo& argument, const TensorType& type) {
  if (argument.kind == ValueKind::kParameter) return parameter_draw(block, argument, type);
  return argument.name.starts_with("d_") ? kNormal : kUniform;
}

Tensor generate(const NamedType& named, const Draw& draw, std::uint64_t seed) {
  const Stream stream(seed, named.name);
  Tensor tensor(named.type);
  for_each_element(named.type, [&](std::int64_t index, std::int64_t offset) {
    const double number = draw.uniform ? stream.uniform(index) : stream.normal(index);
    const auto rounded = static_cast<float>(draw.offset + draw.factor * number);
    store_element(tensor.data(), named.type.dtype, offset, static_cast<double>(rounded));
  });
  return tensor;
}

}  // namespace

Stream::Stream(std::uint64_t seed, std::string_view name) : key_(splitmix64(seed + fnv1a(name))) {}

std::uint64_t Stream::bits(std::uint64_t index) const {
  return splitmix64(key_ + (index + 1) * 0x9e3779b97f4a7c15ULL);
}

double Stream::uniform(std::int64_t index) const {
  return static_cast<double>(bits(static_cast<std::uint64_t>(index)) >> 40) * 0x1p-24;
}

double Stream::normal(std::int64_t index) const {
  std::uint64_t sum = 0;
  for (std::uint64_t i = 0; i < 3; ++i) {
    const std::uint64_t parts = bits(3 * static_cast<std::uint64_t>(index) + i);
    sum += (parts & 0xffff) + ((parts >> 16) & 0xffff) + ((parts >> 32) & 0xffff) + (parts >> 48);
  }
  return (static_cast<double>(sum) - 12 * 32767.5) * 0x1p-16;
}

TensorMap generate_arguments(const TypedBlock& block, std::uint64_t seed) {
  require_memory(total_bytes(block.arguments()), "the block's arguments");
  TensorMap tensors;
  for (Value value : block.block().arguments()) {
    const ValueInfo& argument = block.block().value(value);
    const TensorType& type = block.type(value);
    tensors.emplace(argument.name,
                    generate({argument.name, type}, argument_draw(block, argument, type), seed));
  }
  return tensors;
}

std::vector<NamedType> output_gradients(const TypedBlock& block) {
  std::vector<NamedType> gradients;
  auto taken = [&](const std::string& name) {
    auto same = [&](const NamedType& gradient) { return gradient.name == name; };
    return block.block().find(name) || std::any_of(gradients.begin(), gradients.end(), same);
  };
  for (const NamedType& output : block.outputs()) {
    std::string name = "d_" + output.name;
    for (int number = 2; taken(name); ++number) name = "d_" + output.name + std::to_string(number);
    gradients.push_back({name, output.type});
  }
  return gradients;
}

TensorMap generate_output_gradients(const TypedBlock& block, std::uint64_t seed) {
  TensorMap tensors;
  for (const NamedType& gradient : output_gradients(block))
    tensors.emplace(gradient.name, generate(gradient, kNormal, seed));
  return tensors;
}

}  // namespace fuseblock::cli
