// A run of the CPU engine takes no memory but its workspace: calls of operator new are counted while every case runs,
// forward and backward, on one thread and on two.
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <new>
#include <utility>

#include "cases.h"

namespace {

std::atomic<bool> counting = false;
std::atomic<std::int64_t> allocations = 0;

void* allocate(std::size_t bytes, std::size_t alignment) {
  if (counting) ++allocations;
  void* memory = std::aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment);
  if (memory == nullptr && bytes > 0) throw std::bad_alloc();
  return memory;
}

}  // namespace

// Those for arrays and those that do not throw call these. Inlined, one without the other, they would look
// mismatched to GCC.
[[gnu::noinline]] void* operator new(std::size_t bytes) { return allocate(bytes, alignof(std::max_align_t)); }
[[gnu::noinline]] void* operator new(std::size_t bytes, std::align_val_t alignment) {
  return allocate(bytes, static_cast<std::size_t>(alignment));
}
[[gnu::noinline]] void operator delete(void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, std::align_val_t) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, std::size_t, std::align_val_t) noexcept {
  std::free(memory);
}

namespace fuseblock::cases {
namespace {

template <class Function>
std::int64_t allocations_of(const Function& function) {
  allocations = 0;
  counting = true;
  function();
  counting = false;
  return allocations;
}

// Of the second run: in the first one the threads are started.
std::int64_t allocations_of_run(const Plan& plan) {
  std::vector<Tensor> tensors;
  Arguments arguments;
  const std::vector<NamedType> inputs = plan.inputs();
  const std::vector<NamedType> outputs = plan.outputs();
  for (const NamedType& input : inputs) {
    tensors.emplace_back(input.type);
    arguments.inputs.push_back(std::as_const(tensors.back()).view());
  }
  for (const NamedType& output : outputs) {
    tensors.emplace_back(output.type);
    arguments.outputs.push_back(tensors.back().view());
  }
  Workspace workspace(plan.workspace_bytes());
  plan.run(arguments, workspace.bytes());
  return allocations_of([&] { plan.run(arguments, workspace.bytes()); });
}

TEST(Allocation, ARunTakesNoMemory) {
  for (const Case& each : read_cases(case_files())) {
    SCOPED_TRACE(each.command("cpu"));
    const TypedBlock block = each.typed();
    for (const int threads : {1, 2}) {
      const PlanOptions options = {.threads = threads};
      const Plan forward = Plan::make(block, Device::by_name("cpu"), options);
      EXPECT_EQ(allocations_of_run(forward), 0) << "forward on " << threads << " threads";
      if (block.differentiable().empty()) continue;
      EXPECT_EQ(allocations_of_run(forward.backward()), 0) << "backward on " << threads << " threads";
      const TrainingPlans pair = forward.for_training();
      EXPECT_EQ(allocations_of_run(pair.forward), 0) << "forward that saves, on " << threads << " threads";
      EXPECT_EQ(allocations_of_run(pair.backward), 0)
          << "backward of what was saved, on " << threads << " threads";
    }
  }
}

TEST(Allocation, AllocationsAreSeen) {
  std::vector<int> list;
  EXPECT_EQ(allocations_of([&] { list.reserve(1000); }), 1);
  EXPECT_EQ(allocations_of([&] { list.clear(); }), 0);
}

}  // namespace
}  // namespace fuseblock::cases
