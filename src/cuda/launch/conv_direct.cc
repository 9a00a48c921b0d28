// A kernel `conv_direct` made ready.
#include <algorithm>
#include <limits>

#include "cuda/conv_sum.h"
#include "cuda/emit/conv_direct_text.h"
#include "cuda/launch/kernel.h"

namespace fuseblock::cuda {
namespace {

constexpr unsigned int kThreads = 256;

class ConvDirectLaunch : public KernelLaunch {
 public:
  ConvDirectLaunch(const Schedule& schedule, const KernelCut& cut)
      : text_(conv_direct_text(schedule, cut)),
        kernel_(source_of(text_, schedule)),
        planned_(planned_kernel(schedule, cut, text_)) {
    const Sweep& sweep = schedule.steps[static_cast<std::size_t>(cut.first)].sweep;
    const ConvSum conv = conv_sum(schedule, sweep.source);
    for (std::int64_t extent : sweep.domain) elements_ *= extent;
    numbers_ = {elements_, conv.in[0], conv.in[1], conv.in[2], conv.out[0], conv.out[1], conv.out[2]};
    planned_.blocks = blocks();
    planned_.threads = kThreads;
    planned_.division = {"one thread an element of the result"};
  }

  std::vector<jit::KernelSource> sources() const override { return {kernel_.source()}; }
  std::vector<PlannedKernel> planned() const override { return {planned_}; }
  void load(const Gpu& gpu) override { kernel_.load(gpu); }
  void launch(const RunContext& run, std::byte* /*counters*/) const override {
    if (elements_ == 0) return;
    Parameters parameters(text_);
    parameters.add_tensors(text_, *run.views);
    for (std::int64_t number : numbers_) parameters.add(number);
    kernel_.launch(run, {static_cast<unsigned int>(blocks()), kThreads}, parameters);
  }

 private:
  std::int64_t blocks() const {
    return std::min<std::int64_t>((elements_ + kThreads - 1) / kThreads, std::numeric_limits<int>::max());
  }

  EmittedKernel text_;
  LoadedKernel kernel_;
  PlannedKernel planned_;
  std::int64_t elements_ = 1;
  std::array<std::int64_t, 7> numbers_ = {};
};

}  // namespace

std::unique_ptr<KernelLaunch> make_conv_direct_launch(const Schedule& schedule, const KernelCut& cut) {
  return std::make_unique<ConvDirectLaunch>(schedule, cut);
}

}  // namespace fuseblock::cuda
