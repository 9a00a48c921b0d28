// The geometry of convolution tiles: every convolution, transposed convolution and gradient by an input as one sum
//
//   result[k][g] = bias[k] + sum over c, tap of  w[k][c][tap] * staged[c][offset(tap) + g]
//
// over a flat grid g of positions. The source of a tile is staged so that neighbours on the grid are neighbours
// in memory (README.md shows it). Two kinds of operation, named as in the reference engine:
//   gather    the result is the narrow side: source coordinate = g*stride + tap*dilation - pad. The source is
//             split into stride phases, so that a tap is an offset in one of them.
//   scatter   the result is the wide side: source coordinate = (p + pad - tap*dilation) / stride where that is
//             whole. The result is split into stride phases; each has its own taps and its own grid.
// A row is a pair (d, h) of result coordinates, numbered d*H + h. Weights are [narrow][wide / groups][filter].
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "block/geometry.h"

namespace fuseblock::cpu {

enum class ConvDirection : std::uint8_t { kForward, kGradInput };

struct Range {
  std::int64_t begin = 0;
  std::int64_t end = 0;

  std::int64_t size() const { return end - begin; }
  friend bool operator==(const Range&, const Range&) = default;
};

// The i-th of `parts` pieces of [0, extent) whose sizes differ by at most one.
Range balanced_part(std::int64_t extent, std::int64_t parts, std::int64_t i);

// A tap along one axis: grid coordinate g meets staged coordinate g + offset of a staged phase.
struct AxisTap {
  std::int64_t tap = 0;
  std::int64_t phase = 0;  // index into GridAxis::phases
  std::int64_t offset = 0;
};

// One spatial axis. Result coordinate p is grid coordinate p / result_step of result phase p % result_step.
// Staged coordinate j of staged phase f holds source coordinate j*source_step + f + origin.
struct GridAxis {
  std::int64_t result = 1;  // extents; where gradients are folded back, of the padded result
  std::int64_t source = 1;
  std::int64_t result_step = 1;
  std::int64_t source_step = 1;
  std::int64_t origin = 0;
  std::int64_t source_end = 0;  // coordinates from here on meet no result
  std::int64_t reach = 0;       // the largest offset of a tap
  PadMode pad_mode = PadMode::kZeros;
  std::vector<std::int64_t> phases;        // staged phases that some tap reads
  std::vector<Range> unpadded;             // the staged coordinates of each that need no padding
  std::vector<std::vector<AxisTap>> taps;  // of each result phase, ascending

  // All staged coordinates of a phase.
  std::int64_t staged_extent() const { return grid_extent(0) + reach; }
  // Grid coordinates of a result phase.
  std::int64_t grid_extent(std::int64_t result_phase) const;
  // The source coordinate at a staged place, padding resolved; -1 where it holds a zero.
  std::int64_t source_coordinate(std::int64_t phase_index, std::int64_t staged) const;
  // The part of taps[p % result_step] that meets real (or padded by mode) source coordinates at p.
  Range taps_that_meet(std::int64_t p) const;
};

// Where a staged range of rows lies: [channel][phase d][phase h][phase w][plane][row][pitch].
struct StagedLayout {
  Range planes;  // staged coordinates along d and h, the taps' reach included
  Range rows;
  std::int64_t pitch = 0;
  std::int64_t plane_stride = 0;
  std::int64_t phase_stride = 0;
  std::int64_t channel_stride = 0;
};

// Result rows of one plane and one result phase that meet the same taps: a flat run of (rows - 1) * pitch +
// columns grid positions.
struct GridRun {
  Spatial phase = {};  // result phases
  std::int64_t d = 0;  // result coordinates of the first row; the next is h + result_step
  std::int64_t h = 0;
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  Range taps_d;  // indices into GridAxis::taps
  Range taps_h;
};

struct GridTap {
  std::int64_t offset = 0;  // in the staged array
  std::int64_t tap = 0;     // in the filter, flattened
};

class ConvGrid {
 public:
  ConvGrid(const ConvGeometry& geometry, ConvDirection direction);

  std::int64_t result_channels() const { return result_channels_; }
  std::int64_t source_channels() const { return source_channels_; }
  std::int64_t result_channels_per_group() const { return result_channels_ / groups_; }
  std::int64_t source_channels_per_group() const { return source_channels_ / groups_; }
  std::int64_t groups() const { return groups_; }
  // Extents of the result as tiles hold it.
  const Spatial& result() const { return result_; }
  std::int64_t row_count() const { return result_[0] * result_[1]; }
  std::int64_t filter_taps() const { return filter_[0] * filter_[1] * filter_[2]; }
  const GridAxis& axis(int i) const { return axes_[i]; }

