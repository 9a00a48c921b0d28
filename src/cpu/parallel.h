// The engine's own threads.
#pragma once

#include "fuseblock/parallel.h"

namespace fuseblock::cpu {

// Threads of oneTBB; 0 means as many as the machine has cores. They live as long as the program.
const Workers& workers(int threads);

}  // namespace fuseblock::cpu
