#include "plan/graph.h"

#include <algorithm>

namespace fuseblock {
namespace {

bool is_small_argument(const Part& part) {
  if (part.kind != PartKind::kArgument || part.large) return false;
  return !varies(part, Axis::kD) && !varies(part, Axis::kH) && !varies(part, Axis::kW);
}

}  // namespace

double Part::elements() const {
  double count_all = 1;
  for (std::int64_t extent : extents) count_all *= static_cast<double>(extent);
  return count_all;
}

Graph needed_parts(const std::vector<Part>& parts, const std::vector<int>& outputs) {
  std::vector<bool> needed(parts.size(), false);
  for (int output : outputs) needed[static_cast<std::size_t>(output)] = true;
  for (std::size_t i = parts.size(); i-- > 0;)
    if (needed[i])
      for (int operand : parts[i].operands) needed[static_cast<std::size_t>(operand)] = true;
  Graph graph;
  std::vector<int> number(parts.size(), -1);
  for (std::size_t i = 0; i < parts.size(); ++i) {
    if (!needed[i]) continue;
    number[i] = static_cast<int>(graph.parts.size());
    graph.parts.push_back(parts[i]);
    for (int& operand : graph.parts.back().operands) operand = number[static_cast<std::size_t>(operand)];
  }
  for (int output : outputs) graph.outputs.push_back(number[static_cast<std::size_t>(output)]);
  return graph;
}

std::vector<bool> find_statistics(const Graph& graph) {
  std::vector<bool> result(graph.parts.size(), false);
  for (std::size_t i = 0; i < graph.parts.size(); ++i) {
    const Part& part = graph.parts[i];
    auto is_statistic = [&](int operand) { return result[static_cast<std::size_t>(operand)]; };
    switch (part.kind) {
      case PartKind::kArgument:
      case PartKind::kConv:
      case PartKind::kHost:
      case PartKind::kPool: break;
      case PartKind::kContract:
      case PartKind::kRegroup: result[i] = true; break;
      case PartKind::kReduce:
        result[i] = is_statistic(part.operands[0]) || part.axes != AxisSet{Axis::kC};
        break;
      case PartKind::kMerge:
      case PartKind::kComponent: result[i] = is_statistic(part.operands[0]); break;
      case PartKind::kPointwise: {
        Extents broadcast = {1, 1, 1, 1, 1};
        bool small = !part.operands.empty();
        for (int operand : part.operands) {
          small = small && (is_statistic(operand) || is_small_argument(graph[operand]));
          for (std::size_t axis = 0; axis < broadcast.size(); ++axis)
            if (broadcast[axis] == 1) broadcast[axis] = graph[operand].extents[axis];
        }
        bool same_positions = true;  // what is repeated over samples and channels alone is still small
        for (Axis axis : kSpatialAxes.list()) {
          const auto place = static_cast<std::size_t>(index(axis));
          same_positions = same_positions && broadcast[place] == part.extents[place];
        }
        result[i] = small && same_positions;
        break;
      }
    }
  }
  return result;
}

bool leaves_positions(const Part& statistic, const Extents& extents) {
  if (statistic.axes == AxisSet{Axis::kC}) return false;
  const std::vector<Axis> axes = kSpatialAxes.list();
  return std::any_of(axes.begin(), axes.end(), [&](Axis axis) {
    return extents[static_cast<std::size_t>(index(axis))] != 1 && !statistic.axes.contains(axis);
  });
}

}  // namespace fuseblock
