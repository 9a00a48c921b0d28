// The run-time compiler: every architecture, what a kernel takes, errors; and machines without a driver or a compiler.
#include <gtest/gtest.h>

#include <algorithm>

#include "cuda/jit/architecture.h"
#include "cuda/jit/compiler.h"
#include "cuda/jit/driver.h"
#include "cuda/jit/resources.h"
#include "fuseblock/device.h"
#include "fuseblock/error.h"
#include "jit_kernels.h"
#include "plan/device_description.h"

namespace fuseblock::jit {
namespace {

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

TEST(Architectures, AreFoundByName) {
  for (const char* name : {"sm_80", "sm_89", "sm_90a", "sm_100a", "sm_120"})
    EXPECT_STREQ(architecture(name).name, name);
  try {
    architecture("sm_70");
    FAIL() << "sm_70 was found";
  } catch (const UserError& error) {
    EXPECT_STREQ(error.what(),
                 "there is no architecture `sm_70`; there is sm_80, sm_89, sm_90a, sm_100a, sm_120");
  }
}

TEST(Architectures, HaveNvidiasLimits) {
  EXPECT_EQ(architecture("sm_89").shared_bytes_block, 99 * 1024);
  EXPECT_EQ(architecture("sm_120").shared_bytes_block, 99 * 1024);
  EXPECT_EQ(architecture("sm_90a").shared_bytes_block, 227 * 1024);
  EXPECT_TRUE(architecture("sm_90a").clusters);
  EXPECT_FALSE(architecture("sm_89").clusters);
  for (const Architecture& each : architectures())
    EXPECT_EQ(each.shared_bytes_block + each.shared_bytes_reserved, each.shared_bytes_multiprocessor)
        << each.name;
}

TEST(Architectures, EveryGpuOfTheTableHasOne) {
  for (const DeviceDescription& gpu : gpu_descriptions())
    EXPECT_NE(architecture_of_device(gpu.name), nullptr) << gpu.name;
  EXPECT_STREQ(architecture_of_device("h200")->name, "sm_90a");
  EXPECT_STREQ(architecture_of_device("a100")->name, "sm_80");
  EXPECT_STREQ(architecture_of_device("rtx4090")->name, "sm_89");
  EXPECT_EQ(architecture_of_device("cpu"), nullptr);
}

TEST(Architectures, RunOnTheirComputeCapabilityAndLaterMinorOnes) {
  EXPECT_STREQ(architecture_for(8, 0).name, "sm_80");
  EXPECT_STREQ(architecture_for(8, 6).name, "sm_80");
  EXPECT_STREQ(architecture_for(8, 9).name, "sm_89");
  EXPECT_STREQ(architecture_for(9, 0).name, "sm_90a");
  EXPECT_STREQ(architecture_for(10, 0).name, "sm_100a");
  EXPECT_STREQ(architecture_for(12, 1).name, "sm_120");
  EXPECT_THROW(architecture_for(7, 5), NotSupportedError);
  EXPECT_THROW(architecture_for(10, 3), NotSupportedError);  // sm_100a runs on 10.0 alone
}

TEST(Resources, AreReadFromTheAssemblersLog) {
  const std::vector<KernelResources> found = resources_in_log(
      "scale.cu(3): warning #177-D: variable \"a\" was declared but never referenced\n"
      "ptxas info    : 0 bytes gmem\n"
      "ptxas info    : Compiling entry function 'norm' for 'sm_90a'\n"
      "ptxas info    : Function properties for norm\n"
      "ptxas         .     256 bytes stack frame, 24 bytes spill stores, 28 bytes spill loads\n"
      "ptxas info    : Used 255 registers, used 1 barriers, 320 bytes cumulative stack size, 1024 bytes "
      "smem, 372 "
      "bytes cmem[0]\n"
      "ptxas info    : Compile time = 202.693 ms\n"
      "ptxas info    : Compiling entry function 'plain' for 'sm_90a'\n"
      "ptxas info    : Function properties for plain\n"
      "    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads\n"
      "ptxas info    : Used 8 registers, 356 bytes cmem[0]\n"
      "ptxas info    : Function properties for _Z1ff\n"
      "ptxas         .     16 bytes stack frame, 4 bytes spill stores, 4 bytes spill loads\n");
  ASSERT_EQ(found.size(), 2U);
  EXPECT_EQ(found[0], (KernelResources{"norm", 255, 1024, 320, 24, 28}));
  EXPECT_EQ(found[1], (KernelResources{"plain", 8, 0, 0, 0, 0}));
  EXPECT_TRUE(resources_in_log("").empty());
}

TEST(Compiler, NewerThanTheDriverIsPassedOver) {
  EXPECT_EQ(reason_to_pass_over(13000, 13000), "");
  EXPECT_EQ(reason_to_pass_over(12080, 13000), "");
  EXPECT_EQ(reason_to_pass_over(13010, 0), "");
  EXPECT_EQ(reason_to_pass_over(13010, 13000), "its version 13.1 is newer than the driver's, 13.0");
  EXPECT_EQ(reason_to_pass_over(13000, 12090), "its version 13.0 is newer than the driver's, 12.9");
}

TEST(Compiler, IsLookedForAmongTheWheels) {
  const std::vector<std::string> without = compiler_files("");
  const std::vector<std::string> with = compiler_files("/packages");
  EXPECT_EQ(without.front(), "libnvrtc.so.13");  // the loader's path
  EXPECT_EQ(with.size(), without.size() + 2);
  const auto wheel = std::ranges::find(with, "/packages/nvidia/cu13/lib/libnvrtc.so.13");
  const auto older = std::ranges::find(with, "/packages/nvidia/cuda_nvrtc/lib/libnvrtc.so.12");
  const auto toolkit = std::ranges::find(with, "/usr/local/cuda/lib64/libnvrtc.so.13");
  EXPECT_LT(wheel, older);
  EXPECT_LT(older, toolkit);
  EXPECT_NE(toolkit, with.end());
}

class EveryArchitecture : public testing::TestWithParam<const char*> {};

TEST_P(EveryArchitecture, Compiles) {
  FUSEBLOCK_NEEDS_COMPILER();
  const Cubin cubin = compile(scale_kernel(), architecture(GetParam()));
  EXPECT_EQ(cubin.name, "scale");
  EXPECT_EQ(cubin.architecture, GetParam());
  EXPECT_EQ(cubin.compiler, compiler_version());
  EXPECT_TRUE(cubin.image.starts_with("\177ELF"));
  const KernelResources& resources = cubin.resources();
  EXPECT_EQ(resources.entry, "scale_entry");
  EXPECT_GT(resources.registers, 4);
  EXPECT_LE(resources.registers, 64);
  EXPECT_EQ(resources.shared_bytes, 256);
  EXPECT_EQ(resources.local_bytes, 0);
  EXPECT_EQ(resources.spill_store_bytes, 0);
}

INSTANTIATE_TEST_SUITE_P(Compiler, EveryArchitecture,
                         testing::Values("sm_80", "sm_89", "sm_90a", "sm_100a", "sm_120"),
                         [](const auto& tested) { return std::string(tested.param); });

TEST(Compiler, LocalMemoryShows) {
  FUSEBLOCK_NEEDS_COMPILER();
  KernelSource source;
  source.name = source.entry = "indexed";
  source.text = R"(
extern "C" __global__ void indexed(float* y, const int* k, int n) {
  float a[64];
  for (int i = 0; i < 64; ++i) a[i] = y[i];
  for (int i = 0; i < n; ++i) a[k[i]] += 1;
  for (int i = 0; i < 64; ++i) y[i] = a[i];
}
extern "C" __global__ void __launch_bounds__(1024, 2) other(float* y) { y[threadIdx.x] += 1; }
)";
  const Cubin cubin = compile(source, architecture("sm_90a"));
  EXPECT_EQ(cubin.resources().local_bytes, 256);
  ASSERT_EQ(cubin.kernels.size(), 2U);
  const auto other = std::ranges::find(cubin.kernels, "other", &KernelResources::entry);
  ASSERT_NE(other, cubin.kernels.end());
  EXPECT_EQ(other->local_bytes, 0);
  EXPECT_LE(other->registers, 32);
}

TEST(Compiler, ErrorsShowTheKernelTheBlockAndTheLog) {
  FUSEBLOCK_NEEDS_COMPILER();
  KernelSource source = scale_kernel();
  source.text += "__device__ int broken() { return undeclared_name; }\n";
  try {
    compile(source, architecture("sm_90a"));
    FAIL() << "it compiled";
  } catch (const InternalError& error) {
    const std::string message = error.what();
    EXPECT_TRUE(contains(message, "the kernel scale does not compile: NVRTC_ERROR_COMPILATION")) << message;
    EXPECT_TRUE(contains(message, "--std=c++17 --gpu-architecture=sm_90a")) << message;
    EXPECT_TRUE(contains(message, "block: mul(3) on f32[2,3]; factor = 3")) << message;
    EXPECT_TRUE(contains(message, "scale.cu(9): error: identifier \"undeclared_name\" is undefined"))
        << message;
  }
}

TEST(Compiler, AnUnknownOptionOrEntryIsAnError) {
  FUSEBLOCK_NEEDS_COMPILER();
  KernelSource source = scale_kernel();
  source.options.emplace_back("--no-such-option");
  try {
    compile(source, architecture("sm_90a"));
    FAIL() << "it compiled";
  } catch (const InternalError& error) {
    EXPECT_TRUE(contains(error.what(), "--no-such-option")) << error.what();
  }
  source = scale_kernel();
  source.entry = "elsewhere";
  try {
    compile(source, architecture("sm_90a"));
    FAIL() << "it compiled";
  } catch (const InternalError& error) {
    EXPECT_TRUE(contains(error.what(), "the kernel scale has no entry `elsewhere`")) << error.what();
  }
}

TEST(Driver, IsThereOrSaysWhyNot) {
  if (driver() != nullptr) {
    EXPECT_EQ(no_driver_reason(), "");
    EXPECT_GE(driver_version(), 11080);
    EXPECT_GT(device_count(), 0);
    return;
  }
  EXPECT_TRUE(contains(no_driver_reason(), "CUDA driver")) << no_driver_reason();
  EXPECT_EQ(driver_version(), 0);
  EXPECT_EQ(device_count(), 0);
  try {
    require_driver();
    FAIL() << "there is a driver";
  } catch (const NotSupportedError& error) {
    EXPECT_EQ(error.what(), no_driver_reason());
  }
  EXPECT_THROW(device_facts(0), NotSupportedError);
  EXPECT_THROW(primary_context(0), NotSupportedError);
  EXPECT_THROW(ContextScope(0), NotSupportedError);
}

}  // namespace
}  // namespace fuseblock::jit
