// A kernel `conv` or `conv_roll` made ready: for inputs that are dense, and for any views where a run brings
// others.
#include <algorithm>
#include <map>
#include <optional>
#include <tuple>

#include "cuda/launch/conv.h"
#include "cuda/launch/conv_problem.h"
#include "cuda/launch/conv_roll.h"
#include "cuda/launch/kernel.h"
#include "cuda/tuned.h"

namespace fuseblock::cuda {
namespace {

std::size_t at(int i) { return static_cast<std::size_t>(i); }

// A kernel and its division.
struct Variant {
  ConvText text;
  bool rolls = false;     // `conv_roll`
  bool taps = false;      // with the input in registers, whose products are never of 16 bits
  bool overlaps = false;  // reads nothing of the kernel before it until that has ended
  std::string chosen;     // by what, in words
  int threads = 0;
  int blocks = 1;  // a multiprocessor
  int vector = 1;  // elements that rows of the input are copied by
  std::int64_t tiles = 1;
  std::string division;                         // in words, what a tile is
  double of_item = 4;                           // tiles that an item takes by itself
  std::int64_t at_once = 1;                     // tiles that a block has
  std::map<std::string, std::int64_t> numbers;  // scalars that depend on the division
  std::int64_t sample_items = 1;
  std::optional<LoadedKernel> kernel;
};

std::map<std::string, std::int64_t> extents_of(const ConvSum& conv) {
  return {{"in_d", conv.in[0]},   {"in_h", conv.in[1]},   {"in_w", conv.in[2]},
          {"out_d", conv.out[0]}, {"out_h", conv.out[1]}, {"out_w", conv.out[2]}};
}

std::unique_ptr<Variant> conv_variant(const Schedule& schedule, const KernelCut& cut, const Gpu& gpu,
                                      const ConvWork& work) {
  // What shared memory holds beside the stages does not depend on the tiles.
  const ConvConstants trial = divide_conv(gpu, work, 0);
  const ConvConstants constants = divide_conv(gpu, work, conv_text(schedule, cut, trial).shared_bytes);
  const auto tiles = conv_tiles(constants, work.conv);
  auto variant = std::make_unique<Variant>();
  variant->text = conv_text(schedule, cut, constants);
  variant->threads = constants.threads;
  variant->blocks = constants.blocks;
  variant->vector = constants.vector;
  variant->tiles = tiles[0] * tiles[1] * tiles[2];
  variant->division = "tiles of " + std::to_string(constants.tile[0]) + " x " +
                      std::to_string(constants.tile[1]) + " x " + std::to_string(constants.tile[2]) +
                      " positions";
  variant->numbers = extents_of(work.conv);
  variant->numbers.insert({{"tiles_h", tiles[1]}, {"tiles_w", tiles[2]}});
  const int stage = static_cast<int>(work.conv.in_channels) * constants.volume * work.element_bytes;
  variant->kernel.emplace(source_of(variant->text.kernel, schedule),
                          variant->text.shared_bytes + stage * constants.stages);
  return variant;
}

// What shared memory holds beside the stages depends on the form and the threads alone.
ConvRollBytes roll_bytes(const Schedule& schedule, const KernelCut& cut) {
  auto known = std::make_shared<std::map<std::tuple<bool, int, int>, int>>();
  return [&schedule, &cut, known](const ConvRollConstants& trial) {
    const auto [found, is_new] = known->try_emplace({trial.folded, trial.threads, trial.squads}, 0);
    if (is_new) found->second = conv_roll_text(schedule, cut, trial).shared_bytes;
    return found->second;
  };
}

std::unique_ptr<Variant> conv_roll_variant(const Schedule& schedule, const KernelCut& cut, const Gpu& gpu,
                                           const ConvWork& work) {
  const ConvRollConstants constants = divide_conv_roll(gpu, work, roll_bytes(schedule, cut));
  const auto tiles = conv_roll_tiles(constants, work.conv);
  auto variant = std::make_unique<Variant>();
  variant->text = conv_roll_text(schedule, cut, constants);
  variant->rolls = true;
  variant->overlaps = constants.rounds > 1;
  variant->threads = constants.threads;
  variant->blocks = constants.blocks;
  variant->vector = constants.vector;
  variant->tiles = tiles[0] * tiles[1] * tiles[2];
  variant->division = "strips of " + std::to_string(constants.squad_threads() / 2 * constants.products()) +
                      " positions and " + counted(constants.depths, constants.folded ? "row" : "depth");
  variant->taps = constants.taps;
  variant->of_item = conv_roll_item(constants, work.conv);
  variant->at_once = constants.squads;
  variant->numbers = extents_of(constants.folded ? folded(work.conv) : work.conv);
  variant->numbers.insert({{"strips", tiles[0]}, {"segments", tiles[2]}, {"depths", constants.depths}});
  variant->kernel.emplace(source_of(variant->text.kernel, schedule),
                          variant->text.shared_bytes + constants.stage_bytes);
  return variant;
}

class ConvLaunch : public KernelLaunch {
 public:
  ConvLaunch(const Schedule& schedule, const KernelCut& cut, const Gpu& gpu)
      : schedule_(schedule), cut_(cut), gpu_(gpu), input_(sweep().staged[0].inputs[0]) {
    const DType dtype = element_type(schedule, input_);
    work_.conv = conv_sum(schedule, sweep().source);
    work_.mode = conv_mode(schedule.precision, dtype);
    work_.element_bytes = static_cast<int>(byte_size(dtype));
    work_.channel_numbers = 0;
    work_.wishes = ConvWishes::of_environment();
    for (const Sink& sink : sweep().sinks)
      if (sink.kind == SinkKind::kStatistic) add_statistic(schedule.graph[sink.part]);
    work_.stores =
        std::ranges::any_of(sweep().sinks, [](const Sink& sink) { return sink.kind == SinkKind::kStore; });
    work_.moments = takes_moments();
    work_.itself = work_.moments && std::ranges::all_of(sweep().sinks, [&](const Sink& sink) {
                     const Formula::Step& step = sweep().steps[at(sink.step)];
                     return step.primitive == Primitive::kInput && sweep().inputs[at(step.input)] < 0;
                   });
    const Slot& slot = schedule.slots[at(input_)];
    const Layout layout =
        slot.kind == SlotKind::kArgument ? schedule.inputs[at(slot.number)].type.layout : slot.layout;
    rolls_ = work_.wishes.roll.value_or(1) != 0 && conv_rolls(gpu_, work_);
    if (layout == Layout::kContiguous && (!rolls_ || conv_roll_near(work_.conv))) dense_ = make_variant(true);
    if (dense_ && dense_->vector == 1 && !dense_->rolls) {
      strided_ = std::move(dense_);
    } else {
      strided_ = make_variant(false);
    }
  }

