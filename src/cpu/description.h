// What the planner knows of this machine's CPU.
#pragma once

#include <optional>
#include <string_view>

#include "cpu/machine.h"
#include "fuseblock/device.h"

namespace fuseblock::cpu {

// The measured one, where the cache folder has one of this machine, else an estimate. Found once in the life of a
// process, so that all its plans agree.
const DeviceDescription& description();

// By the number of cores and the width of vectors.
DeviceDescription estimate(const Machine& machine);

// The figures of a file that save_cpu_description wrote on this machine; nothing for any other text.
std::optional<DeviceDescription> read_description(std::string_view text, const Machine& machine);
// What save_cpu_description writes.
std::string description_text(const DeviceDescription& description);

}  // namespace fuseblock::cpu
