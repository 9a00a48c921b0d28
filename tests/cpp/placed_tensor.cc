#include "placed_tensor.h"

#include <algorithm>
#include <cstring>

#include "fuzz_support.h"

namespace fuseblock::cases {
namespace {

constexpr std::int64_t kAlignment = 64;
constexpr std::int64_t kGuard = 512;  // bytes in front of and behind all elements

constexpr std::size_t kPeriod = 251;  // of the pattern

std::byte pattern(std::size_t at) { return static_cast<std::byte>(0x5a ^ (at * 37 % kPeriod)); }

// Fills memory with copies of its first `filled` bytes.
void repeat(std::span<std::byte> memory, std::size_t filled) {
  while (filled < memory.size()) {
    const std::size_t more = std::min(filled, memory.size() - filled);
    std::memcpy(memory.data() + filled, memory.data(), more);
    filled += more;
  }
}

std::vector<std::byte> patterned(std::int64_t bytes) {
  std::vector<std::byte> memory(static_cast<std::size_t>(bytes));
  const std::size_t first = std::min(kPeriod, memory.size());
  for (std::size_t i = 0; i < first; ++i) memory[i] = pattern(i);
  repeat(memory, first);
  return memory;
}

// Bytes from the address to the next multiple of the alignment.
std::int64_t past_alignment(const std::byte* data) {
  return static_cast<std::int64_t>(reinterpret_cast<std::uintptr_t>(data) % kAlignment);
}

// Memory for a run: patterns, the workspace full of poison, patterns.
class GuardedWorkspace {
 public:
  GuardedWorkspace(std::size_t bytes, const std::vector<std::byte>& poison)
      : memory_(patterned(static_cast<std::int64_t>(bytes) + 2 * kGuard + kAlignment)), size_(bytes) {
    begin_ = static_cast<std::size_t>(kGuard + kAlignment - past_alignment(memory_.data()));
    const std::size_t first = std::min(poison.size(), bytes);
    std::copy_n(poison.begin(), first, memory_.begin() + static_cast<std::ptrdiff_t>(begin_));
    if (first > 0) repeat(this->bytes(), first);
  }

  std::span<std::byte> bytes() { return std::span(memory_).subspan(begin_, size_); }

  bool surroundings_are_intact() const {
    for (std::size_t i = 0; i < begin_; ++i)
      if (memory_[i] != pattern(i)) return false;
    for (std::size_t i = begin_ + size_; i < memory_.size(); ++i)
      if (memory_[i] != pattern(i)) return false;
    return true;
  }

 private:
  std::vector<std::byte> memory_;
  std::size_t begin_ = 0;
  std::size_t size_;
};

}  // namespace

PlacedTensor::PlacedTensor(const TensorType& type, unsigned oddities, std::uint64_t seed) : type_(type) {
  choose_strides(oddities, seed);
  std::int64_t first = 0;
  std::int64_t last = 0;
  if (type.element_count() > 0) {
    for (std::size_t i = 0; i < strides_.size(); ++i)
      (strides_[i] < 0 ? first : last) += strides_[i] * (type.extents[i] - 1);
  }
  const std::int64_t size = byte_size(type.dtype);
  memory_ = patterned((last - first + 1) * size + 2 * kGuard + 2 * kAlignment);
  const std::int64_t offset = (oddities & kOffset) != 0 ? 1 + static_cast<std::int64_t>(seed % 7) : 0;
  origin_ = kGuard + kAlignment - past_alignment(memory_.data()) + (offset - first) * size;
}

PlacedTensor::PlacedTensor(const Tensor& tensor, unsigned oddities, std::uint64_t seed)
    : PlacedTensor(tensor.type(), oddities, seed) {
  for_each([&](std::int64_t index, std::int64_t offset) {
    store_element(memory_.data() + origin_, type_.dtype, offset, tensor.get(index));
  });
}

void PlacedTensor::choose_strides(unsigned oddities, std::uint64_t seed) {
  fuzz::Random random(seed);
  strides_ = type_.strides();
  const std::size_t rank = strides_.size();
  if ((oddities & (kGaps | kPermuted)) != 0) {
    // The axes from the one that varies fastest.
    std::vector<std::size_t> order(rank);
    for (std::size_t i = 0; i < rank; ++i) order[i] = i;
    std::sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
      return std::pair(strides_[a], b) < std::pair(strides_[b], a);
    });
    if ((oddities & kPermuted) != 0)
      for (std::size_t i = rank; i > 1; --i) std::swap(order[i - 1], order[random.below(i)]);
    std::int64_t span = 1;
    for (std::size_t axis : order) {
      const bool apart = (oddities & kGaps) != 0 && random.below(2) == 0;
      strides_[axis] = span + (apart ? 1 + static_cast<std::int64_t>(random.below(3)) : 0);
      span = strides_[axis] * std::max<std::int64_t>(type_.extents[axis], 1);
    }
  }
  for (std::int64_t& stride : strides_) {
    if ((oddities & kFlipped) != 0 && random.below(2) == 0) stride = -stride;
    if ((oddities & kExpanded) != 0 && random.below(3) == 0) stride = 0;
  }
}

