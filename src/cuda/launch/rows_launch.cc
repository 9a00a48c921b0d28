// A kernel `rows` made ready: with a ring where tensors are dense, and for any views where a run brings others.
#include <algorithm>
#include <array>
#include <cstdlib>
#include <map>
#include <optional>

#include "cuda/launch/kernel.h"
#include "cuda/launch/rows.h"

namespace fuseblock::cuda {
namespace {

std::size_t at(int i) { return static_cast<std::size_t>(i); }

// Steps of a program whose values need more registers than two vectors at once leave.
constexpr std::size_t kLongProgram = 24;

// Of small units, each a block's alone, four of which share a multiprocessor: other numbers of threads than 128, where a unit's
// chunks divide among so many warps with fewer idle ones, at a cost that is less by more than a model's error.
// bf16[64,256,56,56], 49 chunks, took 63.3 us with 224 threads, 65.1 with 160 and 68.0 with 128 on an H200.
constexpr int kSmallBlocks = 4;
constexpr std::array<int, 3> kOtherThreads = {160, 192, 224};
constexpr double kOtherCost = 0.96;

// Without barriers: bytes of a multiprocessor that are on their way at the start of a launch, and the least number of copies.
// Memory is busy with so many; of more, some multiprocessors have their first unit late, and with it their team: bf16[1,512,256,256]
// took 42.9 us, and 44.4 with the whole ring, on an H200 (docs/norms-measured.md).
constexpr int kBegunBytes = 65536;
constexpr int kLeastBegun = 2;

// Of a block, with the taker of kernels without barriers.
int threads_of(const RowsConstants& constants) { return constants.threads + (constants.ahead > 0 ? 32 : 0); }

constexpr int kLargestBlock = 1024;

// Of a multiprocessor, with barriers. In place of them kRowsBesideTaker are for a team of all multiprocessors.
constexpr int kMostThreads = 512;

class RowsLaunch : public KernelLaunch {
 public:
  RowsLaunch(const Schedule& schedule, const KernelCut& cut, const Gpu& gpu)
      : schedule_(schedule), cut_(cut), gpu_(gpu), domain_(first_sweep().domain) {
    const char* fixed = std::getenv("FUSEBLOCK_ROWS");
    choice_ = RowsChoice::parse(fixed == nullptr ? "" : fixed);
    find_dense();
    const bool wide = arithmetic_type(schedule.inputs) == DType::kF64;
    strided_ = make_variant({.threads = 256, .blocks = wide ? 2 : 4, .vector = 1, .ring = 0});
    std::int64_t smallest = 8;
    for (const Border& border : dense_) smallest = std::min(smallest, byte_size(border.dtype));
    const int vector = dense_.empty() || !by_type_dense_ ? 0 : rows_vector(cut, domain_, smallest);
    if (vector == 0) return;
    vector_ = static_cast<std::size_t>(vector);
    // Larger steps cost less of everything that is done once a step, but more registers where channels end inside of
    // them; where sweeps follow each other, a ring of more and smaller ones keeps them closer together.
    const bool whole = domain_[2] * domain_[3] * domain_[4] % (std::int64_t{64} * vector) == 0;
    const bool large = is_large();
    const int pieces = wide ? 1 : (whole || !large ? 2 : 1) * (sweeps().count == 1 ? 2 : 1);
    // Of a multiprocessor: fewer have more registers each. Code for GPUs without clusters takes a few more.
    const int threads = wide ? 256 : large && (!whole || !gpu.architecture->clusters) ? 384 : kMostThreads;
    for (const int blocks : {1, 2, 4}) {
      if (choice_.blocks.value_or(blocks) != blocks) continue;
      try_division({.threads = threads / blocks, .blocks = blocks, .vector = vector, .pieces = pieces});
      if (!wide && !large && sweeps().count == 2)
        try_division({.threads = threads / blocks, .blocks = blocks, .vector = vector, .pieces = kRowsLong});
    }
    if (!wide && !large && sweeps().count == 2 && domain_[2] * domain_[3] * domain_[4] % vector == 0)
      try_other_threads();
  }

  std::vector<jit::KernelSource> sources() const override { return {first_variant().kernel->source()}; }

