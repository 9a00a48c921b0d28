#include "execution.h"

#include <algorithm>

#include "table.h"

namespace fuseblock::cli {
namespace {

constexpr double kReferenceRate = 3e8;  // operations per second, measured on convolutions

const Tensor& find_tensor(const std::vector<const TensorMap*>& groups, const std::string& name) {
  for (const TensorMap* group : groups)
    if (const auto found = group->find(name); found != group->end()) return found->second;
  throw UserError("the tensor " + name + " is missing");
}

Workspace affordable_workspace(const Plan& plan) {
  require_memory(total_bytes(plan.outputs()) + static_cast<double>(plan.workspace_bytes()), "the plan");
  return Workspace(plan.workspace_bytes());
}

}  // namespace

Execution::Execution(Plan plan, const std::vector<const TensorMap*>& inputs)
    : plan_(std::move(plan)), workspace_(affordable_workspace(plan_)) {
  std::map<std::string, ConstTensorView, std::less<>> input_views;
  for (const NamedType& input : plan_.inputs())
    input_views.emplace(input.name, find_tensor(inputs, input.name).view());
  std::map<std::string, TensorView, std::less<>> output_views;
  for (const NamedType& output : plan_.outputs()) {
    const auto place = outputs_.emplace(output.name, Tensor(output.type)).first;
    output_views.emplace(output.name, place->second.view());
  }
  arguments_ = plan_.bind(input_views, output_views);
}

void Execution::run() { plan_.run(arguments_, workspace_.bytes()); }

void Execution::poison(std::byte value) {
  std::ranges::fill(workspace_.bytes(), value);
  for (auto& [name, tensor] : outputs_) std::fill_n(tensor.data(), tensor.type().byte_count(), value);
}

double Execution::bytes() const {
  return total_bytes(plan_.inputs()) + total_bytes(plan_.outputs()) +
         static_cast<double>(plan_.workspace_bytes());
}

TensorMap outputs_of(const Plan& plan, const std::vector<const TensorMap*>& inputs) {
  Execution execution(plan, inputs);
  execution.run();
  return execution.take_outputs();
}

double operation_count(const TypedBlock& block) {
  double count = 0;
  for (std::size_t node = 0; node < block.block().nodes().size(); ++node)
    count += block.operation_count(static_cast<int>(node));
  return count;
}

void announce_duration(const Plan& plan, double times, const Console& console) {
  if (plan.device().name() != Device::reference().name()) return;
  const double seconds = times * operation_count(plan.block()) / kReferenceRate;
  if (seconds > 10)
    console.progress("The reference engine needs about " + time_text(seconds) +
                     " for this; smaller extents (--input, or --small for @name) need less.");
}

}  // namespace fuseblock::cli
