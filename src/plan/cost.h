// The cost model: bytes over bandwidth and operations over rates, by a device's description. docs/devices.md has the
// formulas.
#pragma once

#include <string>
#include <vector>

#include "fuseblock/device.h"
#include "fuseblock/plan.h"

namespace fuseblock {

class CostModel {
 public:
  // The block's arguments tell the type of the arithmetic.
  CostModel(const DeviceDescription& device, const TypedBlock& block);

  const DeviceDescription& device() const { return device_; }
  // Of a value in the workspace: it has the arithmetic's type.
  int element_bytes() const { return element_bytes_; }
  // Operations a second of convolution kernels.
  double convolution_rate() const { return convolution_rate_; }
  // Whether a value of that size is still in the last-level cache when the next sweep reads it: it takes half of it at
  // most.
  bool fits_cache(double bytes) const { return bytes <= device_.cache_bytes / 2; }
  // At which a value of that size is written and read again.
  double bandwidth(double bytes) const {
    return fits_cache(bytes) ? device_.cache_bandwidth : device_.memory_bandwidth;
  }

  // Seconds that a run spends on the first touch of that much of the workspace. Programs keep a workspace over many
  // runs, so that a run pays a tenth of it.
  double touch_seconds(double bytes) const { return bytes * device_.first_touch / 10; }

  // Seconds of the program's operations, `special` of them exp, tanh and the like.
  double program_seconds(double operations, double special) const;

 private:
  const DeviceDescription& device_;
  int element_bytes_ = 4;
  double convolution_rate_ = 1;
  double program_share_ = 1;  // of the device's program and special rates
};

// One way to do something, with its estimate.
struct Alternative {
  std::string name;
  double seconds = 0;
  std::string detail;  // what takes the time
};

// A choice that the planner made.
struct Decision {
  std::string value;
  std::vector<Alternative> alternatives = {};
  std::string chosen;  // one of the alternatives' names
  std::string reason;

  void take_smallest();
  void take(std::string alternative, std::string why) {
    chosen = std::move(alternative);
    reason = std::move(why);
  }
};

// A convolution's result that later sweeps need again.
struct ReusedValue {
  std::string name;
  double elements = 0;
  double operations = 0;   // to compute it once
  double input_bytes = 0;  // what computing it reads
  int later_sweeps = 1;
};

// Compares storing with recomputing and takes the smaller estimate, recomputing also where it is not much larger, or what
// is asked for.
Decision decide_reuse(const CostModel& cost, const ReusedValue& value, Reuse wanted);

}  // namespace fuseblock