  std::vector<PlannedKernel> planned() const override {
    const Variant& variant = first_variant();
    const RowsDivision& division = variant.division;
    PlannedKernel kernel = planned_kernel(schedule_, cut_, variant.text.kernel);
    kernel.blocks = std::int64_t{division.team} * division.teams;
    kernel.threads = threads_of(variant.constants);
    kernel.shared_bytes = variant.shared_bytes;
    kernel.numbers = {{"unit_channels", cut_.unit_channels},
                      {"units", division.units},
                      {"team", division.team},
                      {"teams", division.teams},
                      {"steps", division.steps},
                      {"kept_steps", division.steps - division.again}};
    kernel.division = {"units of " + std::to_string(cut_.unit_channels) + " channels of a sample, " +
                       std::to_string(division.units) + " in all; teams of " + std::to_string(division.team) +
                       " blocks" + (division.cluster ? ", clusters, " : ", ") +
                       std::to_string(division.teams) + " of them at work"};
    if (kernel.sweeps < 2) return {kernel};
    if (variant.constants.ahead > 0) {
      kernel.numbers.emplace_back("ahead", variant.constants.ahead);
      kernel.division.push_back("no barriers: the first sweep over a unit is " +
                                std::to_string(variant.constants.ahead) + " before the last");
    }
    const int kept = division.steps - division.again;
    kernel.residency = kept > 0 ? "shared" : "memory";
    const bool held = variant.constants.held > 0;
    if (!held) kernel.again_bytes = bytes_read_again(schedule_, cut_) * division.again / division.steps;
    kernel.division.push_back("of " + std::to_string(division.steps) + " steps of a warp " +
                              std::to_string(kept) + " stay in shared memory for later sweeps" +
                              (held                 ? ", the others in registers"
                               : division.again > 0 ? ", the others are read again, from L2"
                                                    : ""));
    return {kernel};
  }

  void reserve(WorkspaceLayout& counters) override {
    bool tail = false;
    for (Variant* variant : {strided_.get(), dense_variant_.get()}) {
      if (variant == nullptr) continue;
      const RowsDivision& division = variant->division;
      if (variant->text.tail) tail = true;
      list_offsets_.resize(variant->text.list_numbers.size());
      list_bytes_.resize(variant->text.list_numbers.size());
      if (division.team == 1 || division.cluster) continue;
      for (std::size_t i = 0; i < list_bytes_.size(); ++i) {
        // Lists in turn.
        const std::size_t lists = 2 * at(std::max(variant->constants.ahead, 1)) * at(division.teams);
        const std::size_t bytes = variant->constants.ahead > 0
                                      ? at(division.team) * tagged_bytes(variant->text, i)
                                      : (static_cast<std::size_t>(cut_.unit_channels) + at(division.team)) *
                                            list_word_bytes(variant->text, i);
        list_bytes_[i] = std::max(list_bytes_[i], lists * bytes);
      }
    }
    finished_ = counters.reserve(tail ? 4 : 0);
    for (std::size_t i = 0; i < list_bytes_.size(); ++i) list_offsets_[i] = counters.reserve(list_bytes_[i]);
    for (Variant* variant : {strided_.get(), dense_variant_.get()})
      if (variant != nullptr) set_scalars(*variant);
  }

  bool needs_zeros(const std::vector<SlotView>& views, bool replayed) const override {
    const Variant& variant = variant_for(views);
    const bool tagged = variant.constants.ahead > 0;
    return variant.text.tail ||
           (variant.division.team > 1 && !variant.division.cluster && (replayed || !tagged));
  }

  void load(const Gpu& gpu) override { first_variant().kernel->load(gpu); }

