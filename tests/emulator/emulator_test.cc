// The emulator finds what it says it does, and runs what is right. The engine's own tests of launches (jit_launch_test.cc)
// are in the same program, and run on the emulator, too.
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <string>
#include <vector>

#include "cuda/jit/cache.h"
#include "cuda/jit/driver.h"
#include "cuda/jit/module.h"
#include "fuseblock/error.h"

namespace fuseblock::jit {
namespace {

struct Shape {
  unsigned int blocks = 1;
  unsigned int threads = 32;
  unsigned int cluster = 1;
  unsigned int shared_bytes = 0;
  bool cooperative = false;
};

// Runs `void test(float* out)` over 256 numbers that are -1 before.
class Emulator : public testing::Test {
 protected:
  static constexpr std::size_t kCount = 256;

  void SetUp() override {
    ASSERT_NE(driver(), nullptr) << no_driver_reason();
    ASSERT_NE(device_facts(0).model.find("emulated"), std::string::npos) << device_facts(0).model;
  }

  static Cubin compiled(const std::string& body, const std::string& before = "") {
    KernelSource source;
    source.name = source.entry = "test";
    source.text = before + "\nextern \"C\" __global__ void test(float* out) {\n" + body + "\n}\n";
    return compile(source, architecture("sm_90a"));
  }

  std::vector<float> run(const std::string& body, const Shape& shape = {}, const std::string& before = "") {
    Cubin cubin = compiled(body, before);
    cubin.identity = body + before;
    const Kernel kernel = load_kernel(cubin, {static_cast<int>(shape.shared_bytes), false});
    const Driver& functions = *driver();
    std::vector<float> values(kCount, -1.0F);
    CUdeviceptr memory = 0;
    check(functions.cuMemAlloc(&memory, kCount * sizeof(float)), "cuMemAlloc");
    check(functions.cuMemcpyHtoD(memory, values.data(), kCount * sizeof(float)), "cuMemcpyHtoD");
    std::array<void*, 1> parameters = {&memory};
    Launch request;
    request.function = kernel.function;
    request.grid[0] = shape.blocks;
    request.block[0] = shape.threads;
    request.cluster[0] = shape.cluster;
    request.cooperative = shape.cooperative;
    request.dynamic_shared_bytes = shape.shared_bytes;
    request.parameters = parameters.data();
    request.name = kernel.name;
    std::string told;
    try {
      launch(functions, request);
    } catch (const InternalError& error) {
      told = error.what();
    }
    check(functions.cuMemcpyDtoH(values.data(), memory, kCount * sizeof(float)), "cuMemcpyDtoH");
    functions.cuMemFree(memory);
    if (!told.empty()) throw InternalError(told);
    return values;
  }

  // The words of the launch's failure.
  std::string failure(const std::string& body, const Shape& shape = {}, const std::string& before = "") {
    try {
      run(body, shape, before);
    } catch (const InternalError& error) {
      return error.what();
    }
    return "no failure";
  }

  ContextScope context_ = ContextScope(0);
};

using testing::AssertionResult;

AssertionResult has(const std::string& text, const std::string& part) {
  if (text.find(part) != std::string::npos) return testing::AssertionSuccess();
  return testing::AssertionFailure() << "no `" << part << "` in: " << text;
}

TEST_F(Emulator, ShufflesAndBarriers) {
  const std::vector<float> out = run(R"(
  __shared__ float last[8];
  float sum = threadIdx.x;
  for (int distance = 1; distance < 32; distance *= 2) sum += __shfl_xor_sync(0xffffffffu, sum, distance);
  if (threadIdx.x % 32 == 31) last[threadIdx.x / 32] = sum;
  __syncthreads();
  out[threadIdx.x] = last[(threadIdx.x / 32 + 1) % 8];)",
                                     {.threads = 256});
  for (std::size_t i = 0; i < kCount; ++i) {
    const std::size_t warp = (i / 32 + 1) % 8;
    EXPECT_EQ(out[i], static_cast<float>(warp * 32 * 32 + 31 * 16)) << i;
  }
}

TEST_F(Emulator, WarpsThatArriveAndGoOn) {
  // The second warp waits for what the first has written, which does not wait.
  const std::vector<float> out = run(R"(
  __shared__ float written[32];
  if (threadIdx.x < 32) {
    written[threadIdx.x] = threadIdx.x + 1;
    asm volatile("bar.arrive %0, 64;" ::"r"(1) : "memory");
  } else {
    asm volatile("bar.sync %0, 64;" ::"r"(1) : "memory");
    out[threadIdx.x] = written[threadIdx.x - 32];
  })",
                                     {.threads = 64});
  for (std::size_t i = 32; i < 64; ++i) EXPECT_EQ(out[i], static_cast<float>(i - 31)) << i;
  EXPECT_TRUE(
      has(failure(R"(asm volatile("bar.sync %0, 64;" ::"r"(1) : "memory");)"), "a barrier of the block"));
}

