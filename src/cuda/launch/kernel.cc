#include "cuda/launch/kernel.h"

#include <algorithm>

#include "cuda/emit/finalise_text.h"
#include "cuda/jit/cache.h"
#include "cuda/jit/source_digest.h"
#include "cuda/launch/tags.h"

namespace fuseblock::cuda {
namespace {

constexpr std::size_t kTensorWords = 1 + kAxisCount;

class FinaliseLaunch : public KernelLaunch {
 public:
  FinaliseLaunch(const Schedule& schedule, const KernelCut& cut)
      : text_(finalise_text(schedule, cut)),
        kernel_(source_of(text_, schedule)),
        planned_(planned_kernel(schedule, cut, text_)),
        blocks_(varies_over_positions(schedule, schedule.steps[static_cast<std::size_t>(cut.first)])
                    ? kGridBlocks
                    : 1) {
    planned_.blocks = blocks_;
    planned_.threads = kThreads;
  }

  std::vector<jit::KernelSource> sources() const override { return {kernel_.source()}; }
  std::vector<PlannedKernel> planned() const override { return {planned_}; }
  void load(const Gpu& gpu) override { kernel_.load(gpu); }
  void launch(const RunContext& run, std::byte* /*counters*/) const override {
    Parameters parameters(text_);
    parameters.add_tensors(text_, *run.views);
    kernel_.launch(run, {blocks_, kThreads}, parameters);
  }
  LaunchDescription describe(const KernelLaunch* /*like*/) const override {
    return {.source = kernel_.source(),
            .tensors = text_.tensors,
            .blocks = std::to_string(blocks_),
            .threads = kThreads};
  }

 private:
  // Two a multiprocessor of the largest GPUs; threads go on to the next element.
  static constexpr unsigned int kGridBlocks = 264;
  static constexpr int kThreads = 1024;

