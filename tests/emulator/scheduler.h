// The threads of a grid while it runs: what each waits for, and who goes on next.
#pragma once

#include <array>
#include <cstdint>
#include <cstring>
#include <deque>
#include <memory>
#include <random>
#include <string>
#include <unordered_map>
#include <vector>

#include "grid.h"
#include "stacks.h"

namespace fuseblock_emulated {

inline constexpr unsigned int kLanes = 32;
inline constexpr unsigned int kBarriers = 16;
inline constexpr std::size_t kGuard = 256;      // bytes around a block's shared memory
inline constexpr unsigned char kPoison = 0xff;  // NaN in every type
inline constexpr unsigned int kRankShift = 24;  // of the block's rank in a 32-bit address of shared memory
inline constexpr std::uint64_t kIdleTurns =
    4'000'000;  // looks at memory without anything else, after which nothing will come

struct Fibre;

struct Barrier {
  std::vector<Fibre*> waiting;
  std::size_t arrived = 0;  // that do not wait
};

// Lanes of a warp at one function. Values are kept twice: a lane may be a function ahead before the others have read.
struct Meeting {
  const char* function = nullptr;
  unsigned int arrived = 0;
  unsigned int turn = 0;
  std::array<std::array<unsigned long long, kLanes>, 2> values = {};
  std::array<unsigned int, 2> votes = {};
  std::vector<Fibre*> waiting;
};

struct Warp {
  std::unordered_map<unsigned int, Meeting> meetings;  // by mask
  Meeting* last = nullptr;                             // the one that was used last
  unsigned int last_mask = 0;
};

struct Cluster {
  unsigned int alive = 0;
  unsigned int arrived = 0;
  unsigned int phase = 0;
  std::vector<struct Block*> blocks;  // by rank
  std::vector<Fibre*> waiting;
};

struct Block {
  Extent3 index = {};
  unsigned int alive = 0;
  std::vector<char> memory;  // guard, static, dynamic, guard
  char* shared = nullptr;
  std::size_t shared_bytes = 0;
  std::array<Barrier, kBarriers> barriers;
  std::vector<Warp> warps;
  Cluster* cluster = nullptr;
  std::vector<Fibre> fibres;
};

// Copies of a thread from memory to shared memory, in groups.
class Copies {
 public:
  struct Copy {
    void* to;
    const void* from;
    unsigned int bytes, taken, group;
  };

  void begin(Copy copy) {
    copy.group = committed_;
    copies_.push_back(copy);
  }
  void commit() { ++committed_; }
  void wait(unsigned int pending) {
    while (committed_ - arrived_ > pending) ++arrived_;
    arrive(arrived_);
  }
  void arrive_all() { arrive(committed_ + 1); }

 private:
  // Those of groups below `end`.
  void arrive(unsigned int end) {
    while (first_ < copies_.size() && copies_[first_].group < end) {
      const Copy& copy = copies_[first_++];
      std::memcpy(copy.to, copy.from, copy.taken);
      std::memset(static_cast<char*>(copy.to) + copy.taken, 0, copy.bytes - copy.taken);
    }
    if (first_ < copies_.size()) return;
    copies_.clear();
    first_ = 0;
  }

  std::vector<Copy> copies_;
  std::size_t first_ = 0;
  unsigned int committed_ = 0;
  unsigned int arrived_ = 0;
};

enum class State : std::uint8_t { kNew, kReady, kWaiting, kEnded };

struct Fibre {
  Thread thread = {};
  Block* block = nullptr;
  unsigned int number = 0;  // of the thread in its block
  State state = State::kNew;
  const char* waits_at = "";
  int line = 0;
  unsigned int cluster_phase = 0;
  Stack* stack = nullptr;
  Place place = {};
  Copies copies;
};

// The grid that runs; there is one at a time.
class Scheduler {
 public:
  Scheduler();

  std::string run(const KernelCode& kernel, const LaunchShape& shape, void** parameters);

  Fibre& current() const { return *current_; }
  void call() const { kernel_->call(parameters_); }

  // From a thread: the others go on until `release` or `turn` brings it back.
  void wait(const char* function, int line) {
    Fibre& fibre = *current_;
    fibre.state = State::kWaiting;
    leave(fibre, function, line);
  }
  void yield(int line) {
    Fibre& fibre = *current_;
    if (++idle_ > kIdleTurns) fail_waiting();
    if (ready_.empty()) return;
    fibre.state = State::kReady;
    ready_.push_back(&fibre);
    leave(fibre, "a look at memory that others write", line);
  }
  // As `yield`, but now and then the thread goes on at once: what others have not written yet it finds as it was before.
  void look(int line) {
    if (order_() % kLooksAtOnce != 0) return yield(line);
    if (++idle_ > kIdleTurns) fail_waiting();
  }
  void release(std::vector<Fibre*>& waiting) {
    idle_ = 0;
    for (Fibre* fibre : waiting) {
      fibre->state = State::kReady;
      ready_.push_back(fibre);
    }
    waiting.clear();
  }
  // All threads of a cluster have arrived at its barrier.
  void end_phase(Cluster& cluster);
  // Ends the launch; the message names the thread that runs.
  [[noreturn]] void fail(const std::string& what, int line);
  // Ends the thread that runs; returns on the same stack when it has another one.
  void end();

  [[noreturn]] void fail_by_signal(const char* what) { fail(what, 0); }
  bool running() const { return current_ != nullptr; }

 private:
  static constexpr int kBack = 1, kFailed = 2;
  static constexpr unsigned int kLooksAtOnce = 4;

  void leave(Fibre& fibre, const char* function, int line) {
    fibre.waits_at = function;
    if (line > 0) fibre.line = line;
    if (_setjmp(fibre.place) == 0) _longjmp(main_, kBack);
  }
  [[noreturn]] void fail_waiting();
  std::string at_line(int line) const;
  std::string waiting_threads() const;

  bool run_blocks(std::vector<Extent3> indices);
  void make_block(Block& block, const Extent3& index) const;
  bool go_on(Fibre& fibre);
  void check_guards(const Block& block);

  Stacks stacks_;
  const KernelCode* kernel_ = nullptr;
  const LaunchShape* shape_ = nullptr;
  void** parameters_ = nullptr;
  std::vector<std::unique_ptr<Block>> blocks_;
  std::vector<std::unique_ptr<Cluster>> clusters_;
  std::deque<Fibre*> ready_;
  Fibre* current_ = nullptr;
  Place main_ = {};
  std::uint64_t idle_ = 0;
  std::string message_;
  std::minstd_rand order_;
};

Scheduler& scheduler();

}  // namespace fuseblock_emulated
