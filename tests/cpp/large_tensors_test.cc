// Tensors of more than 2^31 elements on the CPU engine: expanded inputs, outputs and inputs of 4.5 GiB in
// bf16, checked at sampled places.
//
// Runs where FUSEBLOCK_LARGE=1 and at least 8 GiB of memory are free; skipped elsewhere. tools/test_long sets
// it for the release build.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <fstream>
#include <optional>

#include "cases.h"
#include "fuzz_support.h"

namespace fuseblock {
namespace {

constexpr std::int64_t kChannels = 9;
constexpr std::int64_t kSide = 16384;  // 9 * 2^28 elements are more than 2^31
constexpr std::int64_t kSamples = 2000;
constexpr double kNeededGiB = 8;

double free_gib() {
  std::ifstream stream("/proc/meminfo");
  std::string word;
  while (stream >> word) {
    double kib = 0;
    if (word == "MemAvailable:" && stream >> kib) return kib / (1024 * 1024);
  }
  return 0;
}

double relative(double a, double b) { return std::fabs(a - b) / (1e-3 + std::fabs(b)); }

// One place of a tensor [1,channels,side,side].
struct Place {
  std::int64_t c;
  std::int64_t h;
  std::int64_t w;

  std::int64_t index() const { return (c * kSide + h) * kSide + w; }
};

// Random places, the corners among them.
std::vector<Place> places() {
  std::vector<Place> list = {
      {0, 0, 0}, {kChannels - 1, kSide - 1, kSide - 1}, {kChannels - 1, 0, 0}, {8, kSide - 1, 0}};
  fuzz::Random random(1);
  const auto below = [&](std::int64_t count) {
    return static_cast<std::int64_t>(random.below(static_cast<std::size_t>(count)));
  };
  for (std::int64_t i = 0; i < kSamples; ++i) {
    const std::int64_t c = below(kChannels);
    const std::int64_t h = below(kSide);
    list.push_back({c, h, below(kSide)});
  }
  return list;
}

class LargeTensors : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    if (skipped().empty()) whole.emplace(TensorType::make(DType::kBF16, {1, kChannels, kSide, kSide}));
  }
  static void TearDownTestSuite() { whole.reset(); }

  void SetUp() override {
    if (!whole) GTEST_SKIP() << skipped();
  }

  static std::string skipped() {
    if (std::getenv("FUSEBLOCK_LARGE") == nullptr) return "FUSEBLOCK_LARGE=1 is not set";
    const double free = whole ? kNeededGiB : free_gib();
    if (free < kNeededGiB) return "8 GiB of free memory are needed, there are " + std::to_string(free);
    return "";
  }

  // Rows of `channels` channels, each repeated along h.
  static ConstTensorView expanded(const Tensor& rows, std::int64_t channels) {
    return {rows.data(), rows.type().dtype, {1, channels, kSide, kSide}, {channels * kSide, kSide, 0, 1}};
  }

  static Tensor drawn(const TensorType& type, double offset) {
    fuzz::Random random(7);
    Tensor tensor(type);
    for (std::int64_t i = 0; i < type.element_count(); ++i)
      tensor.set(i, offset + static_cast<double>(random.below(1000)) / 250 - 2);
    return tensor;
  }

  static Tensor rows(double offset = 0) {
    return drawn(TensorType::make(DType::kBF16, {kChannels, kSide}), offset);
  }

  // Runs a block on `x`, its parameters drawn; fails where the workspace grows with the tensor.
  static void run(const Plan& plan, const std::map<std::string, ConstTensorView, std::less<>>& inputs,
                  const TensorView& output) {
    EXPECT_LT(plan.workspace_bytes(), std::size_t{1} << 30);
    Workspace workspace(plan.workspace_bytes());
    plan.run(plan.bind(inputs, {{plan.outputs()[0].name, output}}), workspace.bytes());
  }

  static Plan plan_of(const std::string& block, std::int64_t channels = kChannels) {
    return Plan::make(Block::parse(block), TensorType::make(DType::kBF16, {1, channels, kSide, kSide}), {},
                      Device::by_name("cpu"));
  }

  // 4.5 GiB, which the tests share.
  static std::optional<Tensor> whole;
};

std::optional<Tensor> LargeTensors::whole;

TEST_F(LargeTensors, MeanOfAnExpandedInput) {
  const Tensor x = rows();
  Tensor y(TensorType::make(DType::kBF16, {1, kChannels}));
  run(plan_of("relu | mean(h,w)"), {{"x", expanded(x, kChannels)}}, y.view());
  for (std::int64_t c = 0; c < kChannels; ++c) {
    double sum = 0;
    for (std::int64_t w = 0; w < kSide; ++w) sum += std::max(x.get(c * kSide + w), 0.0);
    EXPECT_LT(relative(y.get(c), sum / kSide), 1.0 / 128) << c;
  }
}