  EmittedKernel text_;
  LoadedKernel kernel_;
  PlannedKernel planned_;
  unsigned int blocks_;
};

}  // namespace

Parameters::Parameters(const EmittedKernel& kernel) {
  pointer_[0] = words_.data();
  if (kernel.tensors.size() * kTensorWords + kernel.scalars.size() > kMostWords)
    throw NotSupportedError("cuda: a kernel reads and writes " + std::to_string(kernel.tensors.size()) +
                            " tensors, more than a launch can hand over");
}

void Parameters::add_tensors(const EmittedKernel& kernel, const std::vector<SlotView>& views) {
  for (int slot : kernel.tensors) {
    const SlotView& view = views[static_cast<std::size_t>(slot)];
    add(view.data);
    for (std::int64_t stride : view.strides) add(stride);
  }
}

std::vector<Scalar> scalars_of(const EmittedKernel& kernel, const std::map<std::string, Scalar>& known) {
  std::vector<Scalar> result;
  for (const std::string& name : kernel.scalars) result.push_back(known.at(name));
  return result;
}

std::map<std::string, Scalar> in_counters(const std::map<std::string, std::size_t>& places) {
  std::map<std::string, Scalar> result;
  for (const auto& [name, offset] : places)
    result[name] = {Scalar::Kind::kInCounters, static_cast<std::int64_t>(offset)};
  return result;
}

void Parameters::add(const Scalar& scalar, const std::byte* counters) {
  switch (scalar.kind) {
    case Scalar::Kind::kNumber: return add(scalar.value);
    case Scalar::Kind::kInCounters: return add(counters + scalar.value);
    case Scalar::Kind::kTags: return add(static_cast<std::int64_t>(take_tags(scalar.value)));
  }
}

void LoadedKernel::load(const Gpu& gpu) const {
  std::call_once(once_, [&] {
    kernel_ = jit::load_kernel(*jit::kernel_cache().find(source_, *gpu.architecture).cubin,
                               {.dynamic_shared_bytes = dynamic_shared_bytes_});
    loaded_ = true;
  });
}

void LoadedKernel::launch(const RunContext& run, const LaunchShape& shape, Parameters& parameters) const {
  if (!loaded_ && jit::is_capturing(*run.driver, run.stream))
    throw UserError(
        "cuda: the kernel " + source_.name +
        " for views such as these is not compiled yet, and the stream is being captured: run the plan "
        "once with such tensors before the capture (PyTorch: fuseblock.prepare)");
  load(*run.gpu);
  jit::Launch launch;
  launch.function = kernel_.function;
  launch.grid = {shape.blocks, 1, 1};
  launch.block = {shape.threads, 1, 1};
  launch.dynamic_shared_bytes = static_cast<unsigned int>(dynamic_shared_bytes_);
  launch.cooperative = shape.cooperative;
  launch.cluster = {shape.cluster, 1, 1};
  launch.overlaps = shape.overlaps;
  launch.stream = run.stream;
  launch.parameters = parameters.pointers();
  launch.name = source_.name.c_str();
  jit::launch(*run.driver, launch);
}

std::vector<PlannedKernel> KernelLaunch::planned() const {
  std::vector<PlannedKernel> result;
  for (const jit::KernelSource& source : sources()) {
    PlannedKernel kernel;
    kernel.name = source.name;
    kernel.digest = jit::source_digest(source.text);
    result.push_back(std::move(kernel));
  }
  return result;
}
std::string KernelLaunch::problem() const { return {}; }
std::vector<Division> KernelLaunch::divisions() const { return {}; }
bool has_dense_vectors(const Schedule& schedule, const EmittedKernel& kernel,
                       const std::vector<SlotView>& views) {
  return std::all_of(kernel.tensors.begin(), kernel.tensors.end(), [&](int number) {
    const Slot& slot = schedule.slots[static_cast<std::size_t>(number)];
    const SlotView& view = views[static_cast<std::size_t>(number)];
    if (slot.kind == SlotKind::kStatistic) return true;
    const bool aligned =
        !over_positions(slot.extents) || reinterpret_cast<std::uintptr_t>(view.data) % 16 == 0;
    return aligned && view.strides == dense_strides(slot.extents);
  });
}

void KernelLaunch::reserve(WorkspaceLayout& /*counters*/) {}
bool KernelLaunch::needs_zeros(const std::vector<SlotView>& /*views*/, bool /*replayed*/) const {
  return true;
}
void KernelLaunch::reserve_scratch(WorkspaceLayout& /*layout*/) {}

namespace {

std::size_t at(int i) { return static_cast<std::size_t>(i); }

double slot_bytes(const Schedule& schedule, const Slot& slot) {
  DType dtype = slot.dtype.value_or(arithmetic_type(schedule.inputs));
  if (slot.kind == SlotKind::kArgument) dtype = schedule.inputs[at(slot.number)].type.dtype;
  if (slot.kind == SlotKind::kOutput) dtype = schedule.outputs[at(slot.number)].type.dtype;
  if (slot.kind == SlotKind::kStatistic) dtype = DType::kF64;
  return slot.elements() * static_cast<double>(byte_size(dtype));
}

// Whether a step of the cut makes what the slot holds.
bool is_made(const Schedule& schedule, const KernelCut& cut, int slot) {
  auto has = [](const std::vector<int>& list, int item) {
    return std::find(list.begin(), list.end(), item) != list.end();
  };
  for (int i = cut.first; i <= cut.last; ++i) {
    const ScheduleStep& step = schedule.steps[at(i)];
    if (step.result == slot) return true;
    for (const std::vector<Sink>* sinks : {&step.sweep.sinks, &step.sweep.epilogue.sinks})
      for (const Sink& sink : *sinks)
        if (has(sink.slots, slot)) return true;
  }
  return has(cut.outputs, slot) || has(cut.remaining, schedule.slots[at(slot)].part) ||
         schedule.slots[at(slot)].kind == SlotKind::kOutput;
}

}  // namespace

PlannedKernel planned_kernel(const Schedule& schedule, const KernelCut& cut, const EmittedKernel& kernel) {
  PlannedKernel result;
  result.name = kernel.entry;
  result.digest = jit::source_digest(kernel.text);
  for (int i = cut.first; i <= cut.last; ++i) {
    const StepKind kind = schedule.steps[at(i)].kind;
    if (kind == StepKind::kSweep) ++result.sweeps;
    if (kind == StepKind::kFinalise) ++result.finalises;
  }
  for (int slot : kernel.tensors)
    (is_made(schedule, cut, slot) ? result.written_bytes : result.read_bytes) +=
        slot_bytes(schedule, schedule.slots[at(slot)]);
  return result;
}

std::string counted(std::int64_t count, const std::string& what) {
  return std::to_string(count) + " " + what + (count == 1 ? "" : "s");
}

double bytes_read_again(const Schedule& schedule, const KernelCut& cut) {
  double bytes = 0;
  std::vector<int> seen;
  for (int i = cut.first; i <= cut.last; ++i)
    for (int slot : schedule.steps[at(i)].sweep.inputs) {
      const Slot& which = schedule.slots[at(slot)];
      if (which.kind == SlotKind::kStatistic || !over_positions(which.extents)) continue;
      if (std::find(seen.begin(), seen.end(), slot) != seen.end())
        bytes += slot_bytes(schedule, which);
      else
        seen.push_back(slot);
    }
  return bytes;
}

LaunchDescription KernelLaunch::describe(const KernelLaunch* /*like*/) const {
  throw NotSupportedError("cuda: the kernel " + sources().front().name + " cannot be exported yet");
}

jit::KernelSource source_of(const EmittedKernel& kernel, const Schedule& schedule) {
  return {kernel.entry, kernel.text, {"--std=c++17"}, kernel.entry, schedule.block.block().to_string()};
}

std::unique_ptr<KernelLaunch> make_finalise_launch(const Schedule& schedule, const KernelCut& cut) {
  return std::make_unique<FinaliseLaunch>(schedule, cut);
}

}  // namespace fuseblock::cuda
