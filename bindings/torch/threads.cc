#include "threads.h"

#include <torch/csrc/stable/ops.h>

#include <algorithm>
#include <atomic>
#include <exception>
#include <map>
#include <mutex>
#include <thread>

namespace fuseblock::torch_binding {
namespace {

// How often a lane that is done gives its core away before it goes to PyTorch's barrier: some milliseconds at most. Two
// threads may share a core though others are idle, until the system moves one of them; there the barrier spins until the
// time slice ends, while the thread that it waits for stands still.
constexpr int kMostYields = 10000;

class TorchWorkers : public Workers {
 public:
  explicit TorchWorkers(int count) : count_(count) {}

  int count() const override { return count_; }

  // One lane for each worker; a lane takes the next task until none is left. Where PyTorch gives fewer threads, inside a
  // parallel region of its own, one thread runs lane after lane.
  void run(std::int64_t tasks, const std::function<void(std::int64_t, int)>& task) const override {
    if (count_ == 1 || tasks <= 1) {
      for (std::int64_t number = 0; number < tasks; ++number) task(number, 0);
      return;
    }
    const std::int64_t lane_count = std::min<std::int64_t>(count_, tasks);
    std::atomic<std::int64_t> next{0};
    std::atomic<std::int64_t> working{lane_count};
    std::exception_ptr thrown;
    std::mutex mutex;
    const auto lanes = [&](std::int64_t begin, std::int64_t end) {
      try {
        for (std::int64_t lane = begin; lane < end; ++lane)
          for (std::int64_t number = next++; number < tasks; number = next++)
            task(number, static_cast<int>(lane));
      } catch (...) {
        next = tasks;
        const std::lock_guard lock(mutex);
        thrown = std::current_exception();
      }
      working -= end - begin;
      for (int i = 0; i < kMostYields && working > 0; ++i) std::this_thread::yield();
    };
    torch::stable::parallel_for(0, lane_count, 1, lanes);
    if (thrown) std::rethrow_exception(thrown);
  }

 private:
  int count_;
};

}  // namespace

int thread_count() { return std::max(1, static_cast<int>(torch::stable::get_num_threads())); }

std::shared_ptr<const Workers> torch_workers(int count) {
  static std::mutex mutex;
  static std::map<int, std::shared_ptr<const TorchWorkers>> known;
  const std::lock_guard lock(mutex);
  std::shared_ptr<const TorchWorkers>& entry = known[count];
  if (!entry) entry = std::make_shared<const TorchWorkers>(count);
  return entry;
}

}  // namespace fuseblock::torch_binding
