// A schedule in words and as JSON: each sweep as `source -> program -> sinks`, with operations, bytes and estimated
// times; what is never written; every choice with its alternatives.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "plan/cost.h"
#include "plan/schedule.h"

namespace fuseblock {

std::string schedule_text(const Schedule& schedule, const DeviceDescription& device);
nlohmann::ordered_json schedule_json(const Schedule& schedule, const DeviceDescription& device);

}  // namespace fuseblock
