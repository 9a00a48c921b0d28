#include "fuseblock/tensor.h"

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <new>

#include "block/extents.h"
#include "fuseblock/error.h"
#include "fuseblock/fresh_memory.h"

namespace fuseblock {
namespace {

constexpr std::size_t kAlignment = 64;

// The 16-bit floating-point formats: sign, exponent, mantissa from the highest bit down.
struct SmallFloat {
  int mantissa_bits;
  int exponent_bits;

  int bias() const { return (1 << (exponent_bits - 1)) - 1; }
  unsigned infinity() const { return ((1U << exponent_bits) - 1U) << mantissa_bits; }
};

constexpr SmallFloat kBFloat16 = {7, 8};
constexpr SmallFloat kFloat16 = {10, 5};

double decode(std::uint16_t bits, SmallFloat format) {
  const unsigned mantissa = bits & ((1U << format.mantissa_bits) - 1U);
  const int exponent = (bits & 0x7fff) >> format.mantissa_bits;
  const double sign = (bits & 0x8000) != 0 ? -1.0 : 1.0;
  if ((bits & 0x7fffU) >= format.infinity())
    return mantissa == 0 ? sign * std::numeric_limits<double>::infinity()
                         : std::numeric_limits<double>::quiet_NaN();
  const int scale = std::max(exponent, 1) - format.bias() - format.mantissa_bits;
  const unsigned whole = mantissa | (exponent > 0 ? 1U << format.mantissa_bits : 0U);
  return sign * std::ldexp(static_cast<double>(whole), scale);
}

// Rounds to nearest, ties to even, straight from double: rounding through float first could round twice.
std::uint16_t encode(double value, SmallFloat format) {
  const auto sign = static_cast<std::uint16_t>(std::signbit(value) ? 0x8000U : 0U);
  const double size = std::fabs(value);
  if (std::isnan(value))
    return static_cast<std::uint16_t>(format.infinity() | (1U << (format.mantissa_bits - 1)));
  if (std::isinf(value)) return static_cast<std::uint16_t>(sign | format.infinity());
  if (size == 0) return sign;
  const int exponent = std::max(std::ilogb(size), 1 - format.bias());
  const double steps = std::nearbyint(std::ldexp(size, format.mantissa_bits - exponent));
  if (exponent > format.bias()) return static_cast<std::uint16_t>(sign | format.infinity());
  // A carry out of the mantissa moves into the exponent by itself, up to infinity.
  const unsigned hidden = 1U << format.mantissa_bits;
  const auto whole = static_cast<unsigned>(steps);
  const unsigned exponent_field = whole >= hidden ? static_cast<unsigned>(exponent + format.bias()) - 1U : 0U;
  return static_cast<std::uint16_t>(sign | ((exponent_field << format.mantissa_bits) + whole));
}

template <class T>
T read(const void* data, std::int64_t offset) {
  T value;
  std::memcpy(&value, static_cast<const std::byte*>(data) + offset * static_cast<std::int64_t>(sizeof(T)),
              sizeof(T));
  return value;
}

template <class T>
void write(void* data, std::int64_t offset, T value) {
  std::memcpy(static_cast<std::byte*>(data) + offset * static_cast<std::int64_t>(sizeof(T)), &value,
              sizeof(T));
}

TensorType checked(TensorType type) {
  check_extents("tensor", type);
  return type;
}

}  // namespace

double load_element(const void* data, DType dtype, std::int64_t offset) {
  switch (dtype) {
    case DType::kF64: return read<double>(data, offset);
    case DType::kF32: return static_cast<double>(read<float>(data, offset));
    // The upper half of a float.
    case DType::kBF16:
      return static_cast<double>(
          std::bit_cast<float>(std::uint32_t{read<std::uint16_t>(data, offset)} << 16));
    case DType::kF16: return decode(read<std::uint16_t>(data, offset), kFloat16);
  }
  throw InternalError("load_element: unknown dtype");
}

void store_element(void* data, DType dtype, std::int64_t offset, double value) {
  switch (dtype) {
    case DType::kF64: write(data, offset, value); return;
    case DType::kF32: write(data, offset, static_cast<float>(value)); return;
    case DType::kBF16: write(data, offset, encode(value, kBFloat16)); return;
    case DType::kF16: write(data, offset, encode(value, kFloat16)); return;
  }
}

void Tensor::Release::operator()(std::byte* data) const {
  ::operator delete[](data, std::align_val_t{kAlignment});
}

Tensor::Tensor(TensorType type) : type_(checked(std::move(type))), strides_(type_.strides()) {
  const auto bytes = static_cast<std::size_t>(type_.byte_count());
  auto* data = static_cast<std::byte*>(::operator new[](bytes, std::align_val_t{kAlignment}, std::nothrow));
  if (data == nullptr)
    throw UserError("no memory for a tensor " + to_string(type_) + " of " + std::to_string(bytes) + " bytes");
  data_.reset(data);
  advise_fresh_memory(data, bytes);
  std::memset(data, 0, bytes);
}

TensorView Tensor::view() { return {data_.get(), type_.dtype, type_.extents, strides_}; }

ConstTensorView Tensor::view() const { return {data_.get(), type_.dtype, type_.extents, strides_}; }

double Tensor::get(std::int64_t index) const { return load_element(data_.get(), type_.dtype, offset(index)); }

void Tensor::set(std::int64_t index, double value) {
  store_element(data_.get(), type_.dtype, offset(index), value);
}

std::vector<double> Tensor::to_doubles() const {
  std::vector<double> values(static_cast<std::size_t>(type_.element_count()));
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = get(static_cast<std::int64_t>(i));
  return values;
}

std::int64_t Tensor::offset(std::int64_t index) const {
  std::int64_t result = 0;
  for (std::size_t axis = type_.extents.size(); axis-- > 0;) {
    result += index % type_.extents[axis] * strides_[axis];
    index /= type_.extents[axis];
  }
  return result;
}

}  // namespace fuseblock
