// A schedule in words and as JSON: each sweep as `source -> program -> sinks`, with operations, bytes and
// estimated times.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "plan/schedule.h"

namespace fuseblock {

std::string schedule_text(const Schedule& schedule);
nlohmann::ordered_json schedule_json(const Schedule& schedule);

// `4.9 G`, `123 k`: three digits and a prefix.
std::string amount(double value);

}  // namespace fuseblock
