// Devices: what runs plans, and what the planner knows of it.
//
//   auto plan = fuseblock::Plan::make(block, "f32[128,8,128,128]", {}, fuseblock::Device::by_name("h200"));
//   plan.explain();                       // a device that is not there can be planned for
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "fuseblock/error.h"

namespace fuseblock {

// Where the figures of a description come from.
enum class DescriptionOrigin : std::uint8_t {
  kNone,       // there are none
  kTable,      // a table of devices, from data sheets and measurements
  kMeasured,   // this machine, by measure_cpu()
  kEstimated,  // this machine, by its cores, caches and vector width
};

// What the planner knows of a device: enough to compare ways to run a block. Rates are operations a second of the whole
// device, a multiply-add counting two; bandwidths are bytes a second, read and written bytes together. 0 stands for
// what a device does not have or nobody has measured.
struct DeviceDescription {
  std::string name;     // as Device::by_name takes it
  std::string summary;  // what it is, in a few words
  std::string model;    // the product's name
  DescriptionOrigin origin = DescriptionOrigin::kNone;
  int cores = 0;  // streaming multiprocessors of a GPU

  double f32_rate = 0;
  double tf32_rate = 0;  // f32 convolutions with operands rounded to TF32
  double f16_rate = 0;   // bf16 and f16 convolutions
  double f64_rate = 0;
  double f32_rate_one_core = 0;
  double convolution_share = 1;  // the share of these rates that convolution kernels reach
  double program_rate = 0;       // additions and the like in the program of a sweep
  double special_rate = 0;       // exp, tanh and the like there

  double memory_bandwidth = 0;
  double memory_bandwidth_one_core = 0;
  double cache_bytes = 0;  // the last level, shared by all cores
  double cache_bandwidth = 0;
  double core_cache_bytes = 0;  // of one core
  double core_cache_bandwidth = 0;

  double first_touch = 0;  // seconds a byte of memory that is used for the first time
  double sweep_start = 0;  // seconds before the first element of a sweep: waking threads, a launch

  // Products and sums may be rounded once, so that a value that two kernels compute may differ between them.
  bool contracts = false;
};

// A JSON object: name, model, origin (none, table, measured, estimated), cores, and each figure under its name here.
std::string to_json(const DeviceDescription& description);

// What plans are made for. `cpu` runs sweeps over tiles, with SIMD on all cores. `reference` is the oracle: double
// precision, one operation after the other, on one thread. `cuda` is the machine's first GPU, where there is one, `cuda:1`
// the second and so on: blocks on tensors in its memory; gradients by the weight of a convolution are left to the program
// (host.h). GPUs of a table (h200, a100, ...) can be planned for.
class Device {
 public:
  static Device reference();
  // The fastest one whose tensors lie in the program's own memory: the CPU. For a GPU ask by_name("cuda").
  static Device best();
  // Those that run plans on this machine.
  static std::vector<Device> available();
  // Those that plans can be made for: available(), then the table.
  static std::vector<Device> known();
  // One of known(). Throws UserError that lists the names there are.
  static Device by_name(std::string_view name);

  const std::string& name() const { return description_->name; }
  const DeviceDescription& description() const { return *description_; }
  // False for a device that can be planned for only.
  bool runs() const { return runs_; }
  // Throws NotSupportedError where runs() is false.
  void require_runs() const;

 private:
  Device(std::shared_ptr<const DeviceDescription> description, bool runs)
      : description_(std::move(description)), runs_(runs) {}
  std::shared_ptr<const DeviceDescription> description_;
  bool runs_;
};

// Measures this machine's CPU on one core and on all of them, which takes a few seconds.
DeviceDescription measure_cpu();
// Writes the description to the cache folder (docs/devices.md), where processes of this machine that start later find
// it. Returns the file's name. Throws UserError where it cannot be written.
std::string save_cpu_description(const DeviceDescription& description);

}  // namespace fuseblock
