// The operations `torch.ops.fuseblock.*`. Those by handle have their kernels here; those by notation, which compiled graphs
// hold, have only their schemas here and are built on the others in python/fuseblock/_ops.py.
//
// Nothing here includes Python's headers, and of PyTorch's only those of the stable ABI: one library serves all versions of
// Python and all of PyTorch from 2.10 on.
#include <torch/csrc/stable/library.h>

#include <stdexcept>
#include <string>
#include <vector>

#include "blocks.h"
#include "fuseblock/error.h"
#include "fuseblock/version.h"
#include "tensors.h"
#include "threads.h"

namespace fuseblock::torch_binding {
namespace {

// Python sees std::invalid_argument as ValueError, and any other exception as RuntimeError.
template <class Function>
auto with_errors(const Function& function) {
  try {
    return function();
  } catch (const UserError& error) {
    throw std::invalid_argument(error.report());
  }
}

std::int64_t block(const std::string& notation, bool keep_convolutions) {
  return with_errors([&] { return register_block(notation, keep_convolutions); });
}

std::string block_json(std::int64_t handle) {
  return with_errors([&] { return registered_block(handle).block().to_json(); });
}

// Makes plans for these tensors, unless there are some: `ready`, the arguments that backward reads as bits, and the type
// of each output and each saved value. Or `refused` or `mistake`, the caller's by fuseblock's rules, and why. A refusal
// that is given takes the place of the plans.
std::vector<std::string> prepare(std::int64_t handle, const std::vector<Tensor>& tensors, std::int64_t wanted,
                                 const std::string& refusal) {
  return with_errors([&]() -> std::vector<std::string> {
    RegisteredBlock& block = registered_block(handle);
    const auto types = ArgumentTypes::of(tensors, wanted);
    if (!types) return {"mistake", "expected dense tensors of f64, f32, bf16 or f16 on the CPU"};
    if (const auto refused = block.prepare(*types, thread_count(), refusal))
      return {refused->users_mistake ? "mistake" : "refused", refused->reason};
    const std::shared_ptr<const Prepared> plans = block.find(*types, thread_count());
    std::vector<std::string> answer = {"ready", std::to_string(plans->needed())};
    for (const NamedType& result : plans->results) answer.push_back(to_string(result.type));
    return answer;
  });
}

std::vector<Tensor> forward(std::int64_t handle, const std::vector<Tensor>& tensors, std::int64_t wanted) {
  return with_errors([&]() -> std::vector<Tensor> {
    RegisteredBlock& block = registered_block(handle);
    const auto types = ArgumentTypes::of(tensors, wanted);
    const std::shared_ptr<const Prepared> plans = types ? block.find(*types, thread_count()) : nullptr;
    if (!plans) return {};
    std::vector<Tensor> results;
    results.reserve(plans->results.size() + 1);
    Arguments arguments;
    arguments.inputs.reserve(tensors.size());
    arguments.outputs.reserve(plans->results.size());
    for (const Tensor& tensor : tensors) arguments.inputs.push_back(const_view(tensor));
    for (const NamedType& result : plans->results) {
      results.push_back(empty(result.type));
      arguments.outputs.push_back(view(results.back()));
    }
    const WorkspaceTensor workspace(plans->forward_bytes);
    plans->forward.run(arguments, workspace.bytes());
    if (wanted != 0) results.push_back(integers(types->numbers()));
    return results;
  });
}

// The tensor that stands for argument `index` among those that are `needed`.
const Tensor& needed_argument(const std::vector<Tensor>& tensors, std::int64_t needed, std::size_t index) {
  std::size_t place = 0;
  for (std::size_t i = 0; i < index; ++i) place += static_cast<std::size_t>((needed >> i) & 1);
  if (((needed >> index) & 1) == 0 || place >= tensors.size())
    throw UserError("backward: argument " + std::to_string(index) + " is missing");
  return tensors[place];
}

std::vector<Tensor> run_backward_plan(const Prepared& plans, const std::vector<Tensor>& tensors,
                                      std::int64_t needed, const std::vector<Tensor>& gradients,
                                      const std::vector<Tensor>& saved) {
  if (!plans.backward) throw UserError("backward: no gradients were wanted");
  if (gradients.size() != plans.output_count)
    throw UserError("backward: expected " + std::to_string(plans.output_count) + " gradients, got " +
                    std::to_string(gradients.size()));
  Arguments arguments;
  arguments.inputs.reserve(plans.backward_inputs.size());
  arguments.outputs.reserve(plans.gradients.size());
  for (const BackwardInput& input : plans.backward_inputs) {
    switch (input.kind) {
      case BackwardInput::Kind::kArgument:
        arguments.inputs.push_back(const_view(needed_argument(tensors, needed, input.index)));
        break;
      case BackwardInput::Kind::kGradient:
        arguments.inputs.push_back(const_view(gradients[input.index]));
        break;
      case BackwardInput::Kind::kSaved: arguments.inputs.push_back(const_view(saved.at(input.index))); break;
    }
  }
  std::vector<Tensor> results;
  results.reserve(plans.gradients.size());
  for (const NamedType& gradient : plans.gradients) {
    results.push_back(empty(gradient.type));
    arguments.outputs.push_back(view(results.back()));
  }
  const WorkspaceTensor workspace(plans.backward_bytes);
  plans.backward->run(arguments, workspace.bytes());
  return results;
}

// The gradients that `forward` was told are wanted. `tensors` are the arguments whose bits are set in `needed`, `saved` is
// what stands behind the outputs in `forward`'s results.
std::vector<Tensor> backward(std::int64_t handle, const std::vector<Tensor>& tensors, std::int64_t needed,
                             const std::vector<Tensor>& gradients, const std::vector<Tensor>& saved) {
  return with_errors([&] {
    RegisteredBlock& block = registered_block(handle);
    if (saved.empty()) throw UserError("backward: expected what `forward` saved, got nothing");
    const ArgumentTypes types(integers_of(saved.back()));
    std::shared_ptr<const Prepared> plans = block.find(types, thread_count());
    if (!plans) {
      // Other plans have taken its place since forward ran, or PyTorch has another number of threads here.
      if (const auto refused = block.prepare(types, thread_count(), "")) throw UserError(refused->reason);
      plans = block.find(types, thread_count());
    }
    return run_backward_plan(*plans, tensors, needed, gradients, saved);
  });
}

// The wanted gradients from the arguments alone; nothing where there is no plan.
std::vector<Tensor> backward_alone(std::int64_t handle, const std::vector<Tensor>& tensors,
                                   const std::vector<Tensor>& gradients, std::int64_t wanted) {
  return with_errors([&]() -> std::vector<Tensor> {
    RegisteredBlock& block = registered_block(handle);
    const auto types = ArgumentTypes::of(tensors, wanted | kBackwardAlone);
    const std::shared_ptr<const Prepared> plans = types ? block.find(*types, thread_count()) : nullptr;
    if (!plans) return {};
    return run_backward_plan(*plans, tensors, (std::int64_t{1} << tensors.size()) - 1, gradients, {});
  });
}

// The block of the gradients as JSON; then a line for each of its arguments: name, a space, its axes.
std::string backward_json(std::int64_t handle, const Tensor& saved_types) {
  return with_errors([&] {
    const RegisteredBlock& block = registered_block(handle);
    const ArgumentTypes types(integers_of(saved_types));
    const TypedBlock gradients = block.typed(types).backward(block.wanted_names(types.wanted()));
    std::string text = gradients.block().to_json();
    for (const auto& [name, type] : gradients.arguments())
      text += "\n" + name + " " + to_string(type.axes, "");
    return text;
  });
}

std::string explain(std::int64_t handle, const std::vector<Tensor>& tensors, std::int64_t wanted) {
  return with_errors([&] {
    RegisteredBlock& block = registered_block(handle);
    const auto types = ArgumentTypes::of(tensors, wanted);
    const std::shared_ptr<const Prepared> plans = types ? block.find(*types, thread_count()) : nullptr;
    if (!plans) throw UserError("explain: `prepare` made no plan for these tensors");
    return plans->forward.explain() + (plans->backward ? "\n" + plans->backward->explain() : "");
  });
}

std::string version() { return kVersion; }

STABLE_TORCH_LIBRARY(fuseblock, m) {
  m.def("version() -> str");
  m.def("block(str notation, bool keep_convolutions) -> int");
  m.def("block_json(int block) -> str");
  m.def("prepare(int block, Tensor[] arguments, int wanted, str refusal) -> str[]");
  m.def("explain(int block, Tensor[] arguments, int wanted) -> str");
  m.def("backward_json(int block, Tensor types) -> str");
  m.def("forward(int block, Tensor[] arguments, int wanted) -> Tensor[]");
  m.def(
      "backward(int block, Tensor[] arguments, int needed, Tensor[] gradients, Tensor[] saved) -> Tensor[]");
  m.def("backward_alone(int block, Tensor[] arguments, Tensor[] gradients, int wanted) -> Tensor[]");
  m.def("run(str notation, bool keep_convolutions, Tensor[] arguments) -> Tensor[]");
  m.def(
      "run_backward(str notation, bool keep_convolutions, Tensor[] arguments, Tensor[] gradients, "
      "int wanted) -> Tensor[]");
}

STABLE_TORCH_LIBRARY_IMPL(fuseblock, CompositeExplicitAutograd, m) {
  m.impl("version", TORCH_BOX(&version));
  m.impl("block", TORCH_BOX(&block));
  m.impl("block_json", TORCH_BOX(&block_json));
  m.impl("prepare", TORCH_BOX(&prepare));
  m.impl("explain", TORCH_BOX(&explain));
  m.impl("backward_json", TORCH_BOX(&backward_json));
}

STABLE_TORCH_LIBRARY_IMPL(fuseblock, CPU, m) {
  m.impl("forward", TORCH_BOX(&forward));
  m.impl("backward", TORCH_BOX(&backward));
  m.impl("backward_alone", TORCH_BOX(&backward_alone));
}

}  // namespace
}  // namespace fuseblock::torch_binding
