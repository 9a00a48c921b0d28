// Packing of convolution weights: a block of result channels, each a row of the weight, becomes the columns that the
// inner kernels read in order.
#pragma once

#include <cstdint>

namespace fuseblock::cpu {

template <typename T>
struct PackTask {
  const T* from = nullptr;      // row 0
  std::int64_t row_stride = 0;  // from a row to the next
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  std::int64_t width = 0;  // elements of a packed column, at least `rows`
};

template <typename T>
struct PackKernel {
  // packed[column * width + row] = from[row * row_stride + column], zeros behind the last row.
  void (*pack)(const PackTask<T>& task, T* packed);
};

// For the best target of this machine.
template <typename T>
const PackKernel<T>& pack_kernel();

}  // namespace fuseblock::cpu