  LaunchDescription describe(const KernelLaunch* like) const override {
    const auto* other = dynamic_cast<const RowsLaunch*>(like);
    const RowsConstants constants = (other != nullptr ? *other : *this).described_constants();
    const RowsText text = rows_text(schedule_, cut_, constants);
    auto number = [](std::int64_t value) { return std::to_string(value); };
    const std::int64_t chunk = std::int64_t{32} * constants.vector * constants.pieces;
    const int warps = constants.threads / 32;
    const std::string blocks = "multiprocessors * " + number(constants.blocks);
    const std::string elements = number(cut_.unit_channels) + " * d * h * w";
    LaunchDescription result = {.source = source_of(text.kernel, schedule_),
                                .tensors = text.kernel.tensors,
                                .domain = domain_,
                                .blocks = "team * teams",
                                .threads = static_cast<unsigned int>(constants.threads),
                                .shared_bytes = dynamic_bytes(text, constants),
                                .cooperative = constants.cluster > 1 ? "False" : "team > 1",
                                .cluster = static_cast<unsigned int>(constants.cluster)};
    result.values = {{"units", "n * " + number(domain_[1] / cut_.unit_channels)},
                     {"chunks", "(" + elements + " + " + number(chunk) + " - 1) // " + number(chunk)}};
    const bool single = sweeps().count == 1;
    if (constants.cluster > 1) {
      result.values.push_back({"team", number(constants.cluster)});
      result.values.push_back({"teams", "min(max(" + blocks + " // team, 1), units)"});
      result.values.push_back(
          {"steps", "(chunks + " + number(warps) + " * team - 1) // (" + number(warps) + " * team)"});
    } else {
      // Bytes that all of a multiprocessor's threads read in one step.
      const double bytes =
          constants.pieces * constants.vector * bytes_read_ * constants.threads * constants.blocks;
      result.values.push_back({"team, teams, steps",
                               "divide_rows(units, chunks, " + blocks + ", " + number(warps) + ", " +
                                   number(constants.ring) + ", " + number(static_cast<std::int64_t>(bytes)) +
                                   (single ? ", single=True" : "") +
                                   (constants.again || single ? "" : ", again=False") +
                                   (constants.pieces >= kRowsLong && !single ? ", is_long=True" : "") + ")"});
    }
    const std::string ring = number(constants.ring);
    const std::string again = constants.ring == 0          ? "steps"
                              : single || !constants.again ? "0"
                                                           : "max(steps - " + ring + ", 0)";
    const std::string lead =
        constants.ring == 0 ? "0"
        : single            ? "min(" + number(constants.ring - kRowsDelay) + ", steps)"
                 : "min(" + number(constants.ring - kRowsDelay) + " - min(steps, " + ring + "), steps)";
    const std::map<std::string, std::string> texts = {{"rounds", "units // teams"},
                                                      {"rest", "units % teams"},
                                                      {"positions", "d * h * w"},
                                                      {"height", "h"},
                                                      {"width", "w"},
                                                      {"team", "team"},
                                                      {"steps", "steps"},
                                                      {"again", again},
                                                      {"lead", lead}};
    for (const std::string& name : text.kernel.scalars) {
      const auto found = texts.find(name);
      result.scalars.push_back({name, found != texts.end() ? found->second : std::string()});
    }
    if (text.tail) result.counters.push_back({"finished", "4"});
    if (constants.cluster == 1)
      for (std::size_t i = 0; i < text.list_numbers.size(); ++i)
        if (text.list_numbers[i] > 0)
          result.counters.push_back({"team_list" + std::to_string(i),
                                     "(team > 1) * 2 * teams * (" + number(cut_.unit_channels) +
                                         " + team) * " +
                                         number(static_cast<std::int64_t>(list_word_bytes(text, i)))});
    if (constants.ring > 0 && domain_[2] * domain_[3] * domain_[4] % chunk == 0)
      result.conditions.push_back("d * h * w % " + number(chunk) + " == 0");
    else if (constants.ring > 0 && cut_.unit_channels % constants.vector != 0)
      result.conditions.push_back(elements + " % " + number(constants.vector) + " == 0");
    if (constants.ring > 0 && !single && !constants.again)
      result.conditions.push_back(elements + " <= " + (constants.cluster > 1 ? "" : blocks + " * ") +
                                  number(chunk * warps * constants.ring * constants.cluster));
    result.conditions.push_back(elements + " < 1000000000");
    return result;
  }

  void launch(const RunContext& run, std::byte* counters) const override {
    if (domain_[0] * domain_[1] * domain_[2] * domain_[3] * domain_[4] == 0) return;
    const Variant& variant = variant_for(*run.views);
    const RowsDivision& division = variant.division;
    Parameters parameters(variant.text.kernel);
    parameters.add_tensors(variant.text.kernel, *run.views);
    for (const Scalar& scalar : variant.scalars) parameters.add(scalar, counters);
    variant.kernel->launch(
        run,
        {static_cast<unsigned int>(division.team * division.teams),
         static_cast<unsigned int>(threads_of(variant.constants)), division.team > 1 && !division.cluster,
         static_cast<unsigned int>(variant.constants.cluster)},
        parameters);
  }

