// Plans inside the capture of a CUDA graph, from the thread that captures and from another one, as autograd runs backward;
// and that the emulator refuses there what a driver refuses.
#include <dlfcn.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <deque>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "cuda/jit/driver.h"
#include "cuda/launch/tags.h"
#include "fuseblock/error.h"
#include "fuseblock/plan.h"

namespace fuseblock::jit {
namespace {

constexpr auto kInvalidated = static_cast<CUresult>(901);

// A stream that is captured, and a plan's tensors.
class Capture : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_NE(driver(), nullptr) << no_driver_reason();
    ASSERT_NE(device_facts(0).model.find("emulated"), std::string::npos) << device_facts(0).model;
    library_ = dlopen("libcuda.so.1", RTLD_NOW);
    ASSERT_NE(library_, nullptr);
    check(driver()->cuStreamCreate(&stream_, CU_STREAM_NON_BLOCKING), "cuStreamCreate");
  }
  void TearDown() override {
    driver()->cuStreamDestroy(stream_);
    dlclose(library_);
  }

  void begin() {
    using Begin = CUresult (*)(CUstream, int);
    const auto function = reinterpret_cast<Begin>(dlsym(library_, "cuStreamBeginCapture_v2"));
    check(function(stream_, 0), "cuStreamBeginCapture");
  }
  CUresult end(std::uintptr_t& nodes) {
    using End = CUresult (*)(CUstream, std::uintptr_t*);
    return reinterpret_cast<End>(dlsym(library_, "cuStreamEndCapture"))(stream_, &nodes);
  }

  // That the emulator was asked for.
  unsigned int memsets() const {
    using Count = unsigned int (*)();
    return reinterpret_cast<Count>(dlsym(library_, "fuseblock_emulated_memsets"))();
  }

  // One memory for each name.
  std::vector<float>& memory(const NamedType& named) {
    std::vector<float>& values = memory_[named.name];
    if (values.empty()) values.assign(2 * static_cast<std::size_t>(named.type.element_count()), 0.5F);
    return values;
  }
  Arguments arguments(const Plan& plan) {
    Arguments result;
    for (const NamedType& input : plan.inputs())
      result.inputs.push_back(
          {memory(input).data(), input.type.dtype, input.type.extents, input.type.strides()});
    for (const NamedType& output : plan.outputs())
      result.outputs.push_back(
          {memory(output).data(), output.type.dtype, output.type.extents, output.type.strides()});
    result.stream = stream_;
    return result;
  }
  // What is wrong with the run; empty where nothing is.
  std::string run(const Plan& plan, const Arguments& arguments) {
    workspaces_.emplace_back(plan.workspace_bytes());
    try {
      plan.run(arguments, workspaces_.back().bytes());
    } catch (const UserError& error) {
      return error.what();
    }
    return "";
  }

  CUstream stream_ = nullptr;

 private:
  void* library_ = nullptr;
  std::map<std::string, std::vector<float>> memory_;
  std::deque<Workspace> workspaces_;
};

TEST_F(Capture, HoldsForwardAndBackwardOfAnotherThread) {
  for (const char* notation : {"group_norm(2) | silu", "layer_norm(c) | gelu", "softmax(h,w)"}) {
    SCOPED_TRACE(notation);
    const TypedBlock block =
        TypedBlock::infer(Block::parse(notation), TensorType::parse("f32[3,4,16,18]"), {});
    const TrainingPlans both = Plan::make_training(block, {"x"}, Device::by_name("cuda"));
    const Arguments forward = arguments(both.forward);
    const Arguments backward = arguments(both.backward);
    begin();
    EXPECT_EQ(run(both.forward, forward), "");
    // The first use of the backward plan, of this thread and of the driver in it.
    std::string told;
    std::thread([&] { told = run(both.backward, backward); }).join();
    EXPECT_EQ(told, "");
    std::uintptr_t nodes = 0;
    EXPECT_EQ(end(nodes), CUDA_SUCCESS);
    EXPECT_GE(nodes, 2U);
  }
}

