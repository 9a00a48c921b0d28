#include "execution.h"

#include <algorithm>
#include <span>

#include "table.h"

namespace fuseblock::cli {
namespace {

constexpr double kReferenceRate = 3e8;  // operations per second, measured on convolutions

const Tensor& find_tensor(const std::vector<const TensorMap*>& groups, const std::string& name) {
  for (const TensorMap* group : groups)
    if (const auto found = group->find(name); found != group->end()) return found->second;
  throw UserError("the tensor " + name + " is missing");
}

// Of the device where it has memory of its own.
DeviceMemory affordable_workspace(const Plan& plan) {
  const double own = has_own_memory(plan.device()) ? 0 : static_cast<double>(plan.workspace_bytes());
  require_memory(total_bytes(plan.outputs()) + own, "the plan");
  return DeviceMemory(plan.device(), plan.workspace_bytes());
}

std::span<const std::byte> bytes_of(const Tensor& tensor) {
  return {tensor.data(), static_cast<std::size_t>(tensor.type().byte_count())};
}

}  // namespace

Execution::Execution(Plan plan, const std::vector<const TensorMap*>& inputs)
    : Execution(std::move(plan), inputs, InputViews()) {}

Execution::Execution(Plan plan, const std::vector<const TensorMap*>& inputs, const Execution& forward)
    : Execution(std::move(plan), inputs, forward.saved_views()) {}

Execution::Execution(Plan plan, const std::vector<const TensorMap*>& inputs, InputViews saved)
    : plan_(std::move(plan)), workspace_(affordable_workspace(plan_)) {
  const bool copies = has_own_memory(plan_.device());
  InputViews input_views = std::move(saved);
  for (const NamedType& input : plan_.inputs()) {
    if (input_views.contains(input.name)) continue;
    const Tensor& tensor = find_tensor(inputs, input.name);
    ConstTensorView view = tensor.view();
    if (copies) {
      copied_inputs_.emplace_back(plan_.device(), bytes_of(tensor).size());
      copied_inputs_.back().write(bytes_of(tensor));
      view.data = copied_inputs_.back().data();
    }
    input_views.emplace(input.name, std::move(view));
  }
  std::map<std::string, TensorView, std::less<>> output_views;
  for (const NamedType& output : plan_.outputs()) {
    const auto place = outputs_.emplace(output.name, Tensor(output.type)).first;
    TensorView view = place->second.view();
    if (copies) {
      const DeviceMemory& memory =
          copied_outputs_.emplace(output.name, DeviceMemory(plan_.device(), bytes_of(place->second).size()))
              .first->second;
      view.data = memory.data();
    }
    output_views.emplace(output.name, std::move(view));
  }
  arguments_ = plan_.bind(input_views, output_views);
}

Execution::InputViews Execution::saved_views() const {
  InputViews views;
  const std::vector<NamedType> outputs = plan_.outputs();
  const std::size_t first = outputs.size() - plan_.saved().size();
  for (std::size_t i = first; i < outputs.size(); ++i) views.emplace(outputs[i].name, arguments_.outputs[i]);
  return views;
}

void Execution::run() {
  plan_.run(arguments_, workspace_.bytes());
  synchronize(plan_.device());
}

const TensorMap& Execution::outputs() {
  for (auto& [name, memory] : copied_outputs_) {
    Tensor& tensor = outputs_.find(name)->second;
    memory.read({tensor.data(), static_cast<std::size_t>(tensor.type().byte_count())});
  }
  return outputs_;
}

void Execution::poison(std::byte value) {
  workspace_.write(std::vector<std::byte>(workspace_.bytes().size(), value));
  for (auto& [name, tensor] : outputs_) {
    std::fill_n(tensor.data(), tensor.type().byte_count(), value);
    if (const auto copied = copied_outputs_.find(name); copied != copied_outputs_.end())
      copied->second.write(bytes_of(tensor));
  }
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
