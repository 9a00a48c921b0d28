#include "fuseblock/plan.h"

#include <algorithm>
#include <array>
#include <initializer_list>
#include <span>

#include "plan/engine.h"
#include "plan/explain.h"
#include "plan/plan_only.h"
#include "plan/unfused.h"

namespace fuseblock {
namespace {

constexpr std::uintptr_t kAlignment = 64;

std::string list_text(const std::vector<std::int64_t>& list) {
  std::string text;
  for (std::int64_t item : list) text += (text.empty() ? "" : ",") + std::to_string(item);
  return "[" + text + "]";
}

template <class View>
void check_tensor(const NamedType& wanted, const View& view) {
  if (view.dtype != wanted.type.dtype || view.extents != wanted.type.extents)
    throw UserError(wanted.name + ": expected " + to_string(wanted.type) + ", got " +
                    std::string(to_string(view.dtype)) + list_text(view.extents));
  if (view.strides.size() != view.extents.size())
    throw UserError(wanted.name + ": expected " + std::to_string(view.extents.size()) + " strides, got " +
                    std::to_string(view.strides.size()));
  if (view.data == nullptr && wanted.type.element_count() > 0)
    throw UserError(wanted.name + ": the tensor has no memory (null)");
}

// Outputs are written element by element, so no two elements may share memory. Sorted by stride, each axis
// must step over all that the smaller ones span.
void check_does_not_overlap(const NamedType& wanted, const TensorView& view) {
  if (wanted.type.element_count() == 0) return;
  std::array<std::pair<std::int64_t, std::int64_t>, kAxisCount> axes;
  std::size_t count = 0;
  for (std::size_t i = 0; i < view.extents.size(); ++i)
    if (view.extents[i] > 1) axes[count++] = {std::abs(view.strides[i]), view.extents[i]};
  const auto sorted = std::span(axes).first(count);
  std::sort(sorted.begin(), sorted.end());
  std::int64_t span = 0;
  for (const auto& [stride, extent] : sorted) {
    if (stride <= span)
      throw UserError(wanted.name + ": an output must not overlap itself; extents " +
                      list_text(view.extents) + ", strides " + list_text(view.strides));
    span += stride * (extent - 1);
  }
}

// Outputs are written while inputs are still read, in an order that is the plan's own. Tensors that begin at the same place
// share an element; what overlaps otherwise is not looked for, as strided views may lie between each other.
void check_lies_apart(const NamedType& output, const void* data, const NamedType& other,
                      const void* other_data) {
  if (data != other_data || output.type.element_count() == 0 || other.type.element_count() == 0) return;
  throw UserError(output.name + ": an output must not lie in the memory of " + other.name);
}

void check_outputs_lie_apart(const std::vector<NamedType>& inputs, const std::vector<NamedType>& outputs,
                             const Arguments& arguments) {
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    const void* data = arguments.outputs[i].data;
    for (std::size_t j = 0; j < inputs.size(); ++j)
      check_lies_apart(outputs[i], data, inputs[j], arguments.inputs[j].data);
    for (std::size_t j = 0; j < i; ++j)
      check_lies_apart(outputs[i], data, outputs[j], arguments.outputs[j].data);
  }
}

template <class View>
std::vector<View> in_order(const std::vector<NamedType>& wanted,
                           const std::map<std::string, View, std::less<>>& given, const std::string& what) {
  std::vector<View> result;
  for (const NamedType& tensor : wanted) {
    const auto place = given.find(tensor.name);
    if (place == given.end())
      throw UserError("no tensor for the " + what + " `" + tensor.name + "`, expected " +
                      to_string(tensor.type));
    result.push_back(place->second);
  }
  if (given.size() == wanted.size()) return result;
  for (const auto& [name, view] : given) {
    const bool known = std::any_of(wanted.begin(), wanted.end(),
                                   [&, &key = name](const NamedType& t) { return t.name == key; });
    if (!known) throw UserError("the plan has no " + what + " `" + name + "`");
  }
  return result;
}

void check_options(const PlanOptions& options) {
  if (options.threads < 0)
    throw UserError("threads: expected 0 or more, got " + std::to_string(options.threads));
  if (options.workers && options.workers->count() < 1)
    throw UserError("workers: expected a count of 1 or more, got " +
                    std::to_string(options.workers->count()));
  if (options.keep_convolutions && !options.host)
    throw UserError("keep_convolutions: expected a table of host functions to leave them to, got none");
  if (options.keep_convolutions && options.own_convolutions)
    throw UserError("own_convolutions: the same plan is asked to keep convolutions for the host");
  if (options.host && !options.host->convolution)
    throw UserError("host: expected a function `convolution`, got none");
}

const Engine& engine_of(const Device& device) {
  for (const Engine& engine : engines())
    if (engine.name == device.name()) return engine;
  for (const Engine& engine : gpu_engines())
    if (engine.name == device.name()) return engine;
  throw InternalError("a device without an engine: " + device.name());
}

// Choices for kernels that a plan, or the plans of a pair, do not have are mistakes.
void check_choices(const KernelChoices& choices, const Device& device,
                   std::initializer_list<const Executable*> executables) {
  if (choices == KernelChoices{}) return;
  std::vector<PlannedKernel> kernels;
  for (const Executable* executable : executables)
    for (PlannedKernel& kernel : executable->kernels()) kernels.push_back(std::move(kernel));
  auto require = [&](bool chosen, const std::string& what, const std::string& name) {
    if (!chosen || std::any_of(kernels.begin(), kernels.end(),
                               [&](const PlannedKernel& kernel) { return kernel.name == name; }))
      return;
    throw UserError(what + ": expected a plan with a kernel `" + name + "`, but that for " + device.name() +
                    " has none");
  };
  if (choices.team < 0 || choices.tile < 0) throw UserError("team and tile: expected 0 or more");
  require(choices.team > 0, "team", "rows");
  require(choices.tile > 0, "tile", "columns");
  require(choices.residency != KernelResidency::kByCost, "residency", "columns");
}

}  // namespace

