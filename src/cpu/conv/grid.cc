#include "cpu/conv/grid.h"

#include <utility>

namespace fuseblock::cpu {
namespace {

std::int64_t floor_divide(std::int64_t a, std::int64_t b) { return a / b - (a % b != 0 && a < 0); }

std::int64_t ceil_divide(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

// An odd number of 64-byte lines, so that neighbouring channels do not fall on the same cache sets.
std::int64_t odd_lines(std::int64_t elements) {
  constexpr std::int64_t kLine = 16;
  return (ceil_divide(elements, kLine) | 1) * kLine;
}

GridAxis gather_axis(std::int64_t result, std::int64_t source, std::int64_t filter, std::int64_t stride,
                     std::int64_t pad, std::int64_t dilation, PadMode pad_mode) {
  GridAxis axis;
  axis.result = result;
  axis.source = source;
  axis.source_step = stride;
  axis.origin = -pad;
  axis.source_end = (result - 1) * stride + (filter - 1) * dilation - pad + 1;
  axis.reach = (filter - 1) * dilation / stride;
  axis.pad_mode = pad_mode;
  axis.taps.resize(1);
  for (std::int64_t tap = 0; tap < filter; ++tap) {
    const std::int64_t phase = tap * dilation % stride;
    const auto found = std::find(axis.phases.begin(), axis.phases.end(), phase);
    const std::int64_t index = found - axis.phases.begin();
    if (found == axis.phases.end()) axis.phases.push_back(phase);
    axis.taps[0].push_back({tap, index, tap * dilation / stride});
  }
  return axis;
}

GridAxis scatter_axis(std::int64_t result, std::int64_t source, std::int64_t filter, std::int64_t stride,
                      std::int64_t pad, std::int64_t dilation) {
  GridAxis axis;
  axis.result = result;
  axis.source = source;
  axis.result_step = stride;
  axis.source_end = source;
  axis.phases = {0};
  axis.taps.resize(static_cast<std::size_t>(stride));
  bool first = true;
  std::int64_t last = 0;
  for (std::int64_t phase = 0; phase < stride; ++phase) {
    for (std::int64_t tap = 0; tap < filter; ++tap) {
      const std::int64_t distance = phase + pad - tap * dilation;
      const std::int64_t offset = floor_divide(distance, stride);
      if (offset * stride != distance) continue;
      axis.taps[phase].push_back({tap, 0, offset});
      axis.origin = first ? offset : std::min(axis.origin, offset);
      last = first ? offset : std::max(last, offset);
      first = false;
    }
  }
  for (std::vector<AxisTap>& taps : axis.taps) {
    for (AxisTap& tap : taps) tap.offset -= axis.origin;
  }
  axis.reach = last - axis.origin;
  return axis;
}

// Staged coordinates of a phase that hold source coordinates as they are.
Range unpadded_part(const GridAxis& axis, std::int64_t phase) {
  const std::int64_t first = phase + axis.origin;  // the source coordinate of staged coordinate 0
  const std::int64_t end = std::min(axis.source, axis.source_end);
  const std::int64_t begin =
      std::min(ceil_divide(std::max<std::int64_t>(-first, 0), axis.source_step), axis.staged_extent());
  return {begin, std::clamp(ceil_divide(std::max<std::int64_t>(end - first, 0), axis.source_step), begin,
                            axis.staged_extent())};
}

// The zeros in front of and behind each staged row along w, of the phase that has the fewest.
std::int64_t zeros_at_both_ends(const GridAxis& axis) {
  if (axis.pad_mode != PadMode::kZeros) return 0;
  std::int64_t fewest = axis.staged_extent();
  for (const Range& part : axis.unpadded) {
    if (part.size() > 0) fewest = std::min({fewest, part.begin, axis.staged_extent() - part.end});
  }
  return fewest;
}

}  // namespace

Range balanced_part(std::int64_t extent, std::int64_t parts, std::int64_t i) {
  return {extent * i / parts, extent * (i + 1) / parts};
}

std::int64_t GridAxis::grid_extent(std::int64_t result_phase) const {
  return (result - result_phase + result_step - 1) / result_step;
}

std::int64_t GridAxis::source_coordinate(std::int64_t phase_index, std::int64_t staged) const {
  const std::int64_t coordinate = staged * source_step + phases[phase_index] + origin;
  if (coordinate >= source_end) return -1;
  return padded_coordinate(coordinate, source, pad_mode);
}

Range GridAxis::taps_that_meet(std::int64_t p) const {
  const std::vector<AxisTap>& list = taps[p % result_step];
  const auto meets = [&](const AxisTap& tap) {
    return source_coordinate(tap.phase, p / result_step + tap.offset) >= 0;
  };
  Range range = {0, std::ssize(list)};
  while (range.begin < range.end && !meets(list[range.begin])) ++range.begin;
  while (range.begin < range.end && !meets(list[range.end - 1])) --range.end;
  return range;
}

ConvGrid::ConvGrid(const ConvGeometry& geometry, ConvDirection direction)
    : groups_(geometry.groups),
      gathers_((direction == ConvDirection::kForward) != geometry.transposed),
      folds_(!gathers_ && geometry.pad_mode != PadMode::kZeros),
      filter_(geometry.filter) {
  const bool forward = direction == ConvDirection::kForward;
  result_channels_ = forward ? geometry.out_channels : geometry.in_channels;
  source_channels_ = forward ? geometry.in_channels : geometry.out_channels;
  result_ = forward ? geometry.out : geometry.in;
  const Spatial& source = forward ? geometry.in : geometry.out;
  for (int i = 0; i < 3; ++i) {
    const std::int64_t filter = geometry.filter[i];
    const std::int64_t stride = geometry.stride[i];
    const std::int64_t dilation = geometry.dilation[i];
    if (gathers_) {
      axes_.push_back(
          gather_axis(result_[i], source[i], filter, stride, geometry.pad[i], dilation, geometry.pad_mode));
    } else if (!folds_) {
      axes_.push_back(scatter_axis(result_[i], source[i], filter, stride, geometry.pad[i], dilation));
    } else {
      const std::int64_t padded = (source[i] - 1) * stride + (filter - 1) * dilation + 1;
      axes_.push_back(scatter_axis(padded, source[i], filter, stride, 0, dilation));
      folded_[i].resize(static_cast<std::size_t>(result_[i]));
      for (std::int64_t p = 0; p < padded; ++p) {
        const std::int64_t repeated = padded_coordinate(p - geometry.pad[i], result_[i], geometry.pad_mode);
        folded_[i][repeated].push_back(p);
        if (i == 2) folded_columns_.push_back(repeated);
      }
    }
  }
  for (GridAxis& axis : axes_) {
    for (const std::int64_t phase : axis.phases) axis.unpadded.push_back(unpadded_part(axis, phase));
  }
  shared_columns_ = std::min(zeros_at_both_ends(axes_[2]), axes_[2].reach);
  pitch_ = axes_[2].staged_extent() - shared_columns_;
}

Range ConvGrid::all_taps(int axis, std::int64_t p) const {
  return {0, std::ssize(axes_[axis].taps[p % axes_[axis].result_step])};
}

Range ConvGrid::channels_read_by(Range k) const {
  if (k.size() <= 0) return {};
  const std::int64_t first = k.begin / result_channels_per_group();
  const std::int64_t last = (k.end - 1) / result_channels_per_group();
  return {first * source_channels_per_group(), (last + 1) * source_channels_per_group()};
}

std::int64_t ConvGrid::weight_index(std::int64_t k, std::int64_t source_channel, std::int64_t tap) const {
  const std::int64_t narrow = gathers_ ? k : source_channel;
  const std::int64_t wide = gathers_ ? source_channel : k;
  const std::int64_t wide_per_group = gathers_ ? source_channels_per_group() : result_channels_per_group();
  return (narrow * wide_per_group + wide % wide_per_group) * filter_taps() + tap;
}

std::int64_t ConvGrid::weight_stride() const {
  return (gathers_ ? source_channels_per_group() : 1) * filter_taps();
}

StagedLayout ConvGrid::layout(Range rows) const {
  const auto staged = [](const GridAxis& axis, std::int64_t first, std::int64_t last) {
    return Range{first / axis.result_step, last / axis.result_step + axis.reach + 1};
  };
  Range d = {0, axes_[0].result};
  Range h = {0, axes_[1].result};
  if (!folds_) {
    d = {rows.begin / result_[1], (rows.end - 1) / result_[1] + 1};
    if (d.size() == 1) h = {rows.begin % result_[1], (rows.end - 1) % result_[1] + 1};
  }
  StagedLayout layout;
  layout.planes = staged(axes_[0], d.begin, d.end - 1);
  layout.rows = staged(axes_[1], h.begin, h.end - 1);
  layout.pitch = pitch_;
  layout.plane_stride = layout.rows.size() * pitch_;
  layout.phase_stride = layout.planes.size() * layout.plane_stride;
  const std::int64_t phases =
      std::ssize(axes_[0].phases) * std::ssize(axes_[1].phases) * std::ssize(axes_[2].phases);
  layout.channel_stride = odd_lines(phases * layout.phase_stride + shared_columns_);
  return layout;
}

std::int64_t ConvGrid::start(const GridRun& run, const StagedLayout& layout) const {
  return (run.d / axes_[0].result_step - layout.planes.begin) * layout.plane_stride +
         (run.h / axes_[1].result_step - layout.rows.begin) * layout.pitch;
}

std::int64_t ConvGrid::list_taps(const GridRun& run, const StagedLayout& layout, GridTap* taps) const {
  std::int64_t count = 0;
  for (std::int64_t i = run.taps_d.begin; i < run.taps_d.end; ++i) {
    const AxisTap& d = axes_[0].taps[run.phase[0]][i];
    for (std::int64_t j = run.taps_h.begin; j < run.taps_h.end; ++j) {
      const AxisTap& h = axes_[1].taps[run.phase[1]][j];
      for (const AxisTap& w : axes_[2].taps[run.phase[2]]) {
        const std::int64_t phase =
            (d.phase * std::ssize(axes_[1].phases) + h.phase) * std::ssize(axes_[2].phases) + w.phase;
        taps[count++] = {
            phase * layout.phase_stride + d.offset * layout.plane_stride + h.offset * layout.pitch + w.offset,
            (d.tap * filter_[1] + h.tap) * filter_[2] + w.tap};
      }
    }
  }
  return count;
}

}  // namespace fuseblock::cpu