  std::vector<jit::KernelSource> sources() const override { return {first_variant().kernel->source()}; }

  std::vector<PlannedKernel> planned() const override {
    const Variant& variant = first_variant();
    const std::int64_t items = sweep().domain[0] * variant.sample_items;
    PlannedKernel kernel = planned_kernel(schedule_, cut_, variant.text.kernel);
    kernel.blocks = std::min(items, blocks_of(variant));
    kernel.threads = variant.threads;
    kernel.shared_bytes = variant.kernel->dynamic_shared_bytes();
    kernel.numbers = {{"tiles", variant.tiles}, {"items", items}};
    const bool narrow_taps = variant.taps && work_.mode == ConvMode::k16Bits;
    kernel.division = {variant.division + ", " + std::to_string(variant.tiles) + " a sample, in " +
                       counted(variant.sample_items, "run") + " a sample; products in " +
                       conv_mode_name(narrow_taps ? ConvMode::kTf32 : work_.mode) + "; " + variant.chosen};
    kernel.chosen = variant.chosen;
    return {kernel};
  }

  std::string problem() const override { return problem_of(dense_ != nullptr); }

  std::vector<Division> divisions() const override {
    ConvWork work = work_;
    work.dense = dense_ != nullptr;
    std::vector<Division> result;
    if (conv_rolls(gpu_, work)) result = conv_roll_divisions(gpu_, work, roll_bytes(schedule_, cut_));
    work.wishes = {};
    const ConvConstants trial = divide_conv(gpu_, work, 0);
    for (Division& division : conv_divisions(gpu_, work, conv_text(schedule_, cut_, trial).shared_bytes))
      result.push_back(std::move(division));
    return result;
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
    const std::int64_t items = sweep().domain[0] * variant.sample_items;
    std::map<std::string, std::int64_t> numbers = {
        {"items", items},
        {"sample_items", variant.sample_items},
        {"tiles", variant.tiles},
    };
    numbers.insert(variant.numbers.begin(), variant.numbers.end());
    Parameters parameters(variant.text.kernel);
    parameters.add_tensors(variant.text.kernel, *run.views);
    for (const std::string& name : variant.text.kernel.scalars) {
      const auto number = numbers.find(name);
      if (number != numbers.end())
        parameters.add(number->second);
      else
        parameters.add(counters + places_.at(name));
    }
    LaunchShape shape;
    shape.blocks = static_cast<unsigned int>(std::min(items, blocks_of(variant)));
    shape.threads = static_cast<unsigned int>(variant.threads);
    // Launches that are captured into a CUDA graph follow each other: overlap was not measured there.
    shape.overlaps = variant.overlaps && run.behind_kernel && reads_arguments() &&
                     !jit::is_capturing(*run.driver, run.stream);
    variant.kernel->launch(run, shape, parameters);
  }

