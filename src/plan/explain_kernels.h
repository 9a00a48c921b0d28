// The kernels of a plan in words and as JSON.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "plan/engine.h"

namespace fuseblock {

// Empty where there are none.
std::string kernels_text(const std::vector<PlannedKernel>& kernels);
nlohmann::ordered_json kernels_json(const std::vector<PlannedKernel>& kernels);

}  // namespace fuseblock
