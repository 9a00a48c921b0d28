#include "cpu/rows.h"

#include <algorithm>
#include <type_traits>

#include "cpu/vector/convert.h"
#include "fuseblock/tensor.h"

namespace fuseblock::cpu {
namespace {

template <class T>
constexpr DType kOwnType = std::is_same_v<T, float> ? DType::kF32 : DType::kF64;

// The distance between neighbouring positions where it is the same for all of them; -1 where rows must be
// taken one by one.
std::int64_t flat_stride(const SlotView& view, const PositionExtents& extents) {
  std::int64_t step = -1;
  std::int64_t expected = 0;
  const std::int64_t sizes[] = {extents.w, extents.h, extents.d};
  for (int i = 0; i < 3; ++i) {
    if (sizes[i] == 1) continue;
    const std::int64_t stride = view.strides[static_cast<std::size_t>(4 - i)];
    if (step < 0 && expected == 0) {
      step = stride;
      expected = stride * sizes[i];
      if (step <= 0) return -1;
      continue;
    }
    if (stride != expected) return -1;
    expected = stride * sizes[i];
  }
  return step < 0 ? 1 : step;
}

// Calls visit(offset of the first element, distance between elements, how many, index of the first) for runs
// of positions.
template <class Visit>
void for_each_run(const SlotView& view, const PositionExtents& extents, std::int64_t n, std::int64_t c,
                  std::int64_t begin, std::int64_t count, Visit visit) {
  const std::int64_t flat = flat_stride(view, extents);
  const std::int64_t base = n * view.strides[0] + c * view.strides[1];
  if (flat > 0) {
    visit(base + begin * flat, flat, count, std::int64_t{0});
    return;
  }
  for (std::int64_t done = 0; done < count;) {
    const std::int64_t position = begin + done;
    const std::int64_t w = position % extents.w;
    const std::int64_t h = position / extents.w % extents.h;
    const std::int64_t d = position / extents.w / extents.h;
    const std::int64_t run = std::min(count - done, extents.w - w);
    visit(base + d * view.strides[2] + h * view.strides[3] + w * view.strides[4], view.strides[4], run, done);
    done += run;
  }
}

// Whether all channels of all positions lie one behind the other, channels first.
bool is_channels_last(const SlotView& view, const PositionExtents& extents, std::int64_t channels) {
  return (channels == 1 || view.strides[1] == 1) && flat_stride(view, extents) == channels;
}

// Calls visit(offset of the first channel, index of the position from `begin`) for each position.
template <class Visit>
void for_each_point(const SlotView& view, const PositionExtents& extents, std::int64_t n, std::int64_t begin,
                    std::int64_t count, Visit visit) {
  for_each_run(view, extents, n, 0, begin, count,
               [&](std::int64_t offset, std::int64_t stride, std::int64_t run, std::int64_t done) {
                 for (std::int64_t i = 0; i < run; ++i) visit(offset + i * stride, done + i);
               });
}

}  // namespace

template <class T>
const T* load_positions(const SlotView& view, const PositionExtents& extents, std::int64_t n, std::int64_t c,
                        std::int64_t begin, std::int64_t count, T* buffer) {
  const std::int64_t size = byte_size(view.dtype);
  if (view.dtype == kOwnType<T> && flat_stride(view, extents) == 1) {
    const std::int64_t offset = n * view.strides[0] + c * view.strides[1] + begin;
    return elements_at<T>(view.data + offset * size);
  }
  for_each_run(view, extents, n, c, begin, count,
               [&](std::int64_t offset, std::int64_t stride, std::int64_t run, std::int64_t done) {
                 if (stride == 0)
                   std::fill_n(buffer + done, run,
                               static_cast<T>(load_element(view.data, view.dtype, offset)));
                 else
                   load_elements(view.data + offset * size, view.dtype, stride, buffer + done,
                                 static_cast<std::size_t>(run));
               });
  return buffer;
}

template <class T>
T* positions_in_place(const SlotView& view, const PositionExtents& extents, std::int64_t n, std::int64_t c,
                      std::int64_t begin) {
  if (view.dtype != kOwnType<T> || flat_stride(view, extents) != 1) return nullptr;
  const std::int64_t offset = n * view.strides[0] + c * view.strides[1] + begin;
  return elements_at<T>(view.data + offset * static_cast<std::int64_t>(sizeof(T)));
}

template <class T>
void store_positions(const SlotView& view, const PositionExtents& extents, std::int64_t n, std::int64_t c,
                     std::int64_t begin, std::int64_t count, TileOperand<T> values) {
  const std::int64_t size = byte_size(view.dtype);
  for_each_run(view, extents, n, c, begin, count,
               [&](std::int64_t offset, std::int64_t stride, std::int64_t run, std::int64_t done) {
                 if (values.uniform) {
                   for (std::int64_t i = 0; i < run; ++i)
                     store_element(view.data + (offset + i * stride) * size, view.dtype, 0,
                                   static_cast<double>(*values.data));
                 } else {
                   store_elements(values.data + done, view.data + offset * size, view.dtype, stride,
                                  static_cast<std::size_t>(run));
                 }
               });
}

template <class T>
const T* load_points(const SlotView& view, const PositionExtents& extents, std::int64_t channels,
                     std::int64_t n, std::int64_t begin, std::int64_t count, T* buffer) {
  const std::int64_t size = byte_size(view.dtype);
  if (is_channels_last(view, extents, channels)) {
    const std::byte* from = view.data + (n * view.strides[0] + begin * channels) * size;
    if (view.dtype == kOwnType<T>) return elements_at<T>(from);
    load_elements(from, view.dtype, 1, buffer, static_cast<std::size_t>(count * channels));
    return buffer;
  }
  for_each_point(view, extents, n, begin, count, [&](std::int64_t offset, std::int64_t i) {
    load_elements(view.data + offset * size, view.dtype, view.strides[1], buffer + i * channels,
                  static_cast<std::size_t>(channels));
  });
  return buffer;
}

template <class T>
void store_points(const SlotView& view, const PositionExtents& extents, std::int64_t channels, std::int64_t n,
                  std::int64_t begin, std::int64_t count, const T* values) {
  const std::int64_t size = byte_size(view.dtype);
  if (is_channels_last(view, extents, channels)) {
    store_elements(values, view.data + (n * view.strides[0] + begin * channels) * size, view.dtype, 1,
                   static_cast<std::size_t>(count * channels));
    return;
  }
  for_each_point(view, extents, n, begin, count, [&](std::int64_t offset, std::int64_t i) {
    store_elements(values + i * channels, view.data + offset * size, view.dtype, view.strides[1],
                   static_cast<std::size_t>(channels));
  });
}

template <class T>
T* points_in_place(const SlotView& view, const PositionExtents& extents, std::int64_t channels,
                   std::int64_t n, std::int64_t begin) {
  if (view.dtype != kOwnType<T> || !is_channels_last(view, extents, channels)) return nullptr;
  const std::int64_t offset = n * view.strides[0] + begin * channels;
  return elements_at<T>(view.data + offset * static_cast<std::int64_t>(sizeof(T)));
}

const std::uint16_t* bf16_positions(const SlotView& view, const PositionExtents& extents, std::int64_t n,
                                    std::int64_t c, std::int64_t begin) {
  if (view.dtype != DType::kBF16 || flat_stride(view, extents) != 1) return nullptr;
  const std::int64_t offset = n * view.strides[0] + c * view.strides[1] + begin;
  return elements_at<std::uint16_t>(view.data + offset * byte_size(view.dtype));
}

const std::uint16_t* bf16_points(const SlotView& view, const PositionExtents& extents, std::int64_t channels,
                                 std::int64_t n, std::int64_t begin) {
  if (view.dtype != DType::kBF16 || !is_channels_last(view, extents, channels)) return nullptr;
  const std::int64_t offset = n * view.strides[0] + begin * channels;
  return elements_at<std::uint16_t>(view.data + offset * byte_size(view.dtype));
}

template <class T>
T load_uniform(const SlotView& view, std::int64_t n, std::int64_t c) {
  return static_cast<T>(load_element(view.data, view.dtype, n * view.strides[0] + c * view.strides[1]));
}

template const float* load_positions(const SlotView&, const PositionExtents&, std::int64_t, std::int64_t,
                                     std::int64_t, std::int64_t, float*);
template const double* load_positions(const SlotView&, const PositionExtents&, std::int64_t, std::int64_t,
                                      std::int64_t, std::int64_t, double*);
template void store_positions(const SlotView&, const PositionExtents&, std::int64_t, std::int64_t,
                              std::int64_t, std::int64_t, TileOperand<float>);
template void store_positions(const SlotView&, const PositionExtents&, std::int64_t, std::int64_t,
                              std::int64_t, std::int64_t, TileOperand<double>);
template float* positions_in_place(const SlotView&, const PositionExtents&, std::int64_t, std::int64_t,
                                   std::int64_t);
template double* positions_in_place(const SlotView&, const PositionExtents&, std::int64_t, std::int64_t,
                                    std::int64_t);
template float load_uniform(const SlotView&, std::int64_t, std::int64_t);
template double load_uniform(const SlotView&, std::int64_t, std::int64_t);

template const float* load_points(const SlotView&, const PositionExtents&, std::int64_t, std::int64_t,
                                  std::int64_t, std::int64_t, float*);
template const double* load_points(const SlotView&, const PositionExtents&, std::int64_t, std::int64_t,
                                   std::int64_t, std::int64_t, double*);
template void store_points(const SlotView&, const PositionExtents&, std::int64_t, std::int64_t, std::int64_t,
                           std::int64_t, const float*);
template void store_points(const SlotView&, const PositionExtents&, std::int64_t, std::int64_t, std::int64_t,
                           std::int64_t, const double*);

template float* points_in_place(const SlotView&, const PositionExtents&, std::int64_t, std::int64_t,
                                std::int64_t);
template double* points_in_place(const SlotView&, const PositionExtents&, std::int64_t, std::int64_t,
                                 std::int64_t);

}  // namespace fuseblock::cpu
