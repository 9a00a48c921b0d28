#include "fuseblock/type.h"

#include <algorithm>
#include <bit>
#include <limits>
#include <utility>

#include "block/extents.h"
#include "block/lexer.h"
#include "block/text.h"
#include "fuseblock/error.h"

namespace fuseblock {
namespace {

constexpr std::array<std::pair<DType, std::string_view>, 4> kDTypeNames = {
    {{DType::kF64, "f64"}, {DType::kF32, "f32"}, {DType::kBF16, "bf16"}, {DType::kF16, "f16"}}};

// Reads `dtype[extent,...]` or `dtype[axis=extent,...]`, then an optional `:cl`.
class TypeReader {
 public:
  explicit TypeReader(std::string_view text) : text_(text), lexer_(text) {}

  TensorType read() {
    TensorType type;
    const Token dtype = lexer_.expect(TokenKind::kName, "a dtype (f64, f32, bf16 or f16)");
    try {
      type.dtype = parse_dtype(dtype.text);
    } catch (const UserError& error) {
      lexer_.fail(dtype, error.what());
    }
    lexer_.expect("[", "`[` before the extents");
    if (!lexer_.accept("]")) {
      do read_extent(type);
      while (lexer_.accept(","));
      lexer_.expect("]", "`,` or `]` after an extent");
    }
    if (!type.axes.empty() && type.axes.size() != type.rank())
      lexer_.fail(dtype, "type " + in_quotes(text_) + ": label every extent or none");
    if (type.rank() > kAxisCount)
      lexer_.fail(dtype, "type " + in_quotes(text_) + ": at most 5 extents (n,c,d,h,w), got " +
                             std::to_string(type.rank()));
    if (lexer_.accept(":")) read_layout(type);
    if (lexer_.peek().kind != TokenKind::kEnd) lexer_.fail(lexer_.peek(), "expected the end of the type");
    check_size(type, dtype);
    return type;
  }

 private:
  void read_extent(TensorType& type) {
    const Token first = lexer_.peek();
    if (first.kind == TokenKind::kName) {
      const auto axis = axis_of(first.text);
      if (!axis) lexer_.fail(first, "expected an axis (n, c, d, h or w), got " + in_quotes(first.text));
      lexer_.next();
      lexer_.expect("=", "`=` after an axis");
      const AxisSet before = type.axes;
      for (Axis other : before.list())
        if (index(other) >= index(*axis)) lexer_.fail(first, "axes stand once each, in the order n,c,d,h,w");
      type.axes.insert(*axis);
    }
    const Token number = lexer_.expect(TokenKind::kNumber, "an extent (a whole number)");
    const auto extent = whole_number(number.text);
    if (!extent) lexer_.fail(number, "an extent is a whole number below 2^63, got " + in_quotes(number.text));
    type.extents.push_back(*extent);
  }

  void read_layout(TensorType& type) {
    const Token word = lexer_.expect(TokenKind::kName, "`cl` (channels_last)");
    if (word.text != "cl")
      lexer_.fail(word, "the only layout to name is `cl` (channels_last), got " + in_quotes(word.text));
    const bool has_axes = type.axes.empty() || type.axes.contains_all({Axis::kN, Axis::kC});
    if (type.rank() < 3 || !has_axes)
      lexer_.fail(word, "channels_last needs the axes n, c and at least one spatial axis");
    type.layout = Layout::kChannelsLast;
  }

  void check_size(const TensorType& type, const Token& token) {
    std::int64_t bytes = byte_size(type.dtype);
    for (std::int64_t extent : type.extents) {
      if (extent > std::numeric_limits<std::int64_t>::max() / bytes)
        lexer_.fail(token, "type " + in_quotes(text_) + ": more than 2^63 bytes");
      bytes *= extent > 0 ? extent : 1;  // the other axes of an empty tensor must be countable too
    }
  }

