// Convolution tiles of the CPU engine against plain loops in double: random geometries, each in all its
// directions, in tiles of random rows and channels.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <random>
#include <sstream>
#include <string>
#include <vector>

#include "cpu/conv/contraction.h"
#include "cpu/conv/source.h"
#include "cpu/conv/targets.h"
// Behind targets.h: the kernels' targets.
#include "hwy/targets.h"

namespace fuseblock::cpu {
namespace {

using Random = std::mt19937_64;

std::int64_t between(Random& random, std::int64_t low, std::int64_t high) {
  return std::uniform_int_distribution<std::int64_t>(low, high)(random);
}

std::int64_t volume(const Spatial& extents) { return extents[0] * extents[1] * extents[2]; }

std::string describe(const ConvGeometry& g) {
  std::ostringstream text;
  const auto list = [&](const char* name, const Spatial& v) {
    text << ' ' << name << ' ' << v[0] << ',' << v[1] << ',' << v[2];
  };
  text << (g.transposed ? "transposed " : "conv ") << g.in_channels << " -> " << g.out_channels << " groups "
       << g.groups << " mode " << static_cast<int>(g.pad_mode);
  list("in", g.in);
  list("out", g.out);
  list("filter", g.filter);
  list("stride", g.stride);
  list("pad", g.pad);
  list("dilation", g.dilation);
  return text.str();
}

// Calls visit(weight element, narrow element, wide element) for each product of the operation.
void for_each_term(const ConvGeometry& g,
                   const std::function<void(std::int64_t, std::int64_t, std::int64_t)>& visit) {
  const Spatial& narrow = g.transposed ? g.in : g.out;
  const Spatial& wide = g.transposed ? g.out : g.in;
  const std::int64_t narrow_channels = g.transposed ? g.in_channels : g.out_channels;
  const std::int64_t wide_per_group = (g.transposed ? g.out_channels : g.in_channels) / g.groups;
  const auto meet = [&](int axis, std::int64_t q, std::int64_t tap) {
    return padded_coordinate(q * g.stride[axis] - g.pad[axis] + tap * g.dilation[axis], wide[axis],
                             g.pad_mode);
  };
  std::int64_t weight = 0;
  for (std::int64_t k = 0; k < narrow_channels; ++k) {
    for (std::int64_t i = 0; i < wide_per_group; ++i) {
      const std::int64_t c = k / (narrow_channels / g.groups) * wide_per_group + i;
      for (std::int64_t tap = 0; tap < volume(g.filter); ++tap, ++weight) {
        const std::int64_t tap_d = tap / (g.filter[1] * g.filter[2]);
        const std::int64_t tap_h = tap / g.filter[2] % g.filter[1];
        for (std::int64_t q = 0; q < volume(narrow); ++q) {
          const std::int64_t d = meet(0, q / (narrow[1] * narrow[2]), tap_d);
          const std::int64_t h = meet(1, q / narrow[2] % narrow[1], tap_h);
          const std::int64_t w = meet(2, q % narrow[2], tap % g.filter[2]);
          if (d < 0 || h < 0 || w < 0) continue;
          visit(weight, k * volume(narrow) + q, ((c * wide[0] + d) * wide[1] + h) * wide[2] + w);
        }
      }
    }
  }
}

ConvGeometry random_geometry(Random& random) {
  while (true) {
    ConvGeometry g;
    g.batch = 1;
    g.groups = between(random, 0, 2) == 0 ? between(random, 2, 4) : 1;
    const std::int64_t most = between(random, 0, 5) == 0 ? 70 / g.groups : 12 / g.groups;
    g.in_channels = g.groups * between(random, 1, most);
    g.out_channels = g.groups * between(random, 1, most);
    g.transposed = between(random, 0, 2) == 0;
    // Both ways wide enough for channels in lanes.
    const bool wide = between(random, 0, 7) == 0;
    if (wide) {
      g.groups = 1;
      g.in_channels = between(random, 28, 34);
      g.out_channels = between(random, 28, 34);
    }
    if (!g.transposed) g.pad_mode = static_cast<PadMode>(std::max<std::int64_t>(0, between(random, -3, 3)));
    const int axes = static_cast<int>(between(random, 1, 3));
    bool possible = true;
    for (int i = 3 - axes; i < 3; ++i) {
      g.in[i] = between(random, 1, i < 2 ? (wide ? 3 : 9) : (wide ? 15 : 40));
      if (axes == 1 && between(random, 0, 3) == 0) g.in[i] = between(random, 300, 900);
      g.filter[i] = between(random, 1, 4);
      g.stride[i] = between(random, 0, 1) == 0 ? 1 : between(random, 1, 3);
      g.dilation[i] = between(random, 0, 2) == 0 ? between(random, 1, 3) : 1;
      g.pad[i] = between(random, 0, 3);
      const std::int64_t reach = (g.filter[i] - 1) * g.dilation[i];
      if (g.transposed) {
        const std::int64_t output_pad = between(random, 0, std::max(g.stride[i], g.dilation[i]) - 1);
        g.out[i] = (g.in[i] - 1) * g.stride[i] - 2 * g.pad[i] + reach + 1 + output_pad;
      } else {
        if (g.pad_mode == PadMode::kReflect) g.pad[i] = std::min(g.pad[i], g.in[i] - 1);
        if (g.pad_mode == PadMode::kCircular) g.pad[i] = std::min(g.pad[i], g.in[i]);
        const std::int64_t behind = g.pad_mode == PadMode::kZeros ? between(random, 0, 4) : g.pad[i];
        const std::int64_t room = g.in[i] + g.pad[i] + behind - reach - 1;
        g.out[i] = room < 0 ? 0 : room / g.stride[i] + 1;
      }
      possible = possible && g.out[i] > 0;
    }
    if (possible && g.multiply_adds() < 6e5 && (!wide || volume(g.filter) > 4)) return g;
  }
}

// An array between guard elements that nobody may change.
template <typename T>
class Guarded {
 public:
  explicit Guarded(std::size_t count, T value = T(-77)) : elements_(count + 2 * kGuard, value) {
    std::fill_n(elements_.begin(), kGuard, kMark);
    std::fill_n(elements_.end() - kGuard, kGuard, kMark);
  }
  ~Guarded() {
    for (std::ptrdiff_t i = 0; i < kGuard; ++i) {
      EXPECT_EQ(elements_[i], kMark) << "written in front of an array";
      EXPECT_EQ(elements_[std::ssize(elements_) - 1 - i], kMark) << "written behind an array";
    }
  }
  Guarded(const Guarded&) = delete;
  Guarded& operator=(const Guarded&) = delete;
  T* data() { return elements_.data() + kGuard; }