 private:
  struct Variant {
    RowsConstants constants;
    RowsText text;
    RowsDivision division;
    int shared_bytes = 0;
    std::vector<Scalar> scalars;  // in the order of the text's
    std::optional<LoadedKernel> kernel;
  };
  // A tensor over the whole domain that the kernel reads or writes.
  struct Border {
    int slot;
    DType dtype;
  };

  const Sweep& first_sweep() const {
    for (int i = cut_.first; i <= cut_.last; ++i)
      if (schedule_.steps[at(i)].kind == StepKind::kSweep) return schedule_.steps[at(i)].sweep;
    throw InternalError("a kernel of sweeps without a sweep");
  }

  std::size_t longest_program() const {
    std::size_t longest = 0;
    for (int i = cut_.first; i <= cut_.last; ++i)
      if (schedule_.steps[at(i)].kind == StepKind::kSweep)
        longest = std::max(longest, schedule_.steps[at(i)].sweep.steps.size());
    return longest;
  }

  // Whether the values of a step need many registers.
  bool is_large() const { return inputs_ > 1 || sweeps().count > 2 || longest_program() > kLongProgram; }

  RowsSweeps sweeps() const {
    RowsSweeps result = {.count = 0};
    for (int i = cut_.first; i <= cut_.last; ++i) {
      const auto& step = schedule_.steps[at(i)];
      if (step.kind != StepKind::kSweep) continue;
      ++result.count;
      result.last_statistics =
          std::any_of(step.sweep.sinks.begin(), step.sweep.sinks.end(),
                      [](const Sink& sink) { return sink.kind == SinkKind::kStatistic; });
    }
    return result;
  }

  const Variant& variant_for(const std::vector<SlotView>& views) const {
    return dense_variant_ && fits(views) ? *dense_variant_ : *strided_;
  }
  const Variant& first_variant() const { return dense_variant_ ? *dense_variant_ : *strided_; }

  // Of files that run with other extents, too: with barriers, which are never far from the best.
  RowsConstants described_constants() const {
    if (with_barriers_) return *with_barriers_;
    if (first_variant().constants.ahead == 0) return first_variant().constants;
    throw NotSupportedError("rows: kernels without barriers (FUSEBLOCK_ROWS) are not exported");
  }

  // Bytes of a sweep's statistics of one channel in a team's list: a word and its tag are eight.
  std::size_t list_word_bytes(const RowsText& text, std::size_t sweep) const {
    return at(text.list_numbers[sweep]) * 8 * (arithmetic_type(schedule_.inputs) == DType::kF64 ? 2 : 1);
  }

  // The same without barriers: two words and their tag are sixteen (device/tagged.cuh).
  std::size_t tagged_bytes(const RowsText& text, std::size_t sweep) const {
    return (list_word_bytes(text, sweep) / 8 + 1) / 2 * 16;
  }

  static int dynamic_bytes(const RowsText& text, const RowsConstants& constants) {
    return text.shared_bytes + constants.ring * text.ring_vector_bytes * constants.threads;
  }

  // What the text's scalars stand for, once the places of the counters are known.
  void set_scalars(Variant& variant) const {
    const RowsDivision& division = variant.division;
    std::map<std::string, std::size_t> places = {{"finished", finished_}};
    for (std::size_t i = 0; i < list_offsets_.size(); ++i)
      places["team_list" + std::to_string(i)] = list_offsets_[i];
    std::map<std::string, Scalar> known = in_counters(places);
    known.insert({{"rounds", Scalar::number(division.units / division.teams)},
                  {"rest", Scalar::number(division.units % division.teams)},
                  {"positions", Scalar::number(domain_[2] * domain_[3] * domain_[4])},
                  {"height", Scalar::number(domain_[3])},
                  {"width", Scalar::number(domain_[4])},
                  {"team", Scalar::number(division.team)},
                  {"steps", Scalar::number(division.steps)},
                  {"again", Scalar::number(division.again)},
                  {"lead", Scalar::number(division.lead)},
                  // One of each round.
                  {"tag", Scalar::tags(division.units / division.teams + 1)}});
    variant.scalars = scalars_of(variant.text.kernel, known);
  }

