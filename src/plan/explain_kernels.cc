#include "plan/explain_kernels.h"

#include <nlohmann/json.hpp>

#include "plan/amounts.h"

namespace fuseblock {
namespace {

std::string count_text(std::int64_t count, const std::string& what) {
  return std::to_string(count) + " " + what + (count == 1 ? "" : "s");
}

std::string bytes_text(double bytes) { return amount(bytes, "B"); }

}  // namespace

std::string kernels_text(const std::vector<PlannedKernel>& kernels) {
  if (kernels.empty()) return "";
  std::string text =
      "\n" + count_text(static_cast<std::int64_t>(kernels.size()), "kernel") + ", each launched once\n";
  double moved = 0;
  for (std::size_t i = 0; i < kernels.size(); ++i) {
    const PlannedKernel& kernel = kernels[i];
    text += "  " + std::to_string(i + 1) + "  " + kernel.name + ": ";
    std::string steps;
    if (kernel.sweeps > 0) steps = count_text(kernel.sweeps, "sweep");
    if (kernel.finalises > 0)
      steps += (steps.empty() ? "" : ", ") + count_text(kernel.finalises, "finalise step");
    if (!steps.empty()) text += steps + "; ";
    text += count_text(kernel.blocks, "block") + " of " + std::to_string(kernel.threads) + " threads";
    if (kernel.shared_bytes > 0) text += ", " + bytes_text(kernel.shared_bytes) + " of shared memory each";
    text += "; " + bytes_text(kernel.read_bytes) + " read, " + bytes_text(kernel.written_bytes) + " written";
    if (kernel.again_bytes > 0) text += ", " + bytes_text(kernel.again_bytes) + " read again";
    text += "\n";
    for (const std::string& line : kernel.division) text += "       " + line + "\n";
    moved += kernel.read_bytes + kernel.written_bytes;
  }
  return text + "in all " + bytes_text(moved) + " from and to memory\n";
}

nlohmann::ordered_json kernels_json(const std::vector<PlannedKernel>& kernels) {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const PlannedKernel& kernel : kernels) {
    nlohmann::ordered_json numbers = nlohmann::ordered_json::object();
    for (const auto& [name, value] : kernel.numbers) numbers[name] = value;
    nlohmann::ordered_json entry = {{"name", kernel.name},
                                    {"source_digest", kernel.digest},
                                    {"sweeps", kernel.sweeps},
                                    {"finalise_steps", kernel.finalises},
                                    {"blocks", kernel.blocks},
                                    {"threads", kernel.threads},
                                    {"shared_bytes", kernel.shared_bytes},
                                    {"read_bytes", kernel.read_bytes},
                                    {"written_bytes", kernel.written_bytes},
                                    {"again_bytes", kernel.again_bytes},
                                    {"division", std::move(numbers)}};
    if (!kernel.residency.empty()) entry["residency"] = kernel.residency;
    if (!kernel.chosen.empty()) entry["chosen"] = kernel.chosen;
    list.push_back(std::move(entry));
  }
  return list;
}

}  // namespace fuseblock