TEST_F(Emulator, TwoRegistersAsOne) {
  const std::vector<float> out = run(R"(
  unsigned long long both;
  asm("mov.b64 %0, {%1, %2};" : "=l"(both) : "r"(threadIdx.x), "r"(7));
  out[threadIdx.x] = (both >> 32) * 100 + (both & 0xffffffffu);)",
                                     {.threads = 32});
  for (std::size_t i = 0; i < 32; ++i) EXPECT_EQ(out[i], static_cast<float>(700 + i)) << i;
}

TEST_F(Emulator, SixteenBytesAtOnce) {
  const std::string body = R"(
  unsigned long long low, high;
  asm volatile("{\n.reg .b128 whole;\nmov.b128 whole, {%1, %2};\nst.relaxed.gpu.global.b128 [%0], whole;\n}"
               ::"l"(out + 4 * threadIdx.x + OFF), "l"(7ull << 32 | threadIdx.x), "l"(9ull) : "memory");
  asm volatile("{\n.reg .b128 whole;\nld.relaxed.gpu.global.b128 whole, [%2];\nmov.b128 {%0, %1}, whole;\n}"
               : "=l"(low), "=l"(high) : "l"(out + 4 * threadIdx.x) : "memory");
  out[128 + threadIdx.x] = (low & 0xffffffffu) + 100 * (low >> 32) + 10000 * high;)";
  auto at = [&](const std::string& offset) { return std::string(body).replace(body.find("OFF"), 3, offset); };
  const std::vector<float> out = run(at("0"), {.threads = 32});
  for (std::size_t i = 0; i < 32; ++i) EXPECT_EQ(out[128 + i], static_cast<float>(90700 + i)) << i;
  EXPECT_TRUE(has(failure(at("2")), "misaligned address"));
}

TEST_F(Emulator, ABarrierThatSomeNeverReach) {
  const std::string told = failure(R"(
  if (threadIdx.x < 16) __shfl_sync(0xffffffffu, 1, 0);
  else __syncthreads();)");
  EXPECT_TRUE(has(told, "cuLaunchKernelEx (test): CUDA_ERROR_LAUNCH_FAILED: the kernel test does not end"));
  EXPECT_TRUE(has(told, "16 threads (the first: block 0, thread 0) wait at __shfl_sync, line 4"));
  EXPECT_TRUE(has(told, "16 threads (the first: block 0, thread 16) wait at a barrier of the block, line 5"));
}

TEST_F(Emulator, AWordThatNobodyWrites) {
  const std::string told = failure(R"(
  unsigned int word;
  do {
    asm volatile("ld.relaxed.gpu.global.u32 %0, [%1];" : "=r"(word) : "l"(out) : "memory");
  } while (word != 7);)");
  EXPECT_TRUE(has(told, "does not end: 32 threads (the first: block 0, thread 0) wait at a look at memory"));
}

TEST_F(Emulator, LanesAtDifferentFunctions) {
  EXPECT_TRUE(has(failure("if (threadIdx.x < 16) __syncwarp(); else __shfl_sync(0xffffffffu, 1, 0);"),
                  "lanes of a warp meet at different functions: __"));
}

TEST_F(Emulator, LanesThatTheMaskLeavesOut) {
  EXPECT_TRUE(has(failure("__shfl_sync(1u << threadIdx.x, 1, 5);"),
                  "__shfl_sync: the mask leaves out the lane that is read"));
  EXPECT_TRUE(has(failure("__syncwarp(2u);"), "__syncwarp: the mask leaves out the lane that calls it"));
}

