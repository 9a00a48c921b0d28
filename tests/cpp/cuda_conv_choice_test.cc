// Which convolutions run on the CUDA engine's own kernels and which are left to the host, by the cost model.
#include <gtest/gtest.h>

#include "cuda/arrange.h"
#include "cuda/kernels.h"
#include "plan/narrator.h"

namespace fuseblock::cuda {
namespace {

TypedBlock typed(const std::string& block, const std::string& input) {
  return TypedBlock::infer(Block::parse(block), TensorType::parse(input));
}

// A host of that rate, which needs no views here.
PlanOptions options_with(double rate) {
  auto host = std::make_shared<HostFunctions>();
  host->convolution = [](const auto&, auto, const auto&) {};
  host->copy = [](const auto&, const auto&) {};
  host->rate = [rate](const HostConvolution&) { return rate; };
  PlanOptions options;
  options.host = host;
  return options;
}

Schedule schedule_of(const TypedBlock& block, const PlanOptions& options) {
  return arranged(make_schedule(block, Device::by_name("h200").description(), options));
}

std::string kernels_of(const Schedule& schedule) {
  std::string text;
  for (const KernelCut& cut : cut_into_kernels(schedule)) {
    constexpr std::array<const char*, 9> kNames = {"rows",   "columns", "finalise",  "pool",       "host",
                                                   "slices", "conv",    "conv_wide", "conv_direct"};
    text += (text.empty() ? "" : " ") + std::string(kNames[static_cast<std::size_t>(cut.kind)]);
  }
  return text;
}

// With few channels cuDNN reaches some 16e12 operations a second.
TEST(CudaConvChoice, FewChannelsRunOnOwnKernels) {
  struct Case {
    const char* block;
    const char* input;
    const char* kernels;
  };
  const std::vector<Case> cases = {
      {"conv3d(24, k=3) | group_norm(8) | mean(c,d,h,w)", "f32[128,3,24,32,32]", "conv"},
      {"conv3d(16, k=4) | hardswish | group_norm(4) | mean(d,h,w)", "f32[1024,3,16,32,32]", "conv"},
      {"conv3d(16, k=3) | hardswish | group_norm(4) | mean(d,h,w)", "bf16[1024,3,16,32,32]", "conv"},
      {"conv2d(64, k=3) as y | group_norm(16) | tanh | hardswish | add(y) | logsumexp(c, keepdim)",
       "f32[128,8,128,128]", "conv conv"},
  };
  for (const Case& each : cases)
    for (const Precision precision : {Precision::kStrict, Precision::kTf32}) {
      PlanOptions options = options_with(16e12);
      options.precision = precision;
      const Schedule schedule = schedule_of(typed(each.block, each.input), options);
      EXPECT_EQ(kernels_of(schedule), each.kernels) << each.block;
      const Decision& decision = schedule.decisions.front();
      ASSERT_EQ(decision.alternatives.size(), 2U);
      EXPECT_EQ(decision.alternatives[0].name, "own sweep");
      EXPECT_EQ(decision.alternatives[1].name, "host call");
      EXPECT_LT(decision.alternatives[0].seconds, decision.alternatives[1].seconds);
      EXPECT_NE(decision.alternatives[0].detail.find("by conv_roll at"), std::string::npos)
          << decision.alternatives[0].detail;
    }
}

// What cuDNN reaches on an H200 with many channels, in operations a second: less than conv_deep, but where there are
// few tiles for each multiprocessor.
TEST(CudaConvChoice, ManyChannelsAreTheHostsWhereThereAreFewTiles) {
  struct Case {
    const char* block;
    const char* input;
    double strict, tf32, bits16;
    const char* kernels;
  };
  const std::vector<Case> cases = {
      {"conv2d(128, k=3, pad=1) | group_norm(32) | silu", "[1,128,256,256]", 42e12, 168e12, 272e12,
       "conv_wide rows"},
      {"conv2d(128, k=3, pad=1) | group_norm(32) | silu", "[1,128,32,32]", 42e12, 168e12, 272e12,
       "host rows"},
      {"conv_transpose3d(128, k=3, bias=false) | relu | group_norm(8)", "[16,64,32,32,32]", 23e12, 155e12,
       210e12, "conv_wide rows"},
  };
  for (const Case& each : cases) {
    PlanOptions strict = options_with(each.strict);
    EXPECT_EQ(kernels_of(schedule_of(typed(each.block, "f32" + std::string(each.input)), strict)),
              each.kernels);
    PlanOptions tf32 = options_with(each.tf32);
    tf32.precision = Precision::kTf32;
    EXPECT_EQ(kernels_of(schedule_of(typed(each.block, "f32" + std::string(each.input)), tf32)),
              each.kernels);
    for (const std::string type : {"bf16", "f16"})
      EXPECT_EQ(kernels_of(schedule_of(typed(each.block, type + each.input), options_with(each.bits16))),
                each.kernels);
  }
}

// One tap, which conv_deep does not take: conv_wide is slower than such a host.
TEST(CudaConvChoice, OneTapIsTheHostsUnlessItIsStrict) {
  const char* block = "conv2d(256, k=1) | group_norm(32) | silu";
  EXPECT_EQ(kernels_of(schedule_of(typed(block, "f32[16,512,64,64]"), options_with(30e12))),
            "conv_wide rows");
  EXPECT_EQ(kernels_of(schedule_of(typed(block, "bf16[16,512,64,64]"), options_with(600e12))), "host rows");
}

// `conv_roll` and `conv_deep` are for sm_90a and stride 1.
TEST(CudaConvChoice, NamesTheKernelThatWouldRun) {
  const auto detail = [](const char* block, const char* device, const char* input = "bf16[8,3,64,64]") {
    const Schedule schedule =
        make_schedule(typed(block, input), Device::by_name(device).description(), options_with(1e12));
    return schedule.decisions.front().alternatives.front().detail;
  };
  EXPECT_NE(detail("conv2d(16, k=3) | relu", "h200").find("by conv_roll at"), std::string::npos);
  EXPECT_NE(detail("conv2d(16, k=3) | relu", "a100").find("by conv at"), std::string::npos);
  EXPECT_NE(detail("conv2d(16, k=3, stride=2) | relu", "h200").find("by conv at"), std::string::npos);
  constexpr const char* kMany = "bf16[8,64,64,64]";
  EXPECT_NE(detail("conv2d(64, k=3) | relu", "h200", kMany).find("by conv_deep at"), std::string::npos);
  EXPECT_NE(detail("conv2d(64, k=3) | relu", "a100", kMany).find("by conv_wide at"), std::string::npos);
  EXPECT_NE(detail("conv2d(64, k=3, stride=2) | relu", "h200", kMany).find("by conv_wide at"),
            std::string::npos);
}

TEST(CudaConvChoice, AHostThatIsFasterIsTaken) {
  const TypedBlock block = typed("conv2d(128, k=3, pad=1) | group_norm(32) | silu", "bf16[1,128,256,256]");
  EXPECT_EQ(kernels_of(schedule_of(block, options_with(1e16))), "host rows");
  EXPECT_EQ(kernels_of(schedule_of(block, options_with(1e13))), "conv_wide rows");
  PlanOptions own = options_with(1e16);
  own.own_convolutions = true;
  EXPECT_EQ(kernels_of(schedule_of(block, own)), "conv_wide rows");
  PlanOptions kept = options_with(1e12);
  kept.keep_convolutions = true;
  EXPECT_EQ(kernels_of(schedule_of(block, kept)), "host rows");
  own.keep_convolutions = true;
  EXPECT_THROW(Plan::make(block, Device::by_name("h200"), own), UserError);
}

// What only conv_direct takes is the host's, whatever its rate, and ours where there is none.
TEST(CudaConvChoice, PlainArithmeticIsForWhereThereIsNoHost) {
  for (const auto& [block, input] : std::vector<std::pair<const char*, const char*>>{
           {"conv2d(64, k=3)", "f64[2,8,32,32]"},
           {"conv2d(8, k=3, groups=8)", "f32[2,8,32,32]"},
           {"conv_transpose2d(16, k=2, stride=2)", "f32[2,16,32,32]"},
           {"conv2d(8, k=3, pad=1, pad_mode=reflect)", "f32[2,8,32,32]"}}) {
    EXPECT_EQ(kernels_of(schedule_of(typed(block, input), {})), "conv_direct") << block;
    EXPECT_EQ(kernels_of(schedule_of(typed(block, input), options_with(1))), "host") << block;
    EXPECT_EQ(kernels_of(schedule_of(typed(block, input), options_with(0))), "host") << block;
  }
}

// It is stored first, as for the host.
TEST(CudaConvChoice, AProgramsResultIsConvolvedByOwnKernelsToo) {
  EXPECT_EQ(kernels_of(schedule_of(typed("group_norm(4) | silu | conv2d(8, k=3, pad=1)", "f32[2,8,32,32]"),
                                   options_with(1))),
            "rows conv");
  const TypedBlock block =
      typed("group_norm(32) | silu | conv2d(128, k=3, pad=1) | add(x)", "bf16[1,128,512,512]");
  EXPECT_EQ(kernels_of(schedule_of(block, options_with(270e12))), "rows conv_wide");
  EXPECT_EQ(kernels_of(schedule_of(block, options_with(1e16))), "rows host rows");
}

// Gradients are the host's; what they need of the forward values our kernels compute again.
TEST(CudaConvChoice, GradientsAreTheHosts) {
  const TypedBlock block =
      typed("conv3d(24, k=3) | hardswish | group_norm(8) | mean(d,h,w)", "f32[128,3,24,32,32]");
  const Schedule schedule = schedule_of(block.backward({"conv3d.weight"}), options_with(16e12));
  const std::string kernels = kernels_of(schedule);
  EXPECT_NE(kernels.find("conv"), std::string::npos) << kernels;
  EXPECT_TRUE(kernels.ends_with("host")) << kernels;
  for (const char* wanted : {"x", "conv3d.bias"})
    EXPECT_NO_THROW(kernels_of(schedule_of(block.backward({wanted}), options_with(16e12)))) << wanted;
}

}  // namespace
}  // namespace fuseblock::cuda
