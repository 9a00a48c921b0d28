// Stacks that functions run on in turn, and the way from one to the other.
#pragma once

#include <setjmp.h>
#include <ucontext.h>

#include <cstddef>
#include <memory>
#include <vector>

namespace fuseblock_emulated {

// A function's place on its stack, where it goes on later.
using Place = jmp_buf;

// One stack. It runs `work` once for each time that it is entered from its beginning.
struct Stack {
  char* memory = nullptr;
  ucontext_t first = {};
  bool entered = false;
  Place idle = {};
};

// Stacks of one size, used again and again.
class Stacks {
 public:
  static constexpr std::size_t kBytes = 256 * 1024;

  // `work` runs on a stack when it is entered.
  explicit Stacks(void (*work)()) : work_(work) {}
  ~Stacks();
  Stacks(const Stacks&) = delete;
  Stacks& operator=(const Stacks&) = delete;

  Stack* take();
  void give_back(Stack* stack) { free_.push_back(stack); }
  // All stacks, whatever runs on them, which is never gone on with.
  void reset();
  // Whether more was used than there is.
  static bool overflown(const Stack& stack);
  void prepare(Stack& stack) const;

 private:
  void (*work_)();
  std::vector<std::unique_ptr<Stack>> all_;
  std::vector<Stack*> free_;
};

}  // namespace fuseblock_emulated
