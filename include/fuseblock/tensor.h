// Tensors at the borders of a plan: views of memory that the caller owns, and a simple owner for programs
// that have none.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "fuseblock/type.h"

namespace fuseblock {

// Elements of one type at `data`, `strides[i]` elements apart along axis i. Strides may be zero or negative
// (an expanded or flipped tensor) for inputs; outputs must not overlap themselves. Nothing needs to be
// aligned beyond its element.
struct ConstTensorView {
  const void* data = nullptr;
  DType dtype = DType::kF32;
  std::vector<std::int64_t> extents;
  std::vector<std::int64_t> strides;
};

struct TensorView {
  void* data = nullptr;
  DType dtype = DType::kF32;
  std::vector<std::int64_t> extents;
  std::vector<std::int64_t> strides;

  // NOLINTNEXTLINE(google-explicit-constructor): a view that may write can be read
  operator ConstTensorView() const { return {data, dtype, extents, strides}; }
};

// The element `offset` elements behind `data`, as a double (exact for every type).
double load_element(const void* data, DType dtype, std::int64_t offset);
// Rounds to the nearest value of the type, ties to even; NaN and infinities stay what they are.
void store_element(void* data, DType dtype, std::int64_t offset, double value);

// Owns the memory of one tensor, dense in the layout of its type, 64-byte aligned. Fresh tensors hold zeros.
class Tensor {
 public:
  Tensor() = default;
  // Throws UserError where an extent is negative or the memory cannot be had.
  explicit Tensor(TensorType type);

  const TensorType& type() const { return type_; }
  TensorView view();
  ConstTensorView view() const;
  std::byte* data() { return data_.get(); }
  const std::byte* data() const { return data_.get(); }

  // Elements in the logical order n c d h w (the last axis fastest), whatever the layout.
  double get(std::int64_t index) const;
  void set(std::int64_t index, double value);
  std::vector<double> to_doubles() const;

 private:
  std::int64_t offset(std::int64_t index) const;

  struct Release {
    void operator()(std::byte* data) const;
  };

  TensorType type_;
  std::vector<std::int64_t> strides_;
  std::unique_ptr<std::byte[], Release> data_;
};

}  // namespace fuseblock
