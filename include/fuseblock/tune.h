// Tuning: how the launches of plans divide their work, measured on a GPU.
//
//   auto tuned = fuseblock::tune({{"mine", typed, fuseblock::Precision::kTf32}}, fuseblock::Device::by_name("cuda"));
//   fuseblock::write_tuned(tuned, "tuned.json");       // FUSEBLOCK_TUNED=tuned.json: plans take these divisions
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include "fuseblock/device.h"
#include "fuseblock/plan.h"
#include "fuseblock/typed_block.h"

namespace fuseblock {

// A block to tune for.
struct TuneCase {
  std::string name;
  TypedBlock block;
  Precision precision = Precision::kStrict;
};

struct TuneOptions {
  // Divisions of a launch that are timed, by the cost model's order, each of another shape; some more of the best shape
  // follow.
  int divisions = 12;
  int repeat = 9;      // timed runs of each; medians count
  double seconds = 0;  // after so many nothing more is compiled; 0: no limit
  int processes = 0;   // that compile; 0: as many as there are cores
  // Told what is going on; may be null.
  std::function<void(const std::string&)> progress = nullptr;
};

struct TunedLaunch {
  std::string gpu;  // `h200`, or the product's name
  int multiprocessors = 0;
  std::string kernel;    // of the fastest division
  std::string problem;   // what the launch computes, as far as divisions depend on it
  std::string division;  // the fastest one; empty: the cost model's own
  double seconds = 0;    // of that one
  double seconds_by_cost_model = 0;
  int timed = 0;                     // divisions
  std::vector<std::string> refused;  // divisions that the GPU did not run, or whose results differed
};

struct TunedPlan {
  std::string name;
  Precision precision = Precision::kStrict;
  // Of all launches, with the fastest divisions and with the cost model's.
  double seconds = 0;
  double seconds_by_cost_model = 0;
  std::vector<TunedLaunch> launches;  // those that have a choice
};

// Compiles and times divisions of every launch over a convolution, with nothing of the arguments in the GPU's L2, and
// gives the fastest; tables of tuned divisions are left out of it. Throws NotSupportedError where the device is not a GPU of this
// machine, UserError where FUSEBLOCK_CONV is set, and what Plan::make throws.
std::vector<TunedPlan> tune(const std::vector<TuneCase>& cases, const Device& device,
                            const TuneOptions& options = {});

// Writes the divisions to a table (docs/conv-on-gpu.md), beside the entries for other problems that it has. Returns how
// many it has then. Throws UserError where the file is no table or cannot be written.
std::size_t write_tuned(const std::vector<TunedPlan>& plans, const std::string& file);

}  // namespace fuseblock
