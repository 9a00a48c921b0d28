#include "tensors.h"

#include <dlfcn.h>
#include <torch/csrc/stable/ops.h>

#include <algorithm>
#include <array>
#include <numeric>
#include <utility>
#include <vector>

#include "fuseblock/error.h"
#include "fuseblock/fresh_memory.h"
#include "kept_memory.h"

namespace fuseblock::torch_binding {
namespace {

constexpr std::size_t kAlignment = 64;
constexpr std::array kDTypes = {DType::kF64, DType::kF32, DType::kBF16, DType::kF16};

// PyTorch's numbers of kDTypes.
const std::array<std::int32_t, kDTypes.size()>& torch_dtypes() {
  static const std::array<std::int32_t, kDTypes.size()> kNumbers = {
      aoti_torch_dtype_float64(), aoti_torch_dtype_float32(), aoti_torch_dtype_bfloat16(),
      aoti_torch_dtype_float16()};
  return kNumbers;
}

std::int32_t dtype_number(const Tensor& tensor) {
  std::int32_t number = 0;
  TORCH_ERROR_CODE_CHECK(aoti_torch_get_dtype(tensor.get(), &number));
  return number;
}

DType dtype_of(const Tensor& tensor) {
  if (const std::optional<DType> found = find_dtype(tensor)) return *found;
  throw UserError("expected a tensor of f64, f32, bf16 or f16, got " + type_text(tensor));
}

std::int32_t device_type(Place place) {
  static const std::int32_t kCpuType = aoti_torch_device_type_cpu();
  static const std::int32_t kCudaType = aoti_torch_device_type_cuda();
  return place == kCpu ? kCpuType : kCudaType;
}

std::int32_t device_index(Place place) { return place == kCpu ? 0 : static_cast<std::int32_t>(place); }

// PyTorch's function that makes a tensor of memory and tells somebody when the tensor goes; it is there from 2.11 on.
using FromBlob = AOTITorchError (*)(void* data, std::int64_t rank, const std::int64_t* extents,
                                    const std::int64_t* strides, std::int64_t offset, std::int32_t dtype,
                                    std::int32_t device_type, std::int32_t device_index,
                                    AtenTensorHandle* result, std::int32_t layout,
                                    const std::uint8_t* metadata, std::int64_t metadata_size,
                                    void (*deleter)(void* data, void* context), void* context);

FromBlob find_from_blob() {
  constexpr const char* kSymbol = "torch_from_blob";
  void* found = dlsym(RTLD_DEFAULT, kSymbol);
  // Python loads PyTorch's libraries without making their symbols known to others; this one is there or it is not.
  if (found == nullptr)
    if (void* library = dlopen("libtorch_cpu.so", RTLD_LAZY | RTLD_NOLOAD)) found = dlsym(library, kSymbol);
  return reinterpret_cast<FromBlob>(found);  // NOLINT(*-reinterpret-cast): what dlsym gives
}

// A dense tensor on the CPU in kept memory; nothing where it is to come from PyTorch's allocator.
std::optional<Tensor> in_kept_memory(std::span<const std::int64_t> extents,
                                     std::span<const std::int64_t> strides, std::int32_t dtype,
                                     std::size_t bytes) {
  static const FromBlob kFromBlob = find_from_blob();
  static const std::int32_t kStrided = aoti_torch_layout_strided();
  if (kFromBlob == nullptr) return std::nullopt;
  void* data = kept_memory().take(bytes);
  if (data == nullptr) return std::nullopt;
  constexpr std::int32_t kOfAnyIndex = -1;  // as memory on the CPU is
  AtenTensorHandle handle = nullptr;
  // The deleter's context is the number of bytes itself.
  const auto give_back = [](void* memory, void* context) {
    kept_memory().give_back(memory, reinterpret_cast<std::uintptr_t>(context));
  };
  void* context = reinterpret_cast<void*>(bytes);  // NOLINT(*-int-to-ptr): never followed
  const AOTITorchError failure =
      kFromBlob(data, static_cast<std::int64_t>(extents.size()), extents.data(), strides.data(), 0, dtype,
                device_type(kCpu), kOfAnyIndex, &handle, kStrided, nullptr, 0, give_back, context);
  if (failure != 0) {
    kept_memory().give_back(data, bytes);
    return std::nullopt;
  }
  return Tensor(handle);
}

Tensor empty_strided(std::span<const std::int64_t> extents, std::span<const std::int64_t> strides,
                     std::int32_t dtype, std::int64_t element_bytes, Place place) {
  if (place == kCpu) {
    auto bytes = static_cast<std::size_t>(element_bytes);
    for (const std::int64_t extent : extents) bytes *= static_cast<std::size_t>(extent);
    if (std::optional<Tensor> kept = in_kept_memory(extents, strides, dtype, bytes)) return *std::move(kept);
  }
  AtenTensorHandle handle = nullptr;
  TORCH_ERROR_CODE_CHECK(aoti_torch_empty_strided(static_cast<std::int64_t>(extents.size()), extents.data(),
                                                  strides.data(), dtype, device_type(place),
                                                  device_index(place), &handle));
  Tensor tensor(handle);
  if (place == kCpu) {
    std::int64_t bytes = 0;
    TORCH_ERROR_CODE_CHECK(aoti_torch_get_storage_size(handle, &bytes));
    advise_fresh_memory(tensor.mutable_data_ptr(), static_cast<std::size_t>(bytes));
  }
  return tensor;
}

// A view's strides, those of extents of 1 too as a dense tensor of its layout has them: PyTorch tells by them whether a
// tensor is channels_last.
std::vector<std::int64_t> whole_strides(const ConstTensorView& view) {
  const std::size_t rank = view.extents.size();
  const bool channels_last = (rank == 4 || rank == 5) && view.extents[1] > 1 && view.strides[1] == 1;
  std::vector<std::size_t> inwards(rank);
  std::iota(inwards.begin(), inwards.end(), 0);
  if (channels_last) std::rotate(inwards.begin() + 1, inwards.begin() + 2, inwards.end());
  std::vector<std::int64_t> strides(view.strides.begin(), view.strides.end());
  std::int64_t inside = 1;
  for (std::size_t i = rank; i-- > 0;) {
    const std::size_t axis = inwards[i];
    if (view.extents[axis] == 1) strides[axis] = inside;
    inside *= view.extents[axis];
  }
  return strides;
}

}  // namespace

std::optional<Place> find_place(const Tensor& tensor) {
  std::int32_t type = 0;
  TORCH_ERROR_CODE_CHECK(aoti_torch_get_device_type(tensor.get(), &type));
  if (type == device_type(kCpu)) return kCpu;
  if (type != device_type(0)) return std::nullopt;
  std::int32_t index = 0;
  TORCH_ERROR_CODE_CHECK(aoti_torch_get_device_index(tensor.get(), &index));
  return index;
}

std::optional<DType> find_dtype(const Tensor& tensor) {
  const std::int32_t number = dtype_number(tensor);
  for (std::size_t i = 0; i < kDTypes.size(); ++i)
    if (torch_dtypes()[i] == number) return kDTypes[i];
  return std::nullopt;
}

std::int32_t torch_dtype(DType dtype) {
  for (std::size_t i = 0; i < kDTypes.size(); ++i)
    if (kDTypes[i] == dtype) return torch_dtypes()[i];
  throw InternalError("a dtype that PyTorch does not have");
}

Layout layout_of(std::span<const std::int64_t> extents, std::span<const std::int64_t> strides) {
  const std::size_t rank = extents.size();
  if ((rank != 4 && rank != 5) || strides[1] == 0) return Layout::kContiguous;
  // From the fastest axis of channels last to the slowest: c, then the positions from the last to the first, n. Each
  // must step over all that the faster ones span.
  std::int64_t least = 0;
  for (std::size_t i = 0; i < rank; ++i) {
    const std::size_t axis = i == 0 ? 1 : i == rank - 1 ? 0 : rank - i;
    if (extents[axis] == 0 || strides[axis] < least) return Layout::kContiguous;
    // One channel at one position: both layouts fit, and PyTorch takes it for the usual one.
    if (axis == 0 && least == strides[1]) return Layout::kContiguous;
    least = strides[axis] * std::max<std::int64_t>(extents[axis], 1);
  }
  return Layout::kChannelsLast;
}

std::string type_text(const Tensor& tensor) {
  const auto extents = tensor.sizes();
  const std::optional<DType> dtype = find_dtype(tensor);
  std::string text = dtype ? std::string(to_string(*dtype)) : "dtype " + std::to_string(dtype_number(tensor));
  text += "[";
  for (std::size_t i = 0; i < extents.size(); ++i) text += (i > 0 ? "," : "") + std::to_string(extents[i]);
  return text + "]";
}

void set_view(ConstTensorView& view, const Tensor& tensor) {
  const auto extents = tensor.sizes();
  const auto strides = tensor.strides();
  view.data = tensor.const_data_ptr();
  view.dtype = dtype_of(tensor);
  view.extents.assign(extents.begin(), extents.end());
  view.strides.assign(strides.begin(), strides.end());
}

Tensor empty(std::span<const std::int64_t> extents, std::span<const std::int64_t> strides, DType dtype,
             Place place) {
  return empty_strided(extents, strides, torch_dtype(dtype), byte_size(dtype), place);
}

Tensor empty_bytes(std::size_t count, Place place) {
  const std::array<std::int64_t, 1> extents = {static_cast<std::int64_t>(count)};
  const std::array<std::int64_t, 1> strides = {1};
  return empty_strided(extents, strides, aoti_torch_dtype_uint8(), 1, place);
}

std::span<std::byte> bytes_of(const Tensor& tensor, Place place) {
  if (dtype_number(tensor) != aoti_torch_dtype_uint8() || tensor.dim() != 1 || find_place(tensor) != place ||
      !tensor.is_contiguous())
    throw UserError("saved: expected the bytes that `forward` saved, got " + type_text(tensor));
  return {static_cast<std::byte*>(tensor.mutable_data_ptr()), static_cast<std::size_t>(tensor.numel())};
}

Tensor borrow(const ConstTensorView& view, Place place) {
  static const std::int32_t kStrided = aoti_torch_layout_strided();
  AtenTensorHandle handle = nullptr;
  // PyTorch has no tensors of constant memory; whoever borrows for reading reads only.
  // NOLINTNEXTLINE(cppcoreguidelines-pro-type-const-cast)
  void* data = const_cast<void*>(view.data);
  const std::vector<std::int64_t> strides = whole_strides(view);
  TORCH_ERROR_CODE_CHECK(aoti_torch_create_tensor_from_blob_v2(
      data, static_cast<std::int64_t>(view.extents.size()), view.extents.data(), strides.data(), 0,
      torch_dtype(view.dtype), device_type(place), device_index(place), &handle, kStrided, nullptr, 0));
  return Tensor(handle);
}

WorkspaceTensor::WorkspaceTensor(std::size_t bytes, Place place) {
  if (bytes == 0) return;
  memory_ = empty_bytes(bytes + kAlignment, place);
  void* begin = memory_->mutable_data_ptr();
  std::size_t space = bytes + kAlignment;
  begin = std::align(kAlignment, bytes, begin, space);
  bytes_ = {static_cast<std::byte*>(begin), bytes};
}

}  // namespace fuseblock::torch_binding
