// A block as sweeps over memory: what is computed in which pass, what is kept in between and where.
//
// A sweep visits every element of its domain once:  source -> program -> sinks.  Between sweeps stand
// finalise steps, which work out statistics (small arrays of doubles), pools, and host calls, which hand a
// convolution to the embedder. Steps run in order; what one leaves behind others find in slots.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "fuseblock/plan.h"
#include "plan/cost.h"
#include "plan/lowered.h"

namespace fuseblock {

enum class SlotKind : std::uint8_t {
  kArgument,   // the caller's input number `number`
  kOutput,     // the caller's output number `number`
  kStored,     // a dense array in the arithmetic's type, in the workspace
  kStatistic,  // a dense array of doubles in the workspace
  kTile,       // nowhere: it is used up inside the tile that makes it
};

// Where a value lives between steps.
struct Slot {
  SlotKind kind = SlotKind::kStored;
  int number = -1;
  int part = -1;
  int component = 0;
  Extents extents = {1, 1, 1, 1, 1};
  bool borrowed =
      false;  // kOutput: a stored value in the output's memory, until the output itself is written
  // kStored: as the embedder wants it, where a host call reads or writes it.
  std::optional<DType> dtype = {};
  Layout layout = Layout::kContiguous;

  double elements() const;
};

enum class SinkKind : std::uint8_t {
  kStore,  // the value itself
  // A statistic over all positions for each sample and channel, or over channels for each position; on the CPU
  // over some positions as well (cpu/position_sinks.h), elsewhere of every element then.
  kStatistic,
  kContract,  // the gradient of a convolution's weight
};

struct Sink {
  SinkKind kind = SinkKind::kStore;
  int step = -1;           // the program's step that is taken
  int part = -1;           // kStatistic, kContract: the part it makes
  std::vector<int> slots;  // kStore: one; kStatistic: one for each component; kContract: one
  int operand = -1;        // kContract: the input that is contracted with, as an index into Sweep::staged
};

// The input of a convolution, row by row while it is staged: a program over slots (a plain load where it has
// one step).
struct Prologue {
  std::vector<Formula::Step> steps;
  std::vector<int> inputs;  // slots
  int part = -1;
};

// What follows a reduction over channels inside the same tile: a program on its results, and where they go.
struct Epilogue {
  std::vector<int> inputs;  // slots; those of the sweep's own reductions among them
  std::vector<Formula::Step> steps;
  std::vector<Sink> sinks;  // stores only
};

struct Sweep {
  Extents domain = {1, 1, 1, 1, 1};
  int level = 0;
  // The convolution that yields the elements, a part; -1 where they are loaded.
  int source = -1;
  // Inputs of the program in order: a slot, or -1 for the source's element.
  std::vector<int> inputs;
  std::vector<Formula::Step> steps;
  std::vector<Sink> sinks;
  Epilogue epilogue;
  // Staged inputs: of the source (first, where there is one) and of the contractions.
  std::vector<Prologue> staged;
  // The source's weight and bias, as slots; -1 for none.
  int weight = -1;
  int bias = -1;
};

// Leaves the steps and the inputs of a sweep that its sinks need.
void prune(Sweep& sweep);

enum class StepKind : std::uint8_t { kSweep, kFinalise, kPool, kHostCall };

struct ScheduleStep {
  StepKind kind = StepKind::kSweep;
  Sweep sweep;                // kSweep
  std::vector<int> parts;     // kFinalise: statistics to work out, in order; kPool, kHostCall: the part
  std::vector<int> operands;  // kPool, kHostCall: slots
  int result = -1;            // kPool, kHostCall: slot
};

// Steps `first` to `last` run unit by unit, `channels` channels of one sample at a time: what their sweeps read stays
// in cache in between. See plan/keep.h.
struct Kept {
  int first = 0;
  int last = 0;
  std::int64_t channels = 1;
  double bytes = 0;         // of one unit
  double value_bytes = 0;   // of what one sweep of a unit computes and later ones read, beside that
  std::vector<bool> local;  // by part: a statistic that a unit works out by itself
};

struct Schedule {
  TypedBlock block;
  Graph graph;
  std::vector<Slot> slots;
  std::vector<ScheduleStep> steps;
  std::vector<Decision> decisions;
  std::vector<Kept> kept = {};
  // What crosses the border, saved values included: slots number them.
  std::vector<NamedType> inputs = {};
  std::vector<NamedType> outputs = {};
  // Values saved for backward: the last outputs, or where backward reads them the last inputs.
  std::vector<SavedValue> saved = {};
  bool reads_saved = false;
  // For a GPU's kernels, as the options say.
  KernelChoices choices = {};
  Precision precision = Precision::kStrict;

  // Slots of statistics by part and component; -1 for none.
  int statistic_slot(int part, int component) const;
  int sweep_count() const;
  // Launches: sweeps that are kept together count as one.
  int kernel_count() const;
  // Bytes of large values that are written and read again, `element_bytes` each.
  double stored_bytes(int element_bytes) const;
};

// The sweeps of a block on a device of that description. The options' host is asked what it computes.
Schedule make_schedule(const TypedBlock& block, const DeviceDescription& device, const PlanOptions& options);
Schedule make_schedule(const TypedBlock& block, const DeviceDescription& device,
                       Reuse reuse = Reuse::kByCost);
Schedule make_schedule(const Lowered& lowered, const DeviceDescription& device, Reuse reuse = Reuse::kByCost);

}  // namespace fuseblock
