// Kernels of the CUDA engine compile, for every architecture, and keep everything in registers.
//
// A few blocks whose plans take every kernel and every way it reaches its tensors. Here each is compiled in one type, for
// one architecture, in turn, so that all types and all architectures occur; FUSEBLOCK_LONG=1 takes every combination.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdlib>

#include "fuseblock/sources.h"

namespace fuseblock {
namespace {

struct Sample {
  std::string block;
  std::string extents;  // with :cl where it is channels_last
  bool backward = false;
};

const std::vector<Sample>& samples() {
  static const std::vector<Sample> kSamples = {
      {"group_norm(32) | silu", "[2,320,64,64]"},
      {"group_norm(32) | silu", "[2,320,64,64]", true},
      {"group_norm(32) | silu", "[2,320,64,64]:cl"},
      {"group_norm(5)", "[3,15,7,11]", true},
      {"layer_norm(c) | silu", "[1,512,64,64]"},
      {"layer_norm(c) | silu", "[1,512,64,64]", true},
      {"layer_norm(c) | silu", "[1,512,64,64]:cl"},
      {"layer_norm(c) | silu", "[1,512,64,64]:cl", true},
      {"layer_norm(c)", "[64,2048,7,7]"},
      {"layer_norm(c)", "[64,2048,7,7]:cl"},
      {"rms_norm(c) | silu", "[1,96,4,24,40]", true},
      {"softmax(c)", "[2,19,32,32]"},
      {"softmax(c)", "[2,10,15,17]:cl", true},
      {"group_norm(16) | tanh | hardswish | add(x) | logsumexp(c, keepdim)", "[2,64,30,30]", true},
      {"max_pool(3, stride=2, pad=1)", "[2,24,17,20]"},
      {"avg_pool(2)", "[2,24,16,20]:cl", true},
      {"layer_norm(w)", "[2,8,12,40]"},
  };
  return kSamples;
}

constexpr std::array<const char*, 4> kTypes = {"f32", "bf16", "f16", "f64"};

// Local memory that is known, with its reason: kernel, type, block.
struct Known {
  std::string kernel;
  std::string type;
  std::string reason;
};

const std::vector<Known>& known_spills() {
  static const std::vector<Known> kKnown = {};
  return kKnown;
}

void compile(const Sample& sample, const std::string& type, std::string_view architecture) {
  TypedBlock block = TypedBlock::infer(Block::parse(sample.block), TensorType::parse(type + sample.extents));
  if (sample.backward) block = block.backward();
  for (const KernelText& kernel : kernel_sources(block, Device::by_name("h200"))) {
    const CompiledKernel compiled = compile_kernel(kernel, architecture);
    const bool known = std::any_of(known_spills().begin(), known_spills().end(), [&](const Known& spill) {
      return spill.kernel == kernel.name && spill.type == type;
    });
    if (!known) {
      EXPECT_EQ(compiled.local_bytes, 0)
          << kernel.name << " for " << architecture << ": build/fuseblock compile '" << sample.block
          << "' --input '" << type << sample.extents << "' --device h200 --arch " << architecture
          << (sample.backward ? " --backward" : "");
    }
  }
}

TEST(CudaCompile, EveryKernelOnce) {
  if (std::getenv("FUSEBLOCK_LONG") != nullptr) GTEST_SKIP() << "the long form takes every combination";
  const std::vector<std::string_view> architectures = kernel_architectures();
  for (std::size_t i = 0; i < samples().size(); ++i)
    compile(samples()[i], kTypes[i % kTypes.size()], architectures[i % architectures.size()]);
}

TEST(CudaCompile, EveryKernelInEveryTypeForEveryArchitecture) {
  if (std::getenv("FUSEBLOCK_LONG") == nullptr) GTEST_SKIP() << "takes minutes: set FUSEBLOCK_LONG=1";
  for (const Sample& sample : samples())
    for (const char* type : kTypes)
      for (std::string_view architecture : kernel_architectures()) compile(sample, type, architecture);
}

}  // namespace
}  // namespace fuseblock