TEST_F(Emulator, MisalignedVectors) {
  EXPECT_TRUE(has(failure(R"(
  extern __shared__ float memory[];
  const unsigned int to = (unsigned int)__cvta_generic_to_shared(memory);
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(out + 1) : "memory");)",
                          {.shared_bytes = 512}),
                  "misaligned address"));
  EXPECT_TRUE(has(failure("reinterpret_cast<uint4*>(out + 1)[0] = uint4{1, 2, 3, 4};"),
                  ", line 3 `reinterpret_cast<uint4*>(out + 1)[0] = uint4{1, 2, 3, 4};`: "
                  "misaligned address"));
  EXPECT_TRUE(has(failure(R"(asm volatile("st.global.v2.b32 [%0], {%1, %1};" ::"l"(out + 1), "r"(5)
               : "memory");)"),
                  "misaligned address"));
}

TEST_F(Emulator, IndicesOutOfBounds) {
  EXPECT_TRUE(has(failure("float few[4] = {1, 2, 3, 4};\nout[0] = few[threadIdx.x];"),
                  ", line 4 `out[0] = few[threadIdx.x];`: index out of bounds"));
}

TEST_F(Emulator, MemoryOutOfBounds) {
  EXPECT_TRUE(
      has(failure("if (threadIdx.x == 0) out[256] = 1;"), "written behind a piece of memory of 1024 bytes"));
  EXPECT_TRUE(
      has(failure("if (threadIdx.x == 0) out[-1] = 1;"), "written before a piece of memory of 1024 bytes"));
  EXPECT_TRUE(has(failure("if (threadIdx.x == 5) *(float*)64 = 1;"),
                  "block 0, thread 5: an address that is nobody's memory"));
  EXPECT_TRUE(
      has(failure("extern __shared__ float memory[];\nmemory[threadIdx.x] = 1;", {.shared_bytes = 124}),
          "written outside of the block's shared memory"));
  EXPECT_EQ(run("out[threadIdx.x] = 3;")[31], 3.0F);
}

TEST_F(Emulator, SharedMemoryBeginsAsNothing) {
  EXPECT_TRUE(std::isnan(run("__shared__ float x; out[threadIdx.x] = x;")[7]));
}

TEST_F(Emulator, ABarrierThatIsMissing) {
  const std::string body = R"(
  __shared__ float all[256];
  all[threadIdx.x] = threadIdx.x;
  out[threadIdx.x] = all[255 - threadIdx.x];)";
  bool found = false;
  for (int i = 0; i < 4; ++i)
    for (const float value : run(body, {.threads = 256})) found = found || std::isnan(value);
  EXPECT_TRUE(found);
}

constexpr const char* kCopy = R"(
  extern __shared__ float memory[];
  const unsigned int to = (unsigned int)__cvta_generic_to_shared(memory + 4 * threadIdx.x);
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(out + 4 * threadIdx.x) : "memory");
  asm volatile("cp.async.commit_group;" ::: "memory");)";

TEST_F(Emulator, CopiesArriveWhenTheyAreWaitedFor) {
  const std::string read = "\nout[128 + threadIdx.x] = memory[4 * threadIdx.x];";
  EXPECT_TRUE(std::isnan(run(kCopy + read, {.shared_bytes = 512})[130]));
  const std::string wait = "\nasm volatile(\"cp.async.wait_group %0;\" ::\"n\"(0) : \"memory\");";
  EXPECT_EQ(run(kCopy + wait + read, {.shared_bytes = 512})[130], -1.0F);
}

