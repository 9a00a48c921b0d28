// The operations `torch.ops.fuseblock.*`. Those by handle have their kernels here; those by notation, which compiled graphs
// hold, have only their schemas here and are built on the others in python/fuseblock/_ops.py.
//
// Nothing here includes Python's headers, and of PyTorch's only those of the stable ABI: one library serves all versions of
// Python and all of PyTorch from 2.10 on.
#include <torch/csrc/stable/library.h>

#include <bit>
#include <cstring>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "blocks.h"
#include "fuseblock/error.h"
#include "fuseblock/sources.h"
#include "fuseblock/version.h"
#include "streams.h"
#include "tensors.h"

namespace fuseblock::torch_binding {
namespace {

// Python sees std::invalid_argument as ValueError or RuntimeError, by the version of PyTorch.
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

// Where the run-time compiler of GPU kernels may be, besides other places: a folder of Python packages.
void set_compiler_folder(const std::string& folder) { fuseblock::set_compiler_folder(folder); }

// Makes plans for these tensors, unless there are some: `ready`, the arguments that backward reads as bits, the type of
// each output, and the numbers of saved bytes on the GPU and on the CPU. Or `refused` or `mistake`, the caller's by
// fuseblock's rules, and why. A refusal that is given takes the place of the plans. With `known_only` nothing is made:
// `unknown` where there are neither plans nor a refusal.
std::vector<std::string> prepare(std::int64_t handle, const std::vector<Tensor>& tensors, std::int64_t wanted,
                                 const std::string& refusal, bool known_only) {
  return with_errors([&]() -> std::vector<std::string> {
    RegisteredBlock& block = registered_block(handle);
    const auto types = ArgumentTypes::of(tensors, wanted);
    if (!types)
      return {"mistake",
              "expected dense tensors of f64, f32, bf16 or f16, all on the CPU or on one CUDA device"};
    if (known_only && !block.is_known(*types)) return {"unknown"};
    if (const auto refused = block.prepare(*types, refusal))
      return {refused->users_mistake ? "mistake" : "refused", refused->reason};
    const std::shared_ptr<const Prepared> plans = block.find(*types);
    std::vector<std::string> answer = {"ready", std::to_string(plans->needed())};
    for (const MadeTensor& output : plans->outputs) answer.push_back(to_string(output.type));
    answer.push_back(std::to_string(plans->device_bytes));
    answer.push_back(std::to_string(plans->saved_bytes));
    return answer;
  });
}

// A call's views, used again by the next call on the thread.
Arguments& scratch_arguments(std::size_t inputs, std::size_t outputs) {
  thread_local Arguments arguments;
  arguments.inputs.resize(inputs);
  arguments.outputs.resize(outputs);
  return arguments;
}

template <class View, class Data>
void set_made_view(View& view, Data* data, const MadeTensor& made) {
  view.data = data;
  view.dtype = made.type.dtype;
  view.extents = made.type.extents;
  view.strides = made.strides;
}

// Makes tensors and views of them, the first at `views`.
void make_tensors(const std::vector<MadeTensor>& made, Place place, std::vector<Tensor>& tensors,
                  TensorView* views) {
  for (const MadeTensor& each : made) {
    tensors.push_back(empty(each.type.extents, each.strides, each.type.dtype, place));
    set_made_view(*views++, tensors.back().mutable_data_ptr(), each);
  }
}

// The types of the arguments, by which `backward` finds the plans, at the beginning of what is saved on the CPU.
void save_types(const ArgumentTypes& types, std::span<std::byte> saved) {
  const std::span<const std::int64_t> numbers = types.numbers();
  const auto count = static_cast<std::int64_t>(numbers.size());
  std::memcpy(saved.data(), &count, sizeof(count));
  std::memcpy(saved.data() + sizeof(count), numbers.data(), numbers.size_bytes());
}

// The outputs; where gradients are wanted, for `backward`: on a GPU a tensor of its bytes, if values are saved, and a
// tensor of bytes on the CPU. Nothing where `prepare` made no plans.
std::vector<Tensor> forward(std::int64_t handle, const std::vector<Tensor>& tensors, std::int64_t wanted) {
  return with_errors([&]() -> std::vector<Tensor> {
    RegisteredBlock& block = registered_block(handle);
    const auto types = ArgumentTypes::of(tensors, wanted);
    const std::shared_ptr<const Prepared> plans = types ? block.find(*types) : nullptr;
    if (!plans) return {};
    const Place place = plans->place;
    const std::size_t output_count = plans->outputs.size();
    std::vector<Tensor> results;
    results.reserve(output_count + 2);
    Arguments& arguments = scratch_arguments(tensors.size(), output_count + plans->saved.size());
    arguments.stream = current_stream(place);
    for (std::size_t i = 0; i < tensors.size(); ++i) set_view(arguments.inputs[i], tensors[i]);
    make_tensors(plans->outputs, place, results, arguments.outputs.data());
    std::byte* values = nullptr;
    if (plans->device_bytes > 0) {
      results.push_back(empty_bytes(plans->device_bytes, place));
      values = bytes_of(results.back(), place).data();
    }
    if (plans->saved_bytes > 0) {
      results.push_back(empty_bytes(plans->saved_bytes, kCpu));
      const std::span<std::byte> saved = bytes_of(results.back(), kCpu);
      save_types(*types, saved);
      if (place == kCpu) values = saved.data();
    }
    for (std::size_t i = 0; i < plans->saved.size(); ++i)
      set_made_view(arguments.outputs[output_count + i], values + plans->saved[i].offset, plans->saved[i]);
    const WorkspaceTensor workspace(plans->forward_bytes, place);
    plans->forward.run(arguments, workspace.bytes());
    return results;
  });
}

// The types that `forward` saved.
ArgumentTypes saved_types(const Tensor& saved) {
  const std::span<const std::byte> bytes = bytes_of(saved, kCpu);
  std::int64_t count = 0;
  if (bytes.size() >= sizeof(count)) std::memcpy(&count, bytes.data(), sizeof(count));
  if (count < 1 || static_cast<std::size_t>(count) >= bytes.size() / sizeof(count))
    throw UserError("saved: expected the bytes that `forward` saved");
  std::vector<std::int64_t> numbers(static_cast<std::size_t>(count));
  std::memcpy(numbers.data(), bytes.data() + sizeof(count), numbers.size() * sizeof(count));
  return ArgumentTypes(numbers);
}

// The tensor that stands for argument `index` among those that are `needed`.
const Tensor& needed_argument(const std::vector<Tensor>& tensors, std::int64_t needed, std::size_t index) {
  const auto before = static_cast<std::uint64_t>(needed) & ((std::uint64_t{1} << index) - 1);
  const auto place = static_cast<std::size_t>(std::popcount(before));
  if (((needed >> index) & 1) == 0 || place >= tensors.size())
    throw UserError("backward: argument " + std::to_string(index) + " is missing");
  return tensors[place];
}

std::vector<Tensor> run_backward_plan(const Prepared& plans, const std::vector<Tensor>& tensors,
                                      std::int64_t needed, const std::vector<Tensor>& gradients,
                                      std::span<const std::byte> saved) {
  const std::size_t saved_bytes = plans.place == kCpu ? plans.saved_bytes : plans.device_bytes;
  if (!plans.backward) throw UserError("backward: no gradients were wanted");
  if (gradients.size() != plans.outputs.size() || saved.size() != saved_bytes)
    throw UserError("backward: expected " + std::to_string(plans.outputs.size()) + " gradients and " +
                    std::to_string(saved_bytes) + " saved bytes, got " + std::to_string(gradients.size()) +
                    " and " + std::to_string(saved.size()));
  const auto set = [&](ConstTensorView& view, const Tensor& tensor) {
    if (find_place(tensor) != plans.place)
      throw UserError("backward: a tensor is on another device than the arguments of `forward`: " +
                      type_text(tensor));
    set_view(view, tensor);
  };
  Arguments& arguments = scratch_arguments(plans.backward_inputs.size(), plans.gradients.size());
  arguments.stream = current_stream(plans.place);
  for (std::size_t i = 0; i < plans.backward_inputs.size(); ++i) {
    const auto [kind, index] = plans.backward_inputs[i];
    ConstTensorView& view = arguments.inputs[i];
    switch (kind) {
      case BackwardInput::Kind::kArgument: set(view, needed_argument(tensors, needed, index)); break;
      case BackwardInput::Kind::kGradient: set(view, gradients[index]); break;
      case BackwardInput::Kind::kSaved:
        set_made_view(view, saved.data() + plans.saved[index].offset, plans.saved[index]);
        break;
    }
  }
  std::vector<Tensor> results;
  results.reserve(plans.gradients.size());
  make_tensors(plans.gradients, plans.place, results, arguments.outputs.data());
  const WorkspaceTensor workspace(plans.backward_bytes, plans.place);
  plans.backward->run(arguments, workspace.bytes());
  return results;
}

// The gradients that `forward` was told are wanted. `tensors` are the arguments whose bits are set in `needed`, `saved` is
// the last of what `forward` gave, `values` the one before it where there was one.
std::vector<Tensor> backward(std::int64_t handle, const std::vector<Tensor>& tensors, std::int64_t needed,
                             const std::vector<Tensor>& gradients, const Tensor& saved,
                             const std::optional<Tensor>& values) {
  return with_errors([&] {
    RegisteredBlock& block = registered_block(handle);
    const ArgumentTypes types = saved_types(saved);
    std::shared_ptr<const Prepared> plans = block.find(types);
    if (!plans) {
      // Other plans have taken its place since forward ran, or PyTorch has another number of threads here.
      if (const auto refused = block.prepare(types, "")) throw UserError(refused->reason);
      plans = block.find(types);
    }
    std::span<const std::byte> bytes;
    if (plans->place == kCpu)
      bytes = bytes_of(saved, kCpu);
    else if (values)
      bytes = bytes_of(*values, plans->place);
    return run_backward_plan(*plans, tensors, needed, gradients, bytes);
  });
}

// The wanted gradients from the arguments alone; nothing where there is no plan.
std::vector<Tensor> backward_alone(std::int64_t handle, const std::vector<Tensor>& tensors,
                                   const std::vector<Tensor>& gradients, std::int64_t wanted) {
  return with_errors([&]() -> std::vector<Tensor> {
    RegisteredBlock& block = registered_block(handle);
    const auto types = ArgumentTypes::of(tensors, wanted | kBackwardAlone);
    const std::shared_ptr<const Prepared> plans = types ? block.find(*types) : nullptr;
    if (!plans) return {};
    return run_backward_plan(*plans, tensors, (std::int64_t{1} << tensors.size()) - 1, gradients, {});
  });
}

// The block of the gradients as JSON; then a line for each of its arguments: name, a space, its axes.
std::string backward_json(std::int64_t handle, const Tensor& saved) {
  return with_errors([&] {
    const RegisteredBlock& block = registered_block(handle);
    const ArgumentTypes types = saved_types(saved);
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
    const std::shared_ptr<const Prepared> plans = types ? block.find(*types) : nullptr;
    if (!plans) throw UserError("explain: `prepare` made no plan for these tensors");
    return plans->forward.explain() + (plans->backward ? "\n" + plans->backward->explain() : "");
  });
}

std::string version() { return kVersion; }

STABLE_TORCH_LIBRARY(fuseblock, m) {
  m.def("version() -> str");
  m.def("set_compiler_folder(str folder) -> ()");
  m.def("block(str notation, bool keep_convolutions) -> int");
  m.def("block_json(int block) -> str");
  m.def("prepare(int block, Tensor[] arguments, int wanted, str refusal, bool known_only=False) -> str[]");
  m.def("explain(int block, Tensor[] arguments, int wanted) -> str");
  m.def("backward_json(int block, Tensor saved) -> str");
  m.def("forward(int block, Tensor[] arguments, int wanted) -> Tensor[]");
  m.def(
      "backward(int block, Tensor[] arguments, int needed, Tensor[] gradients, Tensor saved, "
      "Tensor? values=None) -> Tensor[]");
  m.def("backward_alone(int block, Tensor[] arguments, Tensor[] gradients, int wanted) -> Tensor[]");
  m.def("run(str notation, bool keep_convolutions, Tensor[] arguments) -> Tensor[]");
  m.def(
      "run_backward(str notation, bool keep_convolutions, Tensor[] arguments, Tensor[] gradients, "
      "int wanted) -> Tensor[]");
}

STABLE_TORCH_LIBRARY_IMPL(fuseblock, CompositeExplicitAutograd, m) {
  m.impl("version", TORCH_BOX(&version));
  m.impl("set_compiler_folder", TORCH_BOX(&set_compiler_folder));
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

STABLE_TORCH_LIBRARY_IMPL(fuseblock, CUDA, m) {
  m.impl("forward", TORCH_BOX(&forward));
  m.impl("backward", TORCH_BOX(&backward));
  m.impl("backward_alone", TORCH_BOX(&backward_alone));
}

}  // namespace
}  // namespace fuseblock::torch_binding
