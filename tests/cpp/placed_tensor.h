// Tensors that lie in memory as views do: with gaps, in another order of axes, backwards, expanded, off any
// alignment; and bytes around and between their elements that must stay as they are.
#pragma once

#include <cstdint>
#include <vector>

#include "cases.h"

namespace fuseblock::cases {

// What may be odd about a view; any of them together.
enum Oddity : unsigned {
  kGaps = 1,       // elements and rows lie apart
  kOffset = 2,     // the first element is not aligned to more than its size
  kPermuted = 4,   // the axes lie in another order
  kFlipped = 8,    // some strides are negative
  kExpanded = 16,  // some strides are 0; for inputs only
  kAnyOutput = 15,
  kAnyInput = 31,
};

class PlacedTensor {
 public:
  // Where the seed decides, the elements lie oddly in the ways that `oddities` allows; with none of them they
  // are dense in the layout of the type, aligned to 64 bytes. All memory holds a pattern.
  PlacedTensor(const TensorType& type, unsigned oddities, std::uint64_t seed);
  // The same with the elements of a tensor. Those that share memory hold what the last of them has.
  PlacedTensor(const Tensor& tensor, unsigned oddities, std::uint64_t seed);

  TensorView view();
  ConstTensorView view() const;
  // The elements, dense in the layout of the type.
  Tensor dense() const;
  // Whether the bytes that belong to no element are what they were.
  bool surroundings_are_intact() const;
  const std::vector<std::byte>& memory() const { return memory_; }

 private:
  void choose_strides(unsigned oddities, std::uint64_t seed);
  // Calls `visit` with the logical index of each element and its offset from the first.
  template <class Visit>
  void for_each(Visit visit) const;

  TensorType type_;
  std::vector<std::int64_t> strides_;
  std::vector<std::byte> memory_;
  // In bytes from the beginning of memory_ to the element at coordinates 0.
  std::int64_t origin_ = 0;
};

// Outputs of a plan on views of the arguments it takes, in memory that is full of patterns. Throws
// InternalError where the run wrote anything but outputs and workspace. `poison` fills the workspace.
struct PlacedRun {
  unsigned output_oddities = 0;
  std::uint64_t seed = 0;
  std::vector<std::byte> poison = {std::byte{0xa5}};
};
using PlacedMap = std::map<std::string, PlacedTensor, std::less<>>;
TensorMap run_placed(const Plan& plan, const PlacedMap& arguments, const PlacedRun& how);

// Whether two tensors of one type have the same bits.
bool same_bits(const Tensor& a, const Tensor& b);

}  // namespace fuseblock::cases
