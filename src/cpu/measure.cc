#include "cpu/measure.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <functional>
#include <latch>
#include <memory>
#include <thread>
#include <vector>

#include "cpu/measure_loops.h"
#include "cpu/parallel.h"
#include "cpu/vector/tile_ops.h"

namespace fuseblock::cpu {
namespace {

using Clock = std::chrono::steady_clock;

// The convolution tiles reach this share of multiply-adds in registers (src/cpu/conv/README.md).
constexpr double kConvolutionShare = 0.65;
constexpr double kBudget = 0.2;  // seconds a figure
constexpr std::size_t kFewestSlices = 5;
constexpr std::int64_t kRounds = 100'000;         // of multiply-adds in a slice
constexpr std::size_t kTile = 512;                // elements of a program's chunk
constexpr int kTiles = 1000;                      // in a slice
constexpr double kLargestCopy = 128e6;            // bytes on one side of a copy
constexpr std::size_t kSliceFloats = 64 * 1024;   // of a copy
constexpr std::size_t kTouchedBytes = 64U << 20;  // by all threads
constexpr std::size_t kPage = 4096;
constexpr std::size_t kTouchSlice = 64 * kPage;

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

// The value that this share of all lies below.
double quantile(std::vector<double> values, double share) {
  const auto place = static_cast<std::ptrdiff_t>(share * static_cast<double>(values.size() - 1));
  std::nth_element(values.begin(), values.begin() + place, values.end());
  return values[static_cast<std::size_t>(place)];
}

// Work of one thread, slice by slice: does the slice of that number and gives how much it was; nothing where there are
// no more.
using Slices = std::function<double(std::size_t number)>;

// The amount a second of one thread's slices, their upper quartile. A slice is shorter than the time a scheduler gives a
// process, so that many of them are left alone on a busy machine too.
double slice_rate(const Slices& slices) {
  std::vector<double> rates;
  const Clock::time_point begin = Clock::now();
  for (std::size_t number = 0; number < kFewestSlices || seconds_since(begin) < kBudget; ++number) {
    const Clock::time_point start = Clock::now();
    const double amount = slices(number);
    if (amount == 0) break;
    rates.push_back(amount / seconds_since(start));
  }
  return quantile(std::move(rates), 0.75);
}

// The same of several threads at once, together. `make` prepares a thread's work on that thread.
double rate(int threads, const std::function<Slices(int thread)>& make) {
  std::vector<double> rates(static_cast<std::size_t>(threads), 0.0);
  std::latch ready(threads);
  std::vector<std::jthread> running;
  for (int thread = 0; thread < threads; ++thread)
    running.emplace_back([&, thread] {
      const Slices slices = make(thread);
      slices(0);
      ready.arrive_and_wait();
      rates[static_cast<std::size_t>(thread)] = slice_rate(slices);
    });
  running.clear();  // waits for them
  double sum = 0;
  for (double each : rates) sum += each;
  return sum;
}

template <class T>
double multiply_add_rate(int threads) {
  return rate(threads, [](int) -> Slices { return [](std::size_t) { return multiply_adds<T>(kRounds); }; });
}

// Elements a second of a primitive on arrays in L1.
double primitive_rate(int threads, Primitive primitive) {
  return rate(threads, [primitive](int) -> Slices {
    const std::vector<float> x(kTile, 0.7F);
    return [primitive, x, out = std::vector<float>(kTile)](std::size_t) mutable {
      for (int i = 0; i < kTiles; ++i)
        apply<float>(primitive, {x.data(), false}, {x.data(), false}, {x.data(), false}, out.data(), kTile);
      return static_cast<double>(kTile) * kTiles;
    };
  });
}

// Bytes a second, read and written ones, where the threads together copy `bytes` over and over.
double copy_bandwidth(int threads, double bytes) {
  const auto floats = static_cast<std::size_t>(bytes / 4 / threads);
  const std::size_t slice = std::min(floats, kSliceFloats);
  const std::size_t slices = floats / slice;
  return rate(threads, [&](int) -> Slices {
    const auto from = std::make_shared<std::vector<float>>(slices * slice, 1.0F);
    const auto to = std::make_shared<std::vector<float>>(slices * slice, 0.0F);
    return [from, to, slice, slices](std::size_t number) {
      const std::size_t offset = number % slices * slice;
      copy_floats(from->data() + offset, to->data() + offset, slice);
      return 2.0 * sizeof(float) * static_cast<double>(slice);
    };
  });
}

// Seconds a byte: one write to each page of memory that nobody has used yet.
double first_touch(int threads) {
  const std::size_t slices = kTouchedBytes / static_cast<std::size_t>(threads) / kTouchSlice + kFewestSlices;
  return 1 / rate(threads, [&](int) -> Slices {
           // NOLINTNEXTLINE(modernize-avoid-c-arrays): a vector would touch it
           const std::shared_ptr<std::byte[]> memory(new std::byte[(slices + 1) * kTouchSlice]);
           return [memory, slices, done = std::size_t{0}](std::size_t) mutable {
             if (done > slices) return 0.0;
             volatile std::byte* const bytes = memory.get() + done++ * kTouchSlice;
             for (std::size_t i = 0; i < kTouchSlice; i += kPage) bytes[i] = std::byte{1};
             return static_cast<double>(kTouchSlice);
           };
         });
}

double sweep_start() {
  const Workers& all = workers(0);
  std::vector<double> times;
  for (int i = 0; i < 1000; ++i) {
    const Clock::time_point begin = Clock::now();
    all.run(4 * all.count(), [](std::int64_t, int) {});
    times.push_back(seconds_since(begin));
  }
  return quantile(std::move(times), 0.5);
}

}  // namespace

void name_cpu(DeviceDescription& description, const Machine& machine) {
  description.name = "cpu";
  description.summary = "sweeps over tiles, f32 arithmetic (f64 where an input is), SIMD, all cores";
  description.model = machine.model;
  description.cores = machine.cores;
  description.convolution_share = kConvolutionShare;
}

DeviceDescription measure(const Machine& machine) {
  const int threads = workers(0).count();
  DeviceDescription result;
  name_cpu(result, machine);
  result.origin = DescriptionOrigin::kMeasured;
  result.f32_rate_one_core = multiply_add_rate<float>(1);
  result.f32_rate = multiply_add_rate<float>(threads);
  result.f64_rate = multiply_add_rate<double>(threads);
  result.program_rate = primitive_rate(threads, Primitive::kAdd);
  const double exp_rate = primitive_rate(threads, Primitive::kExp);
  const double tanh_rate = primitive_rate(threads, Primitive::kTanh);
  result.special_rate = 2 / (1 / exp_rate + 1 / tanh_rate);

  constexpr double kSmallestCache = 1e6;
  result.cache_bytes = std::max(machine.cache_bytes, kSmallestCache);
  result.core_cache_bytes = std::max(machine.core_cache_bytes, kSmallestCache / 4);
  const double large = std::min(4 * result.cache_bytes, kLargestCopy);
  result.memory_bandwidth = copy_bandwidth(threads, large);
  result.memory_bandwidth_one_core = copy_bandwidth(1, large);
  // A quarter of a cache on each side of the copy. No cache counts as slower than what lies behind it.
  result.cache_bandwidth = std::max(copy_bandwidth(threads, std::min(result.cache_bytes / 4, kLargestCopy)),
                                    result.memory_bandwidth);
  result.core_cache_bandwidth =
      std::max(copy_bandwidth(threads, result.core_cache_bytes / 4 * threads), result.cache_bandwidth);
  result.first_touch = first_touch(threads);
  result.sweep_start = sweep_start();
  return result;
}

}  // namespace fuseblock::cpu
