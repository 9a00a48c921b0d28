// A kernel `conv_wide` or `conv_deep` made ready, with the kernel that brings its weights into order: reading channels in
// vectors where they are neighbours in memory, and for any views where a run brings others.
#include <algorithm>
#include <limits>
#include <map>
#include <optional>

#include "cuda/launch/conv_deep.h"
#include "cuda/launch/conv_problem.h"
#include "cuda/launch/conv_wide.h"
#include "cuda/launch/kernel.h"
#include "cuda/tuned.h"

namespace fuseblock::cuda {
namespace {

constexpr std::int64_t kVectorBytes = 16;
constexpr unsigned int kWeightThreads = 256;

std::size_t at(int i) { return static_cast<std::size_t>(i); }

// A kernel and its division.
struct Variant {
  ConvWideText text;
  std::string chosen;  // by what, in words
  int threads = 0;
  int block_channels = 0;
  int tile = 0;             // positions
  std::int64_t blocks = 1;  // that run at once
  std::int64_t tiles = 1;
  std::int64_t spans = 1;  // samples with a block of channels
  std::int64_t weight_bytes = 0;
  std::int64_t reach = 0;                       // channels whose offsets are added to those of positions
  std::map<std::string, std::int64_t> numbers;  // scalars
  std::optional<LoadedKernel> kernel;
  std::optional<LoadedKernel> weights;
};

std::unique_ptr<Variant> conv_wide_variant(const Schedule& schedule, const KernelCut& cut, const Gpu& gpu,
                                           const ConvWideWork& work) {
  const ConvWideConstants constants = divide_conv_wide(gpu, work);
  const ConvWideTiles tiles = conv_wide_tiles(constants, work);
  auto variant = std::make_unique<Variant>();
  variant->text = conv_wide_text(schedule, cut, constants);
  variant->threads = constants.threads;
  variant->block_channels = constants.block_channels();
  variant->tile = constants.tile();
  variant->tiles = tiles.all();
  variant->spans = tiles.spans;
  variant->blocks = std::min(variant->tiles, std::int64_t{gpu.multiprocessors} * constants.blocks);
  variant->weight_bytes = tiles.weight_bytes;
  variant->numbers = {{"tiles", tiles.of_span}, {"strip_tiles", tiles.of_strip}};
  variant->kernel.emplace(source_of(variant->text.kernel, schedule), conv_wide_bytes(constants, work));
  return variant;
}

std::unique_ptr<Variant> conv_deep_variant(const Schedule& schedule, const KernelCut& cut, const Gpu& gpu,
                                           const ConvWideWork& work) {
  const ConvDeepConstants constants = divide_conv_deep(gpu, work);
  auto variant = std::make_unique<Variant>();
  variant->blocks = std::min(conv_deep_tiles(constants, work, 1).all(), std::int64_t{gpu.multiprocessors});
  const ConvDeepTiles tiles = conv_deep_tiles(constants, work, variant->blocks);
  variant->text = conv_deep_text(schedule, cut, constants);
  variant->threads = constants.threads();
  variant->block_channels = constants.block_channels();
  variant->tile = constants.tile();
  variant->tiles = tiles.all();
  variant->spans = tiles.spans;
  variant->weight_bytes = tiles.weight_bytes;
  variant->reach = std::int64_t{constants.chunk_steps} * 32 / work.element_bytes;
  variant->numbers = {{"tiles", tiles.of_span},
                      {"plane_tiles", tiles.of_plane},
                      {"strip_tiles", tiles.of_strip},
                      {"depth_cost", tiles.depth_cost},
                      {"cost", tiles.cost}};
  variant->kernel.emplace(source_of(variant->text.kernel, schedule), conv_deep_bytes(constants, work));
  return variant;
}

class ConvWideLaunch : public KernelLaunch {
 public:
  ConvWideLaunch(const Schedule& schedule, const KernelCut& cut, const Gpu& gpu)
      : schedule_(schedule), cut_(cut), gpu_(gpu), input_(sweep().staged[0].inputs[0]) {
    const DType dtype = element_type(schedule, input_);
    work_.conv = conv_sum(schedule, sweep().source);
    work_.mode = conv_mode(schedule.precision, dtype);
    work_.element_bytes = static_cast<int>(byte_size(dtype));
    const ConvWideText trial = conv_wide_text(schedule, cut, {});
    work_.values_bytes = trial.values_bytes;
    work_.list_numbers = trial.list_numbers;
    work_.kept_numbers = trial.kept_numbers;
    work_.wishes = ConvWishes::of_environment();
    deepens_ = conv_deepens(gpu_, work_);
    const Slot& slot = schedule.slots[at(input_)];
    const Layout layout =
        slot.kind == SlotKind::kArgument ? schedule.inputs[at(slot.number)].type.layout : slot.layout;
    const bool last = slot.kind == SlotKind::kArgument && layout == Layout::kChannelsLast;
    const std::int64_t channels = work_.conv.in_channels / work_.conv.geometry.groups;
    if (last && channels * work_.element_bytes % kVectorBytes == 0)
      vectors_ = make_variant({.vectors = true});
    if (deepens_ && layout == Layout::kContiguous && is_near()) dense_ = make_variant({.dense = true});
    elements_ = make_variant({});
    far_ = make_variant({.far = true});
  }

