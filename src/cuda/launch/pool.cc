// A kernel `pool` made ready.
#include <algorithm>
#include <limits>

#include "block/geometry.h"
#include "cuda/emit/pool_text.h"
#include "cuda/launch/kernel.h"

namespace fuseblock::cuda {
namespace {

constexpr unsigned int kThreads = 256;

class PoolLaunch : public KernelLaunch {
 public:
  PoolLaunch(const Schedule& schedule, const KernelCut& cut)
      : text_(pool_text(schedule, cut, is_channels_last(schedule, cut))),
        kernel_(source_of(text_, schedule)),
        planned_(planned_kernel(schedule, cut, text_)) {
    const Part& part = schedule.graph[schedule.steps[static_cast<std::size_t>(cut.first)].parts[0]];
    geometry_ = pool_geometry(schedule.block, part.node);
    for (std::int64_t extent : part.extents) elements_ *= extent;
    planned_.blocks = blocks();
    planned_.threads = kThreads;
    planned_.division = {"a thread for each element of the result"};
  }

  std::vector<jit::KernelSource> sources() const override { return {kernel_.source()}; }
  std::vector<PlannedKernel> planned() const override { return {planned_}; }
  void load(const Gpu& gpu) override { kernel_.load(gpu); }
  LaunchDescription describe(const KernelLaunch* /*like*/) const override {
    LaunchDescription result = {.source = kernel_.source(),
                                .tensors = text_.tensors,
                                .blocks = std::to_string(blocks()),
                                .threads = kThreads};
    std::vector<std::int64_t> numbers = {elements_};
    numbers.insert(numbers.end(), geometry_.in.begin(), geometry_.in.end());
    numbers.insert(numbers.end(), geometry_.out.begin(), geometry_.out.end());
    for (std::size_t i = 0; i < numbers.size(); ++i)
      result.scalars.push_back({text_.scalars[i], std::to_string(numbers[i])});
    return result;
  }
  void launch(const RunContext& run, std::byte* /*counters*/) const override {
    if (elements_ == 0) return;
    Parameters parameters(text_);
    parameters.add_tensors(text_, *run.views);
    parameters.add(elements_);
    for (std::int64_t extent : geometry_.in) parameters.add(extent);
    for (std::int64_t extent : geometry_.out) parameters.add(extent);
    kernel_.launch(run, {static_cast<unsigned int>(blocks()), kThreads}, parameters);
  }

 private:
  std::int64_t blocks() const {
    return std::min<std::int64_t>((elements_ + kThreads - 1) / kThreads, std::numeric_limits<int>::max());
  }
  static bool is_channels_last(const Schedule& schedule, const KernelCut& cut) {
    const int operand = schedule.steps[static_cast<std::size_t>(cut.first)].operands[0];
    const Slot& slot = schedule.slots[static_cast<std::size_t>(operand)];
    return slot.kind == SlotKind::kArgument &&
           schedule.inputs[static_cast<std::size_t>(slot.number)].type.layout == Layout::kChannelsLast;
  }

  EmittedKernel text_;
  LoadedKernel kernel_;
  PlannedKernel planned_;
  PoolGeometry geometry_;
  std::int64_t elements_ = 1;
};

}  // namespace

std::unique_ptr<KernelLaunch> make_pool_launch(const Schedule& schedule, const KernelCut& cut) {
  return std::make_unique<PoolLaunch>(schedule, cut);
}

}  // namespace fuseblock::cuda