template <class Visit>
void PlacedTensor::for_each(Visit visit) const {
  const std::int64_t count = type_.element_count();
  std::vector<std::int64_t> at(strides_.size());
  std::int64_t offset = 0;
  for (std::int64_t index = 0; index < count; ++index) {
    visit(index, offset);
    for (std::size_t axis = at.size(); axis-- > 0;) {
      offset += strides_[axis];
      if (++at[axis] < type_.extents[axis]) break;
      offset -= strides_[axis] * type_.extents[axis];
      at[axis] = 0;
    }
  }
}

TensorView PlacedTensor::view() { return {memory_.data() + origin_, type_.dtype, type_.extents, strides_}; }

ConstTensorView PlacedTensor::view() const {
  return {memory_.data() + origin_, type_.dtype, type_.extents, strides_};
}

Tensor PlacedTensor::dense() const {
  Tensor result(type_);
  for_each([&](std::int64_t index, std::int64_t offset) {
    result.set(index, load_element(memory_.data() + origin_, type_.dtype, offset));
  });
  return result;
}

bool PlacedTensor::surroundings_are_intact() const {
  const std::int64_t size = byte_size(type_.dtype);
  std::vector<bool> owned(memory_.size());
  for_each([&](std::int64_t, std::int64_t offset) {
    for (std::int64_t i = 0; i < size; ++i)
      owned[static_cast<std::size_t>(origin_ + offset * size + i)] = true;
  });
  for (std::size_t i = 0; i < memory_.size(); ++i)
    if (!owned[i] && memory_[i] != pattern(i)) return false;
  return true;
}

TensorMap run_placed(const Plan& plan, const PlacedMap& arguments, const PlacedRun& how) {
  Arguments bound;
  std::map<std::string, std::vector<std::byte>, std::less<>> before;
  for (const NamedType& input : plan.inputs()) {
    const PlacedTensor& tensor = arguments.find(input.name)->second;
    bound.inputs.push_back(tensor.view());
    before[input.name] = tensor.memory();
  }
  PlacedMap outputs;
  std::uint64_t seed = how.seed;
  for (const NamedType& output : plan.outputs())
    bound.outputs.push_back(
        outputs.emplace(output.name, PlacedTensor(output.type, how.output_oddities, ++seed))
            .first->second.view());
  GuardedWorkspace workspace(plan.workspace_bytes(), how.poison);
  plan.run(bound, workspace.bytes());
  if (!workspace.surroundings_are_intact()) throw InternalError("the run wrote outside of its workspace");
  for (const auto& [name, memory] : before)
    if (arguments.find(name)->second.memory() != memory)
      throw InternalError("the run wrote to its input " + name);
  TensorMap results;
  for (const auto& [name, output] : outputs) {
    if (!output.surroundings_are_intact()) throw InternalError("the run wrote beside its output " + name);
    results[name] = output.dense();
  }
  return results;
}

bool same_bits(const Tensor& a, const Tensor& b) {
  return std::memcmp(a.data(), b.data(), static_cast<std::size_t>(a.type().byte_count())) == 0;
}

}  // namespace fuseblock::cases
