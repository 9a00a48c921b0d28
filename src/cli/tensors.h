// Named tensors in memory: walking their elements, converting them, and describing what they hold.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "console.h"
#include "fuseblock/tensor.h"
#include "fuseblock/typed_block.h"

namespace fuseblock::cli {

using TensorMap = std::map<std::string, Tensor, std::less<>>;

// Calls visit(index, offset) for each element in the logical order n c d h w: its number in that order and
// its place in a dense tensor of the type's layout.
template <class Visit>
void for_each_element(const TensorType& type, Visit visit) {
  const std::vector<std::int64_t> strides = type.strides();
  const std::int64_t count = type.element_count();
  std::vector<std::int64_t> position(type.extents.size(), 0);
  std::int64_t offset = 0;
  for (std::int64_t index = 0; index < count; ++index) {
    visit(index, offset);
    for (std::size_t axis = position.size(); axis-- > 0;) {
      offset += strides[axis];
      if (++position[axis] < type.extents[axis]) break;
      offset -= strides[axis] * type.extents[axis];
      position[axis] = 0;
    }
  }
}

// The same values rounded to another type of the same extents.
Tensor converted(const Tensor& tensor, const TensorType& type);

// What a tensor holds. Mean, population standard deviation, minimum and maximum are those of the finite
// elements, NaN where there are none.
struct Statistics {
  std::uint64_t digest = 0;  // FNV-1a, 64 bits, over the elements' bytes (little-endian) in logical order
  double mean = 0;
  double std = 0;
  double min = 0;
  double max = 0;
  std::int64_t nan_count = 0;
  std::int64_t inf_count = 0;
};
Statistics statistics(const Tensor& tensor);

// 16 hexadecimal digits.
std::string digest_text(std::uint64_t digest);

// Throws UserError where this machine has not that much memory free, so that a large tensor is an error and
// not the end of the process. `what` names what needs it.
void require_memory(double bytes, const std::string& what);

// The bytes of tensors of these types together.
double total_bytes(const std::vector<NamedType>& tensors);

}  // namespace fuseblock::cli
