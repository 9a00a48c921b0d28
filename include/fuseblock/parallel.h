// Work in parallel: numbered tasks, each on one of a fixed number of workers. A program that has threads of its own hands
// them to a plan through PlanOptions::workers.
#pragma once

#include <cstdint>
#include <functional>

namespace fuseblock {

class Workers {
 public:
  virtual ~Workers() = default;
  // How many tasks run at once at most, 1 or more; does not change. Plan::make throws UserError for less.
  virtual int count() const = 0;
  // Calls task(number, worker) once for each number below `tasks`, in any order, and returns when all are done; `worker`
  // is below count(), and no two calls with the same worker run at the same time. What a task throws leaves `run`.
  virtual void run(std::int64_t tasks, const std::function<void(std::int64_t, int)>& task) const = 0;
};

}  // namespace fuseblock
