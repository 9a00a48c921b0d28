#include "cpu/pool.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>

#include "fuseblock/tensor.h"

namespace fuseblock::cpu {
namespace {

// One sample and channel of a value.
class Plane {
 public:
  Plane(const SlotView& view, std::int64_t n, std::int64_t c)
      : view_(view), base_(n * view.strides[0] + c * view.strides[1]) {}

  double get(const Spatial& at) const { return load_element(view_.data, view_.dtype, offset(at)); }
  void set(const Spatial& at, double value) const {
    store_element(view_.data, view_.dtype, offset(at), value);
  }

 private:
  std::int64_t offset(const Spatial& at) const {
    return base_ + at[0] * view_.strides[2] + at[1] * view_.strides[3] + at[2] * view_.strides[4];
  }

  SlotView view_;
  std::int64_t base_;
};

template <class Visit>
void for_each(const Spatial& begin, const Spatial& end, Visit visit) {
  Spatial at{};
  for (at[0] = begin[0]; at[0] < end[0]; ++at[0])
    for (at[1] = begin[1]; at[1] < end[1]; ++at[1])
      for (at[2] = begin[2]; at[2] < end[2]; ++at[2]) visit(at);
}

// Calls visit(input position) for each element of the window that lies inside the input, in scan order.
template <class Visit>
void for_each_in_window(const PoolGeometry& geometry, const Spatial& out, Visit visit) {
  for_each({}, geometry.window, [&](const Spatial& tap) {
    Spatial in{};
    for (std::size_t i = 0; i < 3; ++i) {
      in[i] = out[i] * geometry.stride[i] - geometry.pad[i] + tap[i] * geometry.dilation[i];
      if (in[i] < 0 || in[i] >= geometry.in[i]) return;
    }
    visit(in);
  });
}

// Calls visit(output position) for each window that holds an input element, in scan order.
template <class Visit>
void for_each_window_of(const PoolGeometry& geometry, const Spatial& in, Visit visit) {
  for_each({}, geometry.window, [&](const Spatial& reversed) {
    Spatial out{};
    for (std::size_t i = 0; i < 3; ++i) {
      const std::int64_t tap = geometry.window[i] - 1 - reversed[i];
      const std::int64_t start = in[i] + geometry.pad[i] - tap * geometry.dilation[i];
      if (start < 0 || start % geometry.stride[i] != 0 || start / geometry.stride[i] >= geometry.out[i])
        return;
      out[i] = start / geometry.stride[i];
    }
    visit(out);
  });
}

// The first of the largest elements, but the last NaN if there is one; nothing where no element lies inside.
std::optional<Spatial> find_largest(const PoolGeometry& geometry, const Plane& x, const Spatial& out) {
  std::optional<Spatial> place;
  double largest = 0;
  for_each_in_window(geometry, out, [&](const Spatial& in) {
    const double value = x.get(in);
    if (place && !(value > largest) && !std::isnan(value)) return;
    place = in;
    largest = value;
  });
  return place;
}

void pool_plane(OpCode code, const PoolGeometry& geometry, const Plane& first,
                const std::optional<Plane>& second, const Plane& result) {
  switch (code) {
    case OpCode::kMaxPool:
    case OpCode::kMaxPoolTake:
      for_each({}, geometry.out, [&](const Spatial& out) {
        const auto place = find_largest(geometry, code == OpCode::kMaxPool ? first : *second, out);
        const double nothing = code == OpCode::kMaxPool ? -std::numeric_limits<double>::infinity() : 0;
        result.set(out, place ? first.get(*place) : nothing);
      });
      return;
    case OpCode::kMaxPoolPut:
      for_each({}, geometry.in, [&](const Spatial& in) {
        double total = 0;
        for_each_window_of(geometry, in, [&](const Spatial& out) {
          if (find_largest(geometry, *second, out) == in) total += first.get(out);
        });
        result.set(in, total);
      });
      return;
    case OpCode::kAvgPool:
      for_each({}, geometry.out, [&](const Spatial& out) {
        double total = 0;
        for_each_in_window(geometry, out, [&](const Spatial& in) { total += first.get(in); });
        result.set(out, total / static_cast<double>(geometry.divisor(out)));
      });
      return;
    case OpCode::kAvgPoolGrad:
      for_each({}, geometry.in, [&](const Spatial& in) {
        double total = 0;
        for_each_window_of(geometry, in, [&](const Spatial& out) {
          total += first.get(out) / static_cast<double>(geometry.divisor(out));
        });
        result.set(in, total);
      });
      return;
    default: throw InternalError("not a pool");
  }
}

}  // namespace

PoolRunner::PoolRunner(const Schedule& schedule, const ScheduleStep& step) : step_(&step) {
  const Part& part = schedule.graph[step.parts[0]];
  geometry_ = pool_geometry(schedule.block, part.node);
  code_ = schedule.block.block().nodes()[static_cast<std::size_t>(part.node)].operation->code;
  batch_ = part.extents[0];
  channels_ = part.extents[1];
}

void PoolRunner::run(const Workers& workers, SlotViews views) const {
  run_tasks(workers, batch_ * channels_, [&](std::int64_t plane, int) {
    const std::int64_t n = plane / channels_;
    const std::int64_t c = plane % channels_;
    auto plane_of = [&](int slot) { return Plane(views[static_cast<std::size_t>(slot)], n, c); };
    std::optional<Plane> second;
    if (step_->operands.size() > 1) second = plane_of(step_->operands[1]);
    pool_plane(code_, geometry_, plane_of(step_->operands[0]), second, plane_of(step_->result));
  });
}

}  // namespace fuseblock::cpu
