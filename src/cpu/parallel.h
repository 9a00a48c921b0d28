// Work in parallel: numbered tasks, each on one of a fixed number of workers.
#pragma once

#include <cstdint>
#include <functional>

namespace fuseblock::cpu {

// Runs tasks in parallel and returns when all are done. A caller may hand in its own (PyTorch's thread pool,
// say).
class Workers {
 public:
  virtual ~Workers() = default;
  // How many tasks run at once at most.
  virtual int count() const = 0;
  // Calls task(number, worker) for each number below `tasks`; `worker` is below count(), and no two calls
  // with the same worker run at the same time.
  virtual void run(std::int64_t tasks, const std::function<void(std::int64_t, int)>& task) const = 0;
};

// Threads of oneTBB; 0 means as many as the machine has cores.
const Workers& workers(int threads);

}  // namespace fuseblock::cpu
