#include "cpu/conv/staging.h"

#include <algorithm>

namespace fuseblock::cpu {
namespace {

// Kernels read whole vectors: up to this many elements behind the last position of a run.
constexpr std::int64_t kOverrun = 64;

// Fills a staged row of one phase along w from a whole source row; `row` may be its own unpadded part.
template <typename T>
void fill_row(const GridAxis& axis, std::int64_t phase_index, std::int64_t columns, const T* row, T* staged) {
  const Range inside = axis.unpadded[phase_index];
  const std::int64_t first = axis.phases[phase_index] + axis.origin;
  const std::int64_t step = axis.source_step;
  if (row + first != staged) {
    if (step == 1) {
      std::copy(row + first + inside.begin, row + first + inside.end, staged + inside.begin);
    } else {
      for (std::int64_t j = inside.begin; j < inside.end; ++j) staged[j] = row[first + j * step];
    }
  }
  const auto pad = [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t j = begin; j < end; ++j) {
      const std::int64_t from =
          axis.pad_mode == PadMode::kZeros ? -1 : axis.source_coordinate(phase_index, j);
      staged[j] = from < 0 ? T(0) : row[from];
    }
  };
  pad(0, inside.begin);
  pad(inside.end, columns);
}

}  // namespace

std::size_t staged_elements(const ConvGrid& grid, Range rows, Range channels) {
  if (rows.size() <= 0 || channels.size() <= 0) return 0;
  return static_cast<std::size_t>(channels.size() * grid.layout(rows).channel_stride + kOverrun +
                                  grid.axis(2).source);
}

template <typename T>
void stage(const ConvGrid& grid, Range rows, Range channels, RowLoader<T> load, T* staged) {
  if (rows.size() <= 0 || channels.size() <= 0) return;
  const StagedLayout layout = grid.layout(rows);
  const GridAxis& depth = grid.axis(0);
  const GridAxis& height = grid.axis(1);
  const GridAxis& width = grid.axis(2);
  const std::int64_t width_phases = std::ssize(width.phases);
  // A row that is staged whole and unsplit is loaded where it belongs.
  const bool in_place = width_phases == 1 && width.source_step == 1 && width.phases[0] + width.origin <= 0 &&
                        width.source - width.origin <= layout.pitch && width.source <= width.source_end;
  const bool without_padding = in_place && width.unpadded[0] == Range{0, layout.pitch};
  T* const end = staged + channels.size() * layout.channel_stride;
  std::fill(end, end + kOverrun, T(0));
  T* const scratch_row = end + kOverrun;

  for (std::int64_t c = channels.begin; c < channels.end; ++c) {
    T* at = staged + (c - channels.begin) * layout.channel_stride;
    T* const channel_end = at + layout.channel_stride;
    for (std::int64_t phase_d = 0; phase_d < std::ssize(depth.phases); ++phase_d) {
      for (std::int64_t phase_h = 0; phase_h < std::ssize(height.phases); ++phase_h) {
        T* line = at;
        for (std::int64_t i = layout.planes.begin; i < layout.planes.end; ++i) {
          const std::int64_t d = depth.source_coordinate(phase_d, i);
          for (std::int64_t j = layout.rows.begin, count = 1; j < layout.rows.end; j += count) {
            const std::int64_t h = height.source_coordinate(phase_h, j);
            count = 1;
            if (d < 0 || h < 0) {
              for (std::int64_t phase = 0; phase < width_phases; ++phase)
                std::fill_n(line + phase * layout.phase_stride, layout.pitch, T(0));
              line += layout.pitch;
              continue;
            }
            while (in_place && j + count < layout.rows.end &&
                   height.source_coordinate(phase_h, j + count) == h + count)
              ++count;
            load(c, d, h, count, in_place ? line - width.origin : scratch_row, layout.pitch);
            if (without_padding) {
              line += count * layout.pitch;
              continue;
            }
            for (std::int64_t done = 0; done < count; ++done, line += layout.pitch) {
              const T* const row = in_place ? line - width.origin : scratch_row;
              for (std::int64_t phase = 0; phase < width_phases; ++phase)
                fill_row(width, phase, layout.pitch, row, line + phase * layout.phase_stride);
            }
          }
        }
        at += width_phases * layout.phase_stride;
      }
    }
    std::fill(at, channel_end, T(0));
  }
}

template void stage<float>(const ConvGrid&, Range, Range, RowLoader<float>, float*);
template void stage<double>(const ConvGrid&, Range, Range, RowLoader<double>, double*);

}  // namespace fuseblock::cpu
