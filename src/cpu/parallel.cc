#include "cpu/parallel.h"

#include <tbb/parallel_for.h>
#include <tbb/task_arena.h>

#include <map>
#include <memory>
#include <mutex>
#include <thread>

namespace fuseblock::cpu {
namespace {

class TbbWorkers : public Workers {
 public:
  explicit TbbWorkers(int threads) : count_(threads), arena_(threads) {}

  int count() const override { return count_; }

  void run(std::int64_t tasks, const std::function<void(std::int64_t, int)>& task) const override {
    if (count_ == 1 || tasks <= 1) {
      for (std::int64_t number = 0; number < tasks; ++number) task(number, 0);
      return;
    }
    arena_.execute([&] {
      tbb::parallel_for(std::int64_t{0}, tasks, [&](std::int64_t number) {
        task(number, tbb::this_task_arena::current_thread_index());
      });
    });
  }

 private:
  int count_;
  mutable tbb::task_arena arena_;
};

}  // namespace

const Workers& workers(int threads) {
  static std::mutex mutex;
  static std::map<int, std::unique_ptr<TbbWorkers>> known;
  if (threads <= 0) threads = static_cast<int>(std::max(1U, std::thread::hardware_concurrency()));
  const std::lock_guard lock(mutex);
  std::unique_ptr<TbbWorkers>& entry = known[threads];
  if (!entry) entry = std::make_unique<TbbWorkers>(threads);
  return *entry;
}

}  // namespace fuseblock::cpu
