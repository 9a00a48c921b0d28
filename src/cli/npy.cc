#include "npy.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>

#include "fuseblock/error.h"
#include "tensors.h"

namespace fuseblock::cli {
namespace {

constexpr std::string_view kMagic = "\x93NUMPY";
constexpr std::size_t kAlignment = 64;  // of the first element in files we write
constexpr std::size_t kLargestRank = 32;

[[noreturn]] void damaged(const std::string& why) { throw UserError("not a readable .npy file: " + why); }

std::size_t unsigned_little_endian(std::string_view bytes) {
  std::size_t value = 0;
  for (std::size_t i = bytes.size(); i-- > 0;) value = (value << 8) | static_cast<unsigned char>(bytes[i]);
  return value;
}

// Reads the Python dictionary of the header: {'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }
class HeaderReader {
 public:
  explicit HeaderReader(std::string_view text) : text_(text) {}

  void read(NpyHeader& header) {
    expect('{');
    int seen = 0;
    while (!accept('}')) {
      const std::string_view key = quoted();
      expect(':');
      if (key == "descr") {
        read_dtype(header);
        seen |= 1;
      } else if (key == "fortran_order") {
        header.fortran_order = boolean();
        seen |= 2;
      } else if (key == "shape") {
        header.shape = tuple();
        seen |= 4;
      } else {
        damaged("its header has a key that is not descr, fortran_order or shape");
      }
      if (!accept(',') && peek() != '}') damaged("its header lacks a comma");
    }
    if (peek() != '\0') damaged("its header goes on behind the dictionary");
    if (seen != 7) damaged("its header needs descr, fortran_order and shape");
  }

 private:
  char peek() {
    while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\n')) ++at_;
    return at_ < text_.size() ? text_[at_] : '\0';
  }
  bool accept(char c) {
    if (peek() != c) return false;
    ++at_;
    return true;
  }
  void expect(char c) {
    if (!accept(c)) damaged(std::string("its header lacks `") + c + "`");
  }

  std::string_view quoted() {
    const char quote = peek();
    if (quote != '\'' && quote != '"') damaged("its header lacks a quoted word");
    const std::size_t begin = ++at_;
    at_ = text_.find(quote, begin);
    if (at_ == std::string_view::npos) damaged("its header has an open quote");
    return text_.substr(begin, at_++ - begin);
  }

  bool boolean() {
    peek();
    const std::string_view rest = text_.substr(at_);
    const bool value = rest.starts_with("True");
    if (!value && !rest.starts_with("False")) damaged("fortran_order is neither True nor False");
    at_ += value ? 4 : 5;
    return value;
  }

  std::vector<std::int64_t> tuple() {
    std::vector<std::int64_t> numbers;
    expect('(');
    while (!accept(')')) {
      numbers.push_back(whole_number());
      if (numbers.size() > kLargestRank) damaged("its shape has more than 32 axes");
      if (!accept(',') && peek() != ')') damaged("its shape lacks a comma");
    }
    return numbers;
  }

  std::int64_t whole_number() {
    peek();
    const std::size_t begin = at_;
    std::int64_t value = 0;
    while (at_ < text_.size() && text_[at_] >= '0' && text_[at_] <= '9') {
      if (at_ - begin >= 18) damaged("an extent has more than 18 digits");
      value = 10 * value + (text_[at_++] - '0');
    }
    if (at_ == begin) damaged("its shape has something that is not a whole number");
    if (at_ < text_.size() && text_[at_] == 'L') ++at_;  // as Python 2 wrote it
    return value;
  }

  void read_dtype(NpyHeader& header) {
    if (peek() == '[') throw UserError("its dtype is structured; floats, integers and booleans can be read");
    const std::string_view dtype = quoted();
    static constexpr std::array<std::string_view, 12> kReadable = {"f2", "f4", "f8", "i1", "i2", "i4",
                                                                   "i8", "u1", "u2", "u4", "u8", "b1"};
    const bool ordered = !dtype.empty() && std::string_view("<>=|").find(dtype[0]) != std::string_view::npos;
    if (!ordered || std::find(kReadable.begin(), kReadable.end(), dtype.substr(1)) == kReadable.end())
      throw UserError("its dtype is `" + std::string(dtype.substr(0, 40)) +
                      "`; f2, f4, f8, integers and booleans can be read");
    header.big_endian = dtype[0] == '>';
    header.kind = dtype[1];
    header.item_size = static_cast<std::size_t>(dtype[2] - '0');
  }