// A replay has the tags of the one before it, so that what that has left must be cleared; other launches have their own.
TEST_F(Capture, ClearsListsThatNeedNoZerosElsewhere) {
  struct Division {
    const char* variable;
    const char* words;
    const char* type;
    const char* said;  // by explain
  };
  for (const Division& division :
       {Division{"FUSEBLOCK_ROWS", "ahead=2,team=2,blocks=1,pieces=1,threads=32", "bf16[3,8,32,32]",
                 "no barriers"},
        Division{"FUSEBLOCK_SLICES", "team=2,pieces=1,threads=32,blocks=1,ring=3,registers=2",
                 "bf16[3,8,32,32]:cl", "of these in registers"}}) {
    SCOPED_TRACE(division.variable);
    setenv(division.variable, division.words, 1);
    const Plan plan =
        Plan::make(Block::parse("group_norm(1) | silu"), division.type, {}, Device::by_name("cuda"));
    unsetenv(division.variable);
    EXPECT_NE(plan.explain().find(division.said), std::string::npos) << plan.explain();
    const Arguments tensors = arguments(plan);
    const unsigned int before = memsets();
    EXPECT_EQ(run(plan, tensors), "");
    EXPECT_EQ(memsets(), before);
    begin();
    EXPECT_EQ(run(plan, tensors), "");
    std::uintptr_t nodes = 0;
    EXPECT_EQ(end(nodes), CUDA_SUCCESS);
    EXPECT_EQ(nodes, 2U);  // clearing, and the kernel
    EXPECT_EQ(memsets(), before + 1);
  }
}

TEST(Tags, AreNeverTheSame) {
  const std::uint64_t first = cuda::take_tags(5);
  const std::uint64_t second = cuda::take_tags(1);
  EXPECT_NE(first, 0U);
  EXPECT_EQ(second, first + 5);
}

TEST_F(Capture, RefusesViewsWhoseKernelIsNotThereYet) {
  const Plan plan =
      Plan::make(Block::parse("group_norm(2) | tanh"), "f32[2,4,16,18]", {}, Device::by_name("cuda"));
  Arguments strided = arguments(plan);
  for (std::int64_t& stride : strided.inputs[0].strides) stride *= 2;
  begin();
  const std::string told = run(plan, strided);
  EXPECT_NE(told.find("fuseblock.prepare"), std::string::npos) << told;
  std::uintptr_t nodes = 0;
  EXPECT_EQ(end(nodes), CUDA_SUCCESS);  // refused before the driver was asked
  EXPECT_EQ(run(plan, strided), "");
  begin();
  EXPECT_EQ(run(plan, strided), "");
  EXPECT_EQ(end(nodes), CUDA_SUCCESS);
  EXPECT_GE(nodes, 1U);
}

TEST_F(Capture, IsBrokenByWhatADriverDoesNotAllow) {
  const ContextScope context(0);
  const Driver& functions = *driver();
  begin();
  CUdeviceptr pointer = 0;
  CUresult result = CUDA_SUCCESS;
  std::thread([&] { result = functions.cuMemAlloc(&pointer, 64); }).join();
  EXPECT_EQ(result, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  EXPECT_EQ(functions.cuMemsetD8Async(1, 0, 1, stream_), kInvalidated);
  std::uintptr_t nodes = 0;
  EXPECT_EQ(end(nodes), kInvalidated);

  begin();
  EXPECT_EQ(functions.cuStreamSynchronize(stream_), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  EXPECT_EQ(end(nodes), kInvalidated);

  std::vector<float> value(1, 1.0F);
  begin();
  const auto place = reinterpret_cast<CUdeviceptr>(value.data());
  EXPECT_EQ(functions.cuMemsetD8Async(place, 0, sizeof(float), stream_), CUDA_SUCCESS);
  EXPECT_EQ(value[0], 1.0F);  // a node, which has not run
  EXPECT_EQ(end(nodes), CUDA_SUCCESS);
  EXPECT_EQ(nodes, 1U);
}

}  // namespace
}  // namespace fuseblock::jit
