// Linux tells all this in files; elsewhere the model is unknown and the sizes are 0.
#include "cpu/machine.h"

#include <algorithm>
#include <fstream>
#include <thread>

namespace fuseblock::cpu {
namespace {

std::string first_line(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

std::string model_name() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    if (!line.starts_with("model name")) continue;
    const std::size_t colon = line.find(':');
    if (colon != std::string::npos && colon + 2 < line.size()) return line.substr(colon + 2);
  }
  return "unknown";
}

// `48K` or `32M`.
double cache_size(const std::string& text) {
  double size = 0;
  std::size_t i = 0;
  for (; i < text.size() && text[i] >= '0' && text[i] <= '9'; ++i) size = 10 * size + (text[i] - '0');
  if (i < text.size() && text[i] == 'K') size *= 1024;
  if (i < text.size() && text[i] == 'M') size *= 1024 * 1024;
  return size;
}

void find_caches(Machine& machine) {
  for (int index = 0; index < 8; ++index) {
    const std::string folder = "/sys/devices/system/cpu/cpu0/cache/index" + std::to_string(index) + "/";
    const std::string level = first_line(folder + "level");
    if (level.empty()) break;
    if (first_line(folder + "type") == "Instruction") continue;
    const double size = cache_size(first_line(folder + "size"));
    if (level == "1" || level == "2") machine.core_cache_bytes = std::max(machine.core_cache_bytes, size);
    machine.cache_bytes = std::max(machine.cache_bytes, size);
  }
}

}  // namespace

Machine this_machine() {
  Machine machine;
  machine.model = model_name();
  const auto threads = static_cast<int>(std::max(1U, std::thread::hardware_concurrency()));
  const bool two_threads_a_core = first_line("/sys/devices/system/cpu/smt/active") == "1";
  machine.cores = std::max(1, two_threads_a_core ? threads / 2 : threads);
  find_caches(machine);
  return machine;
}

}  // namespace fuseblock::cpu