 private:
  void add_statistic(const Part& part) {
    work_.over_channels = part.axes == AxisSet{Axis::kC};
    work_.channel_numbers += work_.over_channels ? 1 : component_count(part.statistic);
  }

  bool takes_moments() const {
    return std::ranges::all_of(sweep().sinks,
                               [&](const Sink& sink) {
                                 return sink.kind == SinkKind::kStatistic &&
                                        schedule_.graph[sink.part].statistic == Statistic::kMoments &&
                                        schedule_.graph[sink.part].axes != AxisSet{Axis::kC};
                               }) &&
           std::ranges::none_of(sweep().inputs, [&](int input) {
             return input >= 0 && over_positions(schedule_.slots[at(input)].extents);
           });
  }

  // Whether what is read before all else is the caller's: the input and the weights.
  bool reads_arguments() const {
    return schedule_.slots[at(input_)].kind == SlotKind::kArgument &&
           schedule_.slots[at(sweep().weight)].kind == SlotKind::kArgument;
  }

  const Sweep& sweep() const { return schedule_.steps[at(cut_.first)].sweep; }
  const Variant& first_variant() const { return dense_ ? *dense_ : *strided_; }

  // Those that run at once.
  std::int64_t blocks_of(const Variant& variant) const {
    return std::int64_t{gpu_.multiprocessors} * variant.blocks;
  }

  std::string problem_of(bool dense) const {
    return conv_problem("conv", work_.conv, work_.mode,
                        std::string(dense ? "contiguous" : "any strides") +
                            (work_.over_channels ? ", over channels" : "") +
                            (work_.stores ? ", stores" : "") + ", " +
                            counted(work_.channel_numbers, "number") + " a channel");
  }

  // That of the table of tuned divisions; null where it has none that this kernel can have.
  std::unique_ptr<Variant> tuned_variant() const {
    if (gpu_.tuned == nullptr || work_.wishes.any()) return nullptr;
    const TunedDivision* tuned = gpu_.tuned->find(gpu_, problem_of(work_.dense));
    if (tuned == nullptr || tuned->division.empty()) return nullptr;
    const bool rolls = tuned->kernel == "conv_roll";
    if (rolls && !conv_rolls(gpu_, work_)) return nullptr;
    ConvWork work = work_;
    work.wishes = ConvWishes::parse(tuned->division);
    if (!work.wishes.rounds) work.wishes.rounds = 1;
    try {
      auto variant =
          rolls ? conv_roll_variant(schedule_, cut_, gpu_, work) : conv_variant(schedule_, cut_, gpu_, work);
      variant->chosen = "tuned";
      return variant;
    } catch (const NotSupportedError&) {
      return nullptr;
    }
  }

  std::unique_ptr<Variant> make_variant(bool dense) {
    work_.dense = dense;
    auto variant = tuned_variant();
    if (variant == nullptr) {
      variant = rolls_ ? conv_roll_variant(schedule_, cut_, gpu_, work_)
                       : conv_variant(schedule_, cut_, gpu_, work_);
      variant->chosen = work_.wishes.any() ? "asked for" : "by the cost model";
    }
    variant->sample_items =
        conv_items(sweep().domain[0], variant->tiles, blocks_of(*variant), variant->of_item, variant->at_once)
            .of_sample;
    return variant;
  }

  // Whether the input can be read by the dense kernel.
  bool fits(const std::vector<SlotView>& views) const {
    const SlotView& view = views[at(input_)];
    const int vector = dense_->vector;
    if (reinterpret_cast<std::uintptr_t>(view.data) % (at(vector) * at(work_.element_bytes)) != 0)
      return false;
    if (view.strides[4] != 1) return false;
    if (dense_->rolls && (view.strides[3] != work_.conv.in[2] ||
                          view.strides[1] != work_.conv.in[0] * work_.conv.in[1] * work_.conv.in[2]))
      return false;
    return std::all_of(view.strides.begin(), view.strides.end() - 1,
                       [&](std::int64_t stride) { return stride % vector == 0; });
  }

  const Schedule& schedule_;
  KernelCut cut_;
  Gpu gpu_;
  int input_;  // slot
  ConvWork work_;
  bool rolls_ = false;
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
