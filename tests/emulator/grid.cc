#include "grid.h"

#include <algorithm>
#include <csignal>
#include <map>

#include "scheduler.h"

namespace fuseblock_emulated {
namespace {

std::string text_of(const Extent3& index) {
  if (index.y == 0 && index.z == 0) return std::to_string(index.x);
  return "(" + std::to_string(index.x) + ", " + std::to_string(index.y) + ", " + std::to_string(index.z) +
         ")";
}

// What runs on a stack: one thread after the other.
void run_fibre() {
  while (true) {
    scheduler().call();
    scheduler().end();
  }
}

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

Scheduler::Scheduler() : stacks_(run_fibre) {}

Scheduler& scheduler() {
  static auto* const kScheduler = new Scheduler;
  return *kScheduler;
}

void Scheduler::fail(const std::string& what, int line) {
  const Fibre& fibre = *current_;
  message_ = "the kernel " + kernel_->name + ", block " + text_of(fibre.block->index) + ", thread " +
             text_of(fibre.thread.thread_index) + at_line(line) + ": " + what;
  _longjmp(main_, kFailed);
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
  Cluster& cluster = *block.cluster;
  --cluster.alive;
  // Threads that have ended are not waited for.
  Barrier& whole = block.barriers[0];
  if (!whole.waiting.empty() && whole.waiting.size() == block.alive) release(whole.waiting);
  if (cluster.arrived > 0 && cluster.arrived == cluster.alive) end_phase(cluster);
  Stack* stack = fibre.stack;
  fibre.stack = nullptr;
  if (Stacks::overflown(*stack)) fail("the thread's stack is too small for it", 0);
  stacks_.give_back(stack);
  if (_setjmp(stack->idle) == 0) _longjmp(main_, kBack);
}

void Scheduler::end_phase(Cluster& cluster) {
  cluster.arrived = 0;
  ++cluster.phase;
  release(cluster.waiting);
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
    thread.grid_workspace =
        shape_->cooperative ? reinterpret_cast<std::uintptr_t>(grid_workspace_.data()) : 0;
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

std::string run_grid(const KernelCode& kernel, const LaunchShape& shape, void** parameters) {
  const SignalScope signals;
  return scheduler().run(kernel, shape, parameters);
}

}  // namespace fuseblock_emulated