  std::vector<jit::KernelSource> sources() const override {
    return {first_variant().weights->source(), first_variant().kernel->source()};
  }

  std::vector<PlannedKernel> planned() const override {
    const Variant& variant = first_variant();
    PlannedKernel weights = planned_kernel(schedule_, cut_, variant.text.weights);
    weights.sweeps = weights.finalises = 0;
    weights.blocks = weight_blocks(variant);
    weights.threads = kWeightThreads;
    weights.division = {"the weights in the order of their use, " + std::to_string(variant.weight_bytes) +
                        " bytes"};
    PlannedKernel kernel = planned_kernel(schedule_, cut_, variant.text.kernel);
    kernel.blocks = variant.blocks;
    kernel.threads = variant.threads;
    kernel.shared_bytes = variant.kernel->dynamic_shared_bytes();
    kernel.numbers = {{"tiles", variant.tiles}};
    kernel.division = {"tiles of " + std::to_string(variant.tile) + " positions and " +
                       std::to_string(variant.block_channels) + " channels, " +
                       std::to_string(variant.tiles) + " in all; products in " + conv_mode_name(work_.mode) +
                       "; " + variant.chosen};
    kernel.chosen = variant.chosen;
    return {weights, kernel};
  }

  std::string problem() const override { return problem_of(first_reading()); }

  std::vector<Division> divisions() const override {
    ConvWideWork work = work_for(first_reading());
    work.wishes = {};
    std::vector<Division> result = conv_wide_divisions(gpu_, work);
    if (conv_deepens(gpu_, work))
      for (Division& division : conv_deep_divisions(gpu_, work)) result.push_back(std::move(division));
    return result;
  }

  void reserve(WorkspaceLayout& counters) override {
    std::size_t list_bytes = 0;
    for (const Variant* variant : variants())
      list_bytes = std::max(list_bytes, static_cast<std::size_t>(variant->blocks + variant->spans) *
                                            at(variant->block_channels) * 4 * at(variant->text.list_numbers));
    const Variant& first = first_variant();
    const auto samples = static_cast<std::size_t>(sweep().domain[0]);
    places_["finished"] = counters.reserve(first.text.tail ? 4 : 0);
    places_["arrived"] = counters.reserve(first.text.list_numbers == 0 ? 0 : 4 * samples);
    list_bytes_ = list_bytes;
  }

  void reserve_scratch(WorkspaceLayout& workspace) override {
    std::int64_t bytes = 0;
    for (const Variant* variant : variants()) bytes = std::max(bytes, variant->weight_bytes);
    weights_ = workspace.reserve(static_cast<std::size_t>(bytes));
    list_ = workspace.reserve(list_bytes_);
  }

