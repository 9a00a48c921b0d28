// The type of a tensor: element type, extents, axes and layout, written `f32[128,3,24,32,32]`,
// `bf16[2,320,64,64]:cl`.
//
// Axes are labelled n c d h w and always stand in this order. A plain list of extents gets its labels from
// its rank: [n,c], [n,c,w], [n,c,h,w], [n,c,d,h,w]. Other combinations arise inside blocks (a channel
// reduction leaves n,h,w) and are written with their labels: `f32[n=2,h=30,w=30]`. Values broadcast by label,
// so a parameter of shape [c] scales a tensor [n,c,h,w] along its channels.
#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

namespace fuseblock {

enum class DType : std::uint8_t { kF64, kF32, kBF16, kF16 };

// `f64`, `f32`, `bf16`, `f16`.
std::string_view to_string(DType dtype);
// Throws UserError for any other word.
DType parse_dtype(std::string_view text);
std::int64_t byte_size(DType dtype);
// The distance from 1 to the next larger value of the type.
double epsilon(DType dtype);
// PyTorch's rule for two tensors: the wider one; f32 for bf16 with f16.
DType promote(DType a, DType b);

enum class Axis : std::uint8_t { kN, kC, kD, kH, kW };
inline constexpr int kAxisCount = 5;
inline constexpr std::array<Axis, kAxisCount> kAllAxes = {Axis::kN, Axis::kC, Axis::kD, Axis::kH, Axis::kW};

constexpr int index(Axis axis) { return static_cast<int>(axis); }
constexpr char letter(Axis axis) { return "ncdhw"[index(axis)]; }

// A set of axes, kept in the order n c d h w.
class AxisSet {
 public:
  constexpr AxisSet() = default;
  constexpr AxisSet(std::initializer_list<Axis> axes) {
    for (Axis axis : axes) insert(axis);
  }

  constexpr bool contains(Axis axis) const { return (bits_ >> index(axis)) & 1U; }
  constexpr bool contains_all(AxisSet other) const { return (other.bits_ & ~bits_) == 0; }
  constexpr void insert(Axis axis) { bits_ = static_cast<std::uint8_t>(bits_ | (1U << index(axis))); }
  constexpr void erase(Axis axis) { bits_ = static_cast<std::uint8_t>(bits_ & ~(1U << index(axis))); }
  constexpr bool empty() const { return bits_ == 0; }
  int size() const;
  // The axes in order.
  std::vector<Axis> list() const;

  constexpr AxisSet operator|(AxisSet other) const { return from_bits(bits_ | other.bits_); }
  constexpr AxisSet operator-(AxisSet other) const { return from_bits(bits_ & ~other.bits_); }
  constexpr bool operator==(const AxisSet&) const = default;

 private:
  static constexpr AxisSet from_bits(unsigned bits) {
    AxisSet set;
    set.bits_ = static_cast<std::uint8_t>(bits);
    return set;
  }

  std::uint8_t bits_ = 0;
};

inline constexpr AxisSet kSpatialAxes = {Axis::kD, Axis::kH, Axis::kW};

// The letters joined by `separator`: `c,d,h,w`.
std::string to_string(AxisSet axes, std::string_view separator = ",");
// The labels a plain list of `rank` extents has: c for one (a parameter), then n,c  n,c,w  n,c,h,w
// n,c,d,h,w.
AxisSet default_axes(int rank);

enum class Layout : std::uint8_t { kContiguous, kChannelsLast };

struct TensorType {
  DType dtype = DType::kF32;
  // One extent an axis, in the order of the axes.
  std::vector<std::int64_t> extents;
  // As many labels as extents; none of them where the labels are still to be found from the context (see
  // TypedBlock).
  AxisSet axes;
  Layout layout = Layout::kContiguous;

  // A type with the default labels of its rank.
  static TensorType make(DType dtype, std::vector<std::int64_t> extents, Layout layout = Layout::kContiguous);
  // Reads the text form. Labels are set only where the text has them. Throws UserError with the position.
  static TensorType parse(std::string_view text);

  int rank() const { return static_cast<int>(extents.size()); }
  bool labelled() const { return axes.size() == rank(); }
  // The extent along an axis, 1 where the type does not have it.
  std::int64_t extent(Axis axis) const;
  // The extents along n c d h w, 1 for each axis the type does not have.
  std::array<std::int64_t, kAxisCount> canonical() const;
  std::int64_t element_count() const;
  std::int64_t byte_count() const;
  // Strides in elements of a dense tensor in the type's layout.
  std::vector<std::int64_t> strides() const;

  bool operator==(const TensorType&) const = default;
};

// The text form; labels are written where the rank alone does not imply them.
std::string to_string(const TensorType& type);
// The extents alone: `[24,3,3,3,3]`.
std::string extents_text(const TensorType& type);

}  // namespace fuseblock
