// A plan in words, as JSON and as a picture.
#pragma once

#include <string>

#include "fuseblock/plan.h"
#include "plan/engine.h"
#include "plan/schedule.h"

namespace fuseblock {

// The schedule is null for an engine that has none.
std::string explain_text(const Plan& plan, const Schedule* schedule,
                         const std::vector<PlannedKernel>& kernels);
std::string explain_json_text(const Plan& plan, const Schedule* schedule,
                              const std::vector<PlannedKernel>& kernels);
std::string explain_dot_text(const Plan& plan, const Schedule* schedule);

}  // namespace fuseblock
