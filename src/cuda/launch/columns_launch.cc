// A kernel `columns` made ready: with vectors where tensors are dense, and for any views where a run brings others.
#include <algorithm>
#include <optional>

#include "cuda/launch/columns.h"
#include "cuda/launch/kernel.h"

namespace fuseblock::cuda {
namespace {

std::size_t at(int i) { return static_cast<std::size_t>(i); }

class ColumnsLaunch : public KernelLaunch {
 public:
  ColumnsLaunch(const Schedule& schedule, const KernelCut& cut, const Gpu& gpu)
      : schedule_(schedule), cut_(cut), gpu_(gpu), domain_(schedule.steps[at(cut.first)].sweep.domain) {
    ColumnsWork work = measure();
    const KernelChoices& choices = schedule.choices;
    if (dense_by_type_) dense_ = make_variant(work, divide_columns(gpu, work, choices));
    work.access = ColumnsAccess::kStrided;
    ColumnsConstants constants = divide_columns(gpu, work, dense_by_type_ ? KernelChoices{} : choices);
    if (constants.residency == Residency::kShared) constants.residency = Residency::kNowhere;
    strided_ = make_variant(work, constants);
  }

  std::vector<jit::KernelSource> sources() const override { return {first_variant().kernel->source()}; }

  std::vector<PlannedKernel> planned() const override {
    const Variant& variant = first_variant();
    const ColumnsConstants& constants = variant.constants;
    const ColumnsDivision& division = variant.division;
    PlannedKernel kernel = planned_kernel(schedule_, cut_, variant.text.kernel);
    kernel.blocks = division.blocks;
    kernel.threads = constants.threads;
    kernel.shared_bytes = variant.text.shared_bytes;
    const int sharing = constants.lanes * constants.team;
    kernel.numbers = {{"tile", columns_tile(constants)},
                      {"tiles", division.tiles},
                      {"threads_of_a_position", sharing},
                      {"positions_of_a_thread", constants.positions},
                      {"channels_of_a_step", constants.elements},
                      {"steps", columns_steps(constants, domain_[1])},
                      {"vector", constants.vector}};
    const int steps = columns_steps(constants, domain_[1]);
    kernel.division = {"tiles of " + counted(columns_tile(constants), "position") + " with all " +
                       counted(domain_[1], "channel") + ", " + std::to_string(division.tiles) + " in all; " +
                       counted(sharing, "thread") + " a position, each with " +
                       counted(constants.positions, "position") + " and " +
                       counted(constants.elements, "channel") + " in each of " + counted(steps, "step")};
    if (kernel.sweeps > 1) {
      const bool kept = constants.residency != Residency::kNowhere;
      kernel.residency = residency_name(constants.residency);
      kernel.again_bytes = kept ? 0.0 : bytes_read_again(schedule_, cut_);
      kernel.division.push_back(
          !kept ? "later sweeps read again, from L2"
                : "what is read stays in " +
                      std::string(constants.residency == Residency::kShared ? "shared memory" : "registers") +
                      " for later sweeps");
    }
    if (variant.text.sums > 0) {
      kernel.numbers.emplace_back("sums", variant.text.sums);
      kernel.numbers.emplace_back("bundle", division.bundle);
      kernel.division.push_back(counted(variant.text.sums, "sum") + " of each channel" +
                                (variant.text.by_sample ? " and sample" : "") + " kept in " +
                                (constants.sums_in_shared ? "shared memory" : "registers") + " over " +
                                counted(division.block_tiles, "tile") + ", then merged by bundles of " +
                                counted(division.bundle, "block"));
    }
    return {kernel};
  }

  void reserve(WorkspaceLayout& counters) override {
    std::int64_t words = 0;
    for (const Variant* variant : {dense_.get(), strided_.get()})
      if (variant != nullptr && variant->text.sums > 0)
        words = std::max(words, 1 + variant->division.bundles());
    finished_ = counters.reserve(static_cast<std::size_t>(words) * sizeof(std::uint32_t));
  }

  void reserve_scratch(WorkspaceLayout& layout) override {
    std::int64_t block_numbers = 0;
    std::int64_t bundle_numbers = 0;
    for (const Variant* variant : {dense_.get(), strided_.get()}) {
      if (variant == nullptr) continue;
      const ColumnsDivision& division = variant->division;
      const std::int64_t each = variant->text.sums * domain_[1];
      block_numbers = std::max(block_numbers, (division.spans + division.blocks) * each);
      bundle_numbers = std::max(bundle_numbers, (division.spans + division.bundles()) * each);
    }
    const std::int64_t real_bytes = byte_size(arithmetic_type(schedule_.inputs));
    block_sums_ = layout.reserve(static_cast<std::size_t>(block_numbers * real_bytes));
    bundle_sums_ = layout.reserve(static_cast<std::size_t>(bundle_numbers) * sizeof(double));
  }

  void load(const Gpu& gpu) override { first_variant().kernel->load(gpu); }

