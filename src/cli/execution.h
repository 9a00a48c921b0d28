// A plan with the memory it needs, ready to run many times.
#pragma once

#include <cstddef>
#include <map>
#include <string>
#include <vector>

#include "fuseblock/device_memory.h"
#include "fuseblock/plan.h"
#include "tensors.h"

namespace fuseblock::cli {

class Execution {
 public:
  // `inputs` together have every input of the plan, and may have more; they must outlive this. Throws
  // UserError where a tensor is missing or there is not enough memory.
  Execution(Plan plan, const std::vector<const TensorMap*>& inputs);
  // The backward plan of a pair: it reads what `forward`, which must outlive this, has saved where it lies.
  Execution(Plan plan, const std::vector<const TensorMap*>& inputs, const Execution& forward);

  const Plan& plan() const { return plan_; }
  // Returns when it is done.
  void run();
  // Fills the workspace and the outputs with a byte, so that what a run leaves out or reads unwritten shows.
  void poison(std::byte value);

  // What the last run has left, in the program's memory.
  const TensorMap& outputs();
  TensorMap take_outputs() {
    outputs();
    return std::move(outputs_);
  }
  // Inputs, outputs and workspace.
  double bytes() const;

 private:
  using InputViews = std::map<std::string, ConstTensorView, std::less<>>;

  Execution(Plan plan, const std::vector<const TensorMap*>& inputs, InputViews saved);
  InputViews saved_views() const;

  Plan plan_;
  TensorMap outputs_;
  // In the device's own memory, where it has some.
  std::vector<DeviceMemory> copied_inputs_;
  std::map<std::string, DeviceMemory, std::less<>> copied_outputs_;
  Arguments arguments_;
  DeviceMemory workspace_;
};

// The outputs of a plan, by name.
TensorMap outputs_of(const Plan& plan, const std::vector<const TensorMap*>& inputs);

// Operations of all nodes.
double operation_count(const TypedBlock& block);

// Warns on the progress line where the reference engine will take long: `times` runs of the plan.
void announce_duration(const Plan& plan, double times, const Console& console);

}  // namespace fuseblock::cli