  // With barriers and without; the cheapest division stays.
  void try_division(RowsConstants constants) {
    constants.threads = choice_.threads.value_or(constants.threads);
    constants.pieces = choice_.pieces.value_or(constants.pieces);
    constants.ring = 1;
    const bool without_barriers = rows_text(schedule_, cut_, constants).without_barriers;
    const int most = without_barriers ? kRowsMostAhead : 0;
    for (int ahead = 0; ahead <= most; ++ahead) {
      if (without_barriers && choice_.ahead.value_or(ahead) != ahead) continue;
      constants.ahead = ahead;
      if (threads_of(constants) > kLargestBlock) continue;
      constants.apart = choice_.apart ? *choice_.apart != 0 : ahead == 1;
      constants.barriers = ahead > 0 && choice_.barriers.value_or(0) > 0;
      constants.begun = ahead == 0 ? 0 : choice_.begun.value_or(begun_copies(constants));
      try_ring(constants);
      if (ahead != 1 || constants.blocks > 1 || constants.threads != kMostThreads || choice_.threads)
        continue;
      RowsConstants fewer = constants;
      fewer.threads = kRowsBesideTaker;
      try_ring(fewer);
    }
  }

  // Of a thread, at the start of a launch.
  int begun_copies(const RowsConstants& constants) const {
    const int step = constants.pieces * constants.vector * bytes_read_ * constants.threads * constants.blocks;
    // Where nothing over the whole domain is read, there is no ring.
    return step == 0 ? kLeastBegun : std::max(kLeastBegun, (kBegunBytes + step - 1) / step);
  }

  // The share of a block's steps in which a warp has a chunk, where the block has a unit by itself.
  double used_steps(const RowsConstants& constants) const {
    const std::int64_t chunk = std::int64_t{32} * constants.vector * constants.pieces;
    const std::int64_t chunks =
        (cut_.unit_channels * domain_[2] * domain_[3] * domain_[4] + chunk - 1) / chunk;
    const std::int64_t warps = constants.threads / 32;
    const std::int64_t steps = (chunks + warps - 1) / warps;
    return static_cast<double>(chunks) / static_cast<double>(steps * warps);
  }

  // Files that run with other extents, too, have the usual number.
  void try_other_threads() {
    if (!dense_variant_ || choice_.threads || dense_variant_->constants.blocks != kSmallBlocks ||
        dense_variant_->constants.ahead > 0 || dense_variant_->division.team > 1)
      return;
    const RowsConstants usual = dense_variant_->constants;
    double least = kOtherCost * dense_variant_->division.cost;
    for (const int threads : kOtherThreads) {
      RowsConstants constants = usual;
      constants.threads = threads;
      if (used_steps(usual) >= kOtherCost * used_steps(constants)) continue;
      auto variant = with_ring(constants);
      if (!variant || variant->division.team > 1 || variant->division.cost >= least) continue;
      least = variant->division.cost;
      dense_variant_ = std::move(variant);
    }
  }

  void try_ring(const RowsConstants& constants) {
    auto variant = with_ring(constants);
    if (!variant) return;
    if (constants.ahead == 0 && (!with_barriers_ || variant->division.cost < with_barriers_cost_)) {
      with_barriers_ = variant->constants;
      with_barriers_cost_ = variant->division.cost;
    }
    if (dense_variant_ == nullptr || variant->division.cost < dense_variant_->division.cost)
      dense_variant_ = std::move(variant);
  }

  // With as deep a ring as fits; none where nothing fits, or no division may be without barriers.
  std::unique_ptr<Variant> with_ring(RowsConstants constants) const {
    constants.ring = 1;
    const RowsText trial = rows_text(schedule_, cut_, constants);
    constants.ring = rows_ring(gpu_, constants, std::max(trial.ring_vector_bytes, 1), trial.shared_bytes);
    constants.ring = std::min(constants.ring, choice_.ring.value_or(constants.ring));
    if (constants.ring <= 1 || trial.ring_inputs == 0) return nullptr;
    if (constants.ahead > 0 && constants.ring < constants.ahead + kRowsDelay) return nullptr;
    auto variant = make_variant(constants);
    if (variant->division.steps == 0) return nullptr;
    return variant;
  }