  void load(const Gpu& gpu) override {
    first_variant().weights->load(gpu);
    first_variant().kernel->load(gpu);
  }

  void launch(const RunContext& run, std::byte* counters) const override {
    const Variant& variant = variant_for(*run.views);
    std::byte* weights = run.workspace + weights_;
    Parameters order(variant.text.weights);
    order.add_tensors(variant.text.weights, *run.views);
    order.add(weights);
    variant.weights->launch(run, {static_cast<unsigned int>(weight_blocks(variant)), kWeightThreads}, order);
    std::map<std::string, std::int64_t> numbers = {
        {"items", variant.tiles},     {"in_d", work_.conv.in[0]},   {"in_h", work_.conv.in[1]},
        {"in_w", work_.conv.in[2]},   {"out_d", work_.conv.out[0]}, {"out_h", work_.conv.out[1]},
        {"out_w", work_.conv.out[2]},
    };
    numbers.insert(variant.numbers.begin(), variant.numbers.end());
    Parameters parameters(variant.text.kernel);
    parameters.add_tensors(variant.text.kernel, *run.views);
    for (const std::string& name : variant.text.kernel.scalars) {
      const auto number = numbers.find(name);
      if (number != numbers.end())
        parameters.add(number->second);
      else if (name == "weights")
        parameters.add(weights);
      else if (name == "list0")
        parameters.add(run.workspace + list_);
      else
        parameters.add(counters + places_.at(name));
    }
    variant.kernel->launch(
        run, {static_cast<unsigned int>(variant.blocks), static_cast<unsigned int>(variant.threads)},
        parameters);
  }

 private:
  const Sweep& sweep() const { return schedule_.steps[at(cut_.first)].sweep; }
  const Variant& first_variant() const { return vectors_ ? *vectors_ : dense_ ? *dense_ : *elements_; }
  std::vector<const Variant*> variants() const {
    std::vector<const Variant*> result = {elements_.get(), far_.get()};
    if (vectors_) result.push_back(vectors_.get());
    if (dense_) result.push_back(dense_.get());
    return result;
  }
  const Variant& variant_for(const std::vector<SlotView>& views) const {
    if (is_far(views)) return *far_;
    if (vectors_ && reads_vectors(views)) return *vectors_;
    return dense_ && is_dense(views) ? *dense_ : *elements_;
  }

  // Thread blocks that bring weights into order.
  std::int64_t weight_blocks(const Variant& variant) const {
    const std::int64_t cells = variant.weight_bytes / kVectorBytes;
    return std::min<std::int64_t>((cells + kWeightThreads - 1) / kWeightThreads,
                                  std::int64_t{gpu_.multiprocessors} * 8);
  }

  // How a variant reads the input.
  struct Reading {
    bool vectors = false;
    bool dense = false;
    bool far = false;
  };

  ConvWideWork work_for(const Reading& reading) const {
    ConvWideWork work = work_;
    work.vectors = reading.vectors;
    work.dense = reading.dense;
    work.far = reading.far;
    return work;
  }

  Reading first_reading() const {
    return {.vectors = vectors_ != nullptr, .dense = vectors_ == nullptr && dense_ != nullptr};
  }

  std::string problem_of(const Reading& reading) const {
    return conv_problem("conv_wide", work_.conv, work_.mode,
                        std::string(reading.vectors ? "vectors of channels"
                                    : reading.dense ? "contiguous"
                                                    : "any strides") +
                            (reading.far ? ", far" : "") + ", " + counted(work_.list_numbers, "number") +
                            " a channel");
  }

