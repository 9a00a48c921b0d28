#include "plan/explain.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "plan/amounts.h"
#include "plan/device_description.h"
#include "plan/explain_dot.h"
#include "plan/explain_kernels.h"
#include "plan/explain_saved.h"
#include "plan/explain_schedule.h"

namespace fuseblock {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::size_t kLineWidth = 110;

// Columns as wide as their longest cell; the numeric ones to the right.
std::string table(const std::vector<std::vector<std::string>>& rows, const std::vector<bool>& to_the_right) {
  std::vector<std::size_t> widths(to_the_right.size(), 0);
  for (const auto& row : rows)
    for (std::size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  std::string text;
  for (const auto& row : rows) {
    std::string line = " ";
    for (std::size_t i = 0; i < row.size(); ++i) {
      const std::string space(widths[i] - row[i].size(), ' ');
      line += " " + (to_the_right[i] ? space + row[i] : row[i] + space) + " ";
    }
    text += line.substr(0, line.find_last_not_of(' ') + 1) + "\n";
  }
  return text;
}

std::string named_types(const std::vector<NamedType>& list) {
  std::vector<std::vector<std::string>> rows;
  for (const NamedType& entry : list) rows.push_back({entry.name, to_string(entry.type)});
  return table(rows, {false, false});
}

// The block on one line, or where that is long one statement a line.
std::string block_lines(const Block& block) {
  const std::string text = block.to_string();
  if (text.size() <= kLineWidth) return "  " + text + "\n";
  std::string lines = "  ";
  const std::string statements = block.to_statements();
  for (std::size_t i = 0; i < statements.size(); ++i) {
    const bool ends_statement = statements[i] == ' ' && i > 0 && statements[i - 1] == ';';
    lines += ends_statement ? "\n  " : std::string(1, statements[i]);
  }
  return lines + "\n";
}

Json type_json(const std::string& name, const TensorType& type) {
  return {{"name", name},
          {"type", to_string(type)},
          {"dtype", to_string(type.dtype)},
          {"extents", type.extents},
          {"axes", to_string(type.axes, "")},
          {"bytes", type.byte_count()}};
}

Json types_json(const std::vector<NamedType>& list) {
  Json result = Json::array();
  for (const NamedType& entry : list) result.push_back(type_json(entry.name, entry.type));
  return result;
}

struct Totals {
  double operations = 0;
  double bytes = 0;
};

Totals totals(const TypedBlock& block) {
  Totals sum;
  for (int node = 0; node < static_cast<int>(block.block().nodes().size()); ++node) {
    sum.operations += block.operation_count(node);
    sum.bytes += block.byte_count(node);
  }
  return sum;
}

std::vector<NamedType> without_parameters(const TypedBlock& block) {
  std::vector<NamedType> result;
  for (Value value : block.block().arguments())
    if (block.block().value(value).kind == ValueKind::kInput)
      result.push_back({block.block().value(value).name, block.type(value)});
  return result;
}

// `engine cpu: sweeps over tiles...`, and where the figures behind the choices come from.
std::string device_line(const Device& device) {
  const DeviceDescription& description = device.description();
  std::string text = (device.runs() ? "engine " : "device ") + device.name() + ": " + description.summary;
  if (description.origin == DescriptionOrigin::kNone) return text;
  text += "; figures " + origin_text(description.origin);
  if (description.origin == DescriptionOrigin::kEstimated) text += " (`fuseblock info --measure`)";
  return text;
}

Json device_json(const Device& device) {
  Json json = Json::parse(to_json(device.description()));
  json["runs"] = device.runs();
  return json;
}

}  // namespace

std::string explain_text(const Plan& plan, const Schedule* schedule,
                         const std::vector<PlannedKernel>& kernels) {
  const TypedBlock& block = plan.block();
  std::string text =
      "block\n" + block_lines(block.block()) + "\ninputs\n" + named_types(without_parameters(block));
  if (!block.parameters().empty()) text += "\nparameters\n" + named_types(block.parameters());
  std::vector<std::vector<std::string>> rows = {{"value", "stage", "type", "operations", "bytes"}};
  for (int node = 0; node < static_cast<int>(block.block().nodes().size()); ++node) {
    const Value result = block.block().nodes()[static_cast<std::size_t>(node)].result;
    rows.push_back({block.block().value(result).name, block.block().stage_text(node),
                    to_string(block.type(result)), amount(block.operation_count(node)),
                    amount(block.byte_count(node))});
  }
  text += "\nvalues\n" + table(rows, {false, false, false, true, true});
  text += "\noutputs\n" + named_types(block.outputs());
  const Totals sum = totals(block);
  text += "\noperations " + amount(sum.operations) + "; bytes moved stage by stage " + amount(sum.bytes) +
          ", by inputs, parameters and outputs alone " + amount(block.border_bytes()) + "\n";
  if (schedule != nullptr)
    text += "\n" + schedule_text(*schedule, plan.device().description()) + saved_text(*schedule);
  text += kernels_text(kernels);
  if (!plan.options().fuse) text += "\nunfused: one operation a sweep, each result written to memory\n";
  text += device_line(plan.device()) + "; workspace " + amount(static_cast<double>(plan.workspace_bytes())) +
          " bytes\n";
  return text;
}

std::string explain_json_text(const Plan& plan, const Schedule* schedule,
                              const std::vector<PlannedKernel>& kernels) {
  const TypedBlock& block = plan.block();
  Json document;
  document["block"] = block.block().to_string();
  document["graph"] = Json::parse(block.block().to_json());
  document["engine"] = plan.device().runs() ? Json(plan.device().name()) : Json();
  document["device"] = device_json(plan.device());
  document["inputs"] = types_json(without_parameters(block));
  document["parameters"] = types_json(block.parameters());
  document["values"] = Json::array();
  for (int node = 0; node < static_cast<int>(block.block().nodes().size()); ++node) {
    const Value result = block.block().nodes()[static_cast<std::size_t>(node)].result;
    Json value = type_json(block.block().value(result).name, block.type(result));
    value["stage"] = block.block().stage_text(node);
    value["operations"] = block.operation_count(node);
    value["bytes_moved"] = block.byte_count(node);
    document["values"].push_back(std::move(value));
  }
  document["outputs"] = types_json(block.outputs());
  const Totals sum = totals(block);
  document["operations"] = sum.operations;
  document["bytes_moved"] = sum.bytes;
  document["border_bytes"] = block.border_bytes();
  document["workspace_bytes"] = plan.workspace_bytes();
  if (schedule != nullptr) document.update(schedule_json(*schedule, plan.device().description()));
  if (schedule != nullptr) document["saved"] = saved_json(*schedule);
  if (!kernels.empty()) document["kernels"] = kernels_json(kernels);
  return document.dump(2);
}

std::string explain_dot_text(const Plan& plan, const Schedule* schedule) {
  const DeviceDescription& device = plan.device().description();
  return schedule != nullptr ? schedule_dot(*schedule, device) : block_dot(plan.block(), device);
}

}  // namespace fuseblock
