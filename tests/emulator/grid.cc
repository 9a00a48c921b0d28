#include "grid.h"

#include <signal.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <random>
#include <vector>

#include "stacks.h"

namespace fuseblock_emulated {
namespace {

constexpr unsigned int kLanes = 32;
constexpr unsigned int kBarriers = 16;
constexpr std::size_t kGuard = 256;      // bytes around a block's shared memory
constexpr unsigned char kPoison = 0xff;  // NaN in every type
constexpr unsigned int kRankShift = 24;  // of the block's rank in a 32-bit address of shared memory
constexpr std::uint64_t kIdleTurns =
    4'000'000;  // looks at memory without anything else, after which nothing will come

struct Fibre;

struct Barrier {
  std::vector<Fibre*> waiting;
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
  std::map<unsigned int, Meeting> meetings;  // by mask
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

std::string text_of(const Extent3& index) {
  if (index.y == 0 && index.z == 0) return std::to_string(index.x);
  return "(" + std::to_string(index.x) + ", " + std::to_string(index.y) + ", " + std::to_string(index.z) +
         ")";
}

void run_fibre();

// The grid that runs; there is one at a time.
class Scheduler {
 public:
  Scheduler() : stacks_(run_fibre) {}

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
  void release(std::vector<Fibre*>& waiting) {
    idle_ = 0;
    for (Fibre* fibre : waiting) {
      fibre->state = State::kReady;
      ready_.push_back(fibre);
    }
    waiting.clear();
  }
  [[noreturn]] void fail(const std::string& what, int line) {
    const Fibre& fibre = *current_;
    message_ = "the kernel " + kernel_->name + ", block " + text_of(fibre.block->index) + ", thread " +
               text_of(fibre.thread.thread_index) + at_line(line) + ": " + what;
    _longjmp(main_, kFailed);
  }
  // Ends the thread that runs; returns on the same stack when it has another one.
  void end();

  [[noreturn]] void fail_by_signal(const char* what) { fail(what, 0); }
  bool running() const { return current_ != nullptr; }

