// What forward saves for backward, in words and as JSON.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "plan/schedule.h"

namespace fuseblock {

// Nothing where nothing is saved.
std::string saved_text(const Schedule& schedule);
nlohmann::ordered_json saved_json(const Schedule& schedule);

}  // namespace fuseblock
