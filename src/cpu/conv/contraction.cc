#include "cpu/conv/contraction.h"

#include <algorithm>

#include "cpu/conv/sum_kernel.h"

namespace fuseblock::cpu {
namespace {

template <typename T>
std::int64_t whole_lanes(std::int64_t positions) {
  return (positions + kDotLanes<T> - 1) / kDotLanes<T> * kDotLanes<T>;
}

constexpr std::size_t kAlignment = 64;

// Positions of one call of the dot kernel: six channels of them in f32 take half of L1.
constexpr std::int64_t kSlabPositions = 1024;

// Fewer result channels than this in a group leave the lanes of the outer kernel idle.
constexpr std::int64_t kFewestOuterChannels = 8;
// With fewer source channels than this in a group a block of columns has channels of several rows of taps; these have
// all rows of the tile then.
constexpr std::int64_t kFewestColumns = 8;
// Terms that the outer kernel adds up in a register before it starts anew.
constexpr std::int64_t kOuterPositions = 256;

std::byte* aligned(std::byte* place) {
  return place + (kAlignment - reinterpret_cast<std::uintptr_t>(place) % kAlignment) % kAlignment;
}

std::int64_t run_positions(const GridRun& run, std::int64_t pitch) {
  return (run.rows - 1) * pitch + run.columns;
}

// How the taps along w of a result phase are taken: `count` of them at a time where they are neighbours in the staged
// row, ascending or descending.
struct TapRun {
  std::int64_t taps = 1;  // along w
  bool neighbours = false;
  bool ascending = true;
};

TapRun tap_run(const GridAxis& axis, std::int64_t phase) {
  const std::vector<AxisTap>& taps = axis.taps[phase];
  TapRun run;
  run.taps = std::ssize(taps);
  if (run.taps < 2) return run;
  const std::int64_t step = taps[1].offset - taps[0].offset;
  run.ascending = step == 1;
  run.neighbours = step == 1 || step == -1;
  for (std::size_t i = 1; i < taps.size(); ++i)
    run.neighbours =
        run.neighbours && taps[i].phase == taps[0].phase && taps[i].offset - taps[i - 1].offset == step;
  return run;
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
  double* sums = nullptr;
  GridTap* taps = nullptr;
  std::int64_t* columns = nullptr;  // the offset of each (source channel of a group, tap)
  std::int64_t* places = nullptr;   // and where its sums begin, counted from the group's
  std::int64_t column_count = 0;
  std::byte* rest = nullptr;  // for the runs or rows, and d_y in another order
};

// A few neighbouring taps along w of some rows of taps, a row being a pair of a tap along d and one along h.
template <typename T>
struct ConvContraction<T>::TapPiece {
  Range pairs;
  std::int64_t width_taps = 0;  // taps of a whole row
  Range w;                      // those of the piece
  std::int64_t first = 0;  // of them the one of the smallest offset; the next, `step` from it, has the next
  std::int64_t step = 1;

