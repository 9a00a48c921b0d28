// A kernel `slices` made ready. Views that are not as their types say run through `rows`, which takes any.
#include <algorithm>
#include <cstdlib>
#include <map>
#include <optional>

#include "cuda/launch/kernel.h"
#include "cuda/launch/registers.h"
#include "cuda/launch/slices.h"

namespace fuseblock::cuda {
namespace {

std::size_t at(int i) { return static_cast<std::size_t>(i); }

// Of a block's part of a group: two numbers and their tag (device/tagged.cuh).
constexpr std::size_t kPartBytes = 16;

// A tensor over the whole domain that the kernel reads or writes.
struct Border {
  int slot;
  DType dtype;
  bool read;
};

std::vector<Border> borders_of(const Schedule& schedule, const KernelCut& cut, const Extents& domain) {
  std::vector<Border> borders;
  auto add = [&](int number, bool read) {
    const Slot& slot = schedule.slots[at(number)];
    const bool known =
        std::any_of(borders.begin(), borders.end(), [&](const Border& b) { return b.slot == number; });
    if (slot.kind == SlotKind::kStatistic || slot.extents != domain || known) return;
    DType dtype = slot.dtype.value_or(arithmetic_type(schedule.inputs));
    if (slot.kind == SlotKind::kArgument) dtype = schedule.inputs[at(slot.number)].type.dtype;
    if (slot.kind == SlotKind::kOutput) dtype = schedule.outputs[at(slot.number)].type.dtype;
    borders.push_back({number, dtype, read});
  };
  for (int i = cut.first; i <= cut.last; ++i) {
    const Sweep& sweep = schedule.steps[at(i)].sweep;
    for (int slot : sweep.inputs) add(slot, true);
    for (const Sink& sink : sweep.sinks)
      if (sink.kind == SinkKind::kStore) add(sink.slots[0], false);
  }
  return borders;
}

const Extents& domain_of(const Schedule& schedule, const KernelCut& cut) {
  for (int i = cut.first; i <= cut.last; ++i)
    if (schedule.steps[at(i)].kind == StepKind::kSweep) return schedule.steps[at(i)].sweep.domain;
  throw InternalError("a kernel of sweeps without a sweep");
}

SlicesWork work_of(const Schedule& schedule, const KernelCut& cut, const Extents& domain,
                   const std::vector<Border>& borders) {
  SlicesWork work;
  work.samples = domain[0];
  work.channels = domain[1];
  work.positions = domain[2] * domain[3] * domain[4];
  work.group = cut.unit_channels;
  work.passes = work.statistics = 0;
  for (int i = cut.first; i <= cut.last; ++i) {
    const ScheduleStep& step = schedule.steps[at(i)];
    if (step.kind != StepKind::kSweep) continue;
    ++work.passes;
    work.leaves_registers = work.leaves_registers && leaves_registers(step.sweep);
    work.last_statistics = std::any_of(step.sweep.sinks.begin(), step.sweep.sinks.end(),
                                       [](const Sink& sink) { return sink.kind == SinkKind::kStatistic; });
    if (work.last_statistics) ++work.statistics;
  }
  work.smallest_bytes = 8;
  work.input_bytes = work.output_bytes = work.inputs = 0;
  for (const Border& border : borders) {
    const int bytes = static_cast<int>(byte_size(border.dtype));
    work.smallest_bytes = std::min(work.smallest_bytes, bytes);
    (border.read ? work.input_bytes : work.output_bytes) += bytes;
    if (border.read) ++work.inputs;
  }
  return work;
}

class SlicesLaunch : public KernelLaunch {
 public:
  SlicesLaunch(const Schedule& schedule, const KernelCut& cut, const Gpu& gpu, const SlicesDivision& division)
      : schedule_(schedule),
        cut_(cut),
        domain_(domain_of(schedule, cut)),
        borders_(borders_of(schedule, cut, domain_)),
        division_(division),
        text_(slices_text(schedule, slice_of(cut, division), division.constants)),
        kernel_(source_of(text_.kernel, schedule), shared_bytes()),
        any_views_(make_rows_launch(schedule, cut, gpu)) {}

  int shared_bytes() const {
    const SlicesConstants& constants = division_.constants;
    return text_.shared_bytes + constants.ring * constants.pieces * constants.threads * text_.vector_bytes;
  }

  static KernelCut slice_of(KernelCut cut, const SlicesDivision& division) {
    cut.unit_channels = division.channels;
    return cut;
  }

  std::vector<jit::KernelSource> sources() const override { return {kernel_.source()}; }