// Each block reads the shared memory of the next one in its cluster.
TEST_F(Emulator, ClustersReadEachOthersSharedMemory) {
  const std::string barrier = R"(
  asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
  asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");)";
  const std::string begin = R"(
  __shared__ float mine[32];
  unsigned int rank, blocks, there;
  float found;
  asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  asm volatile("mov.u32 %0, %%cluster_nctarank;" : "=r"(blocks));
  mine[threadIdx.x] = 100 * blockIdx.x + threadIdx.x;)";
  const std::string read = R"(
  asm volatile("mapa.shared::cluster.u32 %0, %1, %2;"
               : "=r"(there) : "r"((unsigned int)__cvta_generic_to_shared(mine)), "r"((rank + 1) % blocks));
  asm volatile("ld.shared::cluster.f32 %0, [%1];" : "=f"(found) : "r"(there + 4 * threadIdx.x) : "memory");
  out[32 * blockIdx.x + threadIdx.x] = found;)";
  const Shape shape = {.blocks = 8, .cluster = 4};
  const std::vector<float> out = run(begin + barrier + read + barrier, shape);
  for (std::size_t i = 0; i < kCount; ++i) {
    const std::size_t first = i / 128 * 4;  // block of the cluster
    const std::size_t next = first + (i / 32 + 1) % 4;
    EXPECT_EQ(out[i], static_cast<float>(100 * next + i % 32)) << i;
  }
  bool gone = false;
  for (int i = 0; i < 8; ++i)
    gone =
        gone || failure(begin + barrier + read, shape).find("of a block that has ended") != std::string::npos;
  EXPECT_TRUE(gone);
}

TEST_F(Emulator, BlocksThatWaitForEachOther) {
  const std::string body = R"(
  if (threadIdx.x == 0) atomicAdd((unsigned int*)count, 1u);
  while (*count < gridDim.x) {
  }
  out[blockIdx.x] = *count;)";
  const std::vector<float> out =
      run(body, {.blocks = 8, .cooperative = true}, "__device__ volatile unsigned int count[1] = {0};");
  EXPECT_EQ(out[5], 8.0F);
}

// Small integers, exact in every type, laid out as PTX documents the registers of mma.sync, against the plain product.
TEST_F(Emulator, ProductsOfMatrices) {
  struct Kind {
    std::string type;
    int depth;
    std::string pack;  // the register of one element, or of two neighbours
  };
  const std::vector<Kind> kinds = {{"tf32", 8, "__float_as_uint(A)"},
                                   {"bf16", 16, "__float_as_uint(A) >> 16 | __float_as_uint(B)"},
                                   {"f16", 16, "half_bits(A) | half_bits(B) << 16"}};
  auto first = [](int row, int k) { return static_cast<float>((row * 5 + k * 3) % 11 - 4); };
  auto second = [](int k, int column) { return static_cast<float>((k * 7 + column * 2) % 13 - 6); };
  for (const Kind& kind : kinds) {
    const std::string depth = std::to_string(kind.depth);
    const bool pairs = kind.depth == 16;
    const std::string before = R"(
__device__ inline float first(int row, int k) { return (float)((row * 5 + k * 3) % 11 - 4); }
__device__ inline float second(int k, int column) { return (float)((k * 7 + column * 2) % 13 - 6); }
__device__ inline unsigned int half_bits(float x) {
  unsigned short bits;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(x));
  return bits;
}
__device__ inline unsigned int packed(float A, float B) { return )" +
                               kind.pack + "; }\n";
    const std::string k = pairs ? "2 * t + 8 * half" : "t + 4 * half";
    const std::vector<float> out =
        run(R"(
  const int g = threadIdx.x / 4, t = threadIdx.x % 4;
  unsigned int a[4], b[2];
  for (int i = 0; i < 4; ++i) {
    const int half = i / 2, row = g + i % 2 * 8, k = )" +
                k + R"(;
    a[i] = packed(first(row, k), first(row, k + 1));
  }
  for (int half = 0; half < 2; ++half) {
    const int k = )" +
                k + R"(;
    b[half] = packed(second(k, g), second(k + 1, g));
  }
  float d[4] = {1, 2, 3, 4};
  asm("mma.sync.aligned.m16n8k)" +
                depth + ".row.col.f32." + kind.type + "." + kind.type +
                R"(.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
  for (int i = 0; i < 4; ++i) out[(g + i / 2 * 8) * 8 + t * 2 + i % 2] = d[i];)",
            {}, before);
    for (int row = 0; row < 16; ++row)
      for (int column = 0; column < 8; ++column) {
        const int begun = row / 8 * 2 + column % 2 + 1;
        auto expected = static_cast<float>(begun);
        for (int i = 0; i < kind.depth; ++i) expected += first(row, i) * second(i, column);
        EXPECT_EQ(out[static_cast<std::size_t>(row * 8 + column)], expected)
            << kind.type << " " << row << " " << column;
      }
  }
}