TEST_F(LargeTensors, GroupNormWithALargeOutput) {
  constexpr std::int64_t kGroups = 3;
  const Tensor x = rows(3);
  const Tensor weight = drawn(TensorType::make(DType::kBF16, {kChannels}), 3);
  const Tensor bias = drawn(TensorType::make(DType::kBF16, {kChannels}), 0);
  run(plan_of("group_norm(3)"),
      {{"x", expanded(x, kChannels)}, {"group_norm.weight", weight.view()}, {"group_norm.bias", bias.view()}},
      whole->view());
  std::vector<double> mean(kGroups);
  std::vector<double> rstd(kGroups);
  for (std::int64_t g = 0; g < kGroups; ++g) {
    const std::int64_t count = kChannels / kGroups * kSide;
    double sum = 0;
    double squares = 0;
    for (std::int64_t i = 0; i < count; ++i) sum += x.get(g * count + i);
    for (std::int64_t i = 0; i < count; ++i)
      squares += std::pow(x.get(g * count + i) - sum / static_cast<double>(count), 2);
    mean[static_cast<std::size_t>(g)] = sum / static_cast<double>(count);
    rstd[static_cast<std::size_t>(g)] = 1 / std::sqrt(squares / static_cast<double>(count) + 1e-5);
  }
  for (const Place& place : places()) {
    const auto g = static_cast<std::size_t>(place.c * kGroups / kChannels);
    const double expected =
        (x.get(place.c * kSide + place.w) - mean[g]) * rstd[g] * weight.get(place.c) + bias.get(place.c);
    ASSERT_NEAR(whole->get(place.index()), expected, std::fabs(expected) / 128 + 1e-3) << place.index();
  }
}

// The last element of all is the largest one: it lies more than 2^31 elements behind the first.
TEST_F(LargeTensors, ReductionOfALargeInput) {
  const std::int64_t last = whole->type().element_count() - 1;
  const double kept = whole->get(last);
  whole->set(last, 30000);
  Tensor y(TensorType::make(DType::kBF16, {1, kChannels}));
  run(plan_of("max(h,w)"), {{"x", std::as_const(*whole).view()}}, y.view());
  whole->set(last, kept);
  for (std::int64_t c = 0; c + 1 < kChannels; ++c) EXPECT_LT(y.get(c), 1000) << c;
  EXPECT_EQ(y.get(kChannels - 1), 29952);  // 30000 in bf16
}

TEST_F(LargeTensors, ConvolutionWithALargeOutput) {
  const Tensor x = drawn(TensorType::make(DType::kBF16, {1, kSide}), 0);
  const Tensor weight = drawn(TensorType::make(DType::kBF16, {kChannels, 1, 3, 3}), 0);
  run(plan_of("conv2d(9, k=3, pad=1, bias=false)", 1),
      {{"x", expanded(x, 1)}, {"conv2d.weight", weight.view()}}, whole->view());
  for (const Place& place : places()) {
    double expected = 0;
    for (std::int64_t r = 0; r < 3; ++r) {
      for (std::int64_t s = 0; s < 3; ++s) {
        const std::int64_t h = place.h + r - 1;
        const std::int64_t w = place.w + s - 1;
        if (h < 0 || h >= kSide || w < 0 || w >= kSide) continue;
        expected += x.get(w) * weight.get((place.c * 3 + r) * 3 + s);
      }
    }
    ASSERT_NEAR(whole->get(place.index()), expected, std::fabs(expected) / 128 + 1e-3) << place.index();
  }
}

TEST_F(LargeTensors, GradientOfALargeInput) {
  const Tensor x = rows();
  const Tensor d_y = drawn(TensorType::make(DType::kBF16, {1, kChannels}), 0);
  const Plan backward = plan_of("silu | sum(h,w)").backward();
  run(backward, {{"x", expanded(x, kChannels)}, {"d_sum", d_y.view()}}, whole->view());
  for (const Place& place : places()) {
    const double v = x.get(place.c * kSide + place.w);
    const double sigmoid = 1 / (1 + std::exp(-v));
    const double expected = d_y.get(place.c) * sigmoid * (1 + v * (1 - sigmoid));
    ASSERT_NEAR(whole->get(place.index()), expected, std::fabs(expected) / 128 + 1e-3) << place.index();
  }
}

}  // namespace
}  // namespace fuseblock