  std::vector<PlannedKernel> planned() const override {
    const SlicesDivision& division = division_;
    PlannedKernel kernel = planned_kernel(schedule_, cut_, text_.kernel);
    kernel.blocks = std::int64_t{division.team} * division.teams;
    kernel.threads = division.constants.threads;
    kernel.shared_bytes = shared_bytes();
    kernel.numbers = {{"slice_channels", division.channels},
                      {"units", division.units},
                      {"team", division.team},
                      {"teams", division.teams},
                      {"blocks_of_a_multiprocessor", division.constants.blocks},
                      {"vector", division.constants.vector},
                      {"positions_of_a_row", division.constants.row_positions},
                      {"pieces", division.constants.pieces},
                      {"ring", division.constants.ring},
                      {"steps", division.steps},
                      {"kept_steps", division.kept},
                      {"register_steps", division.constants.registers},
                      {"lead", division.constants.lead},
                      {"packed", division.constants.packed ? 1 : 0},
                      {"dealt", division.constants.dealt ? 1 : 0},
                      {"ahead", division.constants.ahead ? 1 : 0}};
    if (in_cluster()) {
      kernel.numbers = {{"slice_channels", division.channels},
                        {"units", division.units},
                        {"cluster", division.team},
                        {"blocks_of_a_multiprocessor", division.constants.blocks},
                        {"vector", division.constants.vector},
                        {"positions_of_a_row", division.constants.row_positions},
                        {"pieces", division.constants.pieces}};
      kernel.residency = "registers";
      kernel.division = {"slices of " + counted(division.channels, "channel") + " of a sample, " +
                             std::to_string(division.units) + " in all, each by a cluster of " +
                             counted(division.team, "block"),
                         counted(division.constants.pieces, "vector") +
                             (division.constants.pieces == 1 ? " of a thread stays" : " of a thread stay") +
                             " in its registers for later sweeps"};
      return {kernel};
    }
    if (division.constants.whole) {
      kernel.numbers = {{"units", division.units},
                        {"team", division.team},
                        {"vector", division.constants.vector},
                        {"ring", division.constants.ring},
                        {"steps", division.steps},
                        {"register_steps", division.constants.registers}};
      kernel.residency = division.constants.ring > 0 ? "shared" : "registers";
      kernel.division = {"whole samples, " + std::to_string(division.units) + " in all, each by a team of " +
                             counted(division.team, "block"),
                         counted(division.steps, "vector") +
                             (division.steps == 1 ? " of a thread stays" : " of a thread stay") +
                             " on chip for later sweeps, " + std::to_string(division.constants.registers) +
                             " in registers and " + std::to_string(division.constants.ring) +
                             " in shared memory"};
      return {kernel};
    }
    kernel.division = {
        "slices of " + counted(division.channels, "channel") + " of a sample, " +
        std::to_string(division.units) + " in all; teams of " + counted(division.team, "block") + ", " +
        std::to_string(division.teams) + " of them at work" +
        (division.constants.ahead ? "; a slice is begun before the one before it is ended" : "") +
        (division.constants.packed ? "; positions follow each other through a block's warps" : "")};
    if (kernel.sweeps < 2) return {kernel};
    const int again = division.steps - division.kept;
    kernel.residency = "shared";
    kernel.again_bytes = bytes_read_again(schedule_, cut_) * again / division.steps;
    kernel.division.push_back(
        "of " + counted(division.steps, "chunk") + " of a block " + std::to_string(division.kept) +
        (division.kept == 1 ? " stays" : " stay") + " in shared memory" +
        (division.constants.registers > 0
             ? " and registers, " + std::to_string(division.constants.registers) + " of these in registers,"
             : "") +
        " for later sweeps" + (again > 0 ? ", the others are read again, from L2" : "") +
        (division.constants.dealt ? ", by whichever block of the team is free" : ""));
    return {kernel};
  }

