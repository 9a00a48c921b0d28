// A kernel `plain` made ready: a block for each part of a channel, and a kernel `rows` for views that are not dense.
#include <algorithm>
#include <map>
#include <optional>

#include "cuda/emit/plain_text.h"
#include "cuda/launch/kernel.h"

namespace fuseblock::cuda {
namespace {

// Blocks of a multiprocessor: of kernels with one sweep, which registers limit; with units in blocks, which are bound by
// arithmetic; with several sweeps, whose blocks wait for each other and leave the memory to others meanwhile.
constexpr int kOnceBlocks = 6;
constexpr int kWholeBlocks = 4;
constexpr int kTogetherBlocks = 4;
// Bytes of shared memory that a block has beside what it keeps, or less.
constexpr int kOwnShared = 2048;
// Elements in whose time the blocks of a multiprocessor begin and end their shares, and the time of one that is read again
// from L2.
constexpr double kRoundElements = 6000;
// Units of a multiprocessor for which plans have the kernel by themselves where a block has one: on an H200 64 in all were
// faster than `rows`, 38 were not.
constexpr double kWorthUnits = 0.45;
// Positions that are worth a block's threads.
constexpr std::int64_t kWorthPositions = 256;
constexpr double kAgainTime = 0.4;
// Units for each block of a GPU that runs at once, for which a block has all channels of a unit: with few of them some
// blocks would be at work long after others.
constexpr std::int64_t kJoinedRounds = 2;
// Elements that are worth a block of their own.
constexpr std::int64_t kLeastShare = 4096;

std::size_t at(int i) { return static_cast<std::size_t>(i); }

std::int64_t quotient_up(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

class PlainLaunch : public KernelLaunch {
 public:
  PlainLaunch(const Schedule& schedule, const KernelCut& cut, const Gpu& gpu)
      : schedule_(schedule), cut_(cut), gpu_(gpu), rows_(make_rows_launch(schedule, cut, gpu)) {
    for (int i = cut.first; i <= cut.last; ++i)
      if (schedule.steps[at(i)].kind == StepKind::kSweep) domain_ = schedule.steps[at(i)].sweep.domain;
    units_ = domain_[0] * domain_[1] / cut.unit_channels;
    positions_ = domain_[2] * domain_[3] * domain_[4];
    text_ = plain_text(schedule, cut, {});
    constants_ = divide();
    parts_ = constants_.parts;
    constants_.edges = positions_ % 4 != 0;
    text_ = plain_text(schedule, cut, constants_);
    kernel_.emplace(source_of(text_.kernel, schedule), shared_bytes());
  }

  // Whether the blocks of a team can all run at once. What is one for all channels is read in vectors as theirs are.
  bool fits() const {
    if (text_.whole) return !constants_.edges;
    return !text_.together || cut_.unit_channels <= blocks_at_once();
  }

  // Whether it takes less time than `rows`. With one sweep it does, since its blocks wait for none and many are at work
  // on a multiprocessor; where channels have inputs in common it reads these once for all of a unit. Else teams of
  // `rows`, which begin their next unit before the last is ended, are faster forward, and about as fast backward.
  bool is_faster() const {
    const bool many = static_cast<double>(units_) >= kWorthUnits * gpu_.multiprocessors;
    return positions_ >= kWorthPositions && (text_.whole ? many : text_.sweeps == 1 && has_finalise());
  }

  std::vector<jit::KernelSource> sources() const override { return {kernel_->source()}; }

  std::vector<PlannedKernel> planned() const override {
    PlannedKernel kernel = planned_kernel(schedule_, cut_, text_.kernel);
    kernel.blocks = grid();
    kernel.threads = constants_.threads;
    kernel.shared_bytes = shared_bytes();
    kernel.numbers = {
        {"unit_channels", cut_.unit_channels}, {"units", units_}, {"parts", parts_}, {"team", team()}};
    kernel.division = {
        "units of " + std::to_string(cut_.unit_channels) + " channels of a sample, " +
        std::to_string(units_) + " in all, " +
        (text_.whole || constants_.joined ? "a block each" : counted(parts_, "block") + " a channel")};
    kernel.chosen = chosen();
    if (schedule_.choices.plain == PlainKernels::kByCost)
      kernel.division.push_back("in place of rows: " + kernel.chosen);
    if (text_.whole && text_.sweeps > 1) {
      kernel.residency = "memory";
      kernel.again_bytes = bytes_read_again(schedule_, cut_);
    }
    if (!text_.together) return {kernel};
    const std::int64_t share = quotient_up(positions_, 4 * parts_);
    const std::int64_t again = std::max<std::int64_t>(share - kept_vectors(), 0);
    kernel.residency = again < share ? "shared" : "memory";
    kernel.again_bytes =
        bytes_read_again(schedule_, cut_) * static_cast<double>(again) / static_cast<double>(share);
    kernel.division.push_back(std::to_string(grid() / team()) + " units at a time, " +
                              std::to_string(100 * (share - again) / share) +
                              " % of them in shared memory for later sweeps");
    return {kernel};
  }

  void reserve(WorkspaceLayout& counters) override {
    rows_->reserve(counters);
    const std::int64_t finished = text_.finishes ? domain_[1] / cut_.unit_channels : 0;
    arrived_ = counters.reserve(static_cast<std::size_t>((text_.waits * units_ + finished) * 4));
  }
  bool needs_zeros(const std::vector<SlotView>& views, bool replayed) const override {
    return is_dense(views) ? text_.waits > 0 || text_.finishes : rows_->needs_zeros(views, replayed);
  }
  void reserve_scratch(WorkspaceLayout& layout) override {
    rows_->reserve_scratch(layout);
    for (const auto& [name, bytes] : text_.lists)
      lists_[name] = layout.reserve(static_cast<std::size_t>(units_ * team() * bytes));
  }
  void load(const Gpu& gpu) override { kernel_->load(gpu); }

  LaunchDescription describe(const KernelLaunch* like) const override {
    const auto* other = dynamic_cast<const PlainLaunch*>(like);
    PlainConstants constants = (other != nullptr ? *other : *this).constants_;
    constants.batch_apart = true;
    const PlainText text = plain_text(schedule_, cut_, constants);
    auto number = [](std::int64_t value) { return std::to_string(value); };
    const std::string units_of_sample = number(domain_[1] / cut_.unit_channels);
    const std::string units = units_of_sample == "1" ? "n" : "n * " + units_of_sample;
    const std::string blocks = "multiprocessors * " + number(constants.blocks);
    const std::string team = number(cut_.unit_channels * constants.parts);
    const std::string shares = "n * " + number(domain_[1] * constants.parts);
    const bool unit_a_block = text.whole || constants.joined;
    LaunchDescription result = {.source = source_of(text.kernel, schedule_),
                                .tensors = text.kernel.tensors,
                                .addresses = true,
                                .domain = domain_,
                                .blocks = unit_a_block ? units
                                          : text.together
                                              ? "min(" + blocks + " // " + team + ", " + units + ") * " + team
                                              : shares,
                                .threads = static_cast<unsigned int>(constants.threads),
                                .shared_bytes = constants.kept * 16,
                                .cooperative = text.together ? "True" : "False"};
    const std::map<std::string, std::string> texts = {
        {"units", units}, {"positions", "d * h * w"}, {"samples", "n"}};
    for (const std::string& name : text.kernel.scalars) {
      const auto found = texts.find(name);
      result.scalars.push_back({name, found != texts.end() ? found->second : std::string()});
    }
    std::string arrived = text.waits == 0 ? "" : text.waits == 1 ? units : number(text.waits) + " * " + units;
    if (text.finishes) arrived += (arrived.empty() ? "" : " + ") + units_of_sample;
    if (!arrived.empty()) result.counters.push_back({"arrived", "4 * (" + arrived + ")"});
    for (const auto& [name, bytes] : text.lists)
      result.scratch.push_back({name, number(bytes) + " * (" + shares + ")"});
    for (const auto& [list, output] : text.batch_sums)
      result.batch_sums.push_back({list, output, domain_[1], constants.parts});
    if (text.together) result.conditions.push_back(team + " <= " + blocks);
    if (constants.parts > 1) result.conditions.push_back("d * h * w >= " + number(4 * constants.parts));
    if (!constants.edges) result.conditions.emplace_back("d * h * w % 4 == 0");
    result.conditions.emplace_back("d * h * w < 1000000000");
    return result;
  }

  void launch(const RunContext& run, std::byte* counters) const override {
    if (units_ * positions_ == 0) return;
    if (!is_dense(*run.views)) {
      rows_->launch(run, counters);
      return;
    }
    Parameters parameters(text_.kernel);
    for (int slot : text_.kernel.tensors) parameters.add((*run.views)[at(slot)].data);
    const std::map<std::string, std::int64_t> numbers = {
        {"units", units_}, {"positions", positions_}, {"samples", domain_[0]}};
    for (const std::string& name : text_.kernel.scalars) {
      if (const auto found = numbers.find(name); found != numbers.end())
        parameters.add(found->second);
      else if (const auto list = lists_.find(name); list != lists_.end())
        parameters.add(run.workspace + list->second);
      else
        parameters.add(counters + arrived_);
    }
    kernel_->launch(
        run,
        {static_cast<unsigned int>(grid()), static_cast<unsigned int>(constants_.threads), text_.together},
        parameters);
  }

 private:
  // A program alone, without statistics, is left to `rows`.
  bool has_finalise() const {
    for (int i = cut_.first; i <= cut_.last; ++i)
      if (schedule_.steps[at(i)].kind == StepKind::kFinalise) return true;
    return false;
  }

  // Why it is there, in words.
  std::string chosen() const {
    if (schedule_.choices.plain == PlainKernels::kAlways) return "asked for";
    return text_.whole ? "what is one for all channels is read once for a unit"
                       : "of one sweep, so that no block waits for another";
  }

  std::int64_t blocks_at_once() const { return std::int64_t{gpu_.multiprocessors} * constants_.blocks; }
  std::int64_t team() const { return cut_.unit_channels * parts_; }
  std::int64_t grid() const {
    if (text_.whole || constants_.joined) return units_;
    return text_.together ? std::max<std::int64_t>(std::min(blocks_at_once() / team(), units_), 1) * team()
                          : units_ * team();
  }
  // Of each input.
  std::int64_t kept_vectors() const { return constants_.kept / text_.inputs; }
  int shared_bytes() const { return constants_.kept * 16; }

  // The parts of a channel: as many as make enough blocks, or the least time where teams go from unit to unit.
  PlainConstants divide() const {
    const std::int64_t worth = positions_ / kLeastShare;
    if (text_.whole) return {.blocks = kWholeBlocks};
    if (!text_.together) {
      PlainConstants once = {.blocks = kOnceBlocks};
      const std::int64_t blocks = std::int64_t{gpu_.multiprocessors} * once.blocks;
      const std::int64_t channels = std::max<std::int64_t>(units_ * cut_.unit_channels, 1);
      once.parts = static_cast<int>(std::max<std::int64_t>(std::min(blocks / channels, worth), 1));
      once.joined = text_.joins && units_ >= kJoinedRounds * blocks;
      return once;
    }
    PlainConstants constants = {.blocks = kTogetherBlocks};
    const int bytes = gpu_.architecture->shared_bytes_multiprocessor / constants.blocks - kOwnShared;
    constants.kept = bytes / 16 / 64 * 64;
    const std::int64_t most =
        std::min(std::int64_t{gpu_.multiprocessors} * constants.blocks / cut_.unit_channels, worth);
    PlainConstants best = constants;
    for (constants.parts = 2; constants.parts <= most; ++constants.parts)
      if (estimate(constants) < estimate(best)) best = constants;
    return best;
  }
  // In the time of an element of a multiprocessor.
  double estimate(const PlainConstants& constants) const {
    const std::int64_t blocks = std::int64_t{gpu_.multiprocessors} * constants.blocks;
    const std::int64_t teams = std::max<std::int64_t>(blocks / (cut_.unit_channels * constants.parts), 1);
    const double share = static_cast<double>(positions_) / constants.parts;
    const double again = std::max(share - 4.0 * constants.kept / text_.inputs, 0.0);
    const auto rounds = static_cast<double>(quotient_up(units_, teams));
    return rounds * (constants.blocks * (share + kAgainTime * again) + kRoundElements);
  }

  bool is_dense(const std::vector<SlotView>& views) const {
    return has_dense_vectors(schedule_, text_.kernel, views);
  }

  const Schedule& schedule_;
  KernelCut cut_;
  Gpu gpu_;
  std::unique_ptr<KernelLaunch> rows_;
  Extents domain_ = {1, 1, 1, 1, 1};
  PlainConstants constants_;
  PlainText text_;
  std::optional<LoadedKernel> kernel_;
  std::int64_t units_ = 0;
  std::int64_t positions_ = 0;
  std::int64_t parts_ = 1;
  std::size_t arrived_ = 0;
  std::map<std::string, std::size_t> lists_;
};

}  // namespace

std::unique_ptr<KernelLaunch> make_plain_launch(const Schedule& schedule, const KernelCut& cut,
                                                const Gpu& gpu) {
  const bool by_cost = schedule.choices.plain == PlainKernels::kByCost;
  if (schedule.choices.plain == PlainKernels::kNever) return nullptr;
  // A size of teams is one for `rows`.
  if (by_cost && schedule.choices.team > 0) return nullptr;
  if (!is_for_plain(schedule, cut)) return nullptr;
  auto launch = std::make_unique<PlainLaunch>(schedule, cut, gpu);
  if (!launch->fits() || (by_cost && !launch->is_faster())) return nullptr;
  return launch;
}

}  // namespace fuseblock::cuda