  LaunchDescription describe(const KernelLaunch* like) const override {
    const auto* other = dynamic_cast<const ColumnsLaunch*>(like);
    const Variant& own = (other != nullptr ? *other : *this).first_variant();
    const ColumnsConstants& constants = own.constants;
    const ColumnsText text = columns_text(schedule_, cut_, constants);
    const std::string tile = std::to_string(columns_tile(constants));
    const auto tiles_of = [&](const std::string& elements) {
      return "(" + elements + " + " + tile + " - 1) // " + tile;
    };
    const bool together = constants.access == ColumnsAccess::kAlongChannels && !text.by_sample;
    LaunchDescription result = {.source = source_of(text.kernel, schedule_),
                                .tensors = text.kernel.tensors,
                                .domain = domain_,
                                .blocks = "tiles",
                                .threads = static_cast<unsigned int>(constants.threads),
                                .shared_bytes = text.shared_bytes};
    result.values = {{"sample_tiles", tiles_of("d * h * w")},
                     {"tiles", together ? tiles_of("n * d * h * w") : "n * sample_tiles"}};
    result.scalars = {{"tiles", "tiles"},        {"sample_tiles", "sample_tiles"},
                      {"rows", "n * d * h * w"}, {"positions", "d * h * w"},
                      {"height", "h"},           {"width", "w"}};
    if (text.sums > 0) {
      const jit::Architecture& limits = *gpu_.architecture;
      const bool several = text.shared_bytes + limits.shared_bytes_reserved <=
                           limits.shared_bytes_multiprocessor / constants.blocks;
      result.values.push_back(
          {"block_tiles, bundle",
           "divide_tiles(tiles, multiprocessors * " + std::to_string(several ? constants.blocks : 1) + ")"});
      result.values.push_back({"blocks", "(tiles + block_tiles - 1) // block_tiles"});
      result.values.push_back({"bundles", "(blocks + bundle - 1) // bundle"});
      result.blocks = "blocks";
      const std::string spans = text.by_sample ? "n" : "1";
      const std::string each = std::to_string(text.sums * domain_[1]);
      const std::string real_bytes = std::to_string(byte_size(arithmetic_type(schedule_.inputs)));
      result.scratch = {{"block_sums", "(" + spans + " + blocks) * " + each + " * " + real_bytes},
                        {"bundle_sums", "(" + spans + " + bundles) * " + each + " * 8"}};
      result.counters = {{"finished", "(1 + bundles) * 4"}};
      result.scalars.push_back({"block_tiles", "block_tiles"});
      result.scalars.push_back({"bundle", "bundle"});
      for (std::size_t i = result.scalars.size(); i < text.kernel.scalars.size(); ++i)
        result.scalars.push_back({text.kernel.scalars[i], ""});
    }
    if (constants.access == ColumnsAccess::kAlongPositions && constants.vector > 1)
      result.conditions.push_back("d * h * w % " + std::to_string(constants.vector) + " == 0");
    result.conditions.emplace_back("n * d * h * w < 1000000000");
    return result;
  }

  void launch(const RunContext& run, std::byte* counters) const override {
    const std::int64_t positions = domain_[2] * domain_[3] * domain_[4];
    if (domain_[0] * domain_[1] * positions == 0) return;
    const Variant& variant = dense_ && fits(*run.views) ? *dense_ : *strided_;
    const ColumnsDivision& division = variant.division;
    Parameters parameters(variant.text.kernel);
    parameters.add_tensors(variant.text.kernel, *run.views);
    for (std::int64_t number :
         {division.tiles, division.sample_tiles, domain_[0] * positions, positions, domain_[3], domain_[4]})
      parameters.add(number);
    if (variant.text.sums > 0) {
      parameters.add(division.block_tiles);
      parameters.add(division.bundle);
      parameters.add(run.workspace + block_sums_);
      parameters.add(run.workspace + bundle_sums_);
      parameters.add(counters + finished_);
    }
    variant.kernel->launch(
        run,
        {static_cast<unsigned int>(division.blocks), static_cast<unsigned int>(variant.constants.threads)},
        parameters);
  }

 private:
  struct Variant {
    ColumnsConstants constants;
    ColumnsText text;
    ColumnsDivision division;
    std::optional<LoadedKernel> kernel;
  };

  const Variant& first_variant() const { return dense_ ? *dense_ : *strided_; }

