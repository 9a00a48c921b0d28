// GPUs: rates are those that large matrix products reach and bandwidths those of a copy. For the H200 they are
// measured (cuBLAS, a copy of 4 GB); for the others they are the data sheets' dense peaks times the shares of the peaks
// that the H200 reaches. Special functions are 16 a clock and multiprocessor.
#include "plan/device_description.h"

#include <array>
#include <cmath>
#include <nlohmann/json.hpp>

namespace fuseblock {
namespace {

using Json = nlohmann::ordered_json;

constexpr double kPeakShare = 0.75;       // 372 of 494.7 TFLOP/s TF32, 51 of 67 TFLOP/s f32
constexpr double kBandwidthShare = 0.88;  // 4.23 of 4.8 TB/s
constexpr double kLaunch = 3e-6;          // seconds from one kernel of a stream to the next
// Trials of halo-tile convolutions on an H200 took 0.46 ms where the rate allows 0.185, and 0.105 where it allows 0.05.
constexpr double kConvolutionShare = 0.4;
constexpr double kLargestFigure = 1e21;

// What data sheets say.
struct Sheet {
  const char* name;
  const char* model;
  int multiprocessors;
  double clock;  // Hz, boost
  double f32, tf32, f16, f64;
  double memory_bandwidth;
  double l2_bytes;
  double l2_bandwidth;       // an estimate: sheets do not say
  double core_memory_bytes;  // shared memory and L1 of a multiprocessor
};

DeviceDescription from_sheet(const Sheet& sheet) {
  DeviceDescription result;
  result.name = sheet.name;
  result.summary = std::string(sheet.model) + ", to plan for";
  result.model = sheet.model;
  result.origin = DescriptionOrigin::kTable;
  result.cores = sheet.multiprocessors;
  result.f32_rate = kPeakShare * sheet.f32;
  result.tf32_rate = kPeakShare * sheet.tf32;
  result.f16_rate = kPeakShare * sheet.f16;
  result.f64_rate = kPeakShare * sheet.f64;
  result.convolution_share = kConvolutionShare;
  result.program_rate = sheet.f32 / 2;  // an addition counts one where a multiply-add counts two
  result.special_rate = 16 * sheet.multiprocessors * sheet.clock;
  result.memory_bandwidth = kBandwidthShare * sheet.memory_bandwidth;
  result.cache_bytes = sheet.l2_bytes;
  result.cache_bandwidth = sheet.l2_bandwidth;
  result.core_cache_bytes = sheet.core_memory_bytes;
  result.core_cache_bandwidth = 128 * sheet.multiprocessors * sheet.clock;
  result.sweep_start = kLaunch;
  result.contracts = true;
  return result;
}

DeviceDescription h200() {
  DeviceDescription result = from_sheet({"h200", "NVIDIA H200 SXM", 132, 1.98e9, 67e12, 494.7e12, 989.4e12,
                                         34e12, 4.8e12, 50e6, 5.5e12, 256e3});
  result.f32_rate = 51e12;
  result.tf32_rate = 372e12;
  result.memory_bandwidth = 4.23e12;
  return result;
}

std::string origin_key(DescriptionOrigin origin) {
  switch (origin) {
    case DescriptionOrigin::kNone: return "none";
    case DescriptionOrigin::kTable: return "table";
    case DescriptionOrigin::kMeasured: return "measured";
    case DescriptionOrigin::kEstimated: return "estimated";
  }
  return "";
}

}  // namespace

std::span<const DeviceDescription> gpu_descriptions() {
  static const std::array<DeviceDescription, 5> kTable = {
      h200(),
      from_sheet({"h100", "NVIDIA H100 SXM", 132, 1.98e9, 67e12, 494.7e12, 989.4e12, 34e12, 3.35e12, 50e6,
                  5.5e12, 256e3}),
      from_sheet({"a100", "NVIDIA A100 SXM 80GB", 108, 1.41e9, 19.5e12, 156e12, 312e12, 9.7e12, 2.039e12,
                  40e6, 4e12, 192e3}),
      from_sheet({"l40s", "NVIDIA L40S", 142, 2.52e9, 91.6e12, 183e12, 362e12, 1.43e12, 0.864e12, 96e6, 4e12,
                  128e3}),
      from_sheet({"rtx4090", "NVIDIA GeForce RTX 4090", 128, 2.52e9, 82.6e12, 82.6e12, 165.2e12, 1.29e12,
                  1.008e12, 72e6, 4e12, 128e3}),
  };
  return kTable;
}

std::span<const DescriptionFigure> description_figures() {
  static constexpr std::array<DescriptionFigure, 16> kFigures = {{
      {"f32_rate", &DeviceDescription::f32_rate},
      {"tf32_rate", &DeviceDescription::tf32_rate},
      {"f16_rate", &DeviceDescription::f16_rate},
      {"f64_rate", &DeviceDescription::f64_rate},
      {"f32_rate_one_core", &DeviceDescription::f32_rate_one_core},
      {"convolution_share", &DeviceDescription::convolution_share},
      {"program_rate", &DeviceDescription::program_rate},
      {"special_rate", &DeviceDescription::special_rate},
      {"memory_bandwidth", &DeviceDescription::memory_bandwidth},
      {"memory_bandwidth_one_core", &DeviceDescription::memory_bandwidth_one_core},
      {"cache_bytes", &DeviceDescription::cache_bytes},
      {"cache_bandwidth", &DeviceDescription::cache_bandwidth},
      {"core_cache_bytes", &DeviceDescription::core_cache_bytes},
      {"core_cache_bandwidth", &DeviceDescription::core_cache_bandwidth},
      {"first_touch", &DeviceDescription::first_touch},
      {"sweep_start", &DeviceDescription::sweep_start},
  }};
  return kFigures;
}

std::string to_json(const DeviceDescription& description) {
  Json json;
  json["name"] = description.name;
  json["model"] = description.model;
  json["origin"] = origin_key(description.origin);
  json["cores"] = description.cores;
  for (const DescriptionFigure& figure : description_figures()) json[figure.key] = description.*figure.value;
  return json.dump(2);
}

std::optional<DeviceDescription> description_from_json(std::string_view text) {
  const Json json = Json::parse(text, nullptr, false);
  if (!json.is_object()) return std::nullopt;
  const auto name = json.find("name");
  const auto model = json.find("model");
  const auto cores = json.find("cores");
  if (name == json.end() || !name->is_string() || model == json.end() || !model->is_string() ||
      cores == json.end() || !cores->is_number_integer())
    return std::nullopt;
  DeviceDescription result;
  result.name = name->get<std::string>();
  result.model = model->get<std::string>();
  const auto core_count = cores->get<std::int64_t>();
  if (core_count < 1 || core_count > 1'000'000) return std::nullopt;
  result.cores = static_cast<int>(core_count);
  for (const DescriptionFigure& figure : description_figures()) {
    const auto place = json.find(figure.key);
    if (place == json.end() || !place->is_number()) return std::nullopt;
    const double value = place->get<double>();
    if (!(value >= 0) || value > kLargestFigure) return std::nullopt;
    result.*figure.value = value;
  }
  const bool complete = result.f32_rate > 0 && result.f64_rate > 0 && result.convolution_share > 0 &&
                        result.program_rate > 0 && result.special_rate > 0 && result.memory_bandwidth > 0 &&
                        result.cache_bandwidth > 0;
  if (!complete) return std::nullopt;
  return result;
}

std::string origin_text(DescriptionOrigin origin) {
  switch (origin) {
    case DescriptionOrigin::kNone: return "nothing known";
    case DescriptionOrigin::kTable: return "from the table of devices";
    case DescriptionOrigin::kMeasured: return "measured";
    case DescriptionOrigin::kEstimated: return "estimated, not measured";
  }
  return "";
}

}  // namespace fuseblock