 private:
  static constexpr std::ptrdiff_t kGuard = 80;
  static constexpr T kMark = static_cast<T>(123);
  std::vector<T> elements_;
};

template <typename T>
std::vector<T> integers(Random& random, std::int64_t count) {
  std::vector<T> values(static_cast<std::size_t>(count));
  for (T& value : values) value = static_cast<T>(between(random, -4, 4));
  return values;
}

template <typename T>
std::vector<T> reals(Random& random, std::int64_t count) {
  std::normal_distribution<T> normal;
  std::vector<T> values(static_cast<std::size_t>(count));
  for (T& value : values) value = normal(random);
  return values;
}

// Cuts [0, extent) at random places, at most `parts` of them; `parts` 1 leaves it whole.
std::vector<Range> random_parts(Random& random, std::int64_t extent, std::int64_t parts) {
  std::vector<std::int64_t> cuts = {0, extent};
  for (std::int64_t i = 1; i < parts; ++i) cuts.push_back(between(random, 0, extent));
  std::sort(cuts.begin(), cuts.end());
  std::vector<Range> ranges;
  for (std::size_t i = 1; i < cuts.size(); ++i) ranges.push_back({cuts[i - 1], cuts[i]});
  return ranges;
}

// A loader of the rows of one dense sample.
template <typename T>
auto rows_of(const std::vector<T>& values, const Spatial& extents) {
  return [&values, extents](std::int64_t c, std::int64_t d, std::int64_t h, std::int64_t count, T* rows,
                            std::int64_t pitch) {
    for (std::int64_t i = 0; i < count; ++i)
      std::copy_n(values.begin() + ((c * extents[0] + d) * extents[1] + h + i) * extents[2], extents[2],
                  rows + i * pitch);
  };
}

// The whole result of one sample, in tiles: `row_parts` x `channel_parts` of them.
template <typename T>
std::vector<T> in_tiles(Random& random, const ConvGeometry& g, ConvDirection direction,
                        const std::vector<T>& source, const std::vector<T>& weight, const T* bias,
                        std::int64_t row_parts, std::int64_t channel_parts) {
  const ConvSource<T> conv(g, direction);
  const ConvGrid& grid = conv.grid();
  const std::int64_t width = grid.result()[2];
  const Spatial& source_extents = direction == ConvDirection::kForward ? g.in : g.out;
  const auto load = rows_of(source, source_extents);
  Guarded<T> packed(conv.packed_weight_elements());
  conv.pack_weights(weight.data(), packed.data());
  std::vector<T> result(static_cast<std::size_t>(grid.result_channels() * volume(grid.result())), T(-5));
  for (const Range rows : random_parts(random, grid.row_count(), row_parts)) {
    for (const Range ks : random_parts(random, grid.result_channels(), channel_parts)) {
      const Range channels = grid.channels_read_by(ks);
      Guarded<T> staged(conv.staged_elements(rows, channels));
      conv.stage(rows, channels, load, staged.data());
      const std::int64_t positions = rows.size() * width;
      const std::int64_t tile_pitch = positions + between(random, 0, 3);
      Guarded<T> tile(static_cast<std::size_t>(tile_pitch * ks.size()));
      Guarded<std::int64_t> scratch(conv.scratch_bytes() / 8);
      conv.compute(staged.data(), rows, channels, packed.data(), bias, ks, tile.data(), tile_pitch,
                   reinterpret_cast<std::byte*>(scratch.data()));
      // The same from weights that are packed when they are used.
      Guarded<T> packing(static_cast<std::size_t>(tile_pitch * ks.size()));
      Guarded<T> block(conv.packed_block_elements());
      conv.compute_packing(staged.data(), rows, channels, weight.data(), bias, ks, packing.data(), tile_pitch,
                           reinterpret_cast<std::byte*>(scratch.data()), block.data());
      EXPECT_EQ(0, std::memcmp(tile.data(), packing.data(),
                               static_cast<std::size_t>(tile_pitch * ks.size()) * sizeof(T)))
          << "packed when used: other bits, " << describe(g);
      for (std::int64_t k = ks.begin; k < ks.end; ++k) {
        const T* const from = tile.data() + (k - ks.begin) * tile_pitch;
        std::copy_n(from, positions, result.begin() + k * volume(grid.result()) + rows.begin * width);
        for (std::int64_t i = positions; i < tile_pitch; ++i)
          EXPECT_EQ(from[i], T(-77)) << "written between the rows of a tile";
      }
    }
  }
  return result;
}

template <typename T>
std::vector<T> oracle(const ConvGeometry& g, ConvDirection direction, const std::vector<T>& source,
                      const std::vector<T>& weight, const T* bias) {
  const bool forward = direction == ConvDirection::kForward;
  const std::int64_t channels = forward ? g.out_channels : g.in_channels;
  const std::int64_t positions = volume(forward ? g.out : g.in);
  std::vector<double> sums(static_cast<std::size_t>(channels * positions), 0);
  if (bias != nullptr) {
    for (std::int64_t i = 0; i < channels * positions; ++i)
      sums[i] = static_cast<double>(bias[i / positions]);
  }
  const bool result_is_narrow = forward != g.transposed;
  for_each_term(g, [&](std::int64_t w, std::int64_t narrow, std::int64_t wide) {
    const double factor = static_cast<double>(weight[w]);
    if (result_is_narrow) {
      sums[narrow] += factor * static_cast<double>(source[wide]);
    } else {
      sums[wide] += factor * static_cast<double>(source[narrow]);
    }
  });
  std::vector<T> result(sums.size());
  std::transform(sums.begin(), sums.end(), result.begin(), [](double sum) { return static_cast<T>(sum); });
  return result;
}

// The gradient by the weight, contracted from `row_parts` x `channel_parts` tiles of d_y.
template <typename T>
std::vector<double> contracted(Random& random, const ConvGeometry& g, const std::vector<T>& x,
                               const std::vector<T>& d_y, std::int64_t row_parts,
                               std::int64_t channel_parts) {
  const ConvContraction<T> contraction(g);
  const ConvGrid& grid = contraction.grid();
  Guarded<double> sums(contraction.weight_elements(), 0.0);
  for (const Range rows : random_parts(random, grid.row_count(), row_parts)) {
    for (const Range ks : random_parts(random, grid.result_channels(), channel_parts)) {
      const Range channels = grid.channels_read_by(ks);
      Guarded<T> staged(contraction.staged_elements(rows, channels));
      contraction.stage(rows, channels, rows_of(x, g.in), staged.data());
      Guarded<std::int64_t> scratch((contraction.scratch_bytes(rows) + 7) / 8);
      contraction.accumulate(staged.data(), rows, channels,
                             d_y.data() + ks.begin * volume(g.out) + rows.begin * g.out[2], volume(g.out), ks,
                             sums.data(), reinterpret_cast<std::byte*>(scratch.data()));
    }
  }
  Guarded<double> d_weight(contraction.weight_elements());
  contraction.join(sums.data(), 1, {0, contraction.column_count()}, d_weight.data());
  return {d_weight.data(), d_weight.data() + contraction.weight_elements()};
}

template <typename T>
std::vector<double> contracted_oracle(const ConvGeometry& g, const std::vector<T>& x,
                                      const std::vector<T>& d_y) {
  const std::vector<T>& narrow_side = g.transposed ? x : d_y;
  const std::vector<T>& wide_side = g.transposed ? d_y : x;
  std::vector<double> sums(
      static_cast<std::size_t>(g.in_channels * g.out_channels / g.groups * volume(g.filter)), 0);
  for_each_term(g, [&](std::int64_t w, std::int64_t narrow, std::int64_t wide) {
    sums[w] += static_cast<double>(narrow_side[narrow]) * static_cast<double>(wide_side[wide]);
  });
  return sums;
}

template <typename T>
struct Operands {
  std::vector<T> x;
  std::vector<T> d_y;
  std::vector<T> weight;
  std::vector<T> bias;
};

template <typename T>
Operands<T> random_operands(Random& random, const ConvGeometry& g,
                            std::vector<T> (*make)(Random&, std::int64_t)) {
  return {make(random, g.in_channels * volume(g.in)), make(random, g.out_channels * volume(g.out)),
          make(random, g.in_channels * g.out_channels / g.groups * volume(g.filter)),
          make(random, std::max(g.in_channels, g.out_channels))};
}

template <typename T>
void expect_exact(const std::vector<T>& got, const std::vector<T>& expected, const std::string& what) {
  ASSERT_EQ(got.size(), expected.size());
  for (std::size_t i = 0; i < got.size(); ++i) {
    const bool same = got[i] == expected[i] || (std::isnan(got[i]) && std::isnan(expected[i]));
    ASSERT_TRUE(same) << what << ": element " << i << " is " << got[i] << ", expected " << expected[i];
  }
}

template <typename T>
bool same_bits(const std::vector<T>& a, const std::vector<T>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0;
}

// Makes the kernels chosen from here on those of one target.
class ForcedTarget {
 public:
  explicit ForcedTarget(std::int64_t target) { force(target); }
  ~ForcedTarget() { force(0); }
  ForcedTarget(const ForcedTarget&) = delete;
  ForcedTarget& operator=(const ForcedTarget&) = delete;

