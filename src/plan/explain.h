// A plan in words and as JSON.
#pragma once

#include <string>

#include "fuseblock/plan.h"
#include "plan/schedule.h"

namespace fuseblock {

// The schedule is null for an engine that has none.
std::string explain_text(const Plan& plan, const Schedule* schedule);
std::string explain_json_text(const Plan& plan, const Schedule* schedule);

}  // namespace fuseblock
