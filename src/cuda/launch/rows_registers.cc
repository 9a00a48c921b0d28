// A kernel `rows_registers` made ready: units of `rows` that fit into the registers of a block or a cluster, and `rows` for views that are
// not dense.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <optional>

#include "cuda/emit/rows_registers_text.h"
#include "cuda/launch/kernel.h"
#include "cuda/launch/registers.h"
#include "cuda/launch/rows.h"

namespace fuseblock::cuda {
namespace {

constexpr int kVectorBytes = 16;
constexpr int kWarpThreads = 32;
constexpr int kLeastThreads = 32;
constexpr int kMostThreads = 1024;
constexpr std::array<int, 4> kClusters = {1, 2, 4, 8};
constexpr std::array<int, 4> kBlocks = {1, 2, 4, 8};
// Vectors of a thread; with more the code is long, whose reading takes as long as it spares.
constexpr int kMostPieces = 24;
// Of a thread, beside its vectors: a program's elements, addresses, channels' values.
constexpr int kOtherRegisters = 32;
// The share of a division's places for vectors that may be empty.
constexpr double kMostEmpty = 0.12;
// Of a unit: its channels' values are in shared memory.
constexpr std::int64_t kMostChannels = 512;
constexpr std::int64_t kMostUnits = std::int64_t{1} << 27;
// Vectors of a unit: smaller ones were not measured.
constexpr std::int64_t kLeastVectors = 320;
// Where units wait for others, a multiprocessor has several blocks, so that some read while others work; larger clusters took longer.
constexpr int kLeastWaitingBlocks = 2;
constexpr int kMostWaitingCluster = 2;
// Larger ones where nearly all units are at work at once.
constexpr double kNearlyAll = 1.1;

// Figures of the cost model, seconds on an H200, fitted to the times of 301 divisions of 29 shapes in bf16 and f32
// (benchmarks/gpu/sweep_rows.py --registers), of which what it chooses is 3 % behind the best on average and 13 % at most: of a launch
// with its statistics; of each byte of a multiprocessor's vectors, more where some threads have fewer; of each thread of a multiprocessor;
// of each vector of a thread, whose code is read; of each cluster that a multiprocessor has a block of; where units wait for others, of the
// bytes for each block of a multiprocessor; the share of the time that memory takes for all bytes.
constexpr double kLaunch = 4.3e-6;
constexpr double kByte = 14.1e-12;
constexpr double kRaggedByte = 2.6e-12;
constexpr double kThread = 1.83e-9;
constexpr double kPiece = 0.164e-6;
constexpr double kInCluster = 0.113e-6;
constexpr double kWaitingByte = 23e-12;
constexpr double kMemory = 0.64;
constexpr double kDefaultBandwidth = 2e12;

std::size_t at(int i) { return static_cast<std::size_t>(i); }
std::int64_t quotient_up(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

class RowsRegistersLaunch : public KernelLaunch {
 public:
  RowsRegistersLaunch(const Schedule& schedule, const KernelCut& cut, const RowsRegistersConstants& constants,
                      std::unique_ptr<KernelLaunch> rows)
      : schedule_(schedule),
        cut_(cut),
        constants_(constants),
        text_(rows_registers_text(schedule, cut, constants)),
        kernel_(source_of(text_, schedule)),
        rows_(std::move(rows)) {
    const Extents& domain = schedule.steps[at(cut.first)].sweep.domain;
    units_ = domain[0] * (domain[1] / cut.unit_channels);
  }

  std::vector<jit::KernelSource> sources() const override { return {kernel_.source()}; }

  std::vector<PlannedKernel> planned() const override {
    PlannedKernel kernel = planned_kernel(schedule_, cut_, text_);
    kernel.blocks = units_ * constants_.cluster;
    kernel.threads = constants_.threads;
    kernel.numbers = {
        {"unit_channels", cut_.unit_channels}, {"units", units_},
        {"cluster", constants_.cluster},       {"blocks_of_a_multiprocessor", constants_.blocks},
        {"vector", constants_.vector},         {"pieces", constants_.pieces}};
    kernel.residency = "registers";
    kernel.division = {
        "units of " + counted(cut_.unit_channels, "channel") + " of a sample, " + std::to_string(units_) +
            " in all, each by a " +
            (constants_.cluster == 1 ? "block" : "cluster of " + counted(constants_.cluster, "block")),
        counted(constants_.pieces, "vector") +
            (constants_.pieces == 1 ? " of a thread stays" : " of a thread stay") +
            " in its registers for the last sweep"};
    return {kernel};
  }

  void reserve(WorkspaceLayout& counters) override { rows_->reserve(counters); }
  bool needs_zeros(const std::vector<SlotView>& views, bool replayed) const override {
    return !has_dense_vectors(schedule_, text_, views) && rows_->needs_zeros(views, replayed);
  }
  void reserve_scratch(WorkspaceLayout& layout) override { rows_->reserve_scratch(layout); }
  void load(const Gpu& gpu) override { kernel_.load(gpu); }
  // Files run with other extents, too.
  const KernelLaunch& described() const override { return *rows_; }

  void launch(const RunContext& run, std::byte* counters) const override {
    if (units_ == 0) return;
    if (!has_dense_vectors(schedule_, text_, *run.views)) return rows_->launch(run, counters);
    Parameters parameters(text_);
    parameters.add_tensors(text_, *run.views);
    kernel_.launch(
        run,
        {static_cast<unsigned int>(units_ * constants_.cluster),
         static_cast<unsigned int>(constants_.threads), false, static_cast<unsigned int>(constants_.cluster)},
        parameters);
  }

 private:
  const Schedule& schedule_;
  KernelCut cut_;
  RowsRegistersConstants constants_;
  EmittedKernel text_;
  LoadedKernel kernel_;
  std::unique_ptr<KernelLaunch> rows_;
  std::int64_t units_ = 0;
};

// What decides the division.
struct Work {
  std::int64_t units = 0;
  std::int64_t vectors = 0;  // of a unit
  int vector = 1;            // elements
  int bytes = 2;             // of an element that is read
};

// None where vectors are not each of one channel.
std::optional<Work> work_of(const Schedule& schedule, const KernelCut& cut) {
  Work work;
  int smallest = 8;
  Extents domain = {1, 1, 1, 1, 1};
  for (int i = cut.first; i <= cut.last; ++i) {
    const ScheduleStep& step = schedule.steps[at(i)];
    if (step.kind != StepKind::kSweep) continue;
    domain = step.sweep.domain;
    std::vector<int> slots = step.sweep.inputs;
    for (const Sink& sink : step.sweep.sinks)
      if (sink.kind == SinkKind::kStore) slots.push_back(sink.slots[0]);
    for (int number : slots) {
      const Slot& slot = schedule.slots[at(number)];
      if (slot.kind == SlotKind::kStatistic || slot.extents != domain) continue;
      if (layout_of(schedule, slot) != Layout::kContiguous) return std::nullopt;
      DType dtype = slot.dtype.value_or(arithmetic_type(schedule.inputs));
      if (slot.kind == SlotKind::kArgument) dtype = schedule.inputs[at(slot.number)].type.dtype;
      if (slot.kind == SlotKind::kOutput) dtype = schedule.outputs[at(slot.number)].type.dtype;
      const int bytes = static_cast<int>(byte_size(dtype));
      if (&step == &schedule.steps[at(cut.first)]) work.bytes = bytes;
      smallest = std::min(smallest, bytes);
    }
  }
  const std::int64_t positions = domain[2] * domain[3] * domain[4];
  work.vector = kVectorBytes / smallest;
  if (positions == 0 || positions % work.vector != 0 || cut.unit_channels > kMostChannels)
    return std::nullopt;
  work.units = domain[0] * (domain[1] / cut.unit_channels);
  work.vectors = cut.unit_channels * positions / work.vector;
  if (work.units == 0 || work.units > kMostUnits) return std::nullopt;
  return work;
}

int registers_wanted(const Work& work, int pieces) {
  return pieces * work.vector * work.bytes / kRegisterBytes + kOtherRegisters;
}

// By the cost model; none where it was not measured, unless it is asked for.
std::optional<double> seconds_of(const Gpu& gpu, const Work& work, const RowsRegistersConstants& constants,
                                 bool asked) {
  const int at_once = clusters_at_once(constants.cluster, constants.blocks);
  const bool waiting = work.units > at_once;
  if (waiting && !asked) {
    // As many blocks as registers allow.
    const bool most =
        registers_wanted(work, constants.pieces) > registers_of(constants.threads, 2 * constants.blocks);
    const bool nearly_all = static_cast<double>(work.units) <= kNearlyAll * at_once;
    if (constants.blocks < kLeastWaitingBlocks || !most ||
        (constants.cluster > kMostWaitingCluster && !nearly_all))
      return std::nullopt;
  }
  const double layers = static_cast<double>(work.units) / clusters_at_once(constants.cluster, 1);
  const double of_multiprocessor = waiting ? layers : std::ceil(layers);
  const double blocks = waiting ? constants.blocks : of_multiprocessor;
  const double bytes = of_multiprocessor * constants.threads * constants.pieces * kVectorBytes;
  const std::int64_t places = std::int64_t{constants.cluster} * constants.threads * constants.pieces;
  const double bandwidth = gpu.memory_bandwidth > 0 ? gpu.memory_bandwidth : kDefaultBandwidth;
  const double moved = 2.0 * static_cast<double>(work.units * work.vectors * kVectorBytes);
  return kLaunch + bytes * (kByte + (places > work.vectors ? kRaggedByte : 0)) +
         blocks * constants.threads * kThread + constants.pieces * kPiece +
         (constants.cluster > 1 ? layers * kInCluster : 0) + (waiting ? bytes / blocks * kWaitingByte : 0) +
         kMemory * moved / bandwidth;
}

std::optional<RowsRegistersConstants> divide(const Gpu& gpu, const Work& work, const RowsChoice& choice) {
  std::optional<RowsRegistersConstants> best;
  double least = 0;
  const bool asked = choice.cluster || choice.threads || choice.blocks || choice.registers;
  const auto most_places = static_cast<std::int64_t>(static_cast<double>(work.vectors) * (1 + kMostEmpty));
  for (const int cluster : kClusters)
    for (const int blocks : kBlocks)
      for (int threads = kLeastThreads; threads <= kMostThreads; threads += kWarpThreads) {
        const std::int64_t block = std::int64_t{cluster} * threads;
        const std::int64_t pieces = quotient_up(work.vectors, block);
        if (choice.cluster.value_or(cluster) != cluster || choice.blocks.value_or(blocks) != blocks ||
            choice.threads.value_or(threads) != threads ||
            choice.registers.value_or(static_cast<int>(pieces)) != pieces)
          continue;
        if (!asked && (pieces > kMostPieces || pieces * block > most_places)) continue;
        const RowsRegistersConstants constants = {
            .threads = threads,
            .blocks = blocks,
            .cluster = cluster,
            .vector = work.vector,
            .pieces = static_cast<int>(std::min<std::int64_t>(pieces, kMostThreads))};
        if (registers_wanted(work, constants.pieces) > registers_of(threads, blocks)) continue;
        const std::optional<double> seconds = seconds_of(gpu, work, constants, asked);
        if (!seconds || (best && *seconds >= least)) continue;
        best = constants;
        least = *seconds;
      }
  return best;
}

// Whether plans have the kernel by themselves: on the GPUs and for the programs and units that it was measured for.
bool is_measured(const Schedule& schedule, const KernelCut& cut, const Gpu& gpu, const Work& work) {
  if (!has_measured_clusters(gpu) || work.vectors < kLeastVectors) return false;
  for (int i = cut.first; i <= cut.last; ++i)
    if (schedule.steps[at(i)].kind == StepKind::kSweep && !leaves_registers(schedule.steps[at(i)].sweep))
      return false;
  return true;
}

}  // namespace

std::unique_ptr<KernelLaunch> make_rows_registers_launch(const Schedule& schedule, const KernelCut& cut,
                                                         const Gpu& gpu) {
  const char* fixed = std::getenv("FUSEBLOCK_ROWS");
  const RowsChoice choice = RowsChoice::parse(fixed == nullptr ? "" : fixed);
  if (!choice.may_have_registers() || schedule.choices.team > 0 ||
      schedule.choices.plain == PlainKernels::kAlways || !gpu.architecture->clusters)
    return nullptr;
  const std::optional<Work> work = work_of(schedule, cut);
  if (!work || !is_for_rows_registers(schedule, cut)) return nullptr;
  const bool asked = choice.cluster || choice.registers;
  if (!asked && !is_measured(schedule, cut, gpu, *work)) return nullptr;
  const std::optional<RowsRegistersConstants> constants = divide(gpu, *work, choice);
  if (!constants) return nullptr;
  return std::make_unique<RowsRegistersLaunch>(schedule, cut, *constants,
                                               make_rows_launch(schedule, cut, gpu));
}

}  // namespace fuseblock::cuda