  // The place in Call::taps.
  std::int64_t place(std::int64_t pair, std::int64_t tap) const {
    return pair * width_taps + first + tap * step;
  }
};

// The runs of one result phase, and the number of its taps, which are in Call::taps.
template <typename T>
struct ConvContraction<T>::Phase {
  Spatial phase = {};
  DotRun* runs = nullptr;
  std::int64_t run_count = 0;
  std::int64_t positions = 0;
  std::int64_t tap_count = 0;
};

template <typename T>
ConvContraction<T>::ConvContraction(const ConvGeometry& geometry)
    : grid_(geometry, ConvDirection::kForward),
      dots_(&dot_kernel<T>()),
      outer_(grid_.result_channels_per_group() >= kFewestOuterChannels ? &outer_kernel<T>() : nullptr) {}

template <typename T>
std::size_t ConvContraction<T>::weight_elements() const {
  return static_cast<std::size_t>(grid_.result_channels() * grid_.source_channels_per_group() *
                                  grid_.filter_taps());
}

template <typename T>
std::int64_t ConvContraction<T>::sum_index(std::int64_t k, std::int64_t source_channel,
                                           std::int64_t tap) const {
  const std::int64_t per_group = grid_.result_channels_per_group();
  return (source_channel * grid_.filter_taps() + tap) * per_group + k % per_group;
}

template <typename T>
void ConvContraction<T>::join(const double* sums, std::int64_t count, Range columns, double* d_weight) const {
  const std::int64_t per_group = grid_.result_channels_per_group();
  const std::int64_t distance = static_cast<std::int64_t>(weight_elements());
  for (std::int64_t column = columns.begin; column < columns.end; ++column) {
    const std::int64_t channel = column / grid_.filter_taps();
    const std::int64_t group = channel / grid_.source_channels_per_group();
    double* const to =
        d_weight + grid_.weight_index(group * per_group, channel, column % grid_.filter_taps());
    for (std::int64_t k = 0; k < per_group; ++k) {
      double total = 0;
      for (std::int64_t i = 0; i < count; ++i) total += sums[i * distance + column * per_group + k];
      to[k * grid_.weight_stride()] = total;
    }
  }
}

// Parts of rows that the outer kernel is given at most.
template <typename T>
std::int64_t ConvContraction<T>::outer_row_count(Range rows) const {
  const std::int64_t columns = grid_.axis(2).grid_extent(0);
  return rows.size() * ((columns + kOuterPositions - 1) / kOuterPositions);
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
  const std::int64_t columns = grid_.source_channels_per_group() * grid_.filter_taps();
  const std::int64_t channel_groups =
      (grid_.result_channels_per_group() + kOuterChannels - 1) / kOuterChannels;
  const auto dots = static_cast<std::size_t>(runs) * sizeof(DotRun) +
                    static_cast<std::size_t>(kMaxDotChannels * positions) * sizeof(T);
  const auto outer =
      static_cast<std::size_t>(outer_row_count(rows)) * sizeof(OuterRow) +
      static_cast<std::size_t>(channel_groups * kOuterChannels * rows.size() * grid_.result()[2]) * sizeof(T);
  return static_cast<std::size_t>(grid_.filter_taps()) * sizeof(GridTap) +
         static_cast<std::size_t>(2 * columns) * sizeof(std::int64_t) + (outer_ == nullptr ? dots : outer) +
         kAlignment;
}

template <typename T>
void ConvContraction<T>::accumulate(const T* staged, Range rows, Range channels, const T* d_y,
                                    std::int64_t d_y_pitch, Range ks, double* sums,
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
  call.sums = sums;
  const std::int64_t taps = grid_.filter_taps();
  const std::int64_t columns = grid_.source_channels_per_group() * taps;
  call.taps = reinterpret_cast<GridTap*>(scratch);
  call.columns = reinterpret_cast<std::int64_t*>(call.taps + taps);
  call.places = call.columns + columns;
  call.rest = reinterpret_cast<std::byte*>(call.places + columns);

  bool finite = dots_->all_finite(staged, channels.size() * call.layout.channel_stride);
  for (std::int64_t k = 0; k < ks.size() && finite; ++k)
    finite = dots_->all_finite(d_y + k * d_y_pitch, rows.size() * grid_.result()[2]);
  if (!finite) return accumulate_pairs(call);

  Spatial phase;
  for (phase[0] = 0; phase[0] < grid_.axis(0).result_step; ++phase[0]) {
    for (phase[1] = 0; phase[1] < grid_.axis(1).result_step; ++phase[1]) {
      for (phase[2] = 0; phase[2] < grid_.axis(2).result_step; ++phase[2]) {
        if (outer_ == nullptr)
          accumulate_dots(call, phase);
        else
          accumulate_outer(call, phase);
      }
    }
  }
}

// The columns of a group of channels: where they begin, and where their sums do.
template <typename T>
void ConvContraction<T>::list_columns(Call& call, const Phase& part) const {
  call.column_count = grid_.source_channels_per_group() * part.tap_count;
  for (std::int64_t c = 0, i = 0; c < grid_.source_channels_per_group(); ++c) {
    for (std::int64_t tap = 0; tap < part.tap_count; ++tap, ++i) {
      call.columns[i] = c * call.layout.channel_stride + call.taps[tap].offset;
      call.places[i] = sum_index(0, c, call.taps[tap].tap);
    }
  }
}

// All positions of one result phase, channels in lanes: d_y is transposed group by group of channels. Rows that a tap
// along d or h leads out of the source are not multiplied, nor are zeros in front of a row of the source and behind it.
template <typename T>
void ConvContraction<T>::accumulate_outer(Call call, const Spatial& phase) const {
  const std::int64_t tile_positions = call.rows.size() * grid_.result()[2];
  const std::int64_t taps_d = std::ssize(grid_.axis(0).taps[phase[0]]);
  const std::int64_t taps_h = std::ssize(grid_.axis(1).taps[phase[1]]);
  const TapRun run = tap_run(grid_.axis(2), phase[2]);
  GridRun all;
  all.phase = phase;
  all.taps_d = {0, taps_d};
  all.taps_h = {0, taps_h};
  if (grid_.list_taps(all, call.layout, call.taps) == 0) return;
  OuterRow* const rows = reinterpret_cast<OuterRow*>(call.rest);
  T* const d_y =
      reinterpret_cast<T*>(aligned(reinterpret_cast<std::byte*>(rows + outer_row_count(call.rows))));

  OuterTask<T> task;
  task.group_pitch = tile_positions * kOuterChannels;
  task.position_step = grid_.axis(2).result_step;
  task.rows = rows;
  const std::int64_t group_channels = grid_.source_channels_per_group();
  const std::int64_t per_group = grid_.result_channels_per_group();
  const std::int64_t most = run.neighbours ? outer_->max_taps : 1;
  const std::int64_t pieces = (run.taps + most - 1) / most;
  const std::int64_t parts = group_channels < kFewestColumns ? 1 : taps_d * taps_h;
  for (std::int64_t k = call.ks.begin, end = 0; k < call.ks.end; k = end) {
    const std::int64_t group = k / per_group;
    end = std::min((group + 1) * per_group, call.ks.end);
    for (std::int64_t first = k; first < end; first += kOuterChannels)
      outer_->transpose(call.d_y + (first - call.ks.begin) * call.d_y_pitch, call.d_y_pitch,
                        std::min<std::int64_t>(kOuterChannels, end - first), tile_positions,
                        d_y + (first - k) / kOuterChannels * task.group_pitch);
    task.staged = call.staged + (group * group_channels - call.channels.begin) * call.layout.channel_stride;
    for (std::int64_t part = 0; part < parts; ++part) {
      for (std::int64_t piece = 0; piece < pieces; ++piece) {
        TapPiece taps;
        taps.pairs = balanced_part(taps_d * taps_h, parts, part);
        taps.width_taps = run.taps;
        taps.w = balanced_part(run.taps, pieces, piece);
        taps.first = run.ascending ? taps.w.begin : taps.w.end - 1;
        taps.step = run.ascending ? 1 : -1;
        task.taps = static_cast<int>(taps.w.size());
        task.row_count = list_rows(call, phase, taps, rows);
        if (task.row_count == 0) continue;
        for (std::int64_t first = k; first < end; first += outer_->max_groups * kOuterChannels) {
          const std::int64_t channels =
              std::min<std::int64_t>(outer_->max_groups * kOuterChannels, end - first);
          constexpr std::int64_t kHalf = kOuterChannels / 2;
          task.halves = static_cast<int>((channels + kHalf - 1) / kHalf);
          task.d_y = d_y + (first - k) / kOuterChannels * task.group_pitch;
          accumulate_taps(call, task, taps, channels,
                          call.sums + sum_index(first, group * group_channels, 0));
        }
      }
    }
  }
}

// The rows at which a pair meets the source, or all rows for several pairs, each in parts that the kernel sums up in one go.
template <typename T>
std::int64_t ConvContraction<T>::list_rows(const Call& call, const Spatial& phase, const TapPiece& taps,
                                           OuterRow* rows) const {
  const GridAxis& axis = grid_.axis(2);
  const AxisTap& first_tap = axis.taps[phase[2]][taps.first];
  // Staged columns that may hold something else than zeros.
  const Range columns =
      axis.pad_mode == PadMode::kZeros ? axis.unpadded[first_tap.phase] : Range{0, axis.staged_extent()};
  const bool one_pair = taps.pairs.size() == 1;
  const std::int64_t taps_h = std::ssize(grid_.axis(1).taps[phase[1]]);
  const auto has = [](const Range& range, std::int64_t i) { return range.begin <= i && i < range.end; };
  const auto meets = [&](const GridRun& run) {
    return has(run.taps_d, taps.pairs.begin / taps_h) && has(run.taps_h, taps.pairs.begin % taps_h);
  };
  std::int64_t count = 0;
  grid_.for_each_run(call.rows, one_pair, [&](const GridRun& run) {
    if (run.phase != phase || (one_pair && !meets(run))) return;
    for (std::int64_t row = 0; row < run.rows; ++row) {
      const std::int64_t h = run.h + row * grid_.axis(1).result_step;
      const std::int64_t d_y =
          (run.d * grid_.result()[1] + h - call.rows.begin) * grid_.result()[2] + phase[2];
      const std::int64_t staged = grid_.start(run, call.layout) + row * call.layout.pitch;
      for (std::int64_t first = 0; first < run.columns; first += kOuterPositions) {
        OuterRow part;
        part.d_y = d_y + first * axis.result_step;
        part.staged = staged + first;
        part.positions = std::min(kOuterPositions, run.columns - first);
        const std::int64_t column = first + first_tap.offset;
        const std::int64_t steps = part.positions + taps.w.size() - 1;
        part.begin = std::clamp<std::int64_t>(columns.begin - column, 0, steps);
        part.end = std::clamp<std::int64_t>(columns.end - column, part.begin, steps);
        rows[count++] = part;
      }
    }
  });
  return count;
}

// The sums of a piece for all source channels.
template <typename T>
void ConvContraction<T>::accumulate_taps(const Call& call, OuterTask<T> task, const TapPiece& taps,
                                         std::int64_t channels, double* sums) const {
  T products[kMaxOuterSums];
  std::int64_t offsets[kMaxOuterColumns] = {};
  task.sums = products;
  task.columns = offsets;
  double* targets[kMaxOuterSums / kOuterChannels];  // [column][tap]
  const std::int64_t columns = grid_.source_channels_per_group() * taps.pairs.size();
  const std::int64_t most = outer_->max_columns[task.halves][task.taps];
  const OuterRow* const rows = task.rows;
  const std::int64_t row_count = task.row_count;
  for (std::int64_t first = 0; first < columns; first += most) {
    task.column_count = static_cast<int>(std::min(most, columns - first));
    for (int j = 0; j < task.column_count; ++j) {
      const std::int64_t channel = (first + j) / taps.pairs.size();
      const GridTap* const tap =
          call.taps + taps.place(taps.pairs.begin + (first + j) % taps.pairs.size(), 0);
      offsets[j] = channel * call.layout.channel_stride + tap->offset;
      for (int i = 0; i < task.taps; ++i) {
        double* const target = sums + sum_index(0, channel, tap[i * taps.step].tap);
        targets[j * task.taps + i] = target;
        // All sums together are more than L2 holds: they are on their way while the products are summed up.
        for (std::int64_t k = 0; k < channels; k += kAlignment / sizeof(double))
          __builtin_prefetch(target + k, 1);
      }
    }
    std::fill(offsets + task.column_count, offsets + most, offsets[0]);
    for (std::int64_t row = 0; row < row_count; row += task.row_count) {
      task.rows = rows + row;
      task.row_count = 1;
      std::int64_t positions = rows[row].positions;
      while (row + task.row_count < row_count &&
             (positions += rows[row + task.row_count].positions) <= kOuterPositions)
        ++task.row_count;
      task.first = row == 0;
      outer_->add(task);
    }
    for (int i = 0; i < task.column_count * task.taps; ++i)
      outer_->add_to(products + i * ((task.halves + 1) / 2) * kOuterChannels, channels, targets[i]);
  }
}

// All positions of one result phase, positions in lanes.
template <typename T>
void ConvContraction<T>::accumulate_dots(Call call, const Spatial& phase) const {
  Phase part;
  part.phase = phase;
  part.runs = reinterpret_cast<DotRun*>(call.rest);
  grid_.for_each_run(call.rows, false, [&](const GridRun& run) {
    if (run.phase != phase) return;
    if (part.positions == 0) part.tap_count = grid_.list_taps(run, call.layout, call.taps);
    const std::int64_t length = whole_lanes<T>(run_positions(run, call.layout.pitch));
    for (std::int64_t first = 0; first < length; first += kSlabPositions) {
      part.runs[part.run_count++] = {part.positions + first, grid_.start(run, call.layout) + first,
                                     std::min(kSlabPositions, length - first)};
    }
    part.positions += length;
  });
  T* const d_y_runs = reinterpret_cast<T*>(aligned(reinterpret_cast<std::byte*>(part.runs + part.run_count)));
  list_columns(call, part);

  DotTask<T> task;
  task.d_y = d_y_runs;
  task.d_y_pitch = part.positions;
  const std::int64_t group_channels = grid_.source_channels_per_group();
  const std::int64_t per_group = grid_.result_channels_per_group();
  for (std::int64_t k = call.ks.begin; k < call.ks.end; k += task.channel_count) {
    const std::int64_t group = k / per_group;
    const std::int64_t rest = std::min((group + 1) * per_group, call.ks.end) - k;
    const std::int64_t blocks = (rest + dots_->max_channels - 1) / dots_->max_channels;
    task.channel_count = static_cast<int>(balanced_part(rest, blocks, blocks - 1).size());
    for (int i = 0; i < task.channel_count; ++i) lay_out(call, part, k + i, d_y_runs + i * part.positions);
    task.staged = call.staged + (group * group_channels - call.channels.begin) * call.layout.channel_stride;
    double* const sums = call.sums + sum_index(k, group * group_channels, 0);
    // Runs in slabs: what a slab has of d_y stays in L1 for all columns.
    for (std::int64_t first = 0, end = 0; first < part.run_count; first = end) {
      std::int64_t slab = 0;
      for (; end < part.run_count && slab + part.runs[end].positions <= kSlabPositions; ++end)
        slab += part.runs[end].positions;
      task.runs = part.runs + first;
      task.run_count = end - first;
      accumulate_columns(call, task, group_channels * part.tap_count, sums);
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
                                            double* sums) const {
  T dots[kMaxDotSums];
  task.sums = dots;
  const std::int64_t blocks = (columns + dots_->max_columns - 1) / dots_->max_columns;
  for (std::int64_t block = 0; block < blocks; ++block) {
    const Range part = balanced_part(columns, blocks, block);
    task.columns = call.columns + part.begin;
    task.column_count = static_cast<int>(part.size());
    dots_->dot(task);
    for (std::int64_t j = part.begin; j < part.end; ++j) {
      for (int i = 0; i < task.channel_count; ++i)
        sums[call.places[j] + i] += static_cast<double>(dots[i * part.size() + j - part.begin]);
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
          call.sums[sum_index(k, c, call.taps[t].tap)] += sum;
        }
      }
    }
  });
}

template class ConvContraction<float>;
template class ConvContraction<double>;

}  // namespace fuseblock::cpu
