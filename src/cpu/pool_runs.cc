#include "cpu/pool_runs.h"

#include <algorithm>
#include <numeric>

namespace fuseblock::cpu {
namespace {

// The run of one output.
PoolRun output_run(const PoolGeometry& geometry, std::size_t axis, std::int64_t out) {
  const std::int64_t dilation = geometry.dilation[axis];
  const std::int64_t start = out * geometry.stride[axis] - geometry.pad[axis];
  const std::int64_t room = geometry.in[axis] - 1 - start;
  const std::int64_t first = start < 0 ? (-start + dilation - 1) / dilation : 0;
  const std::int64_t end = room < 0 ? 0 : std::min(geometry.window[axis], room / dilation + 1);
  PoolRun run;
  run.begin = out;
  run.source_step = geometry.stride[axis];
  run.tap_step = dilation;
  if (end <= first) return run;
  run.source = start + first * dilation;
  run.taps = end - first;
  run.number = first;
  return run;
}

// By what an average divides along this axis: see PoolGeometry::divisor.
std::int64_t length_at(const PoolGeometry& geometry, std::size_t axis, std::int64_t out) {
  if (geometry.divisor_override > 0) return 1;
  const std::int64_t begin = out * geometry.stride[axis] - geometry.pad[axis];
  const std::int64_t end = std::min(begin + geometry.window[axis], geometry.in[axis] + geometry.pad[axis]);
  if (geometry.count_include_pad) return end - begin;
  return std::min(end, geometry.in[axis]) - std::max<std::int64_t>(begin, 0);
}

// The run of one input element. The first output that counts is that of the last tap.
PoolRun input_run(const PoolGeometry& geometry, std::size_t axis, std::int64_t in) {
  const std::int64_t stride = geometry.stride[axis];
  const std::int64_t dilation = geometry.dilation[axis];
  const std::int64_t common = std::gcd(stride, dilation);
  PoolRun run;
  run.begin = in;
  run.step = stride;
  run.tap_step = dilation / common;
  run.number_step = -(stride / common);
  for (std::int64_t tap = geometry.window[axis] - 1; tap >= 0; --tap) {
    const std::int64_t start = in + geometry.pad[axis] - tap * dilation;
    const std::int64_t out = start / stride;
    if (start < 0 || start % stride != 0 || out >= geometry.out[axis]) continue;
    const std::int64_t length = length_at(geometry, axis, out);
    if (run.taps++ == 0) {
      run.source = out;
      run.number = tap;
      run.length = length;
    }
    if (run.length != length) run.length = 0;
  }
  return run;
}

// Whether `next` is the next result of the run. A run without taps has no elements that could differ.
bool continues(const PoolRun& run, const PoolRun& next) {
  return next.taps == run.taps && next.number == run.number && next.length == run.length &&
         (run.taps == 0 || next.source == run.source + run.count * run.source_step);
}

// The runs of `extent` results, of which every `step`th can be of one run.
template <class RunOf>
std::vector<PoolRun> join_runs(std::int64_t extent, std::int64_t step, RunOf run_of) {
  std::vector<PoolRun> runs;
  for (std::int64_t phase = 0; phase < std::min(step, extent); ++phase) {
    runs.push_back(run_of(phase));
    for (std::int64_t i = phase + step; i < extent; i += step) {
      const PoolRun next = run_of(i);
      if (continues(runs.back(), next))
        ++runs.back().count;
      else
        runs.push_back(next);
    }
  }
  return runs;
}

}  // namespace

PoolRun PoolRun::within(std::int64_t from, std::int64_t end) const {
  const std::int64_t first = from <= begin ? 0 : (from - begin + step - 1) / step;
  const std::int64_t last = end <= begin ? 0 : (end - begin + step - 1) / step;
  PoolRun part = *this;
  part.begin += first * step;
  part.source += first * source_step;
  part.count = std::max<std::int64_t>(std::min(count, last) - first, 0);
  return part;
}

std::vector<PoolRun> output_runs(const PoolGeometry& geometry, std::size_t axis) {
  return join_runs(geometry.out[axis], 1, [&](std::int64_t out) { return output_run(geometry, axis, out); });
}

std::vector<PoolRun> input_runs(const PoolGeometry& geometry, std::size_t axis) {
  return join_runs(geometry.in[axis], geometry.stride[axis],
                   [&](std::int64_t in) { return input_run(geometry, axis, in); });
}

}  // namespace fuseblock::cpu
