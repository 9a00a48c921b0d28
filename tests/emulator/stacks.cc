#include "stacks.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdint>
#include <new>

namespace fuseblock_emulated {
namespace {

constexpr std::uint64_t kEnd = 0x5afe5afe5afe5afeULL;  // stands at the far end of a stack

constexpr std::size_t kStagger = 192;

std::uint64_t& end_of(const Stack& stack) { return *reinterpret_cast<std::uint64_t*>(stack.memory); }

}  // namespace

Stacks::~Stacks() {
  for (const auto& stack : all_) munmap(stack->memory, kBytes);
}

void Stacks::prepare(Stack& stack) const {
  getcontext(&stack.first);
  stack.first.uc_stack.ss_sp = stack.memory;
  // Not all at the same place of their pages, which the processor's caches would keep in the same few lines.
  stack.first.uc_stack.ss_size = kBytes - all_.size() % 61 * kStagger;
  stack.first.uc_link = nullptr;
  makecontext(&stack.first, work_, 0);
  stack.entered = false;
  end_of(stack) = kEnd;
}

Stack* Stacks::take() {
  if (free_.empty()) {
    void* memory =
        mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) throw std::bad_alloc();
    auto& stack = all_.emplace_back(std::make_unique<Stack>());
    stack->memory = static_cast<char*>(memory);
    prepare(*stack);
    free_.push_back(stack.get());
  }
  Stack* stack = free_.back();
  free_.pop_back();
  return stack;
}

void Stacks::reset() {
  free_.clear();
  for (const auto& stack : all_) {
    prepare(*stack);
    free_.push_back(stack.get());
  }
}

bool Stacks::overflown(const Stack& stack) { return end_of(stack) != kEnd; }

}  // namespace fuseblock_emulated
