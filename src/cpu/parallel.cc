#include "cpu/parallel.h"

#include <tbb/parallel_for.h>
#include <tbb/task_arena.h>

#include <map>
#include <memory>
#include <mutex>
#include <thread>

#if defined(FUSEBLOCK_THREAD_SANITIZER)
#include <sanitizer/tsan_interface.h>
#endif

namespace fuseblock::cpu {
namespace {

// Tells ThreadSanitizer what parallel_for guarantees: what the caller wrote before is seen by every task,
// what the tasks wrote by the caller afterwards. It cannot see that itself, as oneTBB is not compiled for it,
// nor is this file, which holds oneTBB's templates. Tasks stay unordered among each other.
class TaskOrder {
 public:
  void caller_begins() { release(&begun_); }
  void task_begins() { acquire(&begun_); }
  void task_ends() { release(&ended_); }
  void caller_ends() { acquire(&ended_); }

 private:
#if defined(FUSEBLOCK_THREAD_SANITIZER)
  static void acquire(char* place) { __tsan_acquire(place); }
  static void release(char* place) { __tsan_release(place); }
#else
  static void acquire(char*) {}
  static void release(char*) {}
#endif

  char begun_ = 0;
  char ended_ = 0;
};

class TbbWorkers : public Workers {
 public:
  explicit TbbWorkers(int threads) : count_(threads), arena_(threads) {}

  int count() const override { return count_; }

  void run(std::int64_t tasks, const std::function<void(std::int64_t, int)>& task) const override {
    if (count_ == 1 || tasks <= 1) {
      for (std::int64_t number = 0; number < tasks; ++number) task(number, 0);
      return;
    }
    TaskOrder order;
    order.caller_begins();
    arena_.execute([&] {
      tbb::parallel_for(std::int64_t{0}, tasks, [&](std::int64_t number) {
        order.task_begins();
        task(number, tbb::this_task_arena::current_thread_index());
        order.task_ends();
      });
    });
    order.caller_ends();
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
