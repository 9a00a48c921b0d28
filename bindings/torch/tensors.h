// Tensors of PyTorch as views and types of fuseblock, and new ones from PyTorch's allocator.
#pragma once

#include <torch/csrc/stable/tensor.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "fuseblock/tensor.h"
#include "fuseblock/type.h"

namespace fuseblock::torch_binding {

using torch::stable::Tensor;

// Where a tensor is: kCpu, or the number of a CUDA device.
using Place = std::int64_t;
inline constexpr Place kCpu = -1;

// Nothing for a tensor that is on no such device.
std::optional<Place> find_place(const Tensor& tensor);

// Nothing for a dtype that fuseblock does not have.
std::optional<DType> find_dtype(const Tensor& tensor);
// PyTorch's number of a dtype.
std::int32_t torch_dtype(DType dtype);

// Channels last where the strides run that way, as PyTorch's suggest_memory_format decides; rank 4 and 5 only.
Layout layout_of(std::span<const std::int64_t> extents, std::span<const std::int64_t> strides);

// `f32[2,8,16,16]:cl`, or PyTorch's number of the dtype where fuseblock does not have it; for messages.
std::string type_text(const Tensor& tensor);

// Makes a view that of a tensor's memory; the dtype must be one of fuseblock's. Views are used again, so that their
// lists need no memory of their own each time.
void set_view(ConstTensorView& view, const Tensor& tensor);

// A tensor from PyTorch's allocator, not filled.
Tensor empty(std::span<const std::int64_t> extents, std::span<const std::int64_t> strides, DType dtype,
             Place place);
// Bytes, not filled, aligned for any tensor of a plan.
Tensor empty_bytes(std::size_t count, Place place);
// The memory of what empty_bytes gave at that place. Throws UserError for any other tensor.
std::span<std::byte> bytes_of(const Tensor& tensor, Place place);
// A tensor over memory that somebody else owns and keeps.
Tensor borrow(const ConstTensorView& view, Place place);

// Memory for a run of a plan, aligned as plans ask for. On a GPU it may go while the run is under way: PyTorch gives it
// to nothing but later work of the same stream.
class WorkspaceTensor {
 public:
  WorkspaceTensor(std::size_t bytes, Place place);

  std::span<std::byte> bytes() const { return bytes_; }

 private:
  std::optional<Tensor> memory_;
  std::span<std::byte> bytes_;
};

}  // namespace fuseblock::torch_binding
