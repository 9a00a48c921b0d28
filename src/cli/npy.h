// NumPy's .npy files: one tensor each. Written as C order, little-endian, version 1.0, f64 f32 f16 as they
// are and bf16 (which NumPy does not have) as f32. Read in versions 1 to 3, either order, either byte order,
// from floats, integers and booleans; anything else, and a file that is damaged or too short or too long, is
// refused.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "fuseblock/tensor.h"

namespace fuseblock::cli {

struct NpyHeader {
  char kind = 'f';  // f float, i signed, u unsigned, b boolean
  std::size_t item_size = 0;
  bool big_endian = false;
  bool fortran_order = false;
  std::vector<std::int64_t> shape;
  std::size_t data_begin = 0;  // in the file
};

// `bytes` is the whole file; exactly the elements follow the header. Throws UserError that says what is
// wrong.
NpyHeader read_npy_header(std::string_view bytes);

// Fills a tensor, rounding to its dtype. Throws UserError where the file is no .npy file or its shape is
// another.
void read_npy(std::string_view bytes, Tensor& tensor);

// The whole file.
std::string write_npy(const Tensor& tensor);

}  // namespace fuseblock::cli