// Rows of 16 bytes, in an order of the kernel's own, and one that is misaligned.
TEST_F(Emulator, MatricesOutOfSharedMemory) {
  auto body = [](const std::string& shift) {
    return R"(
  __shared__ __align__(16) unsigned int rows[33 * 4];
  for (int i = threadIdx.x; i < 33 * 4; i += 32) rows[i] = i;
  __syncwarp();
  const unsigned int row = (unsigned int)__cvta_generic_to_shared(rows + (31 - threadIdx.x) * 4 + )" +
           shift + R"();
  unsigned int d[4];
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
      : "=r"(d[0]), "=r"(d[1]), "=r"(d[2]), "=r"(d[3]) : "r"(row) : "memory");
  for (int i = 0; i < 4; ++i) out[threadIdx.x * 4 + i] = (float)d[i];)";
  };
  const std::vector<float> out = run(body("0"));
  for (int lane = 0; lane < 32; ++lane)
    for (int i = 0; i < 4; ++i) {
      const int word = (31 - (i * 8 + lane / 4)) * 4 + lane % 4;
      EXPECT_EQ(out[static_cast<std::size_t>(lane * 4 + i)], static_cast<float>(word));
    }
  EXPECT_TRUE(has(failure(body("1")), "ldmatrix"));
}

// The same by a warpgroup: 64 rows and 16 columns in shared memory, as core matrices of eight rows of 16 bytes, one behind
// the other along the rows; the halves of the depth are `next` apart, another distance for each factor.
TEST_F(Emulator, ProductsOfWarpgroups) {
  struct Kind {
    std::string type;
    int depth;
    std::string element, from_float;
    std::string ends;
  };
  const std::vector<Kind> kinds = {
      {"tf32", 8, "float", "x", "p, 1, 1"},
      {"bf16", 16, "unsigned short", "(unsigned short)(__float_as_uint(x) >> 16)", "p, 1, 1, 0, 0"}};
  auto first = [](int row, int k) { return static_cast<float>((row * 5 + k * 3) % 11 - 4); };
  auto second = [](int k, int column) { return static_cast<float>((k * 7 + column * 2) % 13 - 6); };
  for (const Kind& kind : kinds) {
    const std::string depth = std::to_string(kind.depth);
    const std::string before = "constexpr int kDepth = " + depth + ";\ntypedef " + kind.element +
                               " Element;\n__device__ inline Element element(float x) { return " +
                               kind.from_float + "; }\n" + R"(
__device__ inline float first(int row, int k) { return (float)((row * 5 + k * 3) % 11 - 4); }
__device__ inline float second(int k, int column) { return (float)((k * 7 + column * 2) % 13 - 6); }
__device__ inline unsigned long long place(const void* pointer) {
  return ((unsigned int)__cvta_generic_to_shared(pointer) & 0x3ffff) >> 4;
}
)";
    const std::string sums =
        R"("+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]))";
    const std::string body = R"(
  __shared__ __align__(128) Element rows[2][72][kDepth / 2];
  __shared__ __align__(128) Element columns[2][16][kDepth / 2];
  for (int k = 0; k < kDepth; ++k) {
    if (threadIdx.x < 64) rows[k / (kDepth / 2)][threadIdx.x][k % (kDepth / 2)] = element(first(threadIdx.x, k));
    if (threadIdx.x < 16) columns[k / (kDepth / 2)][threadIdx.x][k % (kDepth / 2)] = element(second(k, threadIdx.x));
  }
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
  __syncthreads();
  const unsigned long long core = 8ull << 32;
  const unsigned long long a = core | 72ull << 16 | place(rows), b = core | 16ull << 16 | place(columns);
  float d[8] = {1, 2, 3, 4, 5, 6, 7, 8};
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
  asm volatile("{ .reg .pred p; setp.ne.b32 p, 1, 0; wgmma.mma_async.sync.aligned.m64n16k)" +
                             depth + ".f32." + kind.type + "." + kind.type +
                             R"( {%0, %1, %2, %3, %4, %5, %6, %7}, %8, %9, )" + kind.ends + R"(; }" : )" +
                             sums + R"( : "l"(a), "l"(b));
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
  asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
  // The sums of rows 0 to 15, those of the first warp.
  const int g = threadIdx.x % 32 / 4, t = threadIdx.x % 4, warp = threadIdx.x / 32;
  for (int i = 0; i < 8; ++i)
    if (warp == WARP) out[(g + i / 2 % 2 * 8) * 16 + i / 4 * 8 + t * 2 + i % 2] = d[i];)";
    for (const int warp : {0, 3}) {
      const std::string own = "#undef WARP\n#define WARP " + std::to_string(warp) + "\n";
      const std::vector<float> out = run(body, {.threads = 128}, own + before);
      for (int row = 0; row < 16; ++row)
        for (int column = 0; column < 16; ++column) {
          const int begun = column / 8 * 4 + row / 8 * 2 + column % 2 + 1;
          auto expected = static_cast<float>(begun);
          for (int i = 0; i < kind.depth; ++i) expected += first(warp * 16 + row, i) * second(i, column);
          EXPECT_EQ(out[static_cast<std::size_t>(row * 16 + column)], expected)
              << kind.type << " " << warp << " " << row << " " << column;
        }
    }
  }
}

