// A kernel `conv` made ready: with vectors where the input is dense, and for any views where a run brings others.
#include <algorithm>
#include <map>
#include <optional>

#include "cuda/launch/conv.h"
#include "cuda/launch/kernel.h"

namespace fuseblock::cuda {
namespace {

std::size_t at(int i) { return static_cast<std::size_t>(i); }

class ConvLaunch : public KernelLaunch {
 public:
  ConvLaunch(const Schedule& schedule, const KernelCut& cut, const Gpu& gpu)
      : schedule_(schedule), cut_(cut), gpu_(gpu), input_(sweep().staged[0].inputs[0]) {
    const DType dtype = element_type(schedule, input_);
    work_.conv = conv_sum(schedule, sweep().source);
    work_.mode = conv_mode(schedule, dtype);
    work_.element_bytes = static_cast<int>(byte_size(dtype));
    work_.channel_numbers = 0;
    work_.wishes = ConvWishes::of_environment();
    for (const Sink& sink : sweep().sinks)
      if (sink.kind == SinkKind::kStatistic) add_statistic(schedule.graph[sink.part]);
    const Slot& slot = schedule.slots[at(input_)];
    const Layout layout =
        slot.kind == SlotKind::kArgument ? schedule.inputs[at(slot.number)].type.layout : slot.layout;
    if (layout == Layout::kContiguous) dense_ = make_variant(true);
    if (dense_ && dense_->constants.vector == 1) {
      strided_ = std::move(dense_);
    } else {
      strided_ = make_variant(false);
    }
  }

  std::vector<jit::KernelSource> sources() const override { return {first_variant().kernel->source()}; }

  std::vector<PlannedKernel> planned() const override {
    const Variant& variant = first_variant();
    const auto tiles = conv_tiles(variant.constants, work_.conv);
    const std::int64_t items = sweep().domain[0] * variant.sample_items;
    PlannedKernel kernel = planned_kernel(schedule_, cut_, variant.text.kernel);
    kernel.blocks = std::min(items, blocks_of(variant.constants));
    kernel.threads = variant.constants.threads;
    kernel.shared_bytes = variant.kernel->dynamic_shared_bytes();
    kernel.numbers = {{"tiles", tiles[0] * tiles[1] * tiles[2]}, {"items", items}};
    kernel.division = {
        "tiles of " + std::to_string(variant.constants.tile[0]) + " x " +
        std::to_string(variant.constants.tile[1]) + " x " + std::to_string(variant.constants.tile[2]) +
        " positions, " + std::to_string(tiles[0] * tiles[1] * tiles[2]) + " a sample, in " +
        counted(variant.sample_items, "run") + " a sample; products in " + conv_mode_name(work_.mode)};
    return {kernel};
  }

  void reserve(WorkspaceLayout& counters) override {
    const auto samples = static_cast<std::size_t>(sweep().domain[0]);
    std::size_t list_bytes = 0;
    bool tail = false;
    bool joins = false;
    for (const Variant* variant : {strided_.get(), dense_.get()}) {
      if (variant == nullptr) continue;
      tail = tail || variant->text.tail;
      if (variant->sample_items == 1 || variant->text.list_numbers == 0) continue;
      joins = true;
      list_bytes = std::max(list_bytes, samples * static_cast<std::size_t>(variant->sample_items) *
                                            static_cast<std::size_t>(work_.conv.channels) * 4 *
                                            at(variant->text.list_numbers));
    }
    places_["finished"] = counters.reserve(tail ? 4 : 0);
    places_["arrived"] = counters.reserve(joins ? 4 * samples : 0);
    places_["list0"] = counters.reserve(list_bytes);
  }

  void load(const Gpu& gpu) override { first_variant().kernel->load(gpu); }

