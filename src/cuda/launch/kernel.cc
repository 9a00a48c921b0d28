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
        source_(source_of(text_, schedule)),
        blocks_(varies_over_positions(schedule, schedule.steps[static_cast<std::size_t>(cut.first)])
                    ? kGridBlocks
                    : 1) {}

  std::vector<jit::KernelSource> sources() const override { return {source_}; }
  void load(const Gpu& gpu) override {
    kernel_ = jit::load_kernel(*jit::kernel_cache().find(source_, *gpu.architecture).cubin);
  }
  void launch(const RunContext& run, std::byte* /*counters*/) const override {
    Parameters parameters(text_);
    parameters.add_tensors(text_, *run.views);
    jit::Launch launch;
    launch.function = kernel_.function;
    launch.grid = {blocks_, 1, 1};
    launch.block = {1024, 1, 1};
    launch.stream = run.stream;
    launch.parameters = parameters.pointers();
    launch.name = "finalise";
    jit::launch(*run.driver, launch);
  }

 private:
  // Two a multiprocessor of the largest GPUs; threads go on to the next element.
  static constexpr unsigned int kGridBlocks = 264;

  EmittedKernel text_;
  jit::KernelSource source_;
  jit::Kernel kernel_;
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

void KernelLaunch::reserve(WorkspaceLayout& /*layout*/, WorkspaceLayout& /*counters*/) {}

jit::KernelSource source_of(const EmittedKernel& kernel, const Schedule& schedule) {
  return {kernel.entry, kernel.text, {"--std=c++17"}, kernel.entry, schedule.block.block().to_string()};
}

std::unique_ptr<KernelLaunch> make_finalise_launch(const Schedule& schedule, const KernelCut& cut) {
  return std::make_unique<FinaliseLaunch>(schedule, cut);
}

}  // namespace fuseblock::cuda
