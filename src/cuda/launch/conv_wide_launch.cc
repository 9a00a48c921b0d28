// A kernel `conv_wide` made ready, with the kernel that brings its weights into order: reading channels in
// vectors where they are neighbours in memory, and for any views where a run brings others.
#include <algorithm>
#include <limits>
#include <map>
#include <optional>

#include "cuda/launch/conv_problem.h"
#include "cuda/launch/conv_wide.h"
#include "cuda/launch/kernel.h"
#include "cuda/tuned.h"

namespace fuseblock::cuda {
namespace {

constexpr std::int64_t kVectorBytes = 16;
constexpr unsigned int kWeightThreads = 256;

std::size_t at(int i) { return static_cast<std::size_t>(i); }

class ConvWideLaunch : public KernelLaunch {
 public:
  ConvWideLaunch(const Schedule& schedule, const KernelCut& cut, const Gpu& gpu)
      : schedule_(schedule), cut_(cut), gpu_(gpu), input_(sweep().staged[0].inputs[0]) {
    const DType dtype = element_type(schedule, input_);
    work_.conv = conv_sum(schedule, sweep().source);
    work_.mode = conv_mode(schedule, dtype);
    work_.element_bytes = static_cast<int>(byte_size(dtype));
    const ConvWideText trial = conv_wide_text(schedule, cut, {});
    work_.values_bytes = trial.values_bytes;
    work_.list_numbers = trial.list_numbers;
    work_.kept_numbers = trial.kept_numbers;
    const Slot& slot = schedule.slots[at(input_)];
    const bool last = slot.kind == SlotKind::kArgument &&
                      schedule.inputs[at(slot.number)].type.layout == Layout::kChannelsLast;
    const std::int64_t channels = work_.conv.in_channels / work_.conv.geometry.groups;
    if (last && channels * work_.element_bytes % kVectorBytes == 0) vectors_ = make_variant(true, false);
    elements_ = make_variant(false, false);
    far_ = make_variant(false, true);
  }

  std::vector<jit::KernelSource> sources() const override {
    return {first_variant().weights->source(), first_variant().kernel->source()};
  }

  std::vector<PlannedKernel> planned() const override {
    const Variant& variant = first_variant();
    const ConvWideTiles tiles = conv_wide_tiles(variant.constants, work_);
    PlannedKernel weights = planned_kernel(schedule_, cut_, variant.text.weights);
    weights.sweeps = weights.finalises = 0;
    weights.blocks = weight_blocks(tiles);
    weights.threads = kWeightThreads;
    weights.division = {"the weights in the order of their use, " + std::to_string(tiles.weight_bytes) +
                        " bytes"};
    PlannedKernel kernel = planned_kernel(schedule_, cut_, variant.text.kernel);
    kernel.blocks = blocks_of(variant);
    kernel.threads = variant.constants.threads;
    kernel.shared_bytes = variant.kernel->dynamic_shared_bytes();
    kernel.numbers = {{"tiles", tiles.all()}};
    kernel.division = {"tiles of " + std::to_string(variant.constants.tile()) + " positions and " +
                       std::to_string(variant.constants.block_channels()) + " channels, " +
                       std::to_string(tiles.all()) + " in all; products in " + conv_mode_name(work_.mode) +
                       "; " + variant.chosen};
    kernel.chosen = variant.chosen;
    return {weights, kernel};
  }

  std::string problem() const override { return problem_of(vectors_ != nullptr, false); }

  std::vector<Division> divisions() const override {
    ConvWideWork work = work_;
    work.vectors = vectors_ != nullptr;
    work.far = false;
    return conv_wide_divisions(gpu_, work);
  }

  void reserve(WorkspaceLayout& counters) override {
    std::size_t list_bytes = 0;
    for (const Variant* variant : variants()) {
      const ConvWideTiles tiles = conv_wide_tiles(variant->constants, work_);
      list_bytes = std::max(list_bytes, static_cast<std::size_t>(blocks_of(*variant) + tiles.spans) *
                                            at(variant->constants.block_channels()) * 4 *
                                            at(variant->text.list_numbers));
    }
    const Variant& first = first_variant();
    const auto samples = static_cast<std::size_t>(sweep().domain[0]);
    places_["finished"] = counters.reserve(first.text.tail ? 4 : 0);
    places_["arrived"] = counters.reserve(first.text.list_numbers == 0 ? 0 : 4 * samples);
    list_bytes_ = list_bytes;
  }

  void reserve_scratch(WorkspaceLayout& workspace) override {
    std::int64_t bytes = 0;
    for (const Variant* variant : variants())
      bytes = std::max(bytes, conv_wide_tiles(variant->constants, work_).weight_bytes);
    weights_ = workspace.reserve(static_cast<std::size_t>(bytes));
    list_ = workspace.reserve(list_bytes_);
  }