  void launch(const RunContext& run, std::byte* counters) const override {
    const Variant& variant = dense_ && fits(*run.views) ? *dense_ : *strided_;
    const auto tiles = conv_tiles(variant.constants, work_.conv);
    const std::int64_t items = sweep().domain[0] * variant.sample_items;
    const std::map<std::string, std::int64_t> numbers = {
        {"items", items},
        {"sample_items", variant.sample_items},
        {"tiles", tiles[0] * tiles[1] * tiles[2]},
        {"tiles_h", tiles[1]},
        {"tiles_w", tiles[2]},
        {"in_d", work_.conv.in[0]},
        {"in_h", work_.conv.in[1]},
        {"in_w", work_.conv.in[2]},
        {"out_d", work_.conv.out[0]},
        {"out_h", work_.conv.out[1]},
        {"out_w", work_.conv.out[2]},
    };
    Parameters parameters(variant.text.kernel);
    parameters.add_tensors(variant.text.kernel, *run.views);
    for (const std::string& name : variant.text.kernel.scalars) {
      const auto number = numbers.find(name);
      if (number != numbers.end())
        parameters.add(number->second);
      else
        parameters.add(counters + places_.at(name));
    }
    variant.kernel->launch(run,
                           {static_cast<unsigned int>(std::min(items, blocks_of(variant.constants))),
                            static_cast<unsigned int>(variant.constants.threads)},
                           parameters);
  }

 private:
  struct Variant {
    ConvConstants constants;
    ConvText text;
    std::int64_t sample_items = 1;
    std::optional<LoadedKernel> kernel;
  };

  void add_statistic(const Part& part) {
    work_.over_channels = part.axes == AxisSet{Axis::kC};
    work_.channel_numbers += work_.over_channels ? 1 : component_count(part.statistic);
  }

  const Sweep& sweep() const { return schedule_.steps[at(cut_.first)].sweep; }
  const Variant& first_variant() const { return dense_ ? *dense_ : *strided_; }

  // Those that run at once.
  std::int64_t blocks_of(const ConvConstants& constants) const {
    return std::int64_t{gpu_.multiprocessors} * constants.blocks;
  }

  std::unique_ptr<Variant> make_variant(bool dense) {
    work_.dense = dense;
    auto variant = std::make_unique<Variant>();
    // What shared memory holds beside the stages does not depend on the tiles.
    ConvConstants trial = divide_conv(gpu_, work_, 0);
    variant->constants = divide_conv(gpu_, work_, conv_text(schedule_, cut_, trial).shared_bytes);
    variant->text = conv_text(schedule_, cut_, variant->constants);
    const auto tiles = conv_tiles(variant->constants, work_.conv);
    variant->sample_items =
        conv_items(sweep().domain[0], tiles[0] * tiles[1] * tiles[2], blocks_of(variant->constants))
            .of_sample;
    const int stage =
        static_cast<int>(work_.conv.in_channels) * variant->constants.volume * work_.element_bytes;
    variant->kernel.emplace(source_of(variant->text.kernel, schedule_),
                            variant->text.shared_bytes + stage * variant->constants.stages);
    return variant;
  }

  // Whether rows of the input can be copied in vectors.
  bool fits(const std::vector<SlotView>& views) const {
    const SlotView& view = views[at(input_)];
    const int vector = dense_->constants.vector;
    if (reinterpret_cast<std::uintptr_t>(view.data) % (at(vector) * at(work_.element_bytes)) != 0)
      return false;
    if (view.strides[4] != 1) return false;
    return std::all_of(view.strides.begin(), view.strides.end() - 1,
                       [&](std::int64_t stride) { return stride % vector == 0; });
  }

  const Schedule& schedule_;
  KernelCut cut_;
  Gpu gpu_;
  int input_;  // slot
  ConvWork work_;
  std::unique_ptr<Variant> dense_;
  std::unique_ptr<Variant> strided_;
  std::map<std::string, std::size_t> places_;
};

}  // namespace

std::unique_ptr<KernelLaunch> make_conv_launch(const Schedule& schedule, const KernelCut& cut,
                                               const Gpu& gpu) {
  return std::make_unique<ConvLaunch>(schedule, cut, gpu);
}

}  // namespace fuseblock::cuda
