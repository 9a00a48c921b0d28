#include "cpu/conv/contraction.h"

#include <algorithm>

#include "cpu/conv/sum_kernel.h"
#include "hwy/cache_control.h"

namespace fuseblock::cpu {
namespace {

template <typename T>
std::int64_t whole_lanes(std::int64_t positions) {
  return (positions + kDotLanes<T> - 1) / kDotLanes<T> * kDotLanes<T>;
}

constexpr std::size_t kAlignment = 64;

// Positions of one call of the kernel: six channels of them in f32 take half of L1.
constexpr std::int64_t kSlabPositions = 1024;

std::byte* aligned(std::byte* place) {
  return place + (kAlignment - reinterpret_cast<std::uintptr_t>(place) % kAlignment) % kAlignment;
}

std::int64_t run_positions(const GridRun& run, std::int64_t pitch) {
  return (run.rows - 1) * pitch + run.columns;
}

}  // namespace

// A call's arguments and the parts of its scratch.
template <typename T>
struct ConvContraction<T>::Call {
  const T* staged = nullptr;
  Range rows;
  Range channels;
  StagedLayout layout;
  const T* d_y = nullptr;
  std::int64_t d_y_pitch = 0;
  Range ks;
  double* d_weight = nullptr;
  GridTap* taps = nullptr;
  std::int64_t* columns = nullptr;  // the offset of each (source channel of a group, tap)
  std::int64_t* weights = nullptr;  // and its place in the weight, from that of the group's first channels
  DotRun* runs = nullptr;
};

// The runs of one result phase, in Call::runs, and its taps, in Call::taps.
template <typename T>
struct ConvContraction<T>::Phase {
  Spatial phase = {};
  std::int64_t run_count = 0;
  std::int64_t positions = 0;
  std::int64_t tap_count = 0;
};

template <typename T>
ConvContraction<T>::ConvContraction(const ConvGeometry& geometry)
    : grid_(geometry, ConvDirection::kForward), kernel_(&dot_kernel<T>()) {}

template <typename T>
std::size_t ConvContraction<T>::weight_elements() const {
  return static_cast<std::size_t>(grid_.result_channels() * grid_.source_channels_per_group() *
                                  grid_.filter_taps());
}

template <typename T>
std::size_t ConvContraction<T>::scratch_bytes(Range rows) const {
  if (rows.size() <= 0) return 0;
  const StagedLayout layout = grid_.layout(rows);
  std::int64_t runs = 0;
  std::int64_t positions = 0;
  grid_.for_each_run(rows, false, [&](const GridRun& run) {
    const std::int64_t length = whole_lanes<T>(run_positions(run, layout.pitch));
    runs += (length + kSlabPositions - 1) / kSlabPositions;
    positions += length;
  });
  return static_cast<std::size_t>(grid_.filter_taps()) * sizeof(GridTap) +
         static_cast<std::size_t>(2 * grid_.source_channels_per_group() * grid_.filter_taps()) *
             sizeof(std::int64_t) +
         static_cast<std::size_t>(runs) * sizeof(DotRun) +
         static_cast<std::size_t>(kMaxDotChannels * positions) * sizeof(T) + kAlignment;
}

template <typename T>
void ConvContraction<T>::accumulate(const T* staged, Range rows, Range channels, const T* d_y,
                                    std::int64_t d_y_pitch, Range ks, double* d_weight,
                                    std::byte* scratch) const {
  if (rows.size() <= 0 || ks.size() <= 0 || grid_.result()[2] == 0) return;
  Call call;
  call.staged = staged;
  call.rows = rows;
  call.channels = channels;
  call.layout = grid_.layout(rows);
  call.d_y = d_y;
  call.d_y_pitch = d_y_pitch;
  call.ks = ks;
  call.d_weight = d_weight;
  const std::int64_t taps = grid_.filter_taps();
  call.taps = reinterpret_cast<GridTap*>(scratch);
  call.columns = reinterpret_cast<std::int64_t*>(call.taps + taps);
  call.weights = call.columns + grid_.source_channels_per_group() * taps;
  call.runs = reinterpret_cast<DotRun*>(call.weights + grid_.source_channels_per_group() * taps);

  bool finite = kernel_->all_finite(staged, channels.size() * call.layout.channel_stride);
  for (std::int64_t k = 0; k < ks.size() && finite; ++k)
    finite = kernel_->all_finite(d_y + k * d_y_pitch, rows.size() * grid_.result()[2]);
  if (!finite) return accumulate_pairs(call);

  Spatial phase;
  for (phase[0] = 0; phase[0] < grid_.axis(0).result_step; ++phase[0]) {
    for (phase[1] = 0; phase[1] < grid_.axis(1).result_step; ++phase[1]) {
      for (phase[2] = 0; phase[2] < grid_.axis(2).result_step; ++phase[2]) accumulate_phase(call, phase);
    }
  }
}

// All positions of one result phase: they share their taps.
template <typename T>
void ConvContraction<T>::accumulate_phase(const Call& call, const Spatial& phase) const {
  Phase part;
  part.phase = phase;
  grid_.for_each_run(call.rows, false, [&](const GridRun& run) {
    if (run.phase != phase) return;
    if (part.positions == 0) part.tap_count = grid_.list_taps(run, call.layout, call.taps);
    const std::int64_t length = whole_lanes<T>(run_positions(run, call.layout.pitch));
    for (std::int64_t first = 0; first < length; first += kSlabPositions) {
      call.runs[part.run_count++] = {part.positions + first, grid_.start(run, call.layout) + first,
                                     std::min(kSlabPositions, length - first)};
    }
    part.positions += length;
  });
  T* const d_y_runs = reinterpret_cast<T*>(aligned(reinterpret_cast<std::byte*>(call.runs + part.run_count)));

  const std::int64_t group_channels = grid_.source_channels_per_group();
  for (std::int64_t c = 0, i = 0; c < group_channels; ++c) {
    for (std::int64_t tap = 0; tap < part.tap_count; ++tap, ++i) {
      call.columns[i] = c * call.layout.channel_stride + call.taps[tap].offset;
      call.weights[i] = grid_.weight_index(0, c, call.taps[tap].tap);
    }
  }

  DotTask<T> task;
  task.d_y = d_y_runs;
  task.d_y_pitch = part.positions;
  const std::int64_t per_group = grid_.result_channels_per_group();
  for (std::int64_t k = call.ks.begin; k < call.ks.end; k += task.channel_count) {
    const std::int64_t group = k / per_group;
    const std::int64_t rest = std::min((group + 1) * per_group, call.ks.end) - k;
    const std::int64_t blocks = (rest + kernel_->max_channels - 1) / kernel_->max_channels;
    task.channel_count = static_cast<int>(balanced_part(rest, blocks, blocks - 1).size());
    for (int i = 0; i < task.channel_count; ++i) lay_out(call, part, k + i, d_y_runs + i * part.positions);
    task.staged = call.staged + (group * group_channels - call.channels.begin) * call.layout.channel_stride;
    double* const d_weight = call.d_weight + grid_.weight_index(k, group * group_channels, 0);
    // Runs in slabs: what a slab has of d_y stays in L1 for all columns.
    for (std::int64_t first = 0, end = 0; first < part.run_count; first = end) {
      std::int64_t slab = 0;
      for (; end < part.run_count && slab + call.runs[end].positions <= kSlabPositions; ++end)
        slab += call.runs[end].positions;
      task.runs = call.runs + first;
      task.run_count = end - first;
      accumulate_columns(call, task, group_channels * part.tap_count, d_weight);
    }
  }
}

// Lays channel k of d_y out on the grid of a phase, zeros between its rows and behind them.
template <typename T>
void ConvContraction<T>::lay_out(const Call& call, const Phase& part, std::int64_t k, T* to) const {
  const std::int64_t pitch = call.layout.pitch;
  const std::int64_t width = grid_.result()[2];
  const std::int64_t row_step = grid_.axis(1).result_step * width;
  const std::int64_t column_step = grid_.axis(2).result_step;
  grid_.for_each_run(call.rows, false, [&](const GridRun& run) {
    if (run.phase != part.phase) return;
    const T* from = call.d_y + (k - call.ks.begin) * call.d_y_pitch +
                    (run.d * grid_.result()[1] + run.h - call.rows.begin) * width + run.phase[2];
    const std::int64_t length = whole_lanes<T>(run_positions(run, pitch));
    if (column_step == 1) sum_kernel<T>().copy(from, row_step, run.rows, run.columns, to, pitch);
    for (std::int64_t row = 0; row < run.rows; ++row, from += row_step) {
      T* const to_row = to + row * pitch;
      for (std::int64_t w = 0; w < run.columns && column_step != 1; ++w) to_row[w] = from[w * column_step];
      const std::int64_t next = row + 1 < run.rows ? pitch : length - row * pitch;
      for (std::int64_t w = run.columns; w < next; ++w) to_row[w] = T(0);
    }
    to += length;
  });
}

// A slab of positions and a block of result channels, for all columns.
template <typename T>
void ConvContraction<T>::accumulate_columns(const Call& call, DotTask<T> task, std::int64_t columns,
                                            double* d_weight) const {
  T sums[kMaxDotSums];
  task.sums = sums;
  const std::int64_t weight_stride = grid_.weight_stride();
  const std::int64_t blocks = (columns + kernel_->max_columns - 1) / kernel_->max_columns;
  for (std::int64_t block = 0; block < blocks; ++block) {
    const Range part = balanced_part(columns, blocks, block);
    task.columns = call.columns + part.begin;
    task.column_count = static_cast<int>(part.size());
    // A large weight is in L3: what the sums are added to is on its way while they are made.
    for (int i = 0; i < task.channel_count; ++i)
      hwy::Prefetch(d_weight + i * weight_stride + call.weights[part.begin]);
    kernel_->dot(task);
    for (int i = 0; i < task.channel_count; ++i) {
      double* const to = d_weight + i * weight_stride;
      for (std::int64_t j = part.begin; j < part.end; ++j)
        to[call.weights[j]] += static_cast<double>(sums[i * part.size() + j - part.begin]);
    }
  }
}

// Only the pairs of elements that really meet, one by one, for tiles with infinities or NaN: on the grid these
// would also be multiplied by padding and by the zeros between rows.
template <typename T>
void ConvContraction<T>::accumulate_pairs(const Call& call) const {
  const GridAxis& width_axis = grid_.axis(2);
  const std::int64_t width = grid_.result()[2];
  const std::int64_t pitch = call.layout.pitch;
  grid_.for_each_run(call.rows, true, [&](const GridRun& run) {
    const std::vector<AxisTap>& width_taps = width_axis.taps[run.phase[2]];
    const std::int64_t tap_count = grid_.list_taps(run, call.layout, call.taps);
    const std::int64_t start = grid_.start(run, call.layout);
    const std::int64_t first_row =
        (run.d * grid_.result()[1] + run.h - call.rows.begin) * width + run.phase[2];
    for (std::int64_t t = 0; t < tap_count; ++t) {
      const AxisTap& width_tap = width_taps[t % std::ssize(width_taps)];
      const auto meets = [&](std::int64_t w) {
        return width_axis.source_coordinate(width_tap.phase, w + width_tap.offset) >= 0;
      };
      Range columns = {0, run.columns};
      while (columns.begin < columns.end && !meets(columns.begin)) ++columns.begin;
      while (columns.begin < columns.end && !meets(columns.end - 1)) --columns.end;
      for (std::int64_t k = call.ks.begin; k < call.ks.end; ++k) {
        const T* const d_y = call.d_y + (k - call.ks.begin) * call.d_y_pitch + first_row;
        const Range channels = grid_.channels_read_by({k, k + 1});
        for (std::int64_t c = channels.begin; c < channels.end; ++c) {
          const T* const source = call.staged + (c - call.channels.begin) * call.layout.channel_stride +
                                  start + call.taps[t].offset;
          double sum = 0;
          for (std::int64_t row = 0; row < run.rows; ++row) {
            const T* const d_y_row = d_y + row * grid_.axis(1).result_step * width;
            for (std::int64_t w = columns.begin; w < columns.end; ++w)
              sum += static_cast<double>(d_y_row[w * width_axis.result_step]) *
                     static_cast<double>(source[row * pitch + w]);
          }
          call.d_weight[grid_.weight_index(k, c, call.taps[t].tap)] += sum;
        }
      }
    }
  });
}

template class ConvContraction<float>;
template class ConvContraction<double>;

}  // namespace fuseblock::cpu