  void load(const Gpu& gpu) override {
    first_variant().weights->load(gpu);
    first_variant().kernel->load(gpu);
  }

  void launch(const RunContext& run, std::byte* counters) const override {
    const bool far = is_far(*run.views);
    const Variant& variant = far ? *far_ : vectors_ && reads_vectors(*run.views) ? *vectors_ : *elements_;
    const ConvWideTiles tiles = conv_wide_tiles(variant.constants, work_);
    std::byte* weights = run.workspace + weights_;
    Parameters order(variant.text.weights);
    order.add_tensors(variant.text.weights, *run.views);
    order.add(weights);
    variant.weights->launch(run, {static_cast<unsigned int>(weight_blocks(tiles)), kWeightThreads}, order);
    const std::map<std::string, std::int64_t> numbers = {
        {"items", tiles.all()},       {"tiles", tiles.of_span},     {"strip_tiles", tiles.of_strip},
        {"in_d", work_.conv.in[0]},   {"in_h", work_.conv.in[1]},   {"in_w", work_.conv.in[2]},
        {"out_d", work_.conv.out[0]}, {"out_h", work_.conv.out[1]}, {"out_w", work_.conv.out[2]},
    };
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
        run,
        {static_cast<unsigned int>(blocks_of(variant)), static_cast<unsigned int>(variant.constants.threads)},
        parameters);
  }

 private:
  struct Variant {
    std::string chosen;  // by what, in words
    ConvWideConstants constants;
    ConvWideText text;
    std::optional<LoadedKernel> kernel;
    std::optional<LoadedKernel> weights;
  };

  const Sweep& sweep() const { return schedule_.steps[at(cut_.first)].sweep; }
  const Variant& first_variant() const { return vectors_ ? *vectors_ : *elements_; }
  std::vector<const Variant*> variants() const {
    std::vector<const Variant*> result = {elements_.get(), far_.get()};
    if (vectors_) result.push_back(vectors_.get());
    return result;
  }

  // Thread blocks, all of which run at once.
  std::int64_t blocks_of(const Variant& variant) const {
    return std::min(conv_wide_tiles(variant.constants, work_).all(),
                    std::int64_t{gpu_.multiprocessors} * variant.constants.blocks);
  }

  // Thread blocks that bring weights into order.
  std::int64_t weight_blocks(const ConvWideTiles& tiles) const {
    const std::int64_t cells = tiles.weight_bytes / kVectorBytes;
    return std::min<std::int64_t>((cells + kWeightThreads - 1) / kWeightThreads,
                                  std::int64_t{gpu_.multiprocessors} * 8);
  }

  std::string problem_of(bool vectors, bool far) const {
    return conv_problem("conv_wide", work_.conv, work_.mode,
                        std::string(vectors ? "vectors of channels" : "any strides") + (far ? ", far" : "") +
                            ", " + counted(work_.list_numbers, "number") + " a channel");
  }

  // That of the table of tuned divisions; none where it has none that this kernel can have.
  std::optional<ConvWideConstants> tuned_constants() const {
    if (gpu_.tuned == nullptr) return std::nullopt;
    const TunedDivision* tuned = gpu_.tuned->find(gpu_, problem_of(work_.vectors, work_.far));
    if (tuned == nullptr || tuned->division.empty()) return std::nullopt;
    ConvWideWork work = work_;
    work.wishes = ConvWishes::parse(tuned->division);
    try {
      return divide_conv_wide(gpu_, work);
    } catch (const NotSupportedError&) {
      return std::nullopt;
    }
  }

  std::unique_ptr<Variant> make_variant(bool vectors, bool far) {
    work_.vectors = vectors;
    work_.far = far;
    auto variant = std::make_unique<Variant>();
    const std::optional<ConvWideConstants> tuned = tuned_constants();
    variant->chosen = tuned ? "tuned" : "by the cost model";
    variant->constants = tuned ? *tuned : divide_conv_wide(gpu_, work_);
    variant->text = conv_wide_text(schedule_, cut_, variant->constants);
    variant->kernel.emplace(source_of(variant->text.kernel, schedule_),
                            conv_wide_bytes(variant->constants, work_));
    variant->weights.emplace(source_of(variant->text.weights, schedule_));
    return variant;
  }

  // Whether offsets of positions need more than 32 bits.
  bool is_far(const std::vector<SlotView>& views) const {
    std::int64_t reach = 0;
    for (std::size_t i = 0; i < 3; ++i) reach += (work_.conv.in[i] - 1) * views[at(input_)].strides[2 + i];
    return reach > std::numeric_limits<std::int32_t>::max();
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
  std::unique_ptr<Variant> vectors_;
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