  std::string_view text_;
  std::size_t at_ = 0;
};

std::size_t element_count(const std::vector<std::int64_t>& shape) {
  if (std::find(shape.begin(), shape.end(), 0) != shape.end()) return 0;
  std::size_t count = 1;
  for (std::int64_t extent : shape)
    if (__builtin_mul_overflow(count, static_cast<std::size_t>(extent), &count))
      damaged("its shape is too large");
  return count;
}

template <class Number>
double number_at(const std::array<char, 8>& bytes) {
  Number number;
  std::memcpy(&number, bytes.data(), sizeof number);
  return static_cast<double>(number);
}

double element_at(std::string_view bytes, const NpyHeader& header, std::size_t index) {
  std::array<char, 8> item{};
  std::memcpy(item.data(), bytes.data() + header.data_begin + index * header.item_size, header.item_size);
  if (header.big_endian)
    std::reverse(item.begin(), item.begin() + static_cast<std::ptrdiff_t>(header.item_size));
  const bool is_signed = header.kind == 'i';
  switch (header.item_size) {
    case 1:
      return header.kind == 'b' ? (item[0] != 0)
             : is_signed        ? number_at<std::int8_t>(item)
                                : number_at<std::uint8_t>(item);
    case 2: {
      if (header.kind != 'f')
        return is_signed ? number_at<std::int16_t>(item) : number_at<std::uint16_t>(item);
      std::uint16_t half = 0;
      std::memcpy(&half, item.data(), sizeof half);
      return load_element(&half, DType::kF16, 0);
    }
    case 4:
      if (header.kind == 'f') return number_at<float>(item);
      return is_signed ? number_at<std::int32_t>(item) : number_at<std::uint32_t>(item);
    default:
      if (header.kind == 'f') return number_at<double>(item);
      return is_signed ? number_at<std::int64_t>(item) : number_at<std::uint64_t>(item);
  }
}

// The place of logical element `index` in a file in Fortran order.
std::size_t fortran_place(std::size_t index, const std::vector<std::int64_t>& shape) {
  std::size_t place = 0;
  std::size_t stride = 1;
  for (std::int64_t extent : shape) stride *= static_cast<std::size_t>(extent);
  for (std::size_t axis = shape.size(); axis-- > 0;) {
    const auto extent = static_cast<std::size_t>(shape[axis]);
    stride /= extent;
    place += (index % extent) * stride;
    index /= extent;
  }
  return place;
}

std::string shape_text(const std::vector<std::int64_t>& shape) {
  std::string text = "[";
  for (std::int64_t extent : shape) text += (text.size() > 1 ? "," : "") + std::to_string(extent);
  return text + "]";
}

}  // namespace

NpyHeader read_npy_header(std::string_view bytes) {
  if (!bytes.starts_with(kMagic)) damaged("it does not start with \\x93NUMPY");
  if (bytes.size() < 10) damaged("it ends inside its header");
  const int version = static_cast<unsigned char>(bytes[6]);
  if (version < 1 || version > 3) damaged("its version is not 1, 2 or 3");
  const std::size_t length_size = version == 1 ? 2 : 4;
  const std::size_t header_begin = 8 + length_size;
  if (bytes.size() < header_begin) damaged("it ends inside its header");
  const std::size_t header_size = unsigned_little_endian(bytes.substr(8, length_size));
  if (header_size > bytes.size() - header_begin) damaged("it ends inside its header");

  NpyHeader header;
  HeaderReader(bytes.substr(header_begin, header_size)).read(header);
  header.data_begin = header_begin + header_size;
  std::size_t data_size = 0;
  if (__builtin_mul_overflow(element_count(header.shape), header.item_size, &data_size))
    damaged("its shape is too large");
  const std::size_t found = bytes.size() - header.data_begin;
  if (found != data_size)
    damaged("shape " + shape_text(header.shape) + " needs " + std::to_string(data_size) +
            " bytes of elements, it has " + std::to_string(found));
  return header;
}

void read_npy(std::string_view bytes, Tensor& tensor) {
  const NpyHeader header = read_npy_header(bytes);
  const TensorType& type = tensor.type();
  if (header.shape != type.extents)
    throw UserError("its shape is " + shape_text(header.shape) + ", expected " + shape_text(type.extents) +
                    " for " + to_string(type));
  for_each_element(type, [&](std::int64_t index, std::int64_t offset) {
    const auto logical = static_cast<std::size_t>(index);
    const std::size_t place = header.fortran_order ? fortran_place(logical, header.shape) : logical;
    store_element(tensor.data(), type.dtype, offset, element_at(bytes, header, place));
  });
}

std::string write_npy(const Tensor& tensor) {
  const TensorType& type = tensor.type();
  const DType stored = type.dtype == DType::kBF16 ? DType::kF32 : type.dtype;
  const auto item_size = static_cast<std::size_t>(byte_size(stored));

  std::string shape;
  for (std::int64_t extent : type.extents) shape += std::to_string(extent) + ", ";
  if (type.rank() > 1) shape.resize(shape.size() - 2);
  if (type.rank() == 1) shape.resize(shape.size() - 1);
  std::string header =
      "{'descr': '<f" + std::to_string(item_size) + "', 'fortran_order': False, 'shape': (" + shape + "), }";
  const std::size_t unpadded = kMagic.size() + 4 + header.size() + 1;
  header += std::string((kAlignment - unpadded % kAlignment) % kAlignment, ' ') + "\n";

  std::string file(kMagic);
  file += std::string("\x01\x00", 2);
  file += static_cast<char>(header.size() & 0xff);
  file += static_cast<char>(header.size() >> 8);
  file += header;
  const std::size_t begin = file.size();
  file.resize(begin + static_cast<std::size_t>(type.element_count()) * item_size);
  for_each_element(type, [&](std::int64_t index, std::int64_t offset) {
    double element = 0;  // room for one element of any type
    store_element(&element, stored, 0, load_element(tensor.data(), type.dtype, offset));
    std::memcpy(file.data() + begin + static_cast<std::size_t>(index) * item_size, &element, item_size);
  });
  return file;
}

}  // namespace fuseblock::cli
