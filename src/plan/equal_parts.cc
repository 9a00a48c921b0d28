#include "plan/equal_parts.h"

#include <bit>
#include <map>
#include <string>

namespace fuseblock {
namespace {

// Numbers that are equal for equal parts, whichever graph they are of.
class Numbering {
 public:
  std::vector<int> number(const TypedBlock& block, const Graph& graph) {
    std::vector<int> numbers;
    for (const Part& part : graph.parts) {
      key_.clear();
      describe(block, part, numbers);
      numbers.push_back(known_.try_emplace(key_, static_cast<int>(known_.size())).first->second);
    }
    return numbers;
  }

 private:
  template <class Number>
  void add(Number value) {
    key_ += std::to_string(value) + ",";
  }
  void add(const Spatial& values) {
    for (std::int64_t value : values) add(value);
  }

  void describe(const TypedBlock& block, const Part& part, const std::vector<int>& numbers) {
    add(static_cast<int>(part.kind));
    for (std::int64_t extent : part.extents) add(extent);
    for (int operand : part.operands) add(numbers[static_cast<std::size_t>(operand)]);
    key_ += ";";
    switch (part.kind) {
      case PartKind::kArgument: key_ += block.block().value(part.value).name; return;
      case PartKind::kPointwise: add_formula(part.formula); return;
      case PartKind::kReduce:
      case PartKind::kMerge:
        add(static_cast<int>(part.statistic));
        key_ += to_string(part.axes);
        add(part.groups);
        return;
      case PartKind::kComponent: add(part.component); return;
      case PartKind::kRegroup: return;
      case PartKind::kConv:
      case PartKind::kHost:
      case PartKind::kContract:
        add_operation(block, part);
        return add_geometry(conv_geometry(block, part.node));
      case PartKind::kPool: add_operation(block, part); return add_geometry(pool_geometry(block, part.node));
    }
  }

  void add_operation(const TypedBlock& block, const Part& part) {
    add(static_cast<int>(block.block().nodes()[static_cast<std::size_t>(part.node)].operation->code));
  }

  void add_formula(const Formula& formula) {
    for (const Formula::Step& step : formula.steps()) {
      add(static_cast<int>(step.primitive));
      for (std::int32_t number : {step.a, step.b, step.c}) add(number);
      add(step.input);
      add(std::bit_cast<std::uint64_t>(step.constant));
    }
  }

  void add_geometry(const ConvGeometry& geometry) {
    for (std::int64_t extent : {geometry.batch, geometry.in_channels, geometry.out_channels, geometry.groups})
      add(extent);
    for (const Spatial& each :
         {geometry.in, geometry.out, geometry.filter, geometry.stride, geometry.pad, geometry.dilation})
      add(each);
    add(static_cast<int>(geometry.pad_mode));
    add(static_cast<int>(geometry.transposed));
  }

  void add_geometry(const PoolGeometry& geometry) {
    for (const Spatial& each :
         {geometry.in, geometry.out, geometry.window, geometry.stride, geometry.pad, geometry.dilation})
      add(each);
    add(static_cast<int>(geometry.count_include_pad));
    add(geometry.divisor_override);
  }

  std::map<std::string, int> known_;
  std::string key_;
};

}  // namespace

std::vector<int> find_equal_parts(const TypedBlock& block, const Graph& graph, const TypedBlock& other_block,
                                  const Graph& other) {
  Numbering numbering;
  std::map<int, int> part_of;
  int next = 0;
  for (int number : numbering.number(other_block, other)) part_of.try_emplace(number, next++);
  std::vector<int> result;
  for (int number : numbering.number(block, graph)) {
    const auto place = part_of.find(number);
    result.push_back(place == part_of.end() ? -1 : place->second);
  }
  return result;
}

}  // namespace fuseblock
