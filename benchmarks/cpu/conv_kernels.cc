// Rates of the CPU engine's convolution tiles on one thread, against a loop of fused multiply-adds that stays in
// registers, measured in the same run. Each figure is the time of one sample, the best of many runs taken for each
// tile by itself, so that other processes of the machine disturb little: staging included, weights packed beforehand. Useful operations are those of ConvGeometry::multiply_adds().
//   conv_kernels [seconds per figure] [part of a name]
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "cpu/conv/contraction.h"
#include "cpu/conv/source.h"
#include "cpu/measure_loops.h"

namespace fuseblock::cpu {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// The sum over `parts` of the best time of work(part), all parts run in turn until the budget is spent.
double best_seconds(double budget, std::size_t parts, const std::function<void(std::size_t)>& work) {
  std::vector<double> best(parts, 1e30);
  const Clock::time_point start = Clock::now();
  do {
    for (std::size_t i = 0; i < parts; ++i) {
      const Clock::time_point begin = Clock::now();
      work(i);
      best[i] = std::min(best[i], seconds_since(begin));
    }
  } while (seconds_since(start) < budget);
  return std::accumulate(best.begin(), best.end(), 0.0);
}

struct Workload {
  const char* name;
  ConvGeometry geometry;
  std::int64_t tile_rows;
};

ConvGeometry convolution(std::int64_t in_channels, std::int64_t out_channels, Spatial in, Spatial filter,
                         Spatial stride, Spatial pad, bool transposed = false, std::int64_t groups = 1) {
  ConvGeometry g;
  g.batch = 1;
  g.in_channels = in_channels;
  g.out_channels = out_channels;
  g.groups = groups;
  g.in = in;
  g.filter = filter;
  g.stride = stride;
  g.pad = pad;
  g.transposed = transposed;
  for (int i = 0; i < 3; ++i) {
    g.out[i] = transposed ? (in[i] - 1) * stride[i] - 2 * pad[i] + filter[i]
                          : (in[i] + 2 * pad[i] - filter[i]) / stride[i] + 1;
  }
  return g;
}

std::vector<Workload> workloads() {
  return {
      {"conv3d 3->16 k4 16x32x32", convolution(3, 16, {16, 32, 32}, {4, 4, 4}, {1, 1, 1}, {0, 0, 0}), 4 * 29},
      {"conv3d 3->24 k3 24x32x32", convolution(3, 24, {24, 32, 32}, {3, 3, 3}, {1, 1, 1}, {0, 0, 0}), 4 * 30},
      {"conv_transpose3d 64->128 k3 32^3",
       convolution(64, 128, {32, 32, 32}, {3, 3, 3}, {1, 1, 1}, {0, 0, 0}, true), 34},
      {"conv2d 8->64 k3 128x128", convolution(8, 64, {1, 128, 128}, {1, 3, 3}, {1, 1, 1}, {0, 0, 0}), 14},
      {"conv2d 128->128 k3 p1 64x64", convolution(128, 128, {1, 64, 64}, {1, 3, 3}, {1, 1, 1}, {0, 1, 1}),
       16},
      {"conv2d 64->128 k3 s2 p1 56x56", convolution(64, 128, {1, 56, 56}, {1, 3, 3}, {1, 2, 2}, {0, 1, 1}),
       14},
      {"conv2d 256->256 k1 28x28", convolution(256, 256, {1, 28, 28}, {1, 1, 1}, {1, 1, 1}, {0, 0, 0}), 14},
      {"conv2d 256 depthwise k3 p1 56x56",
       convolution(256, 256, {1, 56, 56}, {1, 3, 3}, {1, 1, 1}, {0, 1, 1}, false, 256), 14},
      {"conv2d 128->128 g32 k3 p1 56x56",
       convolution(128, 128, {1, 56, 56}, {1, 3, 3}, {1, 1, 1}, {0, 1, 1}, false, 32), 14},
      {"conv_transpose2d 64->32 k4 s2 p1 32x32",
       convolution(64, 32, {1, 32, 32}, {1, 4, 4}, {1, 2, 2}, {0, 1, 1}, true), 16},
      {"conv1d 64->64 k5 p2 2000", convolution(64, 64, {1, 1, 2000}, {1, 1, 5}, {1, 1, 1}, {0, 0, 2}), 1},
  };
}

std::vector<Range> tiles(std::int64_t rows, std::int64_t tile_rows) {
  std::vector<Range> ranges;
  for (std::int64_t begin = 0; begin < rows; begin += tile_rows)
    ranges.push_back({begin, std::min(begin + tile_rows, rows)});
  return ranges;
}

// Values without meaning that are not all alike.
std::vector<float> filled(std::size_t count) {
  std::vector<float> values(count);
  for (std::size_t i = 0; i < count; ++i)
    values[i] = static_cast<float>((i * 2654435761u >> 7) % 1000) * 1e-3f - 0.5f;
  return values;
}

// Memory on whole cache lines, as the engine's workspace has it.
template <typename T>
class Lines {
 public:
  explicit Lines(std::size_t count) : bytes_(count * sizeof(T) + 64) {}
  T* data() {
    void* place = bytes_.data();
    std::size_t room = bytes_.size();
    return static_cast<T*>(std::align(64, 1, place, room));
  }