Workspace::Workspace(std::size_t bytes)
    : memory_(
          TensorType::make(DType::kF64, {static_cast<std::int64_t>(bytes / 8 + (bytes % 8 != 0 ? 1 : 0))})),
      size_(bytes) {}

struct Plan::Body {
  TypedBlock block;
  Device device;
  PlanOptions options;
  std::unique_ptr<Executable> executable;
  std::vector<NamedType> inputs;
  std::vector<NamedType> outputs;
  std::vector<NamedType> saved;
};

Plan Plan::make(const Block& block, const TensorType& input, const TypeMap& others, const Device& device,
                const PlanOptions& options) {
  return make(TypedBlock::infer(block, input, others), device, options);
}

Plan Plan::make(const Block& block, std::string_view input, const TypeMap& others, const Device& device,
                const PlanOptions& options) {
  return make(block, TensorType::parse(input), others, device, options);
}

Plan Plan::make(const TypedBlock& block, const Device& device, const PlanOptions& options) {
  check_options(options);
  const auto prepared = [&] {
    if (!device.runs()) return prepare_plan_only(block, device, options);
    const Engine& engine = engine_of(device);
    return options.fuse ? engine.prepare(block, options) : prepare_unfused(engine, block, options);
  };
  std::unique_ptr<Executable> executable = prepared();
  check_choices(options.kernels, device, {executable.get()});
  return of(block, device, options, std::move(executable));
}

Plan Plan::of(const TypedBlock& block, const Device& device, const PlanOptions& options,
              std::unique_ptr<Executable> executable) {
  Body body{block, device, options, std::move(executable), block.arguments(), block.outputs(), {}};
  if (const Schedule* schedule = body.executable->schedule()) {
    body.inputs = schedule->inputs;
    body.outputs = schedule->outputs;
    for (const SavedValue& value : schedule->saved) body.saved.push_back({value.name, value.type});
  }
  return Plan(std::make_shared<Body>(std::move(body)));
}

