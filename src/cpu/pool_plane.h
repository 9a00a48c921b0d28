// The results of a pool that have the same taps, as calls of `vector/windows.h`: which loops are rows and
// vectors, and how results reach the memory of their tensor.
#pragma once

#include <algorithm>
#include <array>

#include "cpu/memory.h"
#include "cpu/pool_runs.h"
#include "cpu/vector/convert.h"
#include "cpu/vector/windows.h"

namespace fuseblock::cpu {

// Strides along n c d h w of the elements that windows hold, of the results, and of an array beside the
// elements.
struct PoolStrides {
  Extents source = {0, 0, 0, 0, 0};
  Extents result = {0, 0, 0, 0, 0};
  Extents beside = {0, 0, 0, 0, 0};
};

// Results of some channels with a run along each of d, h, w.
struct PoolRegion {
  std::int64_t channels = 1;
  std::array<PoolRun, 3> runs;
  bool along_channels = false;  // what vectors go along; else w

  // Taps are numbered in scan order over the pool's window.
  TapNumbers numbers(const Spatial& window) const {
    const std::int64_t row = window[2];
    const std::int64_t plane = window[1] * row;
    return {runs[0].number * plane + runs[1].number * row + runs[2].number,
            {runs[0].number_step * plane, runs[1].number_step * row, runs[2].number_step}};
  }
};

// Rows of a region. Offsets are in elements, from the first of the region's channels.
struct PoolPlane {
  Windows windows;
  std::int64_t source_offset = 0;
  std::int64_t result_offset = 0;
  std::int64_t beside_offset = 0;
  std::int64_t beside_row_stride = 0;
  std::array<std::int64_t, 3> beside_steps = {0, 0, 0};
  // Results are at every second place of a row, and what lies between two of them is of the same task.
  bool between_is_ours = false;
};

// Calls visit(plane) for the planes that make up a region.
template <class Visit>
void for_each_plane(const PoolRegion& region, const PoolStrides& strides, Visit visit) {
  struct Loop {
    std::int64_t count, source, result, beside;
  };
  PoolPlane first;
  std::array<Loop, 4> loops;  // from the outermost: c d h w, or d h w c
  loops[0] = {region.channels, strides.source[1], strides.result[1], strides.beside[1]};
  for (std::size_t i = 0; i < 3; ++i) {
    const PoolRun& run = region.runs[i];
    const std::int64_t source = strides.source[i + 2];
    const std::int64_t result = strides.result[i + 2];
    const std::int64_t beside = strides.beside[i + 2];
    loops[i + 1] = {run.count, run.source_step * source, run.step * result, run.source_step * beside};
    first.windows.taps[i] = run.taps;
    first.windows.steps[i] = run.tap_step * source;
    first.beside_steps[i] = run.tap_step * beside;
    first.source_offset += run.source * source;
    first.result_offset += run.begin * result;
    first.beside_offset += run.source * beside;
  }
  if (region.along_channels) std::rotate(loops.begin(), loops.begin() + 1, loops.end());
  // Distances of a single result are of no account.
  const bool single = loops[3].count == 1;
  first.windows.count = loops[3].count;
  first.windows.stride = single ? 1 : loops[3].source;
  first.windows.rows = loops[2].count;
  first.windows.row_stride = loops[2].source;
  first.windows.result_row_stride = loops[2].result;
  first.beside_row_stride = loops[2].beside;
  first.windows.result_stride = single ? 1 : loops[3].result;
  first.between_is_ours = !region.along_channels && strides.result[4] == 1 && region.runs[2].step == 2;
  for (std::int64_t i = 0; i < loops[0].count; ++i)
    for (std::int64_t j = 0; j < loops[1].count; ++j) {
      PoolPlane plane = first;
      plane.source_offset += i * loops[0].source + j * loops[1].source;
      plane.result_offset += i * loops[0].result + j * loops[1].result;
      plane.beside_offset += i * loops[0].beside + j * loops[1].beside;
      visit(plane);
    }
}

// Writes the results that compute(windows, row, begin, out) gives for the rows from `row` and the results of
// a row from `begin` on, to a tensor whose element at the plane's result_offset is at `to`.
template <class T, class Compute>
void write_results(const PoolPlane& plane, std::byte* to, DType dtype, Compute compute) {
  constexpr DType kComputed = sizeof(T) == 4 ? DType::kF32 : DType::kF64;
  constexpr std::int64_t kBuffer = 1024;
  const Windows& windows = plane.windows;
  if (dtype == kComputed && (windows.result_stride == 1 || plane.between_is_ours))
    return compute(windows, 0, 0, elements_at<T>(to));
  alignas(64) T buffer[kBuffer];
  // Rows that follow each other in memory go together.
  const bool dense = windows.result_stride == 1 && windows.result_row_stride == windows.count;
  const std::int64_t at_once = dense ? std::max<std::int64_t>(kBuffer / windows.count, 1) : 1;
  for (std::int64_t row = 0; row < windows.rows; row += at_once)
    for (std::int64_t begin = 0; begin < windows.count; begin += kBuffer) {
      Windows part = windows;
      part.count = std::min(windows.count - begin, kBuffer);
      part.rows = std::min(windows.rows - row, at_once);
      part.result_stride = 1;
      part.result_row_stride = part.count;
      compute(part, row, begin, buffer);
      const std::int64_t offset = row * windows.result_row_stride + begin * windows.result_stride;
      store_elements(buffer, to + offset * byte_size(dtype), dtype, windows.result_stride,
                     static_cast<std::size_t>(part.count * part.rows));
    }
}

}  // namespace fuseblock::cpu
