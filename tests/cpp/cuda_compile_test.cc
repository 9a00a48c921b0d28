// Kernels of the CUDA engine compile, for every architecture, and keep everything in registers.
//
// A variant (cuda_variants.h) is a block whose plan takes a kernel, in every type. Each is compiled in one type for one
// architecture, in turn, so that all types and all architectures occur; FUSEBLOCK_LONG=1 takes every combination, but not
// under a sanitizer, which does not see into the compiler.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <future>

#include "cuda_variants.h"
#include "fuseblock/sources.h"

namespace fuseblock {
namespace {

constexpr std::array<const char*, 4> kTypes = {"f32", "bf16", "f16", "f64"};

bool has_marks(const KernelText& kernel, const std::vector<std::string>& marks) {
  return std::all_of(marks.begin(), marks.end(),
                     [&](const std::string& mark) { return kernel.text.find(mark) != std::string::npos; });
}

// Local memory that is known.
struct KnownSpill {
  std::string kernel;
  std::vector<std::string> marks;  // what the kernel's text has
  int most_bytes;
  std::string reason;
};

bool may_spill(const KernelText& kernel, const CompiledKernel& compiled) {
  static const std::vector<KnownSpill> kKnown = {
      {"rows",
       {"kRing = 0;"},
       256,
       "for any views a thread is held to the 64 registers of four blocks a multiprocessor"},
      {"finalise", {}, 32, "a thread of 1,024 has 64 registers, and statistics are doubles"},
      {"rows",
       {"hyperbolic_tangent(t"},
       96,
       "tanh at every element of a chunk, forward and in the gradient, needs more than the 128 registers of "
       "two blocks"},
      // Without barriers: doubles, which nobody has who does not ask for them, and a chunk in registers beside 17 warps.
      {"rows", {"kAhead = ", "typedef double real;"}, 32, "for sm_100a and sm_120"},
      {"rows", {"kAhead = 1;", "typedef double real;"}, 88, "eight chunks in registers, for sm_120"},
      {"rows", {"kAhead = 1;", "kHeld = 1;"}, 80, "for sm_89, and in f32 for sm_120"},
      {"slices", {"kPacked = 1;", "parts::give<3, "}, 8, "parts of up to four groups of a vector"},
      {"rows", {"kAhead = ", "kWhole = 0;"}, 48, "lanes at channels of their own, likewise, for sm_120"},
  };
  return std::any_of(kKnown.begin(), kKnown.end(), [&](const KnownSpill& known) {
    return kernel.name == known.kernel && compiled.local_bytes <= known.most_bytes &&
           has_marks(kernel, known.marks);
  });
}

// Of a GPU with as many multiprocessors as an H200, within the limits of the architecture.
std::vector<KernelText> kernels_of(const Variant& variant, const std::string& type,
                                   std::string_view architecture) {
  TypeMap others;
  for (const std::string& other : variant.others) {
    const std::size_t equals = other.find('=');
    others.emplace(other.substr(0, equals), TensorType::parse(type + other.substr(equals + 1)));
  }
  TypedBlock block =
      TypedBlock::infer(Block::parse(variant.block), TensorType::parse(type + variant.input), others);
  if (variant.backward) block = block.backward();
  setenv("FUSEBLOCK_TUNED", "none", 1);  // the variants are those of the cost model and of wishes
  setenv("FUSEBLOCK_SLICES", variant.slices.c_str(), 1);
  setenv("FUSEBLOCK_CONV", variant.conv.c_str(), 1);
  setenv("FUSEBLOCK_ROWS", variant.rows.c_str(), 1);
  return kernel_sources(block, Device::by_name("h200"),
                        {.kernels = {.residency = variant.residency}, .precision = variant.precision},
                        architecture);
}

std::string command_of(const Variant& variant, const std::string& type, std::string_view architecture) {
  std::string text = variant.slices.empty() ? "" : "FUSEBLOCK_SLICES=" + variant.slices + " ";
  text += variant.conv.empty() ? "" : "FUSEBLOCK_CONV=" + variant.conv + " ";
  text += variant.rows.empty() ? "" : "FUSEBLOCK_ROWS=" + variant.rows + " ";
  text += "build/fuseblock compile '" + variant.block + "' --input '" + type + variant.input + "'";
  for (const std::string& other : variant.others) {
    const std::size_t after = other.find('=') + 1;
    text += " --input '" + other.substr(0, after) + type + other.substr(after) + "'";
  }
  if (variant.backward) text += " --backward";
  if (variant.precision == Precision::kTf32) text += " --precision tf32";
  constexpr std::array<const char*, 4> kResidencies = {"", "registers", "shared", "memory"};
  if (variant.residency != KernelResidency::kByCost)
    text += std::string(" --force residency=") + kResidencies[static_cast<std::size_t>(variant.residency)];
  return text + " --device h200 --arch " + std::string(architecture);
}

void compile(const Variant& variant, const std::string& type, std::string_view architecture) {
  for (const KernelText& kernel : kernels_of(variant, type, architecture)) {
    const CompiledKernel compiled = compile_kernel(kernel, architecture);
    if (!may_spill(kernel, compiled)) {
      EXPECT_EQ(compiled.local_bytes, 0)
          << kernel.name << " for " << architecture << ": " << command_of(variant, type, architecture);
    }
  }
}

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kSanitized = true;
#else
constexpr bool kSanitized = false;
#endif

class CudaCompile : public testing::TestWithParam<Variant> {};

// Those that a variant's kernel takes: tensor cores take no f64, nor do units on chip in one round.
std::vector<std::string> types_of(const Variant& variant) {
  if (!variant.alone.empty()) return {variant.alone};
  const bool products = variant.kernel.starts_with("conv") && variant.kernel != "conv_direct";
  const bool registers = variant.kernel == "rows_registers" || variant.kernel == "slices_whole";
  return {kTypes.begin(), kTypes.end() - (products || registers ? 1 : 0)};
}

// The plan for an H200 has the kernel that the variant is about, in every type.
TEST_P(CudaCompile, IsThatVariant) {
  const Variant& variant = GetParam();
  for (const std::string& type : types_of(variant)) {
    const std::vector<KernelText> kernels = kernels_of(variant, type, "sm_90a");
    EXPECT_TRUE(std::any_of(kernels.begin(), kernels.end(), [&](const KernelText& kernel) {
      return kernel.name == variant.kernel && has_marks(kernel, variant.marks);
    })) << type;
  }
}

TEST_P(CudaCompile, NeedsNoLocalMemory) {
  const std::vector<std::string_view> architectures = kernel_architectures();
  if (kSanitized || std::getenv("FUSEBLOCK_LONG") == nullptr) {
    const auto place = std::find_if(variants().begin(), variants().end(),
                                    [](const Variant& variant) { return variant.name == GetParam().name; });
    const auto number = static_cast<std::size_t>(place - variants().begin());
    const std::vector<std::string> types = types_of(GetParam());
    // Other architectures have `conv` in place of `conv_roll`, and `conv_wide` in place of `conv_deep`,
    // and the oldest two have no clusters.
    const bool one = GetParam().kernel == "conv_roll" || GetParam().kernel == "conv_deep" ||
                     GetParam().kernel == "slices_cluster" || GetParam().kernel == "rows_registers";
    compile(GetParam(), types[number % types.size()],
            one ? "sm_90a" : architectures[number % architectures.size()]);
    return;
  }
  // Side by side: each takes a second or so.
  std::vector<std::future<void>> types;
  for (const char* type : kTypes)
    if (GetParam().alone.empty() || GetParam().alone == type)
      types.push_back(std::async(std::launch::async, [&, type] {
        for (std::string_view architecture : architectures) compile(GetParam(), type, architecture);
      }));
  for (std::future<void>& type : types) type.get();
}

TEST(CudaCompileLimits, AreThoseOfTheArchitecture) {
  const TypedBlock block =
      TypedBlock::infer(Block::parse("group_norm(32) | silu"), TensorType::parse("bf16[2,320,64,64]"));
  const auto text = [&](std::string_view architecture) {
    const std::vector<KernelText> kernels =
        kernel_sources(block, Device::by_name("h200"), {.kernels = {.team = 2}}, architecture);
    return kernels.empty() ? "" : kernels[0].text;
  };
  EXPECT_EQ(text("sm_90a"), text(""));
  EXPECT_NE(text("sm_90a").find("kCluster = 2;"), std::string::npos);
  EXPECT_NE(text("sm_80").find("kCluster = 1;"), std::string::npos);
  EXPECT_THROW(text("sm_70"), UserError);
}

INSTANTIATE_TEST_SUITE_P(Variants, CudaCompile, testing::ValuesIn(variants()),
                         [](const testing::TestParamInfo<Variant>& test) { return test.param.name; });

}  // namespace
}  // namespace fuseblock
