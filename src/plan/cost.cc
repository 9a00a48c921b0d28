#include "plan/cost.h"

#include <algorithm>

#include "plan/amounts.h"

namespace fuseblock {
namespace {

std::string times_text(int count) {
  return count == 1 ? "once" : count == 2 ? "twice" : std::to_string(count) + " times";
}

Alternative store(const CostModel& cost, const ReusedValue& value) {
  const double bytes = value.elements * cost.element_bytes();
  const double bandwidth = cost.bandwidth(bytes);
  const double touching = cost.touch_seconds(bytes);
  Alternative result{"store", bytes * (1 + value.later_sweeps) / bandwidth + touching, ""};
  result.detail = amount(bytes, "B") + " written and read " + times_text(value.later_sweeps) + " at " +
                  amount(bandwidth, "B/s") + (cost.fits_cache(bytes) ? " (it fits the cache)" : "");
  if (touching > 0)
    result.detail += ", " + time_text(touching) + " for the first touch of its memory, a tenth of it";
  return result;
}

Alternative recompute(const CostModel& cost, const ReusedValue& value) {
  const double computing = value.operations / cost.convolution_rate();
  const double reading = value.input_bytes / cost.bandwidth(value.input_bytes);
  Alternative result{"recompute", value.later_sweeps * std::max(computing, reading), ""};
  result.detail = amount(value.operations) + " operations " + times_text(value.later_sweeps) + " more at " +
                  amount(cost.convolution_rate()) + " operations/s";
  if (reading > computing)
    result.detail = "its input of " + amount(value.input_bytes, "B") + " read " +
                    times_text(value.later_sweeps) + " more";
  return result;
}

// A value is stored where recomputing it takes longer than this many times storing it: the memory of a whole convolution
// is worth something too.
constexpr double kMemoryIsWorth = 1.5;

}  // namespace

CostModel::CostModel(const DeviceDescription& device, const TypedBlock& block) : device_(device) {
  bool wide = false;
  bool half = true;
  for (const NamedType& argument : block.arguments()) {
    wide = wide || argument.type.dtype == DType::kF64;
    half = half && argument.type.dtype != DType::kF32;
  }
  double rate = device.tf32_rate > 0 ? device.tf32_rate : device.f32_rate;
  if (half && device.f16_rate > 0) rate = device.f16_rate;
  if (wide) {
    rate = device.f64_rate;
    element_bytes_ = 8;
    program_share_ = device.f64_rate / device.f32_rate;
  }
  convolution_rate_ = rate * device.convolution_share;
}

double CostModel::program_seconds(double operations, double special) const {
  return (operations / device_.program_rate + special / device_.special_rate) / program_share_;
}

void Decision::take_smallest() {
  const auto best =
      std::min_element(alternatives.begin(), alternatives.end(),
                       [](const Alternative& a, const Alternative& b) { return a.seconds < b.seconds; });
  take(best->name, "the smallest estimate");
}

Decision decide_reuse(const CostModel& cost, const ReusedValue& value, Reuse wanted) {
  Decision decision{value.name, {store(cost, value), recompute(cost, value)}, "", ""};
  decision.take_smallest();
  if (decision.chosen == "store" &&
      decision.alternatives[1].seconds <= kMemoryIsWorth * decision.alternatives[0].seconds)
    decision.take("recompute", "not much longer, and " + amount(value.elements * cost.element_bytes(), "B") +
                                   " of memory less");
  if (wanted == Reuse::kStore) decision.take("store", "asked for");
  if (wanted == Reuse::kRecompute) decision.take("recompute", "asked for");
  return decision;
}

}  // namespace fuseblock
