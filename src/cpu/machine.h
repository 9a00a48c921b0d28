// What the operating system says of the CPU.
#pragma once

#include <string>

namespace fuseblock::cpu {

struct Machine {
  std::string model = "unknown";
  int cores = 1;                // that this process may use; two threads of a core count one
  double core_cache_bytes = 0;  // the second level, or the first where there is no other; 0 where nobody says
  double cache_bytes = 0;       // the last level
};

Machine this_machine();

}  // namespace fuseblock::cpu