  std::string_view text_;
  Lexer lexer_;
};

}  // namespace

std::string_view to_string(DType dtype) {
  for (const auto& [value, name] : kDTypeNames)
    if (value == dtype) return name;
  throw InternalError("a dtype without a name");
}

DType parse_dtype(std::string_view text) {
  for (const auto& [value, name] : kDTypeNames)
    if (name == text) return value;
  throw UserError("unknown dtype " + in_quotes(text) + "; there are f64, f32, bf16 and f16");
}

std::int64_t byte_size(DType dtype) {
  switch (dtype) {
    case DType::kF64: return 8;
    case DType::kF32: return 4;
    case DType::kBF16:
    case DType::kF16: return 2;
  }
  throw InternalError("a dtype without a size");
}

double epsilon(DType dtype) {
  switch (dtype) {
    case DType::kF64: return 0x1p-52;
    case DType::kF32: return 0x1p-23;
    case DType::kBF16: return 0x1p-7;
    case DType::kF16: return 0x1p-10;
  }
  throw InternalError("a dtype without a spacing");
}

DType promote(DType a, DType b) {
  if (a == b) return a;
  if (a == DType::kF64 || b == DType::kF64) return DType::kF64;
  return DType::kF32;
}

int AxisSet::size() const { return std::popcount(bits_); }

std::vector<Axis> AxisSet::list() const {
  std::vector<Axis> axes;
  for (Axis axis : kAllAxes)
    if (contains(axis)) axes.push_back(axis);
  return axes;
}

std::string to_string(AxisSet axes, std::string_view separator) {
  std::vector<std::string> letters;
  for (Axis axis : axes.list()) letters.emplace_back(1, letter(axis));
  return join(letters, separator);
}

AxisSet default_axes(int rank) {
  switch (rank) {
    case 0: return {};
    case 1: return {Axis::kC};
    case 2: return {Axis::kN, Axis::kC};
    case 3: return {Axis::kN, Axis::kC, Axis::kW};
    case 4: return {Axis::kN, Axis::kC, Axis::kH, Axis::kW};
    case 5: return {Axis::kN, Axis::kC, Axis::kD, Axis::kH, Axis::kW};
    default: throw UserError("at most 5 extents (n,c,d,h,w), got " + std::to_string(rank));
  }
}

TensorType TensorType::make(DType dtype, std::vector<std::int64_t> extents, Layout layout) {
  TensorType type;
  type.dtype = dtype;
  type.axes = default_axes(static_cast<int>(extents.size()));
  type.extents = std::move(extents);
  type.layout = layout;
  return type;
}

TensorType TensorType::parse(std::string_view text) { return TypeReader(text).read(); }

std::int64_t TensorType::extent(Axis axis) const {
  return canonical()[static_cast<std::size_t>(index(axis))];
}

bool countable(const TensorType& type) {
  double bytes = static_cast<double>(byte_size(type.dtype));
  for (std::int64_t extent : type.extents) bytes *= static_cast<double>(std::max<std::int64_t>(extent, 1));
  return bytes < 9.2e18;
}

void check_extents(const std::string& name, const TensorType& type) {
  for (std::int64_t extent : type.extents)
    if (extent < 0) throw UserError(name + ": extents are not negative; got " + to_string(type));
  if (!countable(type)) throw UserError(name + ": " + to_string(type) + " has more than 2^63 bytes");
}

std::array<std::int64_t, kAxisCount> TensorType::canonical() const {
  if (!labelled()) throw InternalError("a type without labels has no canonical extents: " + to_string(*this));
  std::array<std::int64_t, kAxisCount> result = {1, 1, 1, 1, 1};
  std::size_t next = 0;
  for (Axis axis : axes.list()) result[static_cast<std::size_t>(index(axis))] = extents[next++];
  return result;
}

std::int64_t TensorType::element_count() const {
  std::int64_t count = 1;
  for (std::int64_t extent : extents)
    if (extent == 0) return 0;
  for (std::int64_t extent : extents) count *= extent;
  return count;
}

std::int64_t TensorType::byte_count() const { return element_count() * byte_size(dtype); }

std::vector<std::int64_t> TensorType::strides() const {
  std::vector<std::int64_t> strides(extents.size(), 1);
  std::int64_t step = 1;
  const bool channels_last = layout == Layout::kChannelsLast && rank() >= 3;
  if (channels_last) step = extents[1] > 0 ? extents[1] : 1;
  for (std::size_t i = extents.size(); i-- > 0;) {
    if (channels_last && i == 1) continue;
    strides[i] = step;
    step *= extents[i] > 0 ? extents[i] : 1;
  }
  return strides;
}

std::string to_string(const TensorType& type) {
  std::vector<std::string> parts;
  const bool usual = !type.labelled() || type.rank() == 0 || type.axes == default_axes(type.rank()) ||
                     type.axes == AxisSet{Axis::kN};
  const std::vector<Axis> axes = type.axes.list();
  for (std::size_t i = 0; i < type.extents.size(); ++i)
    parts.push_back((usual ? "" : std::string(1, letter(axes[i])) + "=") + std::to_string(type.extents[i]));
  return std::string(to_string(type.dtype)) + "[" + join(parts, ",") + "]" +
         (type.layout == Layout::kChannelsLast ? ":cl" : "");
}

std::string extents_text(const TensorType& type) {
  std::vector<std::string> parts;
  for (std::int64_t extent : type.extents) parts.push_back(std::to_string(extent));
  return "[" + join(parts, ",") + "]";
}

}  // namespace fuseblock
