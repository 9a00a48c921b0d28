// Kernels of the CUDA engine compile, for every architecture, and keep everything in registers.
//
// A variant is a kernel and a way it divides its work or reaches its tensors; here a block whose plan takes it, in every
// type. Each is compiled in one type for one architecture, in turn, so that all types and all architectures occur;
// FUSEBLOCK_LONG=1 takes every combination, but not under a sanitizer, which does not see into the compiler.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <future>
#include <ostream>

#include "fuseblock/sources.h"

namespace fuseblock {
namespace {

struct Variant {
  std::string name;
  std::string kernel;
  std::vector<std::string> marks = {};  // what the kernel's text has
  std::string block;
  std::string input;                     // the type of x, without the dtype
  std::vector<std::string> others = {};  // `name=` and such types
  bool backward = false;
  KernelResidency residency = KernelResidency::kByCost;
  std::string slices = {};  // FUSEBLOCK_SLICES
  std::string conv = {};    // FUSEBLOCK_CONV
  Precision precision = Precision::kStrict;
  std::string alone = {};  // the type that has this kernel, where others have another
  std::string rows = {};   // FUSEBLOCK_ROWS
};

std::ostream& operator<<(std::ostream& out, const Variant& variant) { return out << variant.name; }

constexpr KernelResidency kRegisters = KernelResidency::kRegisters;
constexpr KernelResidency kShared = KernelResidency::kShared;
constexpr KernelResidency kMemory = KernelResidency::kMemory;

const std::vector<Variant>& variants() {
  const std::string positions = "kAlongChannels = 0;";
  const std::string channels = "kAlongChannels = 1;";
  const std::string any_views = "kVector = 1;";
  const std::string two_sums = "kSums = 2;";
  const std::string rows = "kStageRows + kThreads - 1";  // device/conv_roll_rows.cuh
  const std::string modulated = "layer_norm(c, affine=false) | mul(scale) | add(shift)";
  static const std::vector<Variant> kVariants = {
      {"rows_ring", "rows", {"kAgain = 0;"}, "group_norm(32) | silu", "[2,320,64,64]", {}},
      {"rows_ring_tail", "rows", {"finalise_all(a);"}, "group_norm(32) | silu", "[2,320,64,64]", {}, true},
      {"rows_ring_again", "rows", {"kAgain = 1;"}, "group_norm(1)", "[1,64,1024,1024]", {}},
      {"rows_ring_mean", "rows", {}, "hardswish | group_norm(4) | mean(d,h,w)", "[64,16,13,29,29]", {}, true},
      {"rows_any_views",
       "rows",
       {"kRing = 0;"},
       "group_norm(4) | add(s)",
       "[2,32,16,16]",
       {"s=[2,32,16,16]:cl"}},
      {"rows_odd", "rows", {}, "group_norm(5)", "[3,15,7,11]", {}, true},
      // Without barriers: several units in the ring, one, one of which some chunks are in registers, lanes at channels of their own.
      {.name = "rows_ahead",
       .kernel = "rows",
       .marks = {"kAhead = 3;", "kHeld = 0;", "kWhole = 1;"},
       .block = "group_norm(32) | silu",
       .input = "[1,128,512,512]",
       .rows = "ahead=3,blocks=1"},
      {.name = "rows_ahead_one",
       .kernel = "rows",
       .marks = {"kAhead = 1;", "kHeld = 0;"},
       .block = "group_norm(32) | silu",
       .input = "[1,128,256,256]",
       .rows = "ahead=1,blocks=1,team=64"},
      {.name = "rows_ahead_held",
       .kernel = "rows",
       .marks = {"kAhead = 1;"},
       .block = "group_norm(32) | silu",
       .input = "[1,128,512,512]",
       .rows = "ahead=1,blocks=1"},
      {.name = "rows_ahead_lanes",
       .kernel = "rows",
       .marks = {"kAhead = 2;", "kWhole = 0;"},
       .block = "group_norm(32) | silu",
       .input = "[64,256,28,28]",
       .rows = "ahead=2,blocks=2"},
      {.name = "slices",
       .kernel = "slices",
       .marks = {"kAgain = 0;"},
       .block = "group_norm(32) | silu",
       .input = "[2,320,64,64]:cl",
       .slices = "cluster=1"},
      {"slices_cluster",
       "slices_cluster",
       {"give_part<10>("},
       "group_norm(32) | silu",
       "[2,320,48,48]:cl",
       {},
       false,
       KernelResidency::kByCost,
       "cluster=6"},
      {"slices_cluster_tail",
       "slices_cluster",
       {"give_part<1>(", "kTail = 1;"},
       "group_norm(32) | silu",
       "[2,320,32,32]:cl",
       {},
       true,
       KernelResidency::kByCost,
       "cluster=8"},
      {"slices_cluster_one_group",
       "slices_cluster",
       {"give_part<256>("},
       "group_norm(1)",
       "[2,256,8,8]:cl",
       {},
       false,
       KernelResidency::kByCost,
       "cluster=2"},
      {"slices_cluster_twice",
       "slices_cluster",
       {"arrived1"},
       "group_norm(4) | tanh | group_norm(8)",
       "[2,32,32,32]:cl",
       {},
       false,
       KernelResidency::kByCost,
       "cluster=4"},
      {"slices_tail", "slices", {"kTail = 1;"}, "group_norm(32) | silu", "[2,320,64,64]:cl", {}, true},
      {"slices_again", "slices", {"kAgain = 1;"}, "group_norm(32) | silu", "[1,128,1024,1024]:cl", {}},
      {"slices_again_tail",
       "slices",
       {"kAgain = 1;", "kTail = 1;"},
       "group_norm(32) | silu",
       "[2,128,1024,1024]:cl",
       {},
       true},
      {.name = "slices_dealt",
       .kernel = "slices",
       .marks = {"kDealt = 1;"},
       .block = "group_norm(32) | silu",
       .input = "[1,128,1024,1024]:cl",
       .alone = "bf16"},
      {.name = "slices_ahead",
       .kernel = "slices",
       .marks = {"kAhead = 1;"},
       .block = "group_norm(4) | silu",
       .input = "[300,16,14,14]:cl",
       .slices = "ahead=1"},
      {"slices_ahead_tail",
       "slices",
       {"kAhead = 1;", "kTail = 1;"},
       "group_norm(4) | silu",
       "[300,16,14,14]:cl",
       {},
       true,
       KernelResidency::kByCost,
       "ahead=1"},
      {"slices_several_positions",
       "slices",
       {"kRowPositions = 2;"},
       "group_norm(5)",
       "[3,15,7,10]:cl",
       {},
       true},
      {"slices_one_group",
       "slices",
       {"kUnitChannels = 512;"},
       "group_norm(1)",
       "[2,512,8,8]:cl",
       {},
       false,
       KernelResidency::kByCost,
       "cluster=1"},
      // Names that device code has, and words of its language.
      {"slices_mask",
       "slices",
       {},
       "hot = group_norm(x, 8); mutable = hot * kept; return mutable",
       "[2,64,13,11]:cl",
       {"kept=[2,1,13,11]"},
       true},
      {"columns_positions_registers",
       "columns",
       {positions, "kResidency = 1;"},
       "layer_norm(c)",
       "[2,64,32,32]",
       {},
       false,
       kRegisters},
      {"columns_positions_shared",
       "columns",
       {positions, "kResidency = 2;"},
       "layer_norm(c)",
       "[1,512,64,64]",
       {},
       false,
       kShared},
      {"columns_positions_memory",
       "columns",
       {positions, "kResidency = 0;"},
       "layer_norm(c)",
       "[1,9000,16,16]",
       {},
       false,
       kMemory},
      {"columns_channels_registers",
       "columns",
       {channels, "kResidency = 1;"},
       "layer_norm(c)",
       "[2,64,32,32]:cl",
       {},
       false,
       kRegisters},
      {"columns_channels_shared",
       "columns",
       {channels, "kResidency = 2;"},
       "layer_norm(c)",
       "[1,512,64,64]:cl",
       {},
       false,
       kShared},
      {"columns_channels_memory",
       "columns",
       {channels, "kResidency = 0;"},
       "layer_norm(c)",
       "[1,9000,16,16]:cl",
       {},
       false,
       kMemory},
      {"columns_any_views",
       "columns",
       {any_views},
       "layer_norm(c) | add(s)",
       "[2,96,5,7]",
       {"s=[2,96,5,7]:cl"}},
      {"columns_sums_in_registers",
       "columns",
       {positions, two_sums, "kSumsInShared = 0;"},
       "layer_norm(c) | silu",
       "[1,64,64,64]",
       {},
       true,
       kRegisters},
      {"columns_sums_in_shared",
       "columns",
       {positions, two_sums, "kSumsInShared = 1;"},
       "layer_norm(c) | silu",
       "[1,512,64,64]",
       {},
       true,
       kShared},
      {"columns_channels_sums_in_registers",
       "columns",
       {channels, two_sums, "kSumsInShared = 0;"},
       "layer_norm(c)",
       "[1,64,64,64]:cl",
       {},
       true,
       kRegisters},
      {"columns_channels_sums_in_shared",
       "columns",
       {channels, two_sums, "kSumsInShared = 1;"},
       "layer_norm(c) | silu",
       "[1,512,64,64]:cl",
       {},
       true,
       kShared},
      {"columns_sums_memory",
       "columns",
       {"kResidency = 0;", "kSumsInShared = 1;"},
       "rms_norm(c)",
       "[1,4000,16,16]",
       {},
       true,
       kMemory},
      {"columns_sums_by_sample",
       "columns",
       {positions, "kBySample = 1;"},
       modulated,
       "[3,72,8,8]",
       {"scale=[3,72,1,1]", "shift=[3,72,1,1]"},
       true},
      {"columns_channels_sums_by_sample",
       "columns",
       {channels, "kBySample = 1;"},
       modulated,
       "[3,72,8,8]:cl",
       {"scale=[3,72,1,1]", "shift=[3,72,1,1]"},
       true},
      {"columns_any_views_sums",
       "columns",
       {any_views, "kSums = 2;"},
       "layer_norm(c) | mul(s)",
       "[2,96,5,7]",
       {"s=[2,96,5,7]:cl"},
       true},
      {"columns_without_positions", "columns", {channels, two_sums}, "layer_norm(c)", "[64,768]", {}, true},
      {"columns_softmax", "columns", {"ExpSum<real> "}, "softmax(c)", "[2,10,15,17]:cl", {}, true},
      {"rows_then_columns",
       "columns",
       {},
       "group_norm(16) | tanh | hardswish | add(x) | logsumexp(c, keepdim)",
       "[2,64,30,30]",
       {},
       true},
      {"finalise", "finalise", {}, "group_norm(1)", "[2,2048,8,8]", {}},
      {"finalise_over_positions", "finalise", {"all blocks of the grid"}, "layer_norm(w)", "[2,8,12,40]", {}},
      {"pool", "pool", {}, "max_pool(3, stride=2, pad=1)", "[2,24,17,20]", {}},
      {"pool_adjoint", "pool", {}, "avg_pool(2)", "[2,24,16,20]:cl", {}, true},
      {.name = "conv_mean",
       .kernel = "conv",
       .block = "conv3d(24, k=3) | group_norm(8) | mean(c,d,h,w)",
       .input = "[8,3,24,32,32]",
       .conv = "roll=0"},
      {.name = "conv_mean_tf32",
       .kernel = "conv",
       .block = "conv3d(16, k=4) | hardswish | group_norm(4) | mean(d,h,w)",
       .input = "[8,3,16,32,32]",
       .conv = "roll=0",
       .precision = Precision::kTf32},
      {.name = "conv_lse",
       .kernel = "conv",
       .marks = {"branchless::ExpSum<real> "},
       .block = "conv2d(64, k=3) as y | group_norm(16) | tanh | hardswish | add(y) | logsumexp(c, keepdim)",
       .input = "[8,8,64,64]",
       .conv = "roll=0"},
      {.name = "conv_lse_tf32",
       .kernel = "conv",
       .block = "conv2d(64, k=3) as y | group_norm(16) | tanh | hardswish | add(y) | logsumexp(c, keepdim)",
       .input = "[8,8,64,64]",
       .conv = "roll=0",
       .precision = Precision::kTf32},
      {.name = "conv_strided",
       .kernel = "conv",
       .block = "conv2d(20, k=(3,5), stride=(2,1), pad=(1,2), dilation=(1,2)) | silu",
       .input = "[2,5,23,19]"},
      {.name = "conv_roll_windows",
       .kernel = "conv_roll",
       .marks = {"kQuads", "kOverPositions = 1;", "kFolded = 0;"},
       .block = "conv3d(16, k=4) | hardswish | group_norm(4) | mean(d,h,w)",
       .input = "[32,3,16,32,32]",
       .conv = "taken=0"},
      {.name = "conv_roll_windows_tf32",
       .kernel = "conv_roll",
       .marks = {"kQuads", "kQuadVectors = 0;"},
       .block = "conv3d(16, k=4, pad=1) | hardswish | group_norm(4) | mean(d,h,w)",
       .input = "[8,3,16,32,32]",
       .conv = "taken=0",
       .precision = Precision::kTf32},
      {.name = "conv_roll_taps",
       .kernel = "conv_roll",
       .marks = {"multiply_taken(", "kLinear = 1;", "kMoves = false;"},
       .block = "conv3d(16, k=4) | hardswish | group_norm(4) | mean(d,h,w)",
       .input = "[32,3,16,32,32]",
       .conv = "threads=128,blocks=2",
       .alone = "f32"},
      {.name = "conv_roll_taps_tf32",
       .kernel = "conv_roll",
       .marks = {"multiply_taken(", "kLinear = 0;", "kMoves = true;", "kSquads = 2;"},
       .block = "conv3d(24, k=3, pad=1) | group_norm(8) | mean(c,d,h,w)",
       .input = "[8,3,16,32,32]",
       .conv = "threads=256,blocks=1,squads=2",
       .precision = Precision::kTf32},
      {.name = "conv_roll_rows",
       .kernel = "conv_roll",
       .marks = {rows, "kOverPositions = 1;"},
       .block = "conv3d(16, k=3) | group_norm(8) | mean(c,d,h,w)",
       .input = "[8,8,12,32,32]"},
      {.name = "conv_roll_rows_tf32",
       .kernel = "conv_roll",
       .marks = {rows},
       .block = "conv3d(20, k=(2,3,5), pad=(1,1,2), dilation=(1,2,1)) | silu",
       .input = "[2,5,9,23,19]:cl",
       .precision = Precision::kTf32},
      {.name = "conv_roll_folded",
       .kernel = "conv_roll",
       .marks = {"kFolded = 1;"},
       .block = "conv2d(24, k=3, pad=1) | group_norm(3) | mean(h,w)",
       .input = "[8,8,64,64]",
       .conv = "fold=1"},
      {.name = "conv_roll_folded_tf32",
       .kernel = "conv_roll",
       .marks = {"kFolded = 1;"},
       .block = "conv2d(5, k=3, pad=1) | softmax(c)",
       .input = "[1,1,64,2000]",
       .conv = "fold=1",
       .precision = Precision::kTf32},
      {.name = "conv_roll_lse",
       .kernel = "conv_roll",
       .marks = {"branchless::ExpSum<real> ", "kOverPositions = 0;"},
       .block = "conv2d(64, k=3) as y | group_norm(16) | tanh | hardswish | add(y) | logsumexp(c, keepdim)",
       .input = "[8,8,64,64]"},
      {.name = "conv_roll_lse_tf32",
       .kernel = "conv_roll",
       .marks = {"branchless::ExpSum<real> ", "kOverPositions = 0;"},
       .block = "conv2d(64, k=3) as y | group_norm(16) | tanh | hardswish | add(y) | logsumexp(c, keepdim)",
       .input = "[8,8,64,64]",
       .precision = Precision::kTf32},
      {.name = "conv_roll_rounds",
       .kernel = "conv_roll",
       .marks = {"kRounds = 4;", "struct RowElements", "kKeepsForms"},
       .block = "conv2d(64, k=3) as y | group_norm(16) | tanh | hardswish | add(y) | logsumexp(c, keepdim)",
       .input = "[8,8,64,64]",
       .conv = "rounds=4"},
      {.name = "conv_roll_rounds_pad_tf32",
       .kernel = "conv_roll",
       .marks = {"kRounds = 4;", "struct RowElements"},
       .block = "conv2d(60, k=3, pad=1) | group_norm(6) | mean(h,w)",
       .input = "[8,5,64,64]",
       .conv = "rounds=4",
       .precision = Precision::kTf32},
      {.name = "conv_wide",
       .kernel = "conv_wide",
       .block = "conv_transpose3d(128, k=3, bias=false) | relu | group_norm(8)",
       .input = "[2,64,16,32,32]",
       .conv = "deep=0"},
      {.name = "conv_wide_tf32",
       .kernel = "conv_wide",
       .block = "conv2d(128, k=3, pad=1) | group_norm(32) | silu",
       .input = "[1,128,64,64]",
       .conv = "deep=0",
       .precision = Precision::kTf32},
      {.name = "conv_wide_channels_last",
       .kernel = "conv_wide",
       .marks = {"kVectors = 1;"},
       .block = "conv2d(128, k=3, pad=1) | group_norm(32) | silu",
       .input = "[1,128,64,64]:cl",
       .conv = "deep=0"},
      {.name = "conv_deep",
       .kernel = "conv_deep",
       .marks = {"kVectors = 0;"},
       .block = "conv_transpose3d(128, k=3, bias=false) | relu | group_norm(8)",
       .input = "[16,64,32,32,32]"},
      {.name = "conv_deep_tf32",
       .kernel = "conv_deep",
       .marks = {"kGroupsM = 1;"},
       .block = "conv2d(40, k=5, pad=2) | silu | group_norm(8)",
       .input = "[8,36,64,64]",
       .precision = Precision::kTf32},
      {.name = "conv_deep_channels_last",
       .kernel = "conv_deep",
       .marks = {"kVectors = 1;"},
       .block = "conv2d(128, k=3, pad=1) | group_norm(32) | silu",
       .input = "[1,128,256,256]:cl",
       .precision = Precision::kTf32},
      {.name = "conv_weights",
       .kernel = "conv_weights",
       .block = "conv2d(72, k=3, groups=3)",
       .input = "[2,48,9,11]"},
      {.name = "conv_direct",
       .kernel = "conv_direct",
       .block = "conv2d(8, k=3, groups=8) | silu",
       .input = "[2,8,32,32]"},
  };
  return kVariants;
}

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
      {"rows", {"kAhead = 1;", "typedef double real;"}, 80, "seven chunks in registers, for sm_120"},
      {"rows", {"kAhead = 1;", "kHeld = 1;"}, 56, "for sm_89 and sm_120"},
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

// Those that a variant's kernel takes: tensor cores take no f64.
std::vector<std::string> types_of(const Variant& variant) {
  if (!variant.alone.empty()) return {variant.alone};
  const bool products = variant.kernel.starts_with("conv") && variant.kernel != "conv_direct";
  return {kTypes.begin(), kTypes.end() - (products ? 1 : 0)};
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
                     GetParam().kernel == "slices_cluster";
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