  // That of the table of tuned divisions; null where it has none that this kernel can have.
  std::unique_ptr<Variant> tuned_variant(const Reading& reading) const {
    if (gpu_.tuned == nullptr || work_.wishes.any()) return nullptr;
    const TunedDivision* tuned = gpu_.tuned->find(gpu_, problem_of(reading));
    if (tuned == nullptr || tuned->division.empty()) return nullptr;
    ConvWideWork work = work_for(reading);
    work.wishes = ConvWishes::parse(tuned->division);
    const bool deepens = tuned->kernel == "conv_deep";
    if (deepens && !conv_deepens(gpu_, work)) return nullptr;
    try {
      auto variant = deepens ? conv_deep_variant(schedule_, cut_, gpu_, work)
                             : conv_wide_variant(schedule_, cut_, gpu_, work);
      variant->chosen = "tuned";
      return variant;
    } catch (const NotSupportedError&) {
      return nullptr;
    }
  }

  std::unique_ptr<Variant> make_variant(const Reading& reading) const {
    auto variant = tuned_variant(reading);
    if (variant == nullptr) {
      ConvWideWork work = work_for(reading);
      if (!deepens_) work.wishes = {};  // what is asked for is the division of other kernels
      variant = deepens_ ? conv_deep_variant(schedule_, cut_, gpu_, work)
                         : conv_wide_variant(schedule_, cut_, gpu_, work);
      variant->chosen = work.wishes.any() ? "asked for" : "by the cost model";
    }
    variant->weights.emplace(source_of(variant->text.weights, schedule_));
    return variant;
  }

  // Whether offsets of positions need more than 32 bits.
  bool is_far(const std::vector<SlotView>& views) const {
    std::int64_t reach = 0;
    for (const Variant* variant : variants()) reach = std::max(reach, variant->reach);
    reach *= views[at(input_)].strides[1];
    for (std::size_t i = 0; i < 3; ++i) reach += (work_.conv.in[i] - 1) * views[at(input_)].strides[2 + i];
    return reach > std::numeric_limits<std::int32_t>::max();
  }

  // Whether offsets of positions in a contiguous sample have 32 bits.
  bool is_near() const {
    const Spatial& in = work_.conv.in;
    return work_.conv.in_channels * in[0] * in[1] * in[2] <= std::numeric_limits<std::int32_t>::max();
  }

  bool is_dense(const std::vector<SlotView>& views) const {
    const SlotView& view = views[at(input_)];
    const Spatial& in = work_.conv.in;
    const std::int64_t pair = in[2] % 2 == 0 ? 2 : 1;  // elements that are read at once
    return view.strides[4] == 1 && view.strides[3] == in[2] && view.strides[1] == in[0] * in[1] * in[2] &&
           view.strides[0] % pair == 0 && view.strides[2] % pair == 0 &&
           reinterpret_cast<std::uintptr_t>(view.data) %
                   static_cast<std::size_t>(pair * work_.element_bytes) ==
               0;
  }

  // Whether the channels of the input can be read in vectors.
  bool reads_vectors(const std::vector<SlotView>& views) const {
    const SlotView& view = views[at(input_)];
    if (reinterpret_cast<std::uintptr_t>(view.data) % kVectorBytes != 0 || view.strides[1] != 1) return false;
    return std::all_of(view.strides.begin(), view.strides.end(), [&](const std::int64_t& stride) {
      return &stride == &view.strides[1] || stride * work_.element_bytes % kVectorBytes == 0;
    });
  }

  const Schedule& schedule_;
  KernelCut cut_;
  Gpu gpu_;
  int input_;  // slot
  ConvWideWork work_;
  bool deepens_ = false;
  std::unique_ptr<Variant> vectors_;
  std::unique_ptr<Variant> dense_;
  std::unique_ptr<Variant> elements_;
  std::unique_ptr<Variant> far_;
  std::map<std::string, std::size_t> places_;
  std::size_t list_bytes_ = 0;
  std::size_t list_ = 0;
  std::size_t weights_ = 0;
};

}  // namespace

std::unique_ptr<KernelLaunch> make_conv_wide_launch(const Schedule& schedule, const KernelCut& cut,
                                                    const Gpu& gpu) {
  return std::make_unique<ConvWideLaunch>(schedule, cut, gpu);
}

}  // namespace fuseblock::cuda