  // Padding that repeats elements, seen from its gradient: the result is computed on padded extents, and the
  // padding is added back to the elements that it repeats. Rows then have no order: all of them are staged.
  bool folds() const { return folds_; }
  // The padded coordinates that repeat result coordinate p of an axis; p itself (shifted) is among them.
  const std::vector<std::int64_t>& folded(int axis, std::int64_t p) const { return folded_[axis][p]; }
  // The result column that a padded column repeats.
  std::int64_t folded_column(std::int64_t padded) const { return folded_columns_[padded]; }

  // The source channels that result channels read: those of their groups.
  Range channels_read_by(Range k) const;
  std::int64_t weight_index(std::int64_t k, std::int64_t source_channel, std::int64_t tap) const;
  // From one result channel of a group to the next.
  std::int64_t weight_stride() const;
  // Whether the filters of a group's source channels lie one behind the other, seen from one result channel.
  bool channels_lie_together() const { return gathers_; }

  StagedLayout layout(Range rows) const;
  // The place that grid position 0 of a run has in a staged channel.
  std::int64_t start(const GridRun& run, const StagedLayout& layout) const;
  // Columns that one row's end and the next row's begin share: zeros that pad both.
  std::int64_t shared_columns() const { return shared_columns_; }

  // Calls visit(run) for the runs of result rows, in a fixed order. Without `by_taps` a run is not split where
  // taps leave the source, and has all of them.
  template <typename Visit>
  void for_each_run(Range rows, bool by_taps, Visit visit) const;
  // The runs of one row, given by its (padded) coordinates.
  template <typename Visit>
  void for_each_run_of_row(std::int64_t d, std::int64_t h, Visit visit) const;
  // Writes the taps of a run in ascending order and gives their number, at most filter_taps().
  std::int64_t list_taps(const GridRun& run, const StagedLayout& layout, GridTap* taps) const;

 private:
  Range all_taps(int axis, std::int64_t p) const;

  std::int64_t result_channels_ = 0;
  std::int64_t source_channels_ = 0;
  std::int64_t groups_ = 1;
  bool gathers_ = true;
  bool folds_ = false;
  Spatial result_ = {1, 1, 1};
  Spatial filter_ = {1, 1, 1};
  std::int64_t pitch_ = 0;
  std::int64_t shared_columns_ = 0;
  std::vector<GridAxis> axes_;
  std::vector<std::vector<std::int64_t>> folded_[3];
  std::vector<std::int64_t> folded_columns_;
};

template <typename Visit>
void ConvGrid::for_each_run(Range rows, bool by_taps, Visit visit) const {
  const std::int64_t height = result_[1];
  const std::int64_t step = axes_[1].result_step;
  for (std::int64_t begin = rows.begin; begin < rows.end;) {
    const std::int64_t d = begin / height;
    const Range h = {begin % height, begin % height + std::min(rows.end - begin, height - begin % height)};
    begin += h.size();
    GridRun run;
    run.d = d;
    run.phase[0] = d % axes_[0].result_step;
    run.taps_d = by_taps ? axes_[0].taps_that_meet(d) : all_taps(0, d);
    for (std::int64_t first = h.begin; first < std::min(h.begin + step, h.end); ++first) {
      run.phase[1] = first % step;
      for (run.h = first; run.h < h.end; run.h += run.rows * step) {
        run.taps_h = by_taps ? axes_[1].taps_that_meet(run.h) : all_taps(1, run.h);
        run.rows = 1;
        for (std::int64_t next = run.h + step; next < h.end; next += step, ++run.rows) {
          if (by_taps && axes_[1].taps_that_meet(next) != run.taps_h) break;
        }
        for (run.phase[2] = 0; run.phase[2] < axes_[2].result_step; ++run.phase[2]) {
          run.columns = axes_[2].grid_extent(run.phase[2]);
          if (run.columns > 0) visit(static_cast<const GridRun&>(run));
        }
      }
    }
  }
}

template <typename Visit>
void ConvGrid::for_each_run_of_row(std::int64_t d, std::int64_t h, Visit visit) const {
  GridRun run;
  run.d = d;
  run.h = h;
  run.rows = 1;
  run.phase = {d % axes_[0].result_step, h % axes_[1].result_step, 0};
  run.taps_d = axes_[0].taps_that_meet(d);
  run.taps_h = axes_[1].taps_that_meet(h);
  for (run.phase[2] = 0; run.phase[2] < axes_[2].result_step; ++run.phase[2]) {
    run.columns = axes_[2].grid_extent(run.phase[2]);
    if (run.columns > 0) visit(static_cast<const GridRun&>(run));
  }
}

}  // namespace fuseblock::cpu
