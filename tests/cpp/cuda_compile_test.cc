// Kernels of the CUDA engine compile, for every architecture, and keep everything in registers.
//
// A few blocks whose plans take every kernel and every way it reaches its tensors. Here each is compiled in one type, for
// one architecture, in turn, so that all types and all architectures occur; FUSEBLOCK_LONG=1 takes every combination. Under a
// sanitizer, which does not see into the compiler, it writes the text of every combination and compiles as without it.
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

// Local memory that is known.
struct KnownSpill {
  std::string kernel;
  std::string text;  // in the kernel's text
  int most_bytes;
  std::string reason;
};

bool may_spill(const KernelText& kernel, const CompiledKernel& compiled) {
  static const std::vector<KnownSpill> kKnown = {
      {"rows", "kRing = 0;", 256,
       "for any views a thread is held to the 64 registers of four blocks a multiprocessor"},
      {"rows", "hyperbolic_tangent(t", 96,
       "tanh at every element of a chunk, forward and in the gradient, needs more than the 128 registers of "
       "two blocks"},
  };
  return std::any_of(kKnown.begin(), kKnown.end(), [&](const KnownSpill& known) {
    return kernel.name == known.kernel && kernel.text.find(known.text) != std::string::npos &&
           compiled.local_bytes <= known.most_bytes;
  });
}

std::vector<KernelText> texts(const Sample& sample, const std::string& type) {
  TypedBlock block = TypedBlock::infer(Block::parse(sample.block), TensorType::parse(type + sample.extents));
  if (sample.backward) block = block.backward();
  return kernel_sources(block, Device::by_name("h200"));
}

void compile(const Sample& sample, const std::string& type, std::string_view architecture) {
  for (const KernelText& kernel : texts(sample, type)) {
    const CompiledKernel compiled = compile_kernel(kernel, architecture);
    if (!may_spill(kernel, compiled)) {
      EXPECT_EQ(compiled.local_bytes, 0)
          << kernel.name << " for " << architecture << ": build/fuseblock compile '" << sample.block
          << "' --input '" << type << sample.extents << "' --device h200 --arch " << architecture
          << (sample.backward ? " --backward" : "");
    }
  }
}

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kSanitized = true;
#else
constexpr bool kSanitized = false;
#endif

bool is_long() { return std::getenv("FUSEBLOCK_LONG") != nullptr; }

TEST(CudaCompile, EveryKernelOnce) {
  if (is_long() && !kSanitized) GTEST_SKIP() << "the long form takes every combination";
  const std::vector<std::string_view> architectures = kernel_architectures();
  for (std::size_t i = 0; i < samples().size(); ++i)
    compile(samples()[i], kTypes[i % kTypes.size()], architectures[i % architectures.size()]);
}

TEST(CudaCompile, EveryKernelInEveryTypeForEveryArchitecture) {
  if (!is_long()) GTEST_SKIP() << "takes minutes: set FUSEBLOCK_LONG=1";
  for (const Sample& sample : samples())
    for (const char* type : kTypes) {
      EXPECT_FALSE(texts(sample, type).empty());
      if (kSanitized) continue;
      for (std::string_view architecture : kernel_architectures()) compile(sample, type, architecture);
    }
}

}  // namespace
}  // namespace fuseblock
