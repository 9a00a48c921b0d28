// The engine's own threads.
#pragma once

#include <functional>

#include "fuseblock/parallel.h"

namespace fuseblock::cpu {

// Threads of oneTBB; 0 means as many as the machine has cores. They live as long as the program.
const Workers& workers(int threads);

// Workers::run for a function of the caller's: a std::function of a reference to it needs no memory.
template <class Task>
void run_tasks(const Workers& workers, std::int64_t tasks, const Task& task) {
  workers.run(tasks, std::cref(task));
}

}  // namespace fuseblock::cpu
