// Kernels on a GPU: loading, launching in streams, with clusters and cooperatively, and what is refused. Skipped where
// there is no GPU.
#include <gtest/gtest.h>

#include <memory>
#include <numeric>
#include <thread>
#include <vector>

#include "cuda/jit/cache.h"
#include "cuda/jit/driver.h"
#include "cuda/jit/module.h"
#include "fuseblock/error.h"
#include "jit_kernels.h"

namespace fuseblock::jit {
namespace {

// Each block writes its rank in its cluster and the bytes of dynamic shared memory it was given, using the last of them.
KernelSource rank_kernel() {
  KernelSource source;
  source.name = source.entry = "rank";
  source.text = R"(
extern "C" __global__ void rank(unsigned* ranks, unsigned* shared_bytes) {
  extern __shared__ unsigned memory[];
  unsigned rank, bytes;
  asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  asm volatile("mov.u32 %0, %%dynamic_smem_size;" : "=r"(bytes));
  memory[bytes / 4 - 1] = rank;
  __syncthreads();
  if (threadIdx.x == 0) ranks[blockIdx.x] = memory[bytes / 4 - 1];
  if (threadIdx.x == 0) shared_bytes[blockIdx.x] = bytes;
}
)";
  source.options = {"--std=c++17"};
  return source;
}

// Blocks add to a counter and wait until all of them have: ends only where all run at the same time.
KernelSource barrier_kernel() {
  KernelSource source;
  source.name = source.entry = "barrier";
  source.text = R"(
extern "C" __global__ void barrier(volatile unsigned* counter) {
  if (threadIdx.x != 0) return;
  atomicAdd((unsigned*)counter, 1u);
  while (*counter < gridDim.x) {
  }
}
)";
  return source;
}

// Memory of the GPU.
template <class T>
class Array {
 public:
  explicit Array(const std::vector<T>& values) : driver_(require_driver()), count_(values.size()) {
    check(driver_.cuMemAlloc(&pointer_, count_ * sizeof(T)), "cuMemAlloc");
    check(driver_.cuMemcpyHtoD(pointer_, values.data(), count_ * sizeof(T)), "cuMemcpyHtoD");
  }
  ~Array() { driver_.cuMemFree(pointer_); }
  Array(const Array&) = delete;
  Array& operator=(const Array&) = delete;

  CUdeviceptr* address() { return &pointer_; }
  std::vector<T> values() const {
    std::vector<T> result(count_);
    check(driver_.cuMemcpyDtoH(result.data(), pointer_, count_ * sizeof(T)), "cuMemcpyDtoH");
    return result;
  }

 private:
  const Driver& driver_;
  std::size_t count_;
  CUdeviceptr pointer_ = 0;
};

// Where there is no GPU, at least the compiler has seen them.
TEST(LaunchKernels, Compile) {
  FUSEBLOCK_NEEDS_COMPILER();
  EXPECT_EQ(compile(rank_kernel(), architecture("sm_90a")).resources().local_bytes, 0);
  EXPECT_EQ(compile(barrier_kernel(), architecture("sm_80")).resources().local_bytes, 0);
}

class Launches : public testing::Test {
 protected:
  void SetUp() override {
    if (driver() == nullptr) GTEST_SKIP() << no_driver_reason();
    const DeviceFacts facts = device_facts(0);
    architecture_ = &architecture_for(facts.compute_major, facts.compute_minor);
    context_ = std::make_unique<ContextScope>(0);
    check(driver()->cuStreamCreate(&stream_, CU_STREAM_NON_BLOCKING), "cuStreamCreate");
  }
  void TearDown() override {
    if (stream_ != nullptr) driver()->cuStreamDestroy(stream_);
  }

  Kernel load(const KernelSource& source, const KernelLimits& limits = {}) const {
    return load_kernel(*kernel_cache().find(source, *architecture_).cubin, limits);
  }

  const Architecture* architecture_ = nullptr;
  std::unique_ptr<ContextScope> context_;
  CUstream stream_ = nullptr;
};

TEST_F(Launches, TheDeviceIsDescribed) {
  const DeviceFacts facts = device_facts(0);
  EXPECT_FALSE(facts.model.empty());
  EXPECT_GT(facts.multiprocessors, 0);
  EXPECT_GT(facts.memory_bytes, std::size_t{1} << 30);
  EXPECT_GT(facts.l2_bytes, std::size_t{1} << 20);
  EXPECT_LE(architecture_->shared_bytes_block, 227 * 1024);
  if (architecture_->exact) {
    EXPECT_EQ(facts.shared_bytes_block, architecture_->shared_bytes_block);
    EXPECT_EQ(facts.shared_bytes_multiprocessor, architecture_->shared_bytes_multiprocessor);
    EXPECT_EQ(facts.cluster_launch, architecture_->clusters);
  }
  EXPECT_THROW(device_facts(device_count()), UserError);
}