  // The work of the kernel, and whether the types of its tensors say that they are dense in one layout.
  ColumnsWork measure() {
    ColumnsWork work;
    work.channels = domain_[1];
    work.positions = domain_[2] * domain_[3] * domain_[4];
    work.samples = domain_[0];
    work.real_bytes = static_cast<int>(byte_size(arithmetic_type(schedule_.inputs)));
    work.smallest_bytes = work.real_bytes;
    work.input_bytes = 0;
    work.sweeps = 0;
    bool contiguous = true;
    bool channels_last = true;
    std::vector<int> seen;
    auto add = [&](int number, bool read) {
      const Slot& slot = schedule_.slots[at(number)];
      if (slot.extents != domain_ || std::find(seen.begin(), seen.end(), number) != seen.end()) return;
      seen.push_back(number);
      const TensorType* type = slot.kind == SlotKind::kArgument ? &schedule_.inputs[at(slot.number)].type
                               : slot.kind == SlotKind::kOutput ? &schedule_.outputs[at(slot.number)].type
                                                                : nullptr;
      const int bytes = type != nullptr ? static_cast<int>(byte_size(type->dtype)) : work.real_bytes;
      work.smallest_bytes = std::min(work.smallest_bytes, bytes);
      if (read) work.input_bytes += bytes;
      const Layout layout = type != nullptr ? type->layout : slot.layout;
      if (work.positions == 1 || work.channels == 1) return;
      (layout == Layout::kChannelsLast ? contiguous : channels_last) = false;
    };
    for (int i = cut_.first; i <= cut_.last; ++i) {
      if (schedule_.steps[at(i)].kind != StepKind::kSweep) continue;
      ++work.sweeps;
      const Sweep& sweep = schedule_.steps[at(i)].sweep;
      int states = 0;
      std::vector<int> results;
      int channel_inputs = 0;
      for (int slot : sweep.inputs) {
        add(slot, true);
        const Extents& own = schedule_.slots[at(slot)].extents;
        channel_inputs += own[1] != 1 && own[2] * own[3] * own[4] == 1 ? 1 : 0;
      }
      work.channel_inputs = std::max(work.channel_inputs, channel_inputs);
      for (const Sink& sink : sweep.sinks) {
        if (std::find(results.begin(), results.end(), sink.step) == results.end())
          results.push_back(sink.step);
        if (sink.kind == SinkKind::kStore) add(sink.slots[0], false);
        if (sink.kind != SinkKind::kStatistic) continue;
        if (schedule_.graph[sink.part].axes == AxisSet{Axis::kC})
          states += 3 * work.real_bytes;
        else
          ++work.sums;
      }
      work.state_bytes = std::max(work.state_bytes, states);
      work.results = std::max(work.results, static_cast<int>(results.size()));
    }
    work.input_bytes = std::max(work.input_bytes, work.smallest_bytes);
    dense_by_type_ = contiguous || channels_last;
    const bool rows = work.positions == 1 || (channels_last && work.channels > 1);
    work.access = rows ? ColumnsAccess::kAlongChannels : ColumnsAccess::kAlongPositions;
    return work;
  }

  std::unique_ptr<Variant> make_variant(const ColumnsWork& work, const ColumnsConstants& constants) const {
    auto variant = std::make_unique<Variant>();
    variant->constants = constants;
    variant->text = columns_text(schedule_, cut_, constants);
    variant->division = divide_tiles(gpu_, work, constants, variant->text);
    variant->kernel.emplace(source_of(variant->text.kernel, schedule_), variant->text.shared_bytes);
    return variant;
  }

  // Whether this run's tensors are as the dense variant takes them.
  bool fits(const std::vector<SlotView>& views) const {
    const bool along_channels = dense_->constants.access == ColumnsAccess::kAlongChannels;
    const Layout layout = along_channels ? Layout::kChannelsLast : Layout::kContiguous;
    auto aligned = [&](const SlotView& view) {
      const std::size_t bytes = std::min<std::size_t>(
          16, at(dense_->constants.vector) * static_cast<std::size_t>(byte_size(view.dtype)));
      return reinterpret_cast<std::uintptr_t>(view.data) % bytes == 0;
    };
    return std::all_of(dense_->text.dense.begin(), dense_->text.dense.end(),
                       [&](int slot) {
                         const SlotView& view = views[at(slot)];
                         return view.strides == dense_strides(schedule_.slots[at(slot)].extents, layout) &&
                                aligned(view);
                       }) &&
           std::all_of(dense_->text.channel_vectors.begin(), dense_->text.channel_vectors.end(),
                       [&](int slot) {
                         const SlotView& view = views[at(slot)];
                         return view.strides[1] == 1 && view.strides[0] % dense_->constants.vector == 0 &&
                                aligned(view);
                       });
  }

  const Schedule& schedule_;
  KernelCut cut_;
  Gpu gpu_;
  Extents domain_;
  bool dense_by_type_ = true;
  std::unique_ptr<Variant> dense_;
  std::unique_ptr<Variant> strided_;
  std::size_t finished_ = 0;                      // in the counters
  std::size_t block_sums_ = 0, bundle_sums_ = 0;  // in the workspace
};

}  // namespace

std::unique_ptr<KernelLaunch> make_columns_launch(const Schedule& schedule, const KernelCut& cut,
                                                  const Gpu& gpu) {
  return std::make_unique<ColumnsLaunch>(schedule, cut, gpu);
}

}  // namespace fuseblock::cuda