 private:
  static void force(std::int64_t target) {
    hwy::SetSupportedTargetsForTest(target);
    hwy::GetChosenTarget().Update(hwy::SupportedTargets());
  }
};

template <typename T>
class ConvKernels : public testing::Test {};
using ElementTypes = testing::Types<float, double>;
TYPED_TEST_SUITE(ConvKernels, ElementTypes);

TYPED_TEST(ConvKernels, IntegersAreExactInAnyTiles) {
  using T = TypeParam;
  Random random(1);
  for (int trial = 0; trial < 250 && !this->HasFatalFailure(); ++trial) {
    const ConvGeometry g = random_geometry(random);
    const Operands<T> operands = random_operands<T>(random, g, integers<T>);
    const T* const bias = between(random, 0, 1) == 0 ? nullptr : operands.bias.data();
    for (const ConvDirection direction : {ConvDirection::kForward, ConvDirection::kGradInput}) {
      const bool forward = direction == ConvDirection::kForward;
      const std::vector<T>& source = forward ? operands.x : operands.d_y;
      const std::vector<T> expected = oracle(g, direction, source, operands.weight, bias);
      const std::string what = std::string(forward ? "forward of " : "input gradient of ") + describe(g);
      expect_exact(in_tiles(random, g, direction, source, operands.weight, bias, between(random, 1, 5),
                            between(random, 1, 3)),
                   expected, what);
    }
    expect_exact(
        contracted(random, g, operands.x, operands.d_y, between(random, 1, 5), between(random, 1, 3)),
        contracted_oracle(g, operands.x, operands.d_y), "weight gradient of " + describe(g));
  }
}

TYPED_TEST(ConvKernels, EveryTilingGivesTheSameBits) {
  using T = TypeParam;
  Random random(2);
  for (int trial = 0; trial < 150; ++trial) {
    const ConvGeometry g = random_geometry(random);
    const Operands<T> operands = random_operands<T>(random, g, reals<T>);
    for (const ConvDirection direction : {ConvDirection::kForward, ConvDirection::kGradInput}) {
      const std::vector<T>& source = direction == ConvDirection::kForward ? operands.x : operands.d_y;
      const auto tiled = [&](std::int64_t row_parts, std::int64_t channel_parts) {
        return in_tiles(random, g, direction, source, operands.weight, operands.bias.data(), row_parts,
                        channel_parts);
      };
      const std::vector<T> whole = tiled(1, 1);
      ASSERT_TRUE(same_bits(whole, tiled(between(random, 2, 9), 1))) << describe(g);
      ASSERT_TRUE(same_bits(whole, tiled(3, between(random, 2, 9)))) << describe(g);
    }
    const auto contract = [&](std::int64_t channel_parts) {
      return contracted(random, g, operands.x, operands.d_y, 1, channel_parts);
    };
    ASSERT_TRUE(same_bits(contract(1), contract(between(random, 2, 9)))) << describe(g);
  }
}

// Rounding errors are those of the sums, not of anything else: compared with double, relative to the sum of the
// terms' magnitudes.
TYPED_TEST(ConvKernels, RealsAreRoundedAsSumsAre) {
  using T = TypeParam;
  Random random(3);
  for (int trial = 0; trial < 100; ++trial) {
    const ConvGeometry g = random_geometry(random);
    Operands<T> operands = random_operands<T>(random, g, reals<T>);
    Operands<T> magnitudes = operands;
    for (std::vector<T>* values : {&magnitudes.x, &magnitudes.d_y, &magnitudes.weight}) {
      for (T& value : *values) value = std::abs(value);
    }
    const T tolerance = 20 * std::numeric_limits<T>::epsilon();
    const auto expect_near = [&](const auto& got, const auto& expected, const auto& scale) {
      for (std::size_t i = 0; i < got.size(); ++i)
        ASSERT_LE(std::abs(got[i] - expected[i]), tolerance * (scale[i] + 1))
            << "element " << i << ", " << describe(g);
    };
    for (const ConvDirection direction : {ConvDirection::kForward, ConvDirection::kGradInput}) {
      const bool forward = direction == ConvDirection::kForward;
      const T* const no_bias = nullptr;
      expect_near(
          in_tiles(random, g, direction, forward ? operands.x : operands.d_y, operands.weight, no_bias, 2, 2),
          oracle(g, direction, forward ? operands.x : operands.d_y, operands.weight, no_bias),
          oracle(g, direction, forward ? magnitudes.x : magnitudes.d_y, magnitudes.weight, no_bias));
    }
    expect_near(contracted(random, g, operands.x, operands.d_y, 2, 2),
                contracted_oracle(g, operands.x, operands.d_y),
                contracted_oracle(g, magnitudes.x, magnitudes.d_y));
  }
}

// One element of the input, and one of d_y, is NaN or an infinity: exactly the results that read it are affected.
TYPED_TEST(ConvKernels, NonFiniteElementsReachOnlyWhatReadsThem) {
  using T = TypeParam;
  Random random(4);
  const std::vector<T> values = {std::numeric_limits<T>::quiet_NaN(), std::numeric_limits<T>::infinity(),
                                 -std::numeric_limits<T>::infinity()};
  for (int trial = 0; trial < 150 && !this->HasFatalFailure(); ++trial) {
    const ConvGeometry g = random_geometry(random);
    Operands<T> operands = random_operands<T>(random, g, integers<T>);
    const T value = values[between(random, 0, 2)];
    if (trial % 3 != 0) operands.x[between(random, 0, std::ssize(operands.x) - 1)] = value;
    if (trial % 3 != 1) operands.d_y[between(random, 0, std::ssize(operands.d_y) - 1)] = value;
    const T* const bias = operands.bias.data();
    for (const ConvDirection direction : {ConvDirection::kForward, ConvDirection::kGradInput}) {
      const std::vector<T>& source = direction == ConvDirection::kForward ? operands.x : operands.d_y;
      expect_exact(in_tiles(random, g, direction, source, operands.weight, bias, between(random, 1, 5), 2),
                   oracle(g, direction, source, operands.weight, bias), describe(g));
    }
    expect_exact(contracted(random, g, operands.x, operands.d_y, between(random, 1, 5), 2),
                 contracted_oracle(g, operands.x, operands.d_y), "weight gradient of " + describe(g));
  }
}

// Integers are exact on every target of this machine; on reals, those with fused multiply-adds agree bit for bit.
TYPED_TEST(ConvKernels, TargetsAgree) {
  using T = TypeParam;
  for (int trial = 0; trial < 40 && !this->HasFatalFailure(); ++trial) {
    Random random(static_cast<std::uint64_t>(100 + trial));
    const ConvGeometry g = random_geometry(random);
    const Operands<T> whole_numbers = random_operands<T>(random, g, integers<T>);
    const Operands<T> operands = random_operands<T>(random, g, reals<T>);
    std::vector<std::vector<T>> first_results;
    std::vector<double> first_weight;
    for (const std::int64_t target : hwy::SupportedAndGeneratedTargets()) {
      const ForcedTarget forced(target);
      const std::string what = std::string(hwy::TargetName(target)) + ": " + describe(g);
      const bool fused = (target & (HWY_AVX2 | HWY_AVX3 | HWY_AVX3_DL | HWY_NEON)) != 0;
      std::vector<std::vector<T>> results;
      for (const ConvDirection direction : {ConvDirection::kForward, ConvDirection::kGradInput}) {
        const bool forward = direction == ConvDirection::kForward;
        const std::vector<T>& source = forward ? whole_numbers.x : whole_numbers.d_y;
        const T* const no_bias = nullptr;
        expect_exact(in_tiles(random, g, direction, source, whole_numbers.weight, no_bias, 2, 2),
                     oracle(g, direction, source, whole_numbers.weight, no_bias), what);
        results.push_back(in_tiles(random, g, direction, forward ? operands.x : operands.d_y, operands.weight,
                                   operands.bias.data(), 2, 2));
      }
      expect_exact(contracted(random, g, whole_numbers.x, whole_numbers.d_y, 2, 2),
                   contracted_oracle(g, whole_numbers.x, whole_numbers.d_y), what);
      const std::vector<double> d_weight = contracted(random, g, operands.x, operands.d_y, 1, 2);
      if (!fused) continue;
      if (first_results.empty()) {
        first_results = results;
        first_weight = d_weight;
      }
      ASSERT_TRUE(same_bits(results[0], first_results[0])) << "forward, " << what;
      ASSERT_TRUE(same_bits(results[1], first_results[1])) << "input gradient, " << what;
      ASSERT_TRUE(same_bits(d_weight, first_weight)) << "weight gradient, " << what;
    }
  }
}

}  // namespace
}  // namespace fuseblock::cpu
