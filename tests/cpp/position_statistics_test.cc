// Statistics over some of the positions on the CPU: large enough for several splits, pieces of rows and rows
// of totals. In f64 against the reference engine to 1e-10, outputs and every gradient; in f32 bit for bit the
// same on any number of threads; a number for each row or column in the workspace and not one for each
// element.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <memory>

#include "cases.h"
#include "fuseblock/parallel.h"

namespace fuseblock::cases {
namespace {

struct Example {
  const char* block;
  const char* extents;
};

constexpr Example kExamples[] = {
    // Rows: of a chunk, several in one, pieces of a long one, short ones.
    {"sum(w)", "[1,1,96,300]"},
    {"mean(w)", "[2,3,9,2500]"},
    {"max(w)", "[1,2,700,7]"},
    {"min(w)", "[1,2,40,130]"},
    {"logsumexp(w)", "[1,1,80,150]"},
    {"logsumexp(w)", "[1,2,700,7]"},
    {"softmax(w)", "[3,5,30,65]"},
    {"softmax(w)", "[1,2,5,2100]"},
    {"layer_norm(w)", "[2,12,9,70]"},
    {"layer_norm(w)", "[1,2,60,11]"},
    {"rms_norm(w)", "[1,3,40,70]"},
    {"l2_normalize(w)", "[2,3,40,9]"},
    // Columns: all of a channel in one split and in several, rows longer than a chunk, short ones.
    {"sum(h)", "[1,1,640,40]"},
    {"mean(h)", "[1,1,2000,7]"},
    {"max(h)", "[1,1,700,33]"},
    {"min(h)", "[2,3,5,2500]"},
    {"logsumexp(h)", "[1,1,640,40]"},
    {"softmax(h)", "[1,1,900,9]"},
    {"softmax(h)", "[1,2,4,2300]"},
    {"layer_norm(h)", "[1,1,600,20]"},
    // Volumes: the middle axis, the first, two of three.
    {"mean(h)", "[1,2,20,12,40]"},
    {"sum(d)", "[1,1,200,12,9]"},
    {"softmax(d)", "[1,2,5,50,50]"},
    {"mean(d,h)", "[1,1,20,20,30]"},
    {"max(h,w)", "[1,1,30,12,30]"},
    {"mean(d,w)", "[1,1,80,5,40]"},
    {"logsumexp(d,w)", "[1,1,80,5,40]"},
    {"layer_norm(d,w)", "[1,1,80,5,40]"},
    {"layer_norm(h,w)", "[2,2,7,12,30]"},
    // With samples and channels; several statistics of one value; of results and of convolutions.
    {"mean(n,w)", "[3,2,20,30]"},
    {"layer_norm(c,w)", "[2,5,30,40]"},
    {"a = mean(x, h); b = mean(x, w); return a, b", "[2,3,70,50]"},
    {"a = mean(x, h); b = mean(x, c,w); e = max(x, h,w); return a, b, e", "[2,3,70,50]"},
    {"silu | mean(w, keepdim) | mul(x)", "[1,4,60,90]"},
    {"max(c, keepdim) | softmax(w)", "[2,4,60,90]"},
    {"conv2d(4, k=3, pad=1) | softmax(w)", "[1,3,40,50]"},
    {"conv2d(3, k=3, pad=1) | mean(h)", "[1,2,130,60]"},
    {"conv3d(3, k=3, pad=1) | mean(h)", "[1,2,9,60,60]"},
    {"conv3d(16, k=1) | sum(h)", "[1,1,33,24,160]"},
    {"conv3d(2, k=3, pad=1) | max(d)", "[1,2,70,9,20]"},
};

std::string type_of(const Example& example, const char* dtype, const char* layout) {
  return std::string(dtype) + example.extents + layout;
}

TypedBlock typed(const Example& example, const char* dtype, const char* layout = "") {
  return TypedBlock::infer(Block::parse(example.block), TensorType::parse(type_of(example, dtype, layout)));
}

// Takes the tasks from the last to the first.
class ReversedWorkers : public Workers {
 public:
  int count() const override { return 1; }
  void run(std::int64_t tasks, const std::function<void(std::int64_t, int)>& task) const override {
    for (std::int64_t number = tasks; number-- > 0;) task(number, 0);
  }
};

TensorMap results(const TypedBlock& block, const Device& device, const PlanOptions& options = {}) {
  TensorMap tensors = random_arguments(block, 1);
  for (auto& [name, tensor] : random_output_gradients(block, 2))
    tensors.insert_or_assign(name, std::move(tensor));
  const Plan forward = Plan::make(block, device, options);
  TensorMap result = run(forward, tensors);
  for (auto& [name, tensor] : run(forward.backward(), tensors))
    result.insert_or_assign(name, std::move(tensor));
  return result;
}

void expect_agreement(const TypedBlock& block) {
  const TensorMap expected = results(block, Device::reference());
  const TensorMap actual = results(block, Device::by_name("cpu"), {.threads = 2});
  for (const auto& [name, tensor] : expected) {
    double largest = 0;
    for (double value : tensor.to_doubles()) largest = std::max(largest, std::fabs(value));
    for (std::int64_t i = 0; i < tensor.type().element_count(); ++i)
      ASSERT_NEAR(tensor.get(i), actual.at(name).get(i), 1e-10 * (1 + largest)) << name << " at " << i;
  }
}

TEST(PositionStatistics, AgreeWithTheReference) {
  for (const Example& example : kExamples)
    for (const char* layout : {"", ":cl"}) {
      SCOPED_TRACE(std::string(example.block) + " @ " + type_of(example, "f64", layout));
      expect_agreement(typed(example, "f64", layout));
    }
}

TEST(PositionStatistics, HaveTheSameBitsOnAnyNumberOfThreads) {
  const auto reversed = std::make_shared<ReversedWorkers>();
  for (const Example& example : kExamples)
    for (const char* layout : {"", ":cl"}) {
      SCOPED_TRACE(std::string(example.block) + " @ " + type_of(example, "f32", layout));
      const TypedBlock block = typed(example, "f32", layout);
      const TensorMap one = results(block, Device::by_name("cpu"), {.threads = 1});
      for (const PlanOptions& options : {PlanOptions{.threads = 3}, PlanOptions{.workers = reversed}}) {
        const TensorMap other = results(block, Device::by_name("cpu"), options);
        for (const auto& [name, tensor] : one)
          ASSERT_EQ(0, std::memcmp(tensor.data(), other.at(name).data(),
                                   static_cast<std::size_t>(tensor.type().byte_count())))
              << name << (options.workers ? " backwards" : "");
      }
    }
}

// Long sums of numbers around a large mean: f32 inside a row alone.
TEST(PositionStatistics, SumsInFloatStayExact) {
  for (const char* block : {"sum(w)", "sum(h)"}) {
    const TypedBlock which = TypedBlock::infer(Block::parse(block), TensorType::parse("f32[1,1,1024,1024]"));
    TensorMap arguments = random_arguments(which, 1);
    Tensor& x = arguments.at("x");
    for (std::int64_t i = 0; i < x.type().element_count(); ++i) x.set(i, i % 2 == 0 ? 8191 : 8193);
    const TensorMap result = run(Plan::make(which, Device::by_name("cpu"), {}), arguments);
    for (const auto& [name, tensor] : result)
      for (std::int64_t i = 0; i < tensor.type().element_count(); ++i)
        ASSERT_EQ(tensor.get(i),
                  std::string(block) == "sum(w)" ? 8192.0 * 1024 : 1024 * (i % 2 == 0 ? 8191.0 : 8193.0))
            << block << " at " << i;
  }
}

// A row and a column of NaN, infinities and -infinities each.
TEST(PositionStatistics, SpecialValuesStayInTheirRowOrColumn) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
  for (const char* block : {"max(w)", "min(h)", "max(h)", "sum(w)", "sum(h)", "logsumexp(w)", "logsumexp(h)",
                            "softmax(w)", "softmax(h)"})
    for (const char* extents : {"[1,1,40,50]", "[1,1,200,9]", "[1,1,9,2200]"}) {
      SCOPED_TRACE(std::string(block) + extents);
      const TypedBlock which =
          TypedBlock::infer(Block::parse(block), TensorType::parse(std::string("f64") + extents));
      TensorMap arguments = random_arguments(which, 1);
      Tensor& x = arguments.at("x");
      const std::int64_t rows = x.type().extents[2];
      const std::int64_t columns = x.type().extents[3];
      x.set(2 * columns + 1, kNaN);
      x.set(4 * columns + 3, kInfinity);
      for (std::int64_t i = 0; i < columns; ++i) x.set(6 * columns + i, -kInfinity);
      for (std::int64_t i = 0; i < rows; ++i) x.set(i * columns + 7, -kInfinity);
      x.set(8 * columns + 5, -kInfinity);
      const TensorMap expected = run(Plan::make(which, Device::reference(), {}), arguments);
      const TensorMap actual = run(Plan::make(which, Device::by_name("cpu"), {}), arguments);
      for (const auto& [name, tensor] : expected)
        for (std::int64_t i = 0; i < tensor.type().element_count(); ++i) {
          const double wanted = tensor.get(i);
          const double got = actual.at(name).get(i);
          if (std::isfinite(wanted))
            ASSERT_NEAR(wanted, got, 1e-10) << name << " at " << i;
          else
            ASSERT_TRUE(std::isnan(wanted) ? std::isnan(got) : wanted == got)
                << name << " at " << i << ": " << wanted << " and " << got;
        }
    }
}

TEST(PositionStatistics, KeepANumberForEachRowOrColumn) {
  constexpr std::size_t kElements = 4 * 12 * 512 * 512;  // of 4 bytes
  for (const char* block :
       {"mean(w)", "sum(h)", "max(w)", "softmax(w)", "softmax(h)", "layer_norm(w)", "logsumexp(h)"})
    for (const char* layout : {"", ":cl"}) {
      const TypedBlock which = TypedBlock::infer(
          Block::parse(block), TensorType::parse(std::string("f32[4,12,512,512]") + layout));
      const Plan forward = Plan::make(which, Device::by_name("cpu"), {.threads = 1});
      EXPECT_LT(forward.workspace_bytes(), kElements / 2) << block << layout;
      EXPECT_LT(forward.backward().workspace_bytes(), kElements / 2) << block << layout;
    }
}

}  // namespace
}  // namespace fuseblock::cases
