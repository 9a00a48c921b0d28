#include "cuda/launch/kernel.h"

#include "cuda/emit/finalise_text.h"
#include "cuda/jit/cache.h"

namespace fuseblock::cuda {
namespace {

constexpr std::size_t kTensorWords = 1 + kAxisCount;

class FinaliseLaunch : public KernelLaunch {
 public:
  FinaliseLaunch(const Schedule& schedule, const KernelCut& cut)
      : text_(finalise_text(schedule, cut)),
        kernel_(source_of(text_, schedule)),
        blocks_(varies_over_positions(schedule, schedule.steps[static_cast<std::size_t>(cut.first)])
                    ? kGridBlocks
                    : 1) {}

  std::vector<jit::KernelSource> sources() const override { return {kernel_.source()}; }
  void load(const Gpu& gpu) override { kernel_.load(gpu); }
  void launch(const RunContext& run, std::byte* /*counters*/) const override {
    constexpr unsigned int kThreads = 1024;
    Parameters parameters(text_);
    parameters.add_tensors(text_, *run.views);
    kernel_.launch(run, {blocks_, kThreads}, parameters);
  }

 private:
  // Two a multiprocessor of the largest GPUs; threads go on to the next element.
  static constexpr unsigned int kGridBlocks = 264;

  EmittedKernel text_;
  LoadedKernel kernel_;
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
        "once with such tensors before the capture");
  load(*run.gpu);
  jit::Launch launch;
  launch.function = kernel_.function;
  launch.grid = {shape.blocks, 1, 1};
  launch.block = {shape.threads, 1, 1};
  launch.dynamic_shared_bytes = static_cast<unsigned int>(dynamic_shared_bytes_);
  launch.cooperative = shape.cooperative;
  launch.cluster = {shape.cluster, 1, 1};
  launch.stream = run.stream;
  launch.parameters = parameters.pointers();
  launch.name = source_.name.c_str();
  jit::launch(*run.driver, launch);
}

void KernelLaunch::reserve(WorkspaceLayout& /*counters*/) {}
void KernelLaunch::reserve_scratch(WorkspaceLayout& /*layout*/) {}

jit::KernelSource source_of(const EmittedKernel& kernel, const Schedule& schedule) {
  return {kernel.entry, kernel.text, {"--std=c++17"}, kernel.entry, schedule.block.block().to_string()};
}

std::unique_ptr<KernelLaunch> make_finalise_launch(const Schedule& schedule, const KernelCut& cut) {
  return std::make_unique<FinaliseLaunch>(schedule, cut);
}

}  // namespace fuseblock::cuda