 private:
  static constexpr int kBack = 1, kFailed = 2;

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

Scheduler& scheduler() {
  static auto* const kScheduler = new Scheduler;
  return *kScheduler;
}

// What runs on a stack: one thread after the other.
void run_fibre() {
  while (true) {
    scheduler().call();
    scheduler().end();
  }
}

std::string Scheduler::at_line(int line) const {
  if (line <= 0) return "";
  std::size_t begin = 0;
  for (int i = 1; i < line && begin != std::string::npos; ++i) {
    begin = kernel_->text.find('\n', begin);
    if (begin != std::string::npos) ++begin;
  }
  if (begin == std::string::npos) return ", line " + std::to_string(line);
  std::string words = kernel_->text.substr(begin, kernel_->text.find('\n', begin) - begin);
  words.erase(0, words.find_first_not_of(' '));
  return ", line " + std::to_string(line) + " `" + words + "`";
}

// Groups of threads that wait at the same place, the first of each by its number.
std::string Scheduler::waiting_threads() const {
  std::map<std::string, std::pair<std::size_t, std::string>> groups;
  std::size_t ended = 0;
  for (const auto& block : blocks_)
    for (const Fibre& fibre : block->fibres) {
      if (fibre.state == State::kEnded) {
        ++ended;
        continue;
      }
      auto& [count, first] = groups[std::string(fibre.waits_at) + at_line(fibre.line)];
      if (count++ == 0)
        first = "block " + text_of(block->index) + ", thread " + text_of(fibre.thread.thread_index);
    }
  std::string words;
  for (const auto& [place, group] : groups)
    words += (words.empty() ? "" : "; ") + std::to_string(group.first) +
             " threads (the first: " + group.second + ") wait at " + place;
  return words + "; " + std::to_string(ended) + " have ended";
}

void Scheduler::fail_waiting() {
  message_ = "the kernel " + kernel_->name + " does not end: " + waiting_threads();
  _longjmp(main_, kFailed);
}

void Scheduler::end() {
  Fibre& fibre = *current_;
  fibre.state = State::kEnded;
  idle_ = 0;
  fibre.copies.arrive_all();  // also those that nobody waits for
  Block& block = *fibre.block;
  --block.alive;
  --block.cluster->alive;
  // Threads that have ended are not waited for.
  Barrier& whole = block.barriers[0];
  if (!whole.waiting.empty() && whole.waiting.size() == block.alive) release(whole.waiting);
  Stack* stack = fibre.stack;
  fibre.stack = nullptr;
  if (Stacks::overflown(*stack)) fail("the thread's stack is too small for it", 0);
  stacks_.give_back(stack);
  if (_setjmp(stack->idle) == 0) _longjmp(main_, kBack);
}

void Scheduler::make_block(Block& block, const Extent3& index) const {
  block.index = index;
  const Extent3& extent = shape_->block;
  const unsigned int threads = extent.x * extent.y * extent.z;
  constexpr std::size_t kAlign = 1024;
  const std::size_t static_bytes = (kernel_->static_bytes + 127) / 128 * 128;
  block.shared_bytes = static_bytes + shape_->dynamic_bytes;
  block.memory.assign(block.shared_bytes + 2 * kGuard + kAlign, static_cast<char>(kPoison));
  const auto begin = reinterpret_cast<std::uintptr_t>(block.memory.data()) + kGuard;
  block.shared = block.memory.data() + kGuard + (kAlign - begin % kAlign) % kAlign;
  block.alive = threads;
  block.warps.resize((threads + kLanes - 1) / kLanes);
  block.fibres.resize(threads);
  for (unsigned int i = 0; i < threads; ++i) {
    Fibre& fibre = block.fibres[i];
    fibre.block = &block;
    fibre.number = i;
    Thread& thread = fibre.thread;
    thread.thread_index = {i % extent.x, i / extent.x % extent.y, i / extent.x / extent.y};
    thread.block_index = index;
    thread.block_extent = extent;
    thread.grid_extent = shape_->grid;
    thread.cluster_extent = shape_->cluster;
    thread.lane = i % kLanes;
    thread.cluster_blocks = shape_->cluster.x * shape_->cluster.y * shape_->cluster.z;
    thread.cluster_rank =
        index.x % shape_->cluster.x +
        shape_->cluster.x * (index.y % shape_->cluster.y + shape_->cluster.y * (index.z % shape_->cluster.z));
    thread.dynamic_bytes = static_cast<unsigned int>(shape_->dynamic_bytes);
    thread.static_shared = block.shared;
    thread.dynamic_shared = block.shared + static_bytes;
  }
}

void Scheduler::check_guards(const Block& block) {
  const auto whole = [](const char* begin, const char* end) {
    return std::all_of(begin, end, [](char c) { return static_cast<unsigned char>(c) == kPoison; });
  };
  const char* end = block.shared + block.shared_bytes;
  if (!whole(block.memory.data(), block.shared) || !whole(end, block.memory.data() + block.memory.size()))
    message_ = "the kernel " + kernel_->name + ", block " + text_of(block.index) +
               ": written outside of the block's shared memory";
}

// A thread from where it is to where it waits. False where the launch has failed.
bool Scheduler::go_on(Fibre& fibre) {
  current_ = &fibre;
  *kernel_->current = &fibre.thread;
  const int back = _setjmp(main_);
  if (back == 0) {
    if (fibre.state == State::kNew) {
      fibre.stack = stacks_.take();
      fibre.state = State::kReady;
      idle_ = 0;
      if (fibre.stack->entered) _longjmp(fibre.stack->idle, 1);
      fibre.stack->entered = true;
      setcontext(&fibre.stack->first);
    }
    _longjmp(fibre.place, 1);
  }
  if (back == kBack && current_->stack != nullptr && Stacks::overflown(*current_->stack))
    message_ = "the kernel " + kernel_->name + ": a thread's stack is too small for it";
  current_ = nullptr;
  return message_.empty();
}

bool Scheduler::run_blocks(std::vector<Extent3> indices) {
  blocks_.clear();
  clusters_.clear();
  ready_.clear();
  idle_ = 0;
  std::map<std::array<unsigned int, 3>, Cluster*> by_place;
  for (const Extent3& index : indices) {
    Block& block = *blocks_.emplace_back(std::make_unique<Block>());
    make_block(block, index);
    Cluster*& cluster =
        by_place[{index.x / shape_->cluster.x, index.y / shape_->cluster.y, index.z / shape_->cluster.z}];
    if (cluster == nullptr) cluster = clusters_.emplace_back(std::make_unique<Cluster>()).get();
    block.cluster = cluster;
    cluster->alive += block.alive;
    const unsigned int rank = block.fibres[0].thread.cluster_rank;
    if (cluster->blocks.size() <= rank) cluster->blocks.resize(rank + 1);
    cluster->blocks[rank] = &block;
  }
  // Warps begin in any order, their lanes one behind the other, up or down.
  std::vector<std::pair<Block*, std::size_t>> warps;
  for (const auto& block : blocks_)
    for (std::size_t warp = 0; warp < block->warps.size(); ++warp) warps.emplace_back(block.get(), warp);
  std::shuffle(warps.begin(), warps.end(), order_);
  const bool down = order_() % 2 == 0;
  for (const auto& [block, warp] : warps) {
    const std::size_t begin = warp * kLanes;
    const std::size_t end = std::min(begin + kLanes, block->fibres.size());
    for (std::size_t i = begin; i < end; ++i)
      ready_.push_back(&block->fibres[down ? end - 1 - (i - begin) : i]);
  }
  while (!ready_.empty()) {
    Fibre* fibre = ready_.front();
    ready_.pop_front();
    if (!go_on(*fibre)) return false;
  }
  for (const auto& block : blocks_)
    if (block->alive > 0) {
      message_ = "the kernel " + kernel_->name + " does not end: " + waiting_threads();
      return false;
    }
  for (const auto& block : blocks_) check_guards(*block);
  return message_.empty();
}

std::string Scheduler::run(const KernelCode& kernel, const LaunchShape& shape, void** parameters) {
  kernel_ = &kernel;
  shape_ = &shape;
  parameters_ = parameters;
  message_.clear();
  order_.seed(order_() + 1);
  // Those that run together: all, a cluster or one.
  const Extent3 together = shape.cooperative ? shape.grid : shape.cluster;
  bool good = true;
  for (unsigned int z = 0; z < shape.grid.z && good; z += together.z)
    for (unsigned int y = 0; y < shape.grid.y && good; y += together.y)
      for (unsigned int x = 0; x < shape.grid.x && good; x += together.x) {
        std::vector<Extent3> indices;
        for (unsigned int k = 0; k < together.z; ++k)
          for (unsigned int j = 0; j < together.y; ++j)
            for (unsigned int i = 0; i < together.x; ++i) indices.push_back({x + i, y + j, z + k});
        good = run_blocks(std::move(indices));
      }
  blocks_.clear();
  current_ = nullptr;
  if (!good) stacks_.reset();
  return message_;
}

// What kernels call.

void sync_block(unsigned int number, unsigned int count, int line) {
  Fibre& fibre = scheduler().current();
  if (number >= kBarriers) scheduler().fail("there is no barrier " + std::to_string(number), line);
  Barrier& barrier = fibre.block->barriers[number];
  barrier.waiting.push_back(&fibre);
  const std::size_t needed = count == 0 ? fibre.block->alive : count;
  if (barrier.waiting.size() >= needed) {
    barrier.waiting.pop_back();
    scheduler().release(barrier.waiting);
    return;
  }
  scheduler().wait("a barrier of the block", line);
}

// Arrives at the meeting of the mask's lanes; true for all of them once they are there.
Meeting& meet(const char* function, unsigned int mask, unsigned long long value, bool vote, int line,
              unsigned int& turn) {
  Fibre& fibre = scheduler().current();
  const unsigned int lane = fibre.thread.lane;
  if ((mask >> lane & 1) == 0)
    scheduler().fail(std::string(function) + ": the mask leaves out the lane that calls it", line);
  Meeting& meeting = fibre.block->warps[fibre.number / kLanes].meetings[mask];
  if (meeting.arrived == 0) {
    meeting.function = function;
    meeting.votes[meeting.turn % 2] = 0;
  } else if (std::strcmp(meeting.function, function) != 0) {
    scheduler().fail(
        std::string("lanes of a warp meet at different functions: ") + meeting.function + " and " + function,
        line);
  }
  turn = meeting.turn % 2;
  meeting.values[turn][lane] = value;
  if (vote) meeting.votes[turn] |= 1U << lane;
  meeting.arrived |= 1U << lane;
  if (meeting.arrived == mask) {
    meeting.arrived = 0;
    ++meeting.turn;
    scheduler().release(meeting.waiting);
  } else {
    meeting.waiting.push_back(&fibre);
    scheduler().wait(function, line);
  }
  return meeting;
}

unsigned long long exchange(const char* function, unsigned int mask, unsigned long long value,
                            unsigned int from_lane, int line) {
  if (from_lane >= kLanes || (mask >> from_lane & 1) == 0)
    scheduler().fail(std::string(function) + ": the mask leaves out the lane that is read", line);
  unsigned int turn = 0;
  const Meeting& meeting = meet(function, mask, value, false, line, turn);
  return meeting.values[turn][from_lane];
}

unsigned int ballot(const char* function, unsigned int mask, bool value, int line) {
  unsigned int turn = 0;
  const Meeting& meeting = meet(function, mask, 0, value, line, turn);
  return meeting.votes[turn];
}

void arrive_cluster(int /*line*/) {
  Fibre& fibre = scheduler().current();
  Cluster& cluster = *fibre.block->cluster;
  fibre.cluster_phase = cluster.phase;
  if (++cluster.arrived < cluster.alive) return;
  cluster.arrived = 0;
  ++cluster.phase;
  scheduler().release(cluster.waiting);
}

void wait_cluster(int line) {
  Fibre& fibre = scheduler().current();
  Cluster& cluster = *fibre.block->cluster;
  if (cluster.phase != fibre.cluster_phase) return;
  cluster.waiting.push_back(&fibre);
  scheduler().wait("a barrier of the cluster", line);
}

void yield(int line) { scheduler().yield(line); }

unsigned int shared_address(const void* pointer, int line) {
  const Fibre& fibre = scheduler().current();
  const Block& block = *fibre.block;
  const auto* place = static_cast<const char*>(pointer);
  if (place < block.shared || place > block.shared + block.shared_bytes)
    scheduler().fail("an address that is not in the block's shared memory", line);
  return ((fibre.thread.cluster_rank + 1) << kRankShift) + static_cast<unsigned int>(place - block.shared);
}

void* shared_pointer(unsigned int address, unsigned int bytes, bool of_cluster, int line) {
  const Fibre& fibre = scheduler().current();
  const unsigned int rank = (address >> kRankShift) - 1;
  const Cluster& cluster = *fibre.block->cluster;
  if (rank >= cluster.blocks.size() || (!of_cluster && rank != fibre.thread.cluster_rank))
    scheduler().fail("an address of shared memory that is not this block's", line);
  const Block& block = *cluster.blocks[rank];
  const std::size_t offset = address & ((1U << kRankShift) - 1);
  if (offset + bytes > block.shared_bytes)
    scheduler().fail("an address behind the block's shared memory", line);
  if (block.alive == 0) scheduler().fail("shared memory of a block that has ended", line);
  return block.shared + offset;
}

unsigned int map_shared(unsigned int address, unsigned int rank, int line) {
  const Fibre& fibre = scheduler().current();
  if (rank >= fibre.thread.cluster_blocks)
    scheduler().fail("the cluster has no block " + std::to_string(rank), line);
  return (address & ((1U << kRankShift) - 1)) + ((rank + 1) << kRankShift);
}

void copy_begin(void* to, const void* from, unsigned int bytes, unsigned int taken, int line) {
  if (bytes != 4 && bytes != 8 && bytes != 16)
    scheduler().fail("cp.async of " + std::to_string(bytes) + " bytes", line);
  if (reinterpret_cast<std::uintptr_t>(to) % bytes != 0 ||
      reinterpret_cast<std::uintptr_t>(from) % bytes != 0)
    scheduler().fail("misaligned address", line);
  scheduler().current().copies.begin({to, from, bytes, std::min(bytes, taken), 0});
  std::memset(to, kPoison, bytes);
}

void copy_commit() { scheduler().current().copies.commit(); }
void copy_wait(unsigned int pending) { scheduler().current().copies.wait(pending); }

void fail(const char* text, int line) { scheduler().fail(text, line); }

// A thread of the grid that the processor stops.

void on_signal(int number) {
  if (!scheduler().running()) {
    signal(number, SIG_DFL);
    raise(number);
    return;
  }
  scheduler().fail_by_signal(number == SIGFPE ? "an integer division by 0"
                                              : "an address that is nobody's memory");
}

class SignalScope {
 public:
  SignalScope() {
    stack_t own = {};
    own.ss_sp = memory_.data();
    own.ss_size = memory_.size();
    sigaltstack(&own, &before_stack_);
    struct sigaction action = {};
    action.sa_handler = on_signal;
    action.sa_flags = SA_ONSTACK | SA_NODEFER;
    for (std::size_t i = 0; i < kSignals.size(); ++i) sigaction(kSignals[i], &action, &before_[i]);
  }
  ~SignalScope() {
    for (std::size_t i = 0; i < kSignals.size(); ++i) sigaction(kSignals[i], &before_[i], nullptr);
    sigaltstack(&before_stack_, nullptr);
  }
  SignalScope(const SignalScope&) = delete;
  SignalScope& operator=(const SignalScope&) = delete;

 private:
  static constexpr std::array<int, 3> kSignals = {SIGSEGV, SIGBUS, SIGFPE};
  std::vector<char> memory_ = std::vector<char>(256 * 1024);
  stack_t before_stack_ = {};
  std::array<struct sigaction, 3> before_ = {};
};

}  // namespace

const Runtime& runtime() {
  static constexpr Runtime kRuntime = {
      .sync_block = sync_block,
      .exchange = exchange,
      .ballot = ballot,
      .arrive_cluster = arrive_cluster,
      .wait_cluster = wait_cluster,
      .yield = yield,
      .shared_address = shared_address,
      .shared_pointer = shared_pointer,
      .map_shared = map_shared,
      .copy_begin = copy_begin,
      .copy_commit = copy_commit,
      .copy_wait = copy_wait,
      .fail = fail,
  };
  return kRuntime;
}

std::string run_grid(const KernelCode& kernel, const LaunchShape& shape, void** parameters) {
  const SignalScope signals;
  return scheduler().run(kernel, shape, parameters);
}

}  // namespace fuseblock_emulated
