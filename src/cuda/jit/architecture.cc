#include "cuda/jit/architecture.h"

#include <array>

#include "fuseblock/error.h"

namespace fuseblock::jit {
namespace {

constexpr int kKiB = 1024;

// name, compute capability, shared memory of a block, of a multiprocessor, reserved; threads and blocks of a
// multiprocessor; clusters; exact
constexpr std::array<Architecture, 5> kArchitectures = {{
    {"sm_80", 8, 0, 163 * kKiB, 164 * kKiB, kKiB, 2048, 32, false, false},
    {"sm_89", 8, 9, 99 * kKiB, 100 * kKiB, kKiB, 1536, 24, false, false},
    {"sm_90a", 9, 0, 227 * kKiB, 228 * kKiB, kKiB, 2048, 32, true, true},
    {"sm_100a", 10, 0, 227 * kKiB, 228 * kKiB, kKiB, 2048, 32, true, true},
    {"sm_120", 12, 0, 99 * kKiB, 100 * kKiB, kKiB, 1536, 24, true, false},
}};

struct DeviceArchitecture {
  std::string_view device;
  std::string_view architecture;
};

constexpr std::array<DeviceArchitecture, 5> kDevices = {{
    {"h200", "sm_90a"},
    {"h100", "sm_90a"},
    {"a100", "sm_80"},
    {"l40s", "sm_89"},
    {"rtx4090", "sm_89"},
}};

std::string names() {
  std::string list;
  for (const Architecture& known : kArchitectures)
    list += (list.empty() ? "" : ", ") + std::string(known.name);
  return list;
}

}  // namespace

std::span<const Architecture> architectures() { return kArchitectures; }

const Architecture& architecture(std::string_view name) {
  for (const Architecture& known : kArchitectures)
    if (known.name == name) return known;
  throw UserError("there is no architecture `" + std::string(name.substr(0, 40)) + "`; there is " + names());
}

const Architecture* architecture_of_device(std::string_view device) {
  for (const DeviceArchitecture& known : kDevices)
    if (known.device == device) return &architecture(known.architecture);
  return nullptr;
}

const Architecture& architecture_for(int compute_major, int compute_minor) {
  const Architecture* newest = nullptr;
  for (const Architecture& known : kArchitectures) {
    const bool runs =
        known.exact ? known.compute_minor == compute_minor : known.compute_minor <= compute_minor;
    if (known.compute_major == compute_major && runs) newest = &known;
  }
  if (newest == nullptr)
    throw NotSupportedError("a GPU of compute capability " + std::to_string(compute_major) + "." +
                            std::to_string(compute_minor) + " runs no code of " + names());
  return *newest;
}

}  // namespace fuseblock::jit