  void reserve(WorkspaceLayout& counters) override {
    any_views_->reserve(counters);
    const std::size_t real_words = arithmetic_type(schedule_.inputs) == DType::kF64 ? 2 : 1;
    std::map<std::string, std::size_t> places = {{"finished", counters.reserve(text_.tail ? 4 : 0)}};
    const std::size_t warps = at(division_.constants.threads / 32);
    places["dealt"] = counters.reserve(division_.constants.dealt ? static_cast<std::size_t>(division_.units) *
                                                                       warps * kDealtCounterBytes
                                                                 : 0);
    for (std::size_t i = 0; i < text_.list_numbers.size(); ++i) {
      // Two lists in turn, each with the parts of all blocks and the totals; a word and its tag are eight bytes.
      const std::size_t lists = division_.units > division_.teams ? 2 : 1;
      const std::size_t part_bytes = static_cast<std::size_t>(division_.units) * at(division_.team) *
                                     at(i < text_.part_groups.size() ? text_.part_groups[i] : 0) * kPartBytes;
      if (part_bytes > 0) {
        places["team_list" + std::to_string(i)] = counters.reserve(division_.team == 1 ? 0 : part_bytes);
        continue;
      }
      const std::size_t values = lists * at(division_.teams) * static_cast<std::size_t>(division_.channels) *
                                 (at(division_.team) + 1);
      places["team_list" + std::to_string(i)] = counters.reserve(
          division_.team == 1 || in_cluster() ? 0 : values * at(text_.list_numbers[i]) * real_words * 8);
    }
    std::map<std::string, Scalar> known = in_counters(places);
    known.insert({{"units", Scalar::number(division_.units)},
                  {"positions", Scalar::number(domain_[2] * domain_[3] * domain_[4])},
                  {"height", Scalar::number(domain_[3])},
                  {"width", Scalar::number(domain_[4])},
                  {"team", Scalar::number(division_.team)},
                  {"steps", Scalar::number(division_.steps)},
                  {"kept", Scalar::number(division_.kept)},
                  {"tag", Scalar::tags(1)}});
    scalars_ = scalars_of(text_.kernel, known);
  }

  bool needs_zeros(const std::vector<SlotView>& views, bool replayed) const override {
    if (!fits(views)) return any_views_->needs_zeros(views, replayed);
    return text_.tail || (division_.team > 1 && !in_cluster() && (replayed || !text_.tagged));
  }

  void reserve_scratch(WorkspaceLayout& layout) override { any_views_->reserve_scratch(layout); }

  void load(const Gpu& gpu) override { kernel_.load(gpu); }

  void launch(const RunContext& run, std::byte* counters) const override {
    if (division_.units * domain_[2] * domain_[3] * domain_[4] == 0) return;
    if (!fits(*run.views)) return any_views_->launch(run, counters);
    Parameters parameters(text_.kernel);
    parameters.add_tensors(text_.kernel, *run.views);
    for (const Scalar& scalar : scalars_) parameters.add(scalar, counters);
    kernel_.launch(
        run,
        {static_cast<unsigned int>(division_.team * division_.teams),
         static_cast<unsigned int>(division_.constants.threads), division_.team > 1 && !in_cluster(),
         static_cast<unsigned int>(division_.constants.cluster)},
        parameters);
  }

 private:
  bool in_cluster() const { return division_.constants.cluster > 1; }

  // Whether this run's tensors are dense, channels_last and aligned to their vectors.
  bool fits(const std::vector<SlotView>& views) const {
    const Extents strides = dense_strides(domain_, Layout::kChannelsLast);
    return std::all_of(borders_.begin(), borders_.end(), [&](const Border& border) {
      const SlotView& view = views[at(border.slot)];
      const std::size_t bytes = std::min<std::size_t>(
          16, at(division_.constants.vector) * static_cast<std::size_t>(byte_size(border.dtype)));
      return view.strides == strides && reinterpret_cast<std::uintptr_t>(view.data) % bytes == 0;
    });
  }

  const Schedule& schedule_;
  KernelCut cut_;
  Extents domain_;
  std::vector<Border> borders_;
  SlicesDivision division_;
  SlicesText text_;
  LoadedKernel kernel_;
  std::unique_ptr<KernelLaunch> any_views_;
  std::vector<Scalar> scalars_;  // in the order of the text's
};

// Clusters, where they are measured to be faster, before teams; of either the one that costs less.
bool is_better(const std::optional<SlicesDivision>& one, const std::optional<SlicesDivision>& other) {
  if (!one || !other) return one.has_value();
  const bool clusters = one->constants.cluster > 1, others = other->constants.cluster > 1;
  return clusters == others ? one->seconds < other->seconds : clusters;
}

// Divisions of a kernel's work.
class SlicesPlanner {
 public:
  SlicesPlanner(const Schedule& schedule, const KernelCut& cut, const Gpu& gpu)
      : schedule_(schedule), cut_(cut), gpu_(gpu) {
    const Extents& domain = domain_of(schedule, cut);
    work_ = work_of(schedule, cut, domain, borders_of(schedule, cut, domain));
  }

