// A kernel `plain_channels` made ready: a thread for each few positions, and a kernel `columns` for views that are not dense.
#include <algorithm>
#include <map>
#include <optional>

#include "cuda/emit/plain_channels_text.h"
#include "cuda/launch/kernel.h"

namespace fuseblock::cuda {
namespace {

constexpr std::int64_t kMostPositions = 1'000'000'000;
// For which plans have the kernel by themselves: on an H200 127 thousand were faster than `columns`, 65 thousand were not.
constexpr std::int64_t kWorthPositions = 100'000;

std::size_t at(int i) { return static_cast<std::size_t>(i); }

class PlainChannelsLaunch : public KernelLaunch {
 public:
  PlainChannelsLaunch(const Schedule& schedule, const KernelCut& cut, const Gpu& gpu)
      : schedule_(schedule),
        cut_(cut),
        columns_(make_columns_launch(schedule, cut, gpu)),
        domain_(schedule.steps[at(cut.first)].sweep.domain),
        positions_(domain_[2] * domain_[3] * domain_[4]) {
    constants_.width = positions_ % 4 == 0 ? 4 : 1;
    text_ = plain_channels_text(schedule, cut, constants_);
    kernel_.emplace(source_of(text_, schedule));
  }

  // Whether positions of a sample can be counted as the kernel does.
  bool fits() const { return positions_ < kMostPositions; }

  // Whether it takes less time than `columns`, which has several threads for a position: where there are positions for all
  // threads of a GPU.
  bool is_faster() const { return domain_[0] * positions_ >= kWorthPositions; }

  std::vector<jit::KernelSource> sources() const override { return {kernel_->source()}; }

  std::vector<PlannedKernel> planned() const override {
    PlannedKernel kernel = planned_kernel(schedule_, cut_, text_);
    kernel.blocks = domain_[0] * sample_blocks();
    kernel.threads = constants_.threads;
    kernel.division = {"a thread for " + counted(constants_.width, "position") + " with all " +
                       std::to_string(domain_[1]) + " channels, " + std::to_string(constants_.batch) +
                       " at a time"};
    const bool asked = schedule_.choices.plain == PlainKernels::kAlways;
    kernel.chosen = asked ? "asked for" : "positions enough for all threads";
    if (!asked) kernel.division.push_back("in place of columns: " + kernel.chosen);
    return {kernel};
  }

  void reserve(WorkspaceLayout& counters) override { columns_->reserve(counters); }
  bool needs_zeros(const std::vector<SlotView>& views, bool replayed) const override {
    return !is_dense(views) && columns_->needs_zeros(views, replayed);
  }
  void reserve_scratch(WorkspaceLayout& layout) override { columns_->reserve_scratch(layout); }
  void load(const Gpu& gpu) override { kernel_->load(gpu); }

  LaunchDescription describe(const KernelLaunch* like) const override {
    const auto* other = dynamic_cast<const PlainChannelsLaunch*>(like);
    const PlainChannelsConstants constants = (other != nullptr ? *other : *this).constants_;
    const EmittedKernel text = plain_channels_text(schedule_, cut_, constants);
    const std::string blocks = "-(-d * h * w // " + std::to_string(constants.threads * constants.width) + ")";
    LaunchDescription result = {.source = source_of(text, schedule_),
                                .tensors = text.tensors,
                                .addresses = true,
                                .domain = domain_,
                                .values = {{"blocks", blocks}},
                                .blocks = "n * blocks",
                                .threads = static_cast<unsigned int>(constants.threads)};
    for (const std::string& name : text.scalars)
      result.scalars.push_back({name, name == "blocks" ? "blocks" : "d * h * w"});
    if (constants.width > 1) result.conditions.emplace_back("d * h * w % 4 == 0");
    result.conditions.emplace_back("d * h * w < 1000000000");
    return result;
  }

  void launch(const RunContext& run, std::byte* counters) const override {
    if (domain_[0] * positions_ == 0) return;
    if (!is_dense(*run.views)) {
      columns_->launch(run, counters);
      return;
    }
    Parameters parameters(text_);
    for (int slot : text_.tensors) parameters.add((*run.views)[at(slot)].data);
    for (const std::string& name : text_.scalars)
      parameters.add(name == "blocks" ? sample_blocks() : positions_);
    kernel_->launch(run,
                    {static_cast<unsigned int>(domain_[0] * sample_blocks()),
                     static_cast<unsigned int>(constants_.threads)},
                    parameters);
  }

 private:
  std::int64_t sample_blocks() const {
    const std::int64_t covered = std::int64_t{constants_.threads} * constants_.width;
    return (positions_ + covered - 1) / covered;
  }

  bool is_dense(const std::vector<SlotView>& views) const {
    return has_dense_vectors(schedule_, text_, views);
  }

  const Schedule& schedule_;
  KernelCut cut_;
  std::unique_ptr<KernelLaunch> columns_;
  Extents domain_;
  std::int64_t positions_;
  PlainChannelsConstants constants_;
  EmittedKernel text_;
  std::optional<LoadedKernel> kernel_;
};

}  // namespace

std::unique_ptr<KernelLaunch> make_plain_channels_launch(const Schedule& schedule, const KernelCut& cut,
                                                         const Gpu& gpu) {
  const KernelChoices& choices = schedule.choices;
  const bool by_cost = choices.plain == PlainKernels::kByCost;
  if (choices.plain == PlainKernels::kNever) return nullptr;
  // Tiles and their places are those of `columns`.
  if (by_cost && (choices.tile > 0 || choices.residency != KernelResidency::kByCost)) return nullptr;
  if (!is_for_plain_channels(schedule, cut)) return nullptr;
  auto launch = std::make_unique<PlainChannelsLaunch>(schedule, cut, gpu);
  if (!launch->fits() || (by_cost && !launch->is_faster())) return nullptr;
  return launch;
}

}  // namespace fuseblock::cuda
