// The CPU engine on every case, forward and every gradient: in f64 against the reference engine to 1e-10,
// with both ways to treat a convolution that is needed twice; in the narrow types bit for bit the same on any
// number of threads. The error of the narrow types is judged beside PyTorch's in
// tests/python/test_cpu_against_torch.py.
#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <cstring>
#include <memory>
#include <optional>
#include <set>
#include <thread>

#include "cases.h"

namespace fuseblock::cases {
namespace {

const std::vector<Case>& all_cases() {
  static const std::vector<Case> kCases = read_cases(case_files());
  return kCases;
}

// Outputs and gradients of a case on an engine.
TensorMap results(const TypedBlock& block, const Device& device, const PlanOptions& options) {
  TensorMap tensors = random_arguments(block, 1);
  for (auto& [name, tensor] : random_output_gradients(block, 2))
    tensors.insert_or_assign(name, std::move(tensor));
  const Plan forward = Plan::make(block, device, options);
  TensorMap result = run(forward, tensors);
  if (block.differentiable().empty()) return result;
  for (auto& [name, tensor] : run(forward.backward(), tensors))
    result.insert_or_assign(name, std::move(tensor));
  return result;
}

void expect_close(const Tensor& expected, const Tensor& actual, double tolerance, const std::string& what) {
  double largest = 0;
  for (double value : expected.to_doubles())
    if (std::isfinite(value)) largest = std::max(largest, std::fabs(value));
  for (std::int64_t i = 0; i < expected.type().element_count(); ++i) {
    const double wanted = expected.get(i);
    const double got = actual.get(i);
    if (std::isnan(wanted)) {
      ASSERT_TRUE(std::isnan(got)) << what << ": NaN expected at " << i << ", got " << got;
    } else if (std::isinf(wanted)) {
      ASSERT_EQ(wanted, got) << what << " at " << i;
    } else {
      ASSERT_LE(std::fabs(wanted - got), tolerance * (1 + largest))
          << what << " at " << i << ": " << wanted << " and " << got;
    }
  }
}

void compare_all(const PlanOptions& options) {
  for (const Case& each : all_cases()) {
    SCOPED_TRACE(each.command("cpu"));
    const TypedBlock block = each.typed(DType::kF64);
    const TensorMap expected = results(block, Device::reference(), {});
    const TensorMap actual = results(block, Device::by_name("cpu"), options);
    for (const auto& [name, tensor] : expected) {
      ASSERT_TRUE(actual.contains(name)) << name;
      expect_close(tensor, actual.at(name), 1e-10, each.name + ": " + name);
    }
  }
}

TEST(CpuEngine, AgreesWithTheReferenceWhereConvolutionsAreChosenByCost) { compare_all({}); }

TEST(CpuEngine, AgreesWithTheReferenceWhereConvolutionsAreStored) { compare_all({.reuse = Reuse::kStore}); }

TEST(CpuEngine, AgreesWithTheReferenceWhereConvolutionsAreRecomputed) {
  compare_all({.reuse = Reuse::kRecompute});
}

// A program's own threads: here two plain ones, which take the tasks from the last to the first.
class ReversedThreads : public Workers {
 public:
  int count() const override { return 2; }
  void run(std::int64_t tasks, const std::function<void(std::int64_t, int)>& task) const override {
    std::atomic<std::int64_t> left = tasks;
    auto work = [&](int worker) {
      for (std::int64_t number = --left; number >= 0; number = --left) task(number, worker);
    };
    std::thread other(work, 1);
    work(0);
    other.join();
    ++calls;
  }
  mutable std::atomic<int> calls = 0;
};

TEST(CpuEngine, RunsOnTheCallersThreads) {
  const auto threads = std::make_shared<ReversedThreads>();
  const TypedBlock block = TypedBlock::infer(Block::parse("conv2d(8, k=3, pad=1) | group_norm(4) | silu"),
                                             TensorType::parse("f32[3,4,20,20]"));
  const TensorMap own = results(block, Device::by_name("cpu"), {.threads = 1});
  const TensorMap callers = results(block, Device::by_name("cpu"), {.workers = threads});
  EXPECT_GT(threads->calls, 0);
  for (const auto& [name, tensor] : own)
    EXPECT_EQ(tensor.to_doubles(), callers.at(name).to_doubles()) << name;
}

// A copy of a tensor, or where `n` is given of one sample of it; its axes are n, c then.
Tensor copy_of(const Tensor& tensor, std::optional<std::int64_t> n = {}) {
  TensorType type = tensor.type();
  if (n) type.extents[0] = 1;
  Tensor copy(type);
  const std::int64_t first = n.value_or(0) * type.element_count();
  for (std::int64_t i = 0; i < type.element_count(); ++i) copy.set(i, tensor.get(first + i));
  return copy;
}

// Samples are taken together, as many as there are of them: each has the bits that it has alone.
TEST(CpuEngine, LinearHasTheBitsOfEachSampleAlone) {
  for (const std::string text :
       {"linear(70)", "silu | linear(64) | gelu", "linear(33) | add(skip) | mul(scale)",
        "linear(600, bias=false) | relu | linear(40)"}) {
    for (const std::string dtype : {"f32", "bf16", "f64"}) {
      for (const std::string samples : {"2", "13", "61", "150"}) {
        SCOPED_TRACE(text + " on " + dtype + " of " + samples);
        const auto typed = [&](const std::string& batch) {
          std::map<std::string, TensorType, std::less<>> others;
          if (text.find("skip") != std::string::npos) {
            others.emplace("skip", TensorType::parse(dtype + "[" + batch + ",33]"));
            others.emplace("scale", TensorType::parse(dtype + "[" + batch + ",1]"));
          }
          return TypedBlock::infer(Block::parse(text), TensorType::parse(dtype + "[" + batch + ",200]"),
                                   others);
        };
        const TypedBlock together = typed(samples);
        const Plan alone = Plan::make(typed("1"), Device::by_name("cpu"), {.threads = 1});
        const TensorMap arguments = random_arguments(together, 3);
        const TensorMap all = run(Plan::make(together, Device::by_name("cpu"), {.threads = 2}), arguments);
        const std::set<std::string> inputs = {"x", "skip", "scale"};
        for (std::int64_t n = 0; n < std::stoll(samples); n += 7) {
          TensorMap own;
          for (const auto& [name, tensor] : arguments)
            own.emplace(name, inputs.contains(name) ? copy_of(tensor, n) : copy_of(tensor));
          for (const auto& [name, tensor] : run(alone, own))
            ASSERT_EQ(tensor.to_doubles(), copy_of(all.at(name), n).to_doubles())
                << name << " of sample " << n;
        }
      }
    }
  }
}

TEST(CpuEngine, HasTheSameBitsOnAnyNumberOfThreads) {
  for (const Case& each : all_cases()) {
    SCOPED_TRACE(each.command("cpu"));
    const TypedBlock block = each.typed();
    const TensorMap one = results(block, Device::by_name("cpu"), {.threads = 1});
    for (int threads : {2, 3}) {
      const TensorMap more = results(block, Device::by_name("cpu"), {.threads = threads});
      for (const auto& [name, tensor] : one)
        ASSERT_EQ(0, std::memcmp(tensor.data(), more.at(name).data(),
                                 static_cast<std::size_t>(tensor.type().byte_count())))
            << each.name << ": " << name << " on " << threads << " threads";
    }
  }
}

}  // namespace
}  // namespace fuseblock::cases