  // With chunks in registers where that was measured to be faster than what the cost model chooses.
  std::optional<SlicesDivision> divide(const SlicesChoice& choice) {
    if (choice.whole > 0) return whole(choice);
    const std::optional<SlicesDivision> best = best_of(choice);
    if (!best || best->constants.cluster > 1 || !choice.may_have_registers()) return best;
    if (const auto division = whole(choice)) return division;
    for (const SlicesChoice& wanted : choose_registers(gpu_, work_, *best, choice)) {
      const std::optional<SlicesDivision> held = best_of(wanted);
      if (!held || !suits_registers(gpu_, *held)) continue;
      const SlicesText text = text_of(held->channels, held->constants);
      if (!text.tail && text.part_groups[0] > 0) return held;
    }
    return best;
  }

 private:
  // Whole samples on chip; of `work_` what a text says is known.
  std::optional<SlicesDivision> whole(const SlicesChoice& choice) {
    KernelCut cut = cut_;
    cut.unit_channels = work_.channels;
    if (!choice.may_be_whole() || schedule_.choices.plain == PlainKernels::kAlways) return std::nullopt;
    if (choice.whole > 0) work_.group_statistics = true;
    const std::optional<SlicesDivision> division = divide_whole(gpu_, work_, choice);
    if (!division || !is_for_slices_whole(schedule_, cut, division->constants)) return std::nullopt;
    const SlicesText text = text_of(division->channels, division->constants);
    const SlicesConstants& constants = division->constants;
    const int bytes = text.shared_bytes + constants.ring * constants.threads * text.vector_bytes;
    return bytes <= gpu_.architecture->shared_bytes_block ? division : std::nullopt;
  }

  SlicesText text_of(std::int64_t channels, const SlicesConstants& constants) const {
    KernelCut slice = cut_;
    slice.unit_channels = channels;
    return slices_text(schedule_, slice, constants);
  }

  // What a width asks of a block.
  void measure(SlicesWidth& width, const SlicesChoice& choice) {
    const SlicesText trial = text_of(width.channels, width.constants);
    width.shared_bytes = trial.shared_bytes;
    width.unit_bytes = trial.unit_bytes;
    width.vector_bytes = trial.vector_bytes;
    work_.group_statistics = trial.group_statistics;
    work_.hoisted_numbers = trial.hoisted_numbers;
    if (choice.registers < 1 || !may_have_registers(work_)) return;
    SlicesConstants constants = width.constants;
    constants.registers = 1;
    if (choice.packed > 0) constants.packed = text_of(width.channels, constants).part_groups[0] > 0;
    const SlicesText held = text_of(width.channels, constants);
    // What the last block of all needs comes with the compiled kernel.
    if (!held.tail) width.register_bytes = held.shared_bytes;
    width.constants.packed = constants.packed && !held.tail;
  }

  // The one that costs least.
  std::optional<SlicesDivision> best_of(const SlicesChoice& choice) {
    std::optional<SlicesDivision> best;
    if (work_.input_bytes == 0) return best;
    // Where there is no plain kernel, who asks for one has `slices`.
    const bool may_cluster = choice.may_cluster() && schedule_.choices.plain != PlainKernels::kAlways;
    auto fits = [&](const SlicesDivision& division) {
      return text_of(division.channels, division.constants).shared_bytes <=
             gpu_.architecture->shared_bytes_block;
    };
    for (SlicesWidth& width : slices_widths(work_, choice)) {
      measure(width, choice);
      std::optional<SlicesDivision> division;
      if (choice.cluster < 2) division = divide_slices(gpu_, work_, width, choice);
      if (choice.cluster > 1 || (may_cluster && suits_clusters(gpu_, work_)))
        if (const auto clusters = divide_cluster(gpu_, work_, width, choice); clusters && fits(*clusters))
          division = clusters;
      if (is_better(division, best)) best = division;
    }
    return best;
  }

  const Schedule& schedule_;
  const KernelCut& cut_;
  const Gpu& gpu_;
  SlicesWork work_;
};

}  // namespace

std::unique_ptr<KernelLaunch> make_slices_launch(const Schedule& schedule, const KernelCut& cut,
                                                 const Gpu& gpu) {
  const char* fixed = std::getenv("FUSEBLOCK_SLICES");
  const SlicesChoice choice = SlicesChoice::parse(fixed == nullptr ? "" : fixed);
  const std::optional<SlicesDivision> best = SlicesPlanner(schedule, cut, gpu).divide(choice);
  if (!best) return make_rows_launch(schedule, cut, gpu);
  return std::make_unique<SlicesLaunch>(schedule, cut, gpu, *best);
}

}  // namespace fuseblock::cuda