// Barriers in shared memory: phases of two arrivals, and of one with the bytes of a bulk copy.
TEST_F(Emulator, BarriersInSharedMemory) {
  const std::string before = R"(
__device__ inline unsigned int place(const void* pointer) { return (unsigned int)__cvta_generic_to_shared(pointer); }
__device__ inline void begin(unsigned long long* barrier, int count) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(place(barrier)), "r"(count) : "memory");
}
__device__ inline void arrive(unsigned long long* barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(place(barrier)) : "memory");
}
__device__ inline void wait(unsigned long long* barrier, unsigned int parity) {
  unsigned int over = 0;
  while (over == 0)
    asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2; selp.b32 %0, 1, 0, p; }"
                 : "=r"(over) : "r"(place(barrier)), "r"(parity) : "memory");
}
)";
  const std::string body = R"(
  __shared__ unsigned long long given;
  __shared__ unsigned long long taken;
  __shared__ __align__(16) float values[4];
  if (threadIdx.x == 0) begin(&given, 1), begin(&taken, 2);
  __syncthreads();
  for (int i = 0; i < 5; ++i) {
    if (threadIdx.x == 0) {
      wait(&taken, (i + 1) % 2);
      asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(place(&given)), "r"(BYTES) : "memory");
      asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];"
                   ::"r"(place(values)), "l"(out + 4 * i), "r"(16), "r"(place(&given)) : "memory");
    }
    wait(&given, i % 2);
    if (threadIdx.x % 32 < 4) out[32 + threadIdx.x / 32 * 32 + 4 * i + threadIdx.x % 32] = values[threadIdx.x % 32] - i;
    if (threadIdx.x % 32 == 0) for (int k = 0; k < ARRIVALS; ++k) arrive(&taken);
  })";
  const std::vector<float> out =
      run(body, {.threads = 64}, "#define BYTES 16\n#define ARRIVALS 1\n" + before);
  for (int warp = 0; warp < 2; ++warp)
    for (int i = 0; i < 20; ++i) {
      const int turn = i / 4;
      EXPECT_EQ(out[static_cast<std::size_t>(32 + warp * 32 + i)], static_cast<float>(-1 - turn)) << i;
    }
  EXPECT_NE(
      failure(body, {.threads = 64}, "#define BYTES 16\n#define ARRIVALS 4\n" + before).find("mbarrier"),
      std::string::npos);
  const std::string ended = R"(
  __shared__ unsigned long long barrier;
  begin(&barrier, 1);
  asm volatile("mbarrier.inval.shared::cta.b64 [%0];" ::"r"(place(&barrier)) : "memory");
)";
  EXPECT_NE(failure(ended + "  arrive(&barrier);", {.threads = 1}, before).find("no barrier"),
            std::string::npos);
}