const TypedBlock& Plan::block() const { return body_->block; }
const Device& Plan::device() const { return body_->device; }
const PlanOptions& Plan::options() const { return body_->options; }
std::vector<NamedType> Plan::inputs() const { return body_->inputs; }
std::vector<NamedType> Plan::parameters() const { return body_->block.parameters(); }
std::vector<NamedType> Plan::outputs() const { return body_->outputs; }
std::vector<NamedType> Plan::saved() const { return body_->saved; }
std::size_t Plan::workspace_bytes() const { return body_->executable->workspace_bytes(); }

Arguments Plan::bind(const std::map<std::string, ConstTensorView, std::less<>>& inputs,
                     const std::map<std::string, TensorView, std::less<>>& outputs) const {
  return {in_order(body_->inputs, inputs, "input"), in_order(body_->outputs, outputs, "output")};
}

void Plan::run(const Arguments& arguments, std::span<std::byte> workspace) const {
  body_->device.require_runs();
  if (arguments.inputs.size() != body_->inputs.size() || arguments.outputs.size() != body_->outputs.size())
    throw UserError("expected " + std::to_string(body_->inputs.size()) + " inputs and " +
                    std::to_string(body_->outputs.size()) + " outputs, got " +
                    std::to_string(arguments.inputs.size()) + " and " +
                    std::to_string(arguments.outputs.size()));
  for (std::size_t i = 0; i < body_->inputs.size(); ++i) check_tensor(body_->inputs[i], arguments.inputs[i]);
  for (std::size_t i = 0; i < body_->outputs.size(); ++i) {
    check_tensor(body_->outputs[i], arguments.outputs[i]);
    check_does_not_overlap(body_->outputs[i], arguments.outputs[i]);
  }
  check_outputs_lie_apart(body_->inputs, body_->outputs, arguments);
  if (workspace.size() < workspace_bytes())
    throw UserError("the workspace has " + std::to_string(workspace.size()) + " bytes, the plan needs " +
                    std::to_string(workspace_bytes()));
  // NOLINTNEXTLINE(cppcoreguidelines-pro-type-reinterpret-cast): the address itself is the question
  if (workspace_bytes() > 0 && reinterpret_cast<std::uintptr_t>(workspace.data()) % kAlignment != 0)
    throw UserError("the workspace must be aligned to 64 bytes");
  body_->executable->run(arguments, workspace);
}

Plan Plan::backward(std::vector<std::string> wanted) const {
  return make(body_->block.backward(std::move(wanted)), body_->device, body_->options);
}

TrainingPlans Plan::for_training(std::vector<std::string> wanted) const {
  return make_training(body_->block, std::move(wanted), body_->device, body_->options);
}

TrainingPlans Plan::make_training(const TypedBlock& block, std::vector<std::string> wanted,
                                  const Device& device, const PlanOptions& options) {
  check_options(options);
  const TypedBlock gradients = block.backward(std::move(wanted));
  TrainingExecutables both;
  if (!device.runs()) {
    both = prepare_plan_only_training(block, gradients, device, options);
  } else {
    const Engine& engine = engine_of(device);
    if (!engine.prepare_training || !options.fuse)
      return {make(block, device, options), make(gradients, device, options)};
    both = engine.prepare_training(block, gradients, options);
  }
  check_choices(options.kernels, device, {both.forward.get(), both.backward.get()});
  return {of(block, device, options, std::move(both.forward)),
          of(gradients, device, options, std::move(both.backward))};
}

std::string Plan::explain() const {
  return explain_text(*this, body_->executable->schedule(), body_->executable->kernels());
}
std::string Plan::explain_json() const {
  return explain_json_text(*this, body_->executable->schedule(), body_->executable->kernels());
}
std::string Plan::launches_json() const { return launches_json(*this); }
std::string Plan::launches_json(const Plan& like) const {
  const Schedule* schedule = body_->executable->schedule();
  if (schedule == nullptr) throw NotSupportedError(device().name() + ": this engine launches no kernels");
  return launches_json_for(*schedule, device().description(), like.body_->executable->schedule());
}
std::string Plan::explain_dot() const { return explain_dot_text(*this, body_->executable->schedule()); }

}  // namespace fuseblock