  std::unique_ptr<Variant> make_variant(const RowsConstants& constants) const {
    auto variant = std::make_unique<Variant>();
    variant->constants = constants;
    RowsSweeps with = sweeps();
    with.bytes = constants.pieces * constants.vector * bytes_read_;
    with.small = with.count == 2 && !with.last_statistics && !is_large();
    RowsChoice choice = constants.ring > 0 ? choice_ : RowsChoice{};
    if (!choice.team) choice.team = schedule_.choices.team;
    if (choice.team.value_or(0) == 0 && constants.threads == kRowsBesideTaker && !choice.threads)
      choice.team = gpu_.multiprocessors;
    variant->division = divide_rows(gpu_, cut_, domain_, constants, with, choice);
    variant->constants.cluster = variant->division.cluster ? variant->division.team : 1;
    variant->constants.again = constants.ahead == 0 && variant->division.again > 0;
    variant->constants.held = constants.ahead > 0 ? variant->division.again : 0;
    variant->text = rows_text(schedule_, cut_, variant->constants);
    variant->shared_bytes = dynamic_bytes(variant->text, constants);
    variant->kernel.emplace(source_of(variant->text.kernel, schedule_), variant->shared_bytes);
    return variant;
  }

  // The tensors that must be dense, and whether their types say that they are.
  void find_dense() {
    auto add = [&](int slot, bool read) {
      const Slot& which = schedule_.slots[at(slot)];
      const bool known =
          std::any_of(dense_.begin(), dense_.end(), [&](const Border& b) { return b.slot == slot; });
      if (which.kind == SlotKind::kStatistic || which.extents != domain_ || known) return;
      const TensorType* type = which.kind == SlotKind::kArgument ? &schedule_.inputs[at(which.number)].type
                               : which.kind == SlotKind::kOutput ? &schedule_.outputs[at(which.number)].type
                                                                 : nullptr;
      if (type != nullptr && type->layout != Layout::kContiguous) by_type_dense_ = false;
      dense_.push_back(
          {slot, type != nullptr ? type->dtype : which.dtype.value_or(arithmetic_type(schedule_.inputs))});
      if (!read) return;
      ++inputs_;
      bytes_read_ += static_cast<int>(byte_size(dense_.back().dtype));
    };
    for (int i = cut_.first; i <= cut_.last; ++i) {
      const Sweep& sweep = schedule_.steps[at(i)].sweep;
      for (int slot : sweep.inputs) add(slot, true);
      for (const Sink& sink : sweep.sinks)
        if (sink.kind == SinkKind::kStore) add(sink.slots[0], false);
    }
  }

  // Whether this run's tensors are dense and aligned to their vectors.
  bool fits(const std::vector<SlotView>& views) const {
    const Extents strides = dense_strides(domain_);
    return std::all_of(dense_.begin(), dense_.end(), [&](const Border& border) {
      const SlotView& view = views[at(border.slot)];
      const std::size_t bytes =
          std::min<std::size_t>(16, vector_ * static_cast<std::size_t>(byte_size(border.dtype)));
      return view.strides == strides && reinterpret_cast<std::uintptr_t>(view.data) % bytes == 0;
    });
  }

  const Schedule& schedule_;
  KernelCut cut_;
  Gpu gpu_;
  Extents domain_;
  RowsChoice choice_;
  std::vector<Border> dense_;
  bool by_type_dense_ = true;
  int inputs_ = 0;          // of these, those that are read
  int bytes_read_ = 0;      // their elements', together
  std::size_t vector_ = 1;  // elements that a thread moves at once
  std::unique_ptr<Variant> strided_;
  std::unique_ptr<Variant> dense_variant_;
  std::optional<RowsConstants> with_barriers_;  // of the cheapest division that has them
  double with_barriers_cost_ = 0;
  std::size_t finished_ = 0;
  std::vector<std::size_t> list_bytes_;
  std::vector<std::size_t> list_offsets_;
};

}  // namespace

std::unique_ptr<KernelLaunch> make_rows_launch(const Schedule& schedule, const KernelCut& cut,
                                               const Gpu& gpu) {
  return std::make_unique<RowsLaunch>(schedule, cut, gpu);
}

}  // namespace fuseblock::cuda