TEST_F(Launches, AKernelComputes) {
  const Cubin& cubin = *kernel_cache().find(scale_kernel(5), *architecture_).cubin;
  const Kernel kernel = load_kernel(cubin);
  EXPECT_EQ(kernel.registers, cubin.resources().registers);
  EXPECT_EQ(kernel.shared_bytes, cubin.resources().shared_bytes);
  EXPECT_EQ(kernel.local_bytes, cubin.resources().local_bytes);
  EXPECT_EQ(kernel.max_threads, 256);
  EXPECT_EQ(load_kernel(cubin).function, kernel.function);

  long long count = 100'003;
  std::vector<float> x(static_cast<std::size_t>(count));
  std::iota(x.begin(), x.end(), -7.0F);
  Array<float> input(x);
  Array<float> output(std::vector<float>(x.size(), -1.0F));
  std::array<void*, 3> parameters = {output.address(), input.address(), &count};
  Launch request;
  request.function = kernel.function;
  request.grid[0] = static_cast<unsigned int>((count + 255) / 256);
  request.block[0] = 256;
  request.stream = stream_;
  request.parameters = parameters.data();
  request.name = kernel.name;
  EXPECT_GE(blocks_per_multiprocessor(*driver(), request), 1);
  launch(*driver(), request);
  check(driver()->cuStreamSynchronize(stream_), "cuStreamSynchronize");
  const std::vector<float> y = output.values();
  for (std::size_t i = 0; i < x.size(); ++i) ASSERT_EQ(y[i], 5 * x[i]) << i;
}

TEST_F(Launches, ClustersAndSharedMemory) {
  if (!architecture_->clusters) GTEST_SKIP() << "no clusters on " << architecture_->name;
  constexpr unsigned int kBlocks = 32;
  constexpr unsigned int kCluster = 4;
  const auto bytes = static_cast<unsigned int>(architecture_->shared_bytes_block);
  const Kernel kernel = load(rank_kernel(), {static_cast<int>(bytes), false});
  Array<unsigned int> ranks(std::vector<unsigned int>(kBlocks, 99));
  Array<unsigned int> sizes(std::vector<unsigned int>(kBlocks, 0));
  std::array<void*, 2> parameters = {ranks.address(), sizes.address()};
  Launch request;
  request.function = kernel.function;
  request.grid[0] = kBlocks;
  request.block[0] = 64;
  request.cluster[0] = kCluster;
  request.dynamic_shared_bytes = bytes;
  request.stream = stream_;
  request.parameters = parameters.data();
  request.name = kernel.name;
  EXPECT_GE(active_clusters(*driver(), request), 1);
  launch(*driver(), request);
  check(driver()->cuStreamSynchronize(stream_), "cuStreamSynchronize");
  for (unsigned int i = 0; i < kBlocks; ++i) {
    EXPECT_EQ(ranks.values()[i], i % kCluster);
    EXPECT_EQ(sizes.values()[i], bytes);
  }
}

TEST_F(Launches, CooperativeBlocksRunTogetherOrAreRefused) {
  const Kernel kernel = load(barrier_kernel());
  Array<unsigned int> counter(std::vector<unsigned int>(1, 0));
  std::array<void*, 1> parameters = {counter.address()};
  Launch request;
  request.function = kernel.function;
  request.block[0] = 1024;
  request.cooperative = true;
  request.stream = stream_;
  request.parameters = parameters.data();
  request.name = kernel.name;
  const auto fit = static_cast<unsigned int>(blocks_per_multiprocessor(*driver(), request) *
                                             device_facts(0).multiprocessors);
  request.grid[0] = fit;
  launch(*driver(), request);
  check(driver()->cuStreamSynchronize(stream_), "cuStreamSynchronize");
  EXPECT_EQ(counter.values()[0], fit);
  request.grid[0] = fit + 1;
  try {
    launch(*driver(), request);
    FAIL() << "more blocks than fit were launched";
  } catch (const InternalError& error) {
    EXPECT_NE(std::string(error.what()).find("cuLaunchKernelEx (barrier): CUDA_ERROR_"), std::string::npos)
        << error.what();
  }
}

TEST_F(Launches, TooMuchSharedMemoryIsRefused) {
  EXPECT_THROW(load(barrier_kernel(), {architecture_->shared_bytes_multiprocessor + 1, false}),
               InternalError);
}

TEST_F(Launches, ABrokenCubinIsRefused) {
  Cubin cubin = *kernel_cache().find(scale_kernel(5), *architecture_).cubin;
  cubin.identity = "broken";
  cubin.image = "no machine code";
  EXPECT_THROW(load_kernel(cubin), InternalError);
}

TEST_F(Launches, StreamsAreNotCapturingByThemselves) {
  EXPECT_FALSE(is_capturing(*driver(), stream_));
  EXPECT_FALSE(is_capturing(*driver(), nullptr));
}

TEST_F(Launches, ContextsAreRestored) {
  CUcontext inside = nullptr;
  check(driver()->cuCtxGetCurrent(&inside), "cuCtxGetCurrent");
  EXPECT_EQ(inside, primary_context(0));
  std::thread([&] {
    CUcontext context = nullptr;
    {
      const ContextScope scope(0);
      driver()->cuCtxGetCurrent(&context);
      EXPECT_EQ(context, primary_context(0));
    }
    driver()->cuCtxGetCurrent(&context);
    EXPECT_EQ(context, nullptr);
  }).join();
}

}  // namespace
}  // namespace fuseblock::jit
