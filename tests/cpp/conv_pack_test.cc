// Packing of convolution weights: the kernel against plain loops on every target, and weights made dense from any memory.
#include <gtest/gtest.h>

#include <cstring>
#include <numeric>
#include <vector>

#include "cpu/conv/pack_kernel.h"
#include "cpu/conv/source.h"
#include "cpu/conv/targets.h"
#include "cpu/dense.h"
#include "fuseblock/tensor.h"
// Behind targets.h: the kernels' targets.
#include "hwy/targets.h"

namespace fuseblock::cpu {
namespace {

template <typename T>
class ConvPack : public testing::Test {};
using ElementTypes = testing::Types<float, double>;
TYPED_TEST_SUITE(ConvPack, ElementTypes);

// Elements that all differ.
template <typename T>
std::vector<T> numbered(std::int64_t count) {
  std::vector<T> values(static_cast<std::size_t>(count));
  std::iota(values.begin(), values.end(), T(1));
  return values;
}

template <typename T>
void expect_packed(const PackTask<T>& task, std::int64_t gap) {
  constexpr T kGuard = T(-7);
  PackTask<T> own = task;
  own.row_stride = task.columns + gap;
  // No element behind the last one of the last row: reading one is an error that sanitizers see.
  const std::vector<T> from = numbered<T>((own.rows - 1) * own.row_stride + own.columns);
  own.from = from.data();
  std::vector<T> packed(static_cast<std::size_t>(own.columns * own.width + 1), kGuard);
  pack_kernel<T>().pack(own, packed.data());
  for (std::int64_t column = 0; column < own.columns; ++column)
    for (std::int64_t row = 0; row < own.width; ++row)
      ASSERT_EQ(packed[column * own.width + row], row < own.rows ? from[row * own.row_stride + column] : T(0))
          << own.rows << " x " << own.columns << " in " << own.width << ", row " << row << ", column "
          << column;
  ASSERT_EQ(packed.back(), kGuard) << "written behind the packed weights";
}

TYPED_TEST(ConvPack, IsATransposition) {
  using T = TypeParam;
  for (const std::int64_t target : hwy::SupportedAndGeneratedTargets()) {
    hwy::SetSupportedTargetsForTest(target);
    hwy::GetChosenTarget().Update(hwy::SupportedTargets());
    SCOPED_TRACE(hwy::TargetName(target));
    for (std::int64_t rows = 1; rows <= 33; ++rows)
      for (const std::int64_t columns : {1, 2, 7, 9, 15, 16, 17, 32, 49})
        for (const std::int64_t padding : {0, 1, 5})
          expect_packed<T>({.rows = rows, .columns = columns, .width = rows + padding}, padding % 2);
  }
  hwy::SetSupportedTargetsForTest(0);
  hwy::GetChosenTarget().Update(hwy::SupportedTargets());
}

TYPED_TEST(ConvPack, BlocksMayBePackedInAnyOrder) {
  using T = TypeParam;
  ConvGeometry g;
  g.batch = 1;
  g.in_channels = 40;
  g.out_channels = 100;
  g.groups = 2;
  g.in = g.out = {1, 5, 5};
  g.filter = {1, 3, 3};
  g.pad = {0, 1, 1};
  for (const bool transposed : {false, true}) {
    g.transposed = transposed;
    const ConvSource<T> conv(g, ConvDirection::kForward);
    const std::vector<T> weight = numbered<T>(g.in_channels * g.out_channels / g.groups * 9);
    std::vector<T> whole(conv.packed_weight_elements(), T(-1));
    std::vector<T> parts(conv.packed_weight_elements(), T(-1));
    conv.pack_weights(weight.data(), whole.data());
    ASSERT_GT(conv.block_count(), 2);
    for (std::int64_t i = conv.block_count(); i-- > 0;)
      conv.pack_weights(weight.data(), {i, i + 1}, parts.data());
    EXPECT_EQ(whole, parts);
    EXPECT_EQ(std::count(whole.begin(), whole.end(), T(-1)), 0) << "some packed weights were not written";
  }
}

// A weight [6][5][3][2][7], stored with the strides that belong to a given order of its axes.
template <typename T>
void expect_dense(DType dtype, const std::vector<std::size_t>& order) {
  const Extents extents = {6, 5, 3, 2, 7};
  SlotView view;
  view.dtype = dtype;
  std::int64_t count = 1;
  for (std::size_t i = order.size(); i-- > 0; count *= extents[order[i]]) view.strides[order[i]] = count;
  std::vector<std::byte> memory(static_cast<std::size_t>(count * byte_size(dtype)));
  view.data = memory.data();
  for (std::int64_t i = 0; i < count; ++i) store_element(view.data, dtype, i, static_cast<double>(i % 251));
  std::vector<T> buffer(static_cast<std::size_t>(count), T(-1));
  const T* const dense = dense_elements(workers(2), view, extents, buffer.data());
  const bool lies_dense = std::is_sorted(order.begin(), order.end());
  const bool own_type = dtype == (sizeof(T) == 4 ? DType::kF32 : DType::kF64);
  EXPECT_EQ(dense != buffer.data(), lies_dense && own_type);
  const Extents strides = dense_strides(extents);
  for (std::int64_t i = 0; i < count; ++i) {
    std::int64_t offset = 0;
    for (std::size_t axis = 0; axis < extents.size(); ++axis)
      offset += i / strides[axis] % extents[axis] * view.strides[axis];
    ASSERT_EQ(dense[i], static_cast<T>(offset % 251)) << "element " << i;
  }
}

TYPED_TEST(ConvPack, WeightsAreReadFromAnyMemory) {
  for (const DType dtype : {DType::kF64, DType::kF32, DType::kBF16, DType::kF16})
    for (const std::vector<std::size_t>& order :
         {std::vector<std::size_t>{0, 1, 2, 3, 4}, {0, 2, 3, 4, 1}, {1, 0, 2, 3, 4}, {4, 3, 2, 1, 0}})
      expect_dense<TypeParam>(dtype, order);
}

}  // namespace
}  // namespace fuseblock::cpu
