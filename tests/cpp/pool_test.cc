// Pools on the CPU engine against the reference engine, bit for bit: small integers, of which every type
// holds all sums, so that ties abound and nothing hangs on rounding. Odd extents, one channel and many, both
// layouts, windows that overlap, hang over and leave a rest, views of every kind, tasks that divide a value
// along each axis.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "cases.h"
#include "cpu/pool_runs.h"
#include "placed_tensor.h"

namespace fuseblock {
namespace {

using cases::PlacedMap;
using cases::TensorMap;

constexpr const char* kBlocks[] = {
    "max_pool(2)",
    "max_pool(3, stride=2, pad=1)",
    "max_pool(3, stride=1, pad=1)",
    "max_pool(3, stride=2, pad=2, dilation=2, ceil_mode=true)",
    "max_pool(2, stride=3)",
    "max_pool(2, stride=4, dilation=6)",
    "avg_pool(2)",
    "avg_pool(3, stride=2, pad=1)",
    "avg_pool(3, stride=2, pad=1, ceil_mode=true, count_include_pad=false)",
    "avg_pool(3, stride=2, ceil_mode=true, divisor_override=5)",
    "avg_pool(2, stride=3)",
    "relu | max_pool(2) | neg | avg_pool(2)",
};

TypedBlock typed(const std::string& block, const std::string& type) {
  return TypedBlock::infer(Block::parse(block), TensorType::parse(type), {});
}

// Arguments and the gradients of outputs, from -4 to 4.
TensorMap integers(const TypedBlock& block, unsigned seed) {
  TensorMap tensors = cases::random_arguments(block, seed);
  for (auto& [name, tensor] : cases::random_output_gradients(block, seed + 1))
    tensors.insert_or_assign(name, std::move(tensor));
  for (auto& [name, tensor] : tensors)
    for (std::int64_t i = 0; i < tensor.type().element_count(); ++i)
      tensor.set(i, std::clamp(std::round(2 * tensor.get(i)), -4.0, 4.0));
  return tensors;
}

void merge(TensorMap& into, TensorMap from) {
  for (auto& [name, tensor] : from) into.insert_or_assign(name, std::move(tensor));
}

TensorMap reference_results(const TypedBlock& block, const TensorMap& arguments) {
  const Plan forward = Plan::make(block, Device::reference());
  TensorMap results = cases::run(forward, arguments);
  merge(results, cases::run(forward.backward(), arguments));
  return results;
}

TensorMap cpu_results(const TypedBlock& block, const TensorMap& arguments, unsigned oddities, int threads) {
  PlacedMap placed;
  std::uint64_t seed = 7;
  for (const auto& [name, tensor] : arguments)
    placed.emplace(name, cases::PlacedTensor(tensor, oddities, ++seed));
  const cases::PlacedRun how = {oddities, seed, {std::byte{0xff}}};
  const Plan forward = Plan::make(block, Device::by_name("cpu"), {.threads = threads});
  TensorMap results = cases::run_placed(forward, placed, how);
  merge(results, cases::run_placed(forward.backward(), placed, how));
  return results;
}

void expect_same(const TensorMap& expected, const TensorMap& got) {
  for (const auto& [name, tensor] : expected) EXPECT_TRUE(cases::same_bits(tensor, got.at(name))) << name;
}

void check(const std::string& text, const std::string& type) {
  SCOPED_TRACE("fuseblock check \"" + text + "\" --input '" + type + "' --device cpu");
  const TypedBlock block = typed(text, type);
  const TensorMap arguments = integers(block, 5);
  const TensorMap expected = reference_results(block, arguments);
  expect_same(expected, cpu_results(block, arguments, 0, 1));
  expect_same(expected, cpu_results(block, arguments, 0, 3));
  expect_same(expected, cpu_results(block, arguments, cases::kAnyOutput, 2));
}

TEST(Pool, AgreesWithTheReferenceInEveryTypeAndLayout) {
  for (const std::string block : kBlocks)
    for (const std::string dtype : {"f64", "f32", "bf16", "f16"})
      for (const std::string extents : {"[2,1,13,21]", "[1,3,19,35]", "[2,17,14,17]"})
        for (const std::string layout : {"", ":cl"}) check(block, dtype + extents + layout);
}

TEST(Pool, AgreesWithTheReferenceInOneAndThreeDimensions) {
  for (const std::string block : kBlocks)
    for (const std::string type : {"f32[2,3,75]", "bf16[2,17,70]", "f32[1,3,13,14,15]",
                                   "f32[1,17,13,13,14]:cl", "f16[1,3,14,13,13]:cl"})
      check(block, type);
}

TEST(Pool, TasksDivideAValueAlongEachAxis) {
  for (const std::string block :
       {"max_pool(3, stride=2, pad=1)", "avg_pool(3, stride=2, pad=1)", "max_pool(5, stride=1)"})
    for (const std::string type :
         {"f32[1,1,40001]", "f32[1,2,9,9001]", "f32[1,1,301,97]", "f32[1,80,41,39]:cl", "f32[1,1,31,30,33]",
          "f32[3,200,7,7]", "f32[1,9000,5,6]:cl"})
      check(block, type);
}

// The last NaN counts, and its place gets the gradient.
TEST(Pool, NanAndInfinitiesPassAsInTheReference) {
  for (const std::string layout : {"", ":cl"})
    for (const std::string block : {"max_pool(2)", "max_pool(3, stride=2, pad=1)", "max_pool(3, stride=1)"}) {
      SCOPED_TRACE(block + " " + layout);
      const TypedBlock typed_block = typed(block, "f32[1,17,19,21]" + layout);
      TensorMap arguments = integers(typed_block, 9);
      Tensor& x = arguments.at("x");
      for (std::int64_t i = 0; i < x.type().element_count(); i += 5)
        x.set(i, i % 3 == 0
                     ? std::numeric_limits<double>::quiet_NaN()
                     : std::copysign(std::numeric_limits<double>::infinity(), i % 2 == 0 ? 1.0 : -1.0));
      const TensorMap expected = reference_results(typed_block, arguments);
      const TensorMap got = cpu_results(typed_block, arguments, 0, 2);
      for (const auto& [name, tensor] : expected)
        for (std::int64_t i = 0; i < tensor.type().element_count(); ++i) {
          const double wanted = tensor.get(i);
          const double found = got.at(name).get(i);
          ASSERT_TRUE(wanted == found || (std::isnan(wanted) && std::isnan(found)))
              << name << " at " << i << ": " << found << ", expected " << wanted;
        }
    }
}

// Each result is in one run, and its taps are those of the window.
TEST(PoolRuns, HoldEveryResultOnceWithItsTaps) {
  for (std::int64_t window : {1, 2, 3, 5})
    for (std::int64_t stride : {1, 2, 3, 4})
      for (std::int64_t dilation : {1, 2, 6})
        for (std::int64_t pad : {0, 1}) {
          PoolGeometry geometry;
          const std::int64_t reach = dilation * (window - 1) + 1;
          geometry.in[2] = 29;
          geometry.window[2] = window;
          geometry.stride[2] = stride;
          geometry.dilation[2] = dilation;
          geometry.pad[2] = std::min(pad, reach / 2);
          // One more than fits, as in ceil_mode.
          geometry.out[2] = (geometry.in[2] + 2 * geometry.pad[2] - reach) / stride + 2;
          std::vector<std::vector<std::int64_t>> by_output(
              static_cast<std::size_t>(geometry.out[2] * geometry.in[2]));
          std::vector<std::vector<std::int64_t>> by_input = by_output;
          std::vector<std::vector<std::int64_t>> expected = by_output;
          const auto cell = [&](std::int64_t out, std::int64_t in) {
            return static_cast<std::size_t>(out * geometry.in[2] + in);
          };
          for (std::int64_t out = 0; out < geometry.out[2]; ++out)
            for (std::int64_t tap = 0; tap < window; ++tap) {
              const std::int64_t in = out * stride - geometry.pad[2] + tap * dilation;
              if (0 <= in && in < geometry.in[2]) expected[cell(out, in)].push_back(tap);
            }
          const auto visit = [&](const std::vector<cpu::PoolRun>& runs, auto found) {
            std::int64_t results = 0;
            for (const cpu::PoolRun& run : runs)
              for (std::int64_t i = 0; i < run.count; ++i, ++results)
                for (std::int64_t t = 0; t < run.taps; ++t)
                  found(run.begin + i * run.step, run.source + i * run.source_step + t * run.tap_step,
                        run.number + t * run.number_step);
            return results;
          };
          EXPECT_EQ(visit(cpu::output_runs(geometry, 2),
                          [&](std::int64_t out, std::int64_t in, std::int64_t tap) {
                            by_output.at(cell(out, in)).push_back(tap);
                          }),
                    geometry.out[2]);
          EXPECT_EQ(visit(cpu::input_runs(geometry, 2),
                          [&](std::int64_t in, std::int64_t out, std::int64_t tap) {
                            by_input.at(cell(out, in)).push_back(tap);
                          }),
                    geometry.in[2]);
          EXPECT_EQ(by_output, expected);
          EXPECT_EQ(by_input, expected);
        }
}

}  // namespace
}  // namespace fuseblock
