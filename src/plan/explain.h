// A plan in words and as JSON.
#pragma once

#include <string>

#include "fuseblock/plan.h"

namespace fuseblock {

std::string explain_text(const Plan& plan);
std::string explain_json_text(const Plan& plan);

}  // namespace fuseblock