 private:
  std::vector<std::byte> bytes_;
};

std::int64_t volume(const Spatial& extents) { return extents[0] * extents[1] * extents[2]; }

double time_source(const Workload& workload, ConvDirection direction, double budget) {
  const ConvGeometry& g = workload.geometry;
  const ConvSource<float> conv(g, direction);
  const ConvGrid& grid = conv.grid();
  const Spatial source = direction == ConvDirection::kForward ? g.in : g.out;
  const std::vector<float> input = filled(static_cast<std::size_t>(grid.source_channels() * volume(source)));
  const std::vector<float> weight = filled(conv.packed_weight_elements());
  Lines<float> packed(conv.packed_weight_elements());
  conv.pack_weights(weight.data(), packed.data());
  const Range channels = {0, grid.source_channels()};
  const Range ks = {0, grid.result_channels()};
  const std::vector<Range> row_ranges = tiles(grid.row_count(), workload.tile_rows);
  std::size_t staged_size = 0;
  for (const Range rows : row_ranges)
    staged_size = std::max(staged_size, conv.staged_elements(rows, channels));
  Lines<float> staged(staged_size);
  const std::int64_t tile_pitch = workload.tile_rows * grid.result()[2];
  Lines<float> tile(static_cast<std::size_t>(tile_pitch * ks.size()));
  Lines<std::byte> scratch(conv.scratch_bytes());
  const auto load = [&](std::int64_t c, std::int64_t d, std::int64_t h, std::int64_t count, float* rows,
                        std::int64_t pitch) {
    sum_kernel<float>().copy(input.data() + ((c * source[0] + d) * source[1] + h) * source[2], source[2],
                             count, source[2], rows, pitch);
  };
  return best_seconds(budget, row_ranges.size(), [&](std::size_t i) {
    conv.stage(row_ranges[i], channels, load, staged.data());
    conv.compute(staged.data(), row_ranges[i], channels, packed.data(), nullptr, ks, tile.data(), tile_pitch,
                 scratch.data());
  });
}

double time_contraction(const Workload& workload, double budget) {
  const ConvGeometry& g = workload.geometry;
  const ConvContraction<float> contraction(g);
  const ConvGrid& grid = contraction.grid();
  const std::vector<float> x = filled(static_cast<std::size_t>(g.in_channels * volume(g.in)));
  const std::vector<float> d_y = filled(static_cast<std::size_t>(g.out_channels * volume(g.out)));
  const Range channels = {0, grid.source_channels()};
  const Range ks = {0, grid.result_channels()};
  const std::vector<Range> row_ranges = tiles(grid.row_count(), workload.tile_rows);
  std::size_t staged_size = 0;
  std::size_t scratch_size = 0;
  for (const Range rows : row_ranges) {
    staged_size = std::max(staged_size, contraction.staged_elements(rows, channels));
    scratch_size = std::max(scratch_size, contraction.scratch_bytes(rows));
  }
  Lines<float> staged(staged_size);
  Lines<std::byte> scratch(scratch_size);
  std::vector<double> d_weight(contraction.weight_elements(), 0.0);
  const auto load = [&](std::int64_t c, std::int64_t d, std::int64_t h, std::int64_t count, float* rows,
                        std::int64_t pitch) {
    sum_kernel<float>().copy(x.data() + ((c * g.in[0] + d) * g.in[1] + h) * g.in[2], g.in[2], count, g.in[2],
                             rows, pitch);
  };
  return best_seconds(budget, row_ranges.size(), [&](std::size_t i) {
    contraction.stage(row_ranges[i], channels, load, staged.data());
    contraction.accumulate(staged.data(), row_ranges[i], channels,
                           d_y.data() + row_ranges[i].begin * g.out[2], volume(g.out), ks, d_weight.data(),
                           scratch.data());
  });
}

}  // namespace
}  // namespace fuseblock::cpu

int main(int argc, char** argv) {
  using namespace fuseblock::cpu;
  const double budget = argc > 1 ? std::stod(argv[1]) : 0.5;
  const std::string part = argc > 2 ? argv[2] : "";
  double operations = 0;
  const auto measure_peak = [&] {
    const double seconds =
        best_seconds(0.1, 1, [&](std::size_t) { operations = multiply_adds<float>(100'000); });
    return operations / seconds * 1e-9;
  };
  double peak = measure_peak();
  std::printf("fused multiply-adds in registers: %.1f GFLOP/s\n\n", peak);
  std::printf("%-40s %9s %17s %17s %17s %17s\n", "f32, one thread, GFLOP/s (of peak)", "MFLOP", "forward",
              "per grid position", "input gradient", "weight gradient");
  for (const Workload& workload : workloads()) {
    if (std::string(workload.name).find(part) == std::string::npos) continue;
    const double flops = 2 * workload.geometry.multiply_adds();
    peak = std::max(peak, measure_peak());
    const auto rate = [&](double seconds, double scale) {
      const double gflops = flops * scale / seconds * 1e-9;
      std::printf(" %8.1f (%4.1f %%)", gflops, 100 * gflops / peak);
    };
    const ConvGrid grid(workload.geometry, ConvDirection::kForward);
    const double columns = static_cast<double>(grid.axis(2).grid_extent(0));
    std::printf("%-40s %9.1f", workload.name, flops * 1e-6);
    const double forward = time_source(workload, ConvDirection::kForward, budget);
    rate(forward, 1);
    rate(forward, static_cast<double>(grid.layout({0, 1}).pitch) / columns);
    rate(time_source(workload, ConvDirection::kGradInput, budget), 1);
    rate(time_contraction(workload, budget), 1);
    std::printf("\n");
    std::fflush(stdout);
  }
  return 0;
}
