#include "cpu/pool.h"

#include <algorithm>

#include "fuseblock/error.h"
#include "fuseblock/tensor.h"

namespace fuseblock::cpu {
namespace {

// Results of a task: with what they are taken from they stay in L2.
constexpr std::int64_t kTaskResults = 8192;
// Channels of a task along which vectors go, where places are found first: several rows of a few channels
// share more windows than one row of many.
constexpr std::int64_t kPlaceChannels = 64;
// Channels of a task whose elements are apart along w: those of a position share cache lines.
constexpr std::int64_t kScatteredChannels = 16;

std::int64_t parts_of(std::int64_t extent, std::int64_t part) { return (extent + part - 1) / part; }

// Calls visit(d, h, w) with the runs of the positions from `begin` to `end`.
template <class Runs, class Visit>
void for_each_region(const Runs& runs, const Spatial& begin, const Spatial& end, Visit visit) {
  for (const PoolRun& depths : runs[0]) {
    const PoolRun d = depths.within(begin[0], end[0]);
    if (d.count == 0) continue;
    for (const PoolRun& rows : runs[1]) {
      const PoolRun h = rows.within(begin[1], end[1]);
      if (h.count == 0) continue;
      for (const PoolRun& columns : runs[2]) {
        const PoolRun w = columns.within(begin[2], end[2]);
        if (w.count > 0) visit(d, h, w);
      }
    }
  }
}

// Calls visit(position) in scan order.
template <class Visit>
void for_each_position(const Spatial& extents, Visit visit) {
  Spatial at{};
  for (at[0] = 0; at[0] < extents[0]; ++at[0])
    for (at[1] = 0; at[1] < extents[1]; ++at[1])
      for (at[2] = 0; at[2] < extents[2]; ++at[2]) visit(at);
}

std::byte* element_at(const SlotView& view, std::int64_t offset) {
  return view.data + offset * byte_size(view.dtype);
}

// The offset of a row's window.
std::int64_t begin_of(const Windows& windows, std::int64_t row, std::int64_t begin) {
  return row * windows.row_stride + begin * windows.stride;
}

// Writes the results of a region: compute(offset of the first element, windows, results).
template <class T, class Compute>
void run_planes(const PoolRegion& region, const PoolStrides& strides, const SlotView& result,
                Compute compute) {
  for_each_plane(region, strides, [&](const PoolPlane& plane) {
    write_results<T>(plane, element_at(result, plane.result_offset), result.dtype,
                     [&](const Windows& part, std::int64_t row, std::int64_t begin, T* out) {
                       compute(plane.source_offset + begin_of(part, row, begin), part, out);
                     });
  });
}

template <class T>
void run_maxima(const PoolRegion& region, const SlotView& x, const SlotView& y) {
  run_planes<T>(region, {x.strides, y.strides, {}}, y,
                [&](std::int64_t offset, const Windows& windows, T* out) {
                  window_maxima(element_at(x, offset), x.dtype, windows, out);
                });
}

template <class T>
void run_means(const PoolRegion& region, const SlotView& x, const SlotView& y, double divisor) {
  run_planes<T>(region, {x.strides, y.strides, {}}, y,
                [&](std::int64_t offset, const Windows& windows, T* out) {
                  window_means(element_at(x, offset), x.dtype, windows, divisor, out);
                });
}

template <class T>
void run_shares(const PoolRegion& region, const SlotView& d_y, const SlotView& d_x, double divisor) {
  run_planes<T>(region, {d_y.strides, d_x.strides, {}}, d_x,
                [&](std::int64_t offset, const Windows& windows, T* out) {
                  window_shares(element_at(d_y, offset), d_y.dtype, windows, divisor, out);
                });
}

// Shares of outputs that divide by different numbers, one element after the other: a few along the borders.
void run_unequal_shares(const PoolRegion& region, const PoolGeometry& geometry, const SlotView& d_y,
                        const SlotView& d_x) {
  const auto& [d, h, w] = region.runs;
  for (std::int64_t c = 0; c < region.channels; ++c)
    for_each_position({d.count, h.count, w.count}, [&](const Spatial& at) {
      double total = 0;
      for_each_position({d.taps, h.taps, w.taps}, [&](const Spatial& tap) {
        Spatial out{};
        for (std::size_t i = 0; i < 3; ++i) {
          const PoolRun& run = region.runs[i];
          out[i] = run.source + at[i] * run.source_step + tap[i] * run.tap_step;
        }
        const double value = load_element(d_y.data, d_y.dtype, d_y.offset(0, c, out[0], out[1], out[2]));
        total += value / static_cast<double>(geometry.divisor(out));
      });
      store_element(
          d_x.data, d_x.dtype,
          d_x.offset(0, c, d.begin + at[0] * d.step, h.begin + at[1] * h.step, w.begin + at[2] * w.step),
          total);
    });
}

}  // namespace

// Views begin at the task's sample and first channel.
struct PoolRunner::Task {
  bool along_channels = false;
  std::int64_t channels = 1;
  Spatial begin = {0, 0, 0};
  Spatial end = {1, 1, 1};
  SlotView first;
  SlotView second;  // where there is one
  SlotView result;
  // Outputs whose places are needed, and the number of the tap of each; an array of the task's channels.
  Spatial place_begin = {0, 0, 0};
  Spatial place_end = {0, 0, 0};
  std::int32_t* places = nullptr;
  Extents place_strides = {0, 0, 0, 0, 0};
  std::int64_t first_place = 0;  // the offset of the output at place_begin
};

PoolRunner::PoolRunner(const Schedule& schedule, const ScheduleStep& step)
    : operands_(step.operands), result_(step.result) {
  const Part& part = schedule.graph[step.parts[0]];
  code_ = schedule.block.block().nodes()[static_cast<std::size_t>(part.node)].operation->code;
  geometry_ = pool_geometry(schedule.block, part.node);
  batch_ = part.extents[0];
  channels_ = part.extents[1];
  const bool to_input = code_ == OpCode::kMaxPoolPut || code_ == OpCode::kAvgPoolGrad;
  extents_ = to_input ? geometry_.in : geometry_.out;
  for (std::size_t i = 0; i < 3; ++i) {
    runs_[i] = to_input ? input_runs(geometry_, i) : output_runs(geometry_, i);
    if (needs_places()) place_runs_[i] = output_runs(geometry_, i);
  }
}

PoolRunner::Inner PoolRunner::inner_axis(SlotViews views) const {
  bool along_w = true;
  bool along_channels = channels_ > 1;
  const auto look_at = [&](int slot) {
    const SlotView& view = views[static_cast<std::size_t>(slot)];
    along_w = along_w && (view.strides[4] == 1 || (geometry_.in[2] == 1 && geometry_.out[2] == 1));
    along_channels = along_channels && view.strides[1] == 1;
  };
  for (const int slot : operands_) look_at(slot);
  look_at(result_);
  if (along_w) return Inner::kW;
  return along_channels ? Inner::kChannels : Inner::kScattered;
}

PoolRunner::Division PoolRunner::divide(Inner inner) const {
  Division division;
  std::int64_t results = kTaskResults;
  if (inner == Inner::kChannels)
    division.channels = needs_places() ? std::min(channels_, kPlaceChannels) : channels_;
  else if (inner == Inner::kScattered)
    division.channels = std::min(channels_, kScatteredChannels);
  results /= division.channels;
  for (std::size_t i = 3; i-- > 0;) {
    std::int64_t extent = std::max<std::int64_t>(results, 1);
    // Less than twice the window would have most places found more than twice.
    if (needs_places())
      extent = std::max(extent, 2 * ((geometry_.window[i] - 1) * geometry_.dilation[i] + 1));
    division.box[i] = std::min(extent, extents_[i]);
    results /= division.box[i];
  }
  // Small planes go several to a task.
  if (inner == Inner::kW) division.channels = std::clamp<std::int64_t>(results, 1, channels_);
  return division;
}

std::int64_t PoolRunner::most_places(std::size_t axis, std::int64_t results) const {
  if (code_ == OpCode::kMaxPoolTake) return results;
  const std::int64_t reach = (geometry_.window[axis] - 1) * geometry_.dilation[axis];
  return std::min(geometry_.out[axis], (results - 1 + reach) / geometry_.stride[axis] + 1);
}

std::size_t PoolRunner::scratch_bytes() const {
  if (!needs_places()) return 0;
  std::int64_t most = 0;
  for (const Inner inner : {Inner::kW, Inner::kChannels, Inner::kScattered}) {
    const Division division = divide(inner);
    std::int64_t places = division.channels;
    for (std::size_t i = 0; i < 3; ++i) places *= most_places(i, division.box[i]);
    most = std::max(most, places);
  }
  return static_cast<std::size_t>(most) * sizeof(std::int32_t);
}

void PoolRunner::run(const Workers& workers, SlotViews views, std::byte* scratch,
                     std::size_t scratch_stride) const {
  const Inner inner = inner_axis(views);
  const Division division = divide(inner);
  const std::int64_t channel_parts = parts_of(channels_, division.channels);
  Spatial parts{};
  for (std::size_t i = 0; i < 3; ++i) parts[i] = parts_of(extents_[i], division.box[i]);
  const std::int64_t tasks = batch_ * channel_parts * parts[0] * parts[1] * parts[2];
  run_tasks(workers, tasks, [&](std::int64_t number, int worker) {
    Task task;
    task.along_channels = inner == Inner::kChannels;
    for (std::size_t i = 3; i-- > 0; number /= parts[i]) {
      task.begin[i] = number % parts[i] * division.box[i];
      task.end[i] = std::min(task.begin[i] + division.box[i], extents_[i]);
    }
    const std::int64_t channel = number % channel_parts * division.channels;
    const std::int64_t n = number / channel_parts;
    task.channels = std::min(division.channels, channels_ - channel);
    const auto view_of = [&](int slot) {
      SlotView view = views[static_cast<std::size_t>(slot)];
      view.data = element_at(view, view.offset(n, channel, 0, 0, 0));
      return view;
    };
    task.first = view_of(operands_[0]);
    if (operands_.size() > 1) task.second = view_of(operands_[1]);
    task.result = view_of(result_);
    if (needs_places()) {
      reserve_places(task, scratch + static_cast<std::size_t>(worker) * scratch_stride);
      find_places(task);
    }
    run_task(task);
  });
}

void PoolRunner::reserve_places(Task& task, std::byte* scratch) const {
  task.places = elements_at<std::int32_t>(scratch);
  task.place_begin = task.begin;
  task.place_end = task.end;
  Spatial extents{};
  for (std::size_t i = 0; i < 3; ++i) {
    if (code_ == OpCode::kMaxPoolPut) {
      const std::int64_t stride = geometry_.stride[i];
      const std::int64_t reach = (geometry_.window[i] - 1) * geometry_.dilation[i];
      const std::int64_t first = task.begin[i] + geometry_.pad[i] - reach;
      task.place_begin[i] = first <= 0 ? 0 : (first + stride - 1) / stride;
      task.place_end[i] = std::min(geometry_.out[i], (task.end[i] - 1 + geometry_.pad[i]) / stride + 1);
    }
    extents[i] = std::max<std::int64_t>(task.place_end[i] - task.place_begin[i], 0);
  }
  const std::int64_t beside = task.along_channels ? task.channels : 1;
  const std::int64_t row = extents[2] * beside;
  const std::int64_t plane = extents[1] * row;
  task.place_strides = {0, task.along_channels ? 1 : extents[0] * plane, plane, row, beside};
  task.first_place = task.place_begin[0] * plane + task.place_begin[1] * row + task.place_begin[2] * beside;
}

void PoolRunner::find_places(const Task& task) const {
  const SlotView& x = task.second;
  const PoolStrides strides = {x.strides, task.place_strides, {}};
  for_each_region(place_runs_, task.place_begin, task.place_end,
                  [&](const PoolRun& d, const PoolRun& h, const PoolRun& w) {
                    const PoolRegion region = {task.channels, {d, h, w}, task.along_channels};
                    for_each_plane(region, strides, [&](const PoolPlane& plane) {
                      window_places(element_at(x, plane.source_offset), x.dtype, plane.windows,
                                    region.numbers(geometry_.window),
                                    task.places + (plane.result_offset - task.first_place));
                    });
                  });
}

template <class T>
void PoolRunner::add_chosen(const Task& task, const PoolRegion& region) const {
  const SlotView& d_y = task.first;
  const SlotView& d_x = task.result;
  const TapNumbers numbers = region.numbers(geometry_.window);
  for_each_plane(region, {d_y.strides, d_x.strides, task.place_strides}, [&](const PoolPlane& plane) {
    write_results<T>(plane, element_at(d_x, plane.result_offset), d_x.dtype,
                     [&](const Windows& part, std::int64_t row, std::int64_t begin, T* out) {
                       const std::int64_t offset = plane.source_offset + begin_of(part, row, begin);
                       const std::int64_t place = plane.beside_offset + row * plane.beside_row_stride + begin;
                       window_chosen(element_at(d_y, offset), d_y.dtype, part,
                                     {task.places + (place - task.first_place), plane.beside_row_stride,
                                      plane.beside_steps},
                                     numbers, out);
                     });
  });
}

// Only second derivatives need this: one element after the other.
void PoolRunner::take_chosen(const Task& task) const {
  const SlotView& v = task.first;
  const SlotView& y = task.result;
  const Extents& strides = task.place_strides;
  Spatial extents{};
  for (std::size_t i = 0; i < 3; ++i) extents[i] = task.end[i] - task.begin[i];
  for (std::int64_t c = 0; c < task.channels; ++c)
    for_each_position(extents, [&](const Spatial& at) {
      const Spatial out = {task.begin[0] + at[0], task.begin[1] + at[1], task.begin[2] + at[2]};
      std::int64_t tap =
          task.places[c * strides[1] + at[0] * strides[2] + at[1] * strides[3] + at[2] * strides[4]];
      double value = 0;
      if (tap >= 0) {
        Spatial in{};
        for (std::size_t i = 3; i-- > 0; tap /= geometry_.window[i])
          in[i] = out[i] * geometry_.stride[i] - geometry_.pad[i] +
                  tap % geometry_.window[i] * geometry_.dilation[i];
        value = load_element(v.data, v.dtype, v.offset(0, c, in[0], in[1], in[2]));
      }
      store_element(y.data, y.dtype, y.offset(0, c, out[0], out[1], out[2]), value);
    });
}

template <class T>
void PoolRunner::run_sums(const Task& task, const PoolRegion& region) const {
  const auto& [d, h, w] = region.runs;
  if (code_ == OpCode::kMaxPoolPut) return add_chosen<T>(task, region);
  if (code_ == OpCode::kAvgPool) {
    const std::int64_t divisor = geometry_.divisor({d.begin, h.begin, w.begin});
    return run_means<T>(region, task.first, task.result, static_cast<double>(divisor));
  }
  const std::int64_t length = d.length * h.length * w.length;
  if (length == 0) return run_unequal_shares(region, geometry_, task.first, task.result);
  const std::int64_t divisor = geometry_.divisor_override > 0 ? geometry_.divisor_override : length;
  run_shares<T>(region, task.first, task.result, static_cast<double>(divisor));
}

void PoolRunner::run_region(const Task& task, const PoolRegion& region) const {
  if (code_ == OpCode::kMaxPool) {
    if (task.first.dtype == DType::kF64) return run_maxima<double>(region, task.first, task.result);
    return run_maxima<float>(region, task.first, task.result);
  }
  // 16-bit results are rounded from double, and not from float.
  if (task.result.dtype == DType::kF32) return run_sums<float>(task, region);
  run_sums<double>(task, region);
}

void PoolRunner::run_task(const Task& task) const {
  if (code_ == OpCode::kMaxPoolTake) return take_chosen(task);
  for_each_region(runs_, task.begin, task.end, [&](const PoolRun& d, const PoolRun& h, const PoolRun& w) {
    run_region(task, {task.channels, {d, h, w}, task.along_channels});
  });
}

}  // namespace fuseblock::cpu