// Each block of a cluster writes into the memory of the next one, whose barrier counts the bytes.
TEST_F(Emulator, StoresToAnotherBlockArriveAtItsBarrier) {
  const std::string body = R"(
  __shared__ unsigned long long given;
  __shared__ unsigned int values[32];
  unsigned int rank, blocks, there, barrier, over = 0;
  asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  asm volatile("mov.u32 %0, %%cluster_nctarank;" : "=r"(blocks));
  const unsigned int mine = (unsigned int)__cvta_generic_to_shared(&given);
  if (threadIdx.x == 0) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(mine), "r"(1) : "memory");
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(mine), "r"(BYTES) : "memory");
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  }
  __syncwarp();
  asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory");
  asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
  asm volatile("mapa.shared::cluster.u32 %0, %1, %2;"
               : "=r"(there) : "r"((unsigned int)__cvta_generic_to_shared(values)), "r"((rank + 1) % blocks));
  asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(barrier) : "r"(mine), "r"((rank + 1) % blocks));
  asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.u32 [%0], %1, [%2];"
               ::"r"(there + 4 * threadIdx.x), "r"(100 * blockIdx.x + threadIdx.x), "r"(barrier) : "memory");
  while (over == 0)
    asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2; selp.b32 %0, 1, 0, p; }"
                 : "=r"(over) : "r"(mine), "r"(0) : "memory");
  out[32 * blockIdx.x + threadIdx.x] = values[threadIdx.x];)";
  const Shape shape = {.blocks = 8, .cluster = 4};
  const std::vector<float> out = run(body, shape, "#define BYTES 128\n");
  for (std::size_t i = 0; i < kCount; ++i) {
    const std::size_t before = i / 128 * 4 + (i / 32 + 3) % 4;  // the block before, in the cluster
    EXPECT_EQ(out[i], static_cast<float>(100 * before + i % 32)) << i;
  }
  // Bytes that nobody writes are waited for.
  EXPECT_NE(failure(body, shape, "#define BYTES 132\n").find("wait"), std::string::npos);
}

// What a GPU ignores of a tf32 operand, and how a number becomes one.
TEST_F(Emulator, RoundingToTf32) {
  const std::vector<float> out = run(R"(
  unsigned int rounded;
  asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(rounded) : "f"(1.0f + 0.00048828125f));
  const unsigned int cut = __float_as_uint(1.0f + 0.00048828125f);
  float d[8] = {};
  for (int i = 0; i < 2; ++i) {
    const unsigned int a = threadIdx.x == 0 ? (i == 0 ? rounded : cut) : 0, none = 0;
    const unsigned int b = threadIdx.x == 0 ? __float_as_uint(1.0f) : 0;
    asm("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, {%4, %5, %5, %5}, {%6, %5}, {%0, %1, %2, %3};"
        : "+f"(d[4 * i]), "+f"(d[4 * i + 1]), "+f"(d[4 * i + 2]), "+f"(d[4 * i + 3])
        : "r"(a), "r"(none), "r"(b));
  }
  if (threadIdx.x == 0) out[0] = d[0], out[1] = d[4];)");
  EXPECT_EQ(out[0], 1.0F + 0.0009765625F);
  EXPECT_EQ(out[1], 1.0F);
}

TEST_F(Emulator, WhatIsNotKnownIsNamed) {
  try {
    compiled("unsigned int x;\nasm volatile(\"mul.hi.u24 %0, %0, 3;\" : \"=r\"(x));");
    FAIL() << "it compiles";
  } catch (const InternalError& error) {
    EXPECT_TRUE(
        has(error.what(), "line 4: the emulator does not know the PTX instruction `mul.hi.u24 %0, %0, 3`"));
  }
}

TEST_F(Emulator, LaunchesThatAGpuWouldRefuse) {
  EXPECT_TRUE(
      has(failure("", {.threads = 1025}), "1025 threads in a block, the kernel is compiled for 1024"));
  EXPECT_TRUE(has(failure("", {.blocks = 3, .cluster = 2}), "the grid does not divide into the clusters"));
}

}  // namespace
}  // namespace fuseblock::jit
