// Blocks by handle, and the plans made for them so far.
//
// A block is registered once and never goes away. Its plans are found by a key of whole numbers: which gradients are wanted,
// the device, on the CPU PyTorch's number of threads, and dtype, extents and layout of each argument. Making a plan is a step
// of its own, so that looking one up formats no text and allocates nothing. A block keeps the plans that were used last.
#pragma once

#include <cstdint>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "fuseblock/block.h"
#include "fuseblock/plan.h"
#include "tensors.h"

namespace fuseblock::torch_binding {

// Beside the bits of wanted gradients: the backward plan takes nothing that forward saved.
inline constexpr std::int64_t kBackwardAlone = std::int64_t{1} << 62;
// Beside them too: convolutions of f32 tensors may round to tf32, as PyTorch's switches say.
inline constexpr std::int64_t kTf32Allowed = std::int64_t{1} << 61;

// What a plan depends on besides the block: the set of wanted gradients, bit i standing for argument i, where the arguments
// are, and for each of them dtype, rank and layout in one number, followed by the extents. The numbers can be kept in a
// tensor.
class ArgumentTypes {
 public:
  // Nothing where there is a tensor that no plan takes: of another dtype, sparse, on another device than the first or on
  // one that no engine runs on.
  static std::optional<ArgumentTypes> of(std::span<const Tensor> arguments, std::int64_t wanted);
  // From numbers(). Throws UserError where they are no types of arguments.
  explicit ArgumentTypes(std::span<const std::int64_t> numbers);

  std::span<const std::int64_t> numbers() const { return numbers_; }
  // The bits of arguments alone.
  std::int64_t wanted() const { return numbers_[0] & ~(kBackwardAlone | kTf32Allowed); }
  bool backward_alone() const { return (numbers_[0] & kBackwardAlone) != 0; }
  bool tf32_allowed() const { return (numbers_[0] & kTf32Allowed) != 0; }
  Place place() const { return numbers_[1]; }
  // The types of the arguments, without labels.
  std::vector<TensorType> types() const;

  bool operator==(const ArgumentTypes&) const = default;

 private:
  ArgumentTypes() = default;

  std::vector<std::int64_t> numbers_;
};

// Where an input of a backward plan comes from.
struct BackwardInput {
  enum class Kind : std::uint8_t { kArgument, kGradient, kSaved } kind;
  std::size_t index = 0;  // among all arguments of the block, its outputs, the saved values
};

// A tensor that is made when plans run: its type, and where it lies among the saved bytes if it is saved.
struct MadeTensor {
  TensorType type;
  std::vector<std::int64_t> strides;
  std::size_t offset = 0;
};

// The plans of a block for one set of argument types; `backward` where gradients are wanted. What forward saves is a piece
// of memory on the CPU: the types of the arguments (how many numbers, then ArgumentTypes::numbers), then the values. Those
// of a GPU are a piece of its memory.
struct Prepared {
  Place place = kCpu;
  Plan forward;
  std::optional<Plan> backward;
  // What the plans say of themselves, kept because Plan gives copies.
  std::vector<MadeTensor> outputs = {};
  std::vector<MadeTensor> saved = {};
  std::vector<MadeTensor> gradients = {};
  std::vector<BackwardInput> backward_inputs = {};
  std::size_t saved_bytes = 0;   // on the CPU; 0 where nothing is saved, not even the types
  std::size_t device_bytes = 0;  // on the GPU
  std::size_t forward_bytes = 0;
  std::size_t backward_bytes = 0;

  // The arguments that `backward` reads, as bits.
  std::int64_t needed() const;
};

// Why there is no plan.
struct Refusal {
  bool users_mistake = false;  // by fuseblock's rules; PyTorch may see it otherwise
  std::string reason;
};

class RegisteredBlock {
 public:
  RegisteredBlock(Block block, bool keep_convolutions);

  const Block& block() const { return block_; }
  const std::vector<std::string>& argument_names() const { return names_; }

  // The plans for these types, on the CPU for PyTorch's number of threads; none where prepare has not made them, or could
  // not.
  std::shared_ptr<const Prepared> find(const ArgumentTypes& types);
  // Whether there are plans, or a reason why there are none.
  bool is_known(const ArgumentTypes& types);
  // Makes the plans, or finds them. A `refusal` that is not empty takes their place.
  std::optional<Refusal> prepare(const ArgumentTypes& types, const std::string& refusal);

  TypedBlock typed(const ArgumentTypes& types) const;
  // The wanted arguments by name.
  std::vector<std::string> wanted_names(std::int64_t wanted) const;

 private:
  struct Entry {
    ArgumentTypes types;
    int threads = 0;
    std::shared_ptr<const Prepared> plans;
    Refusal refusal;
  };
  struct Hash {
    std::size_t operator()(std::span<const std::int64_t> numbers) const;
  };
  struct Equal {
    bool operator()(std::span<const std::int64_t> a, std::span<const std::int64_t> b) const;
  };

  // The entry, moved to the front; null where there is none. The mutex must be held.
  Entry* lookup(const ArgumentTypes& types, int threads);
  Prepared make(const ArgumentTypes& types, int threads) const;
  // What the backward plan takes and gives.
  void add_backward(Prepared& plans) const;

  Block block_;
  bool keep_convolutions_;
  std::vector<std::string> names_;
  std::mutex mutex_;
  std::list<Entry> entries_;  // the one used last in front
  // Keys are views of the entries' numbers; entries for other numbers of threads share one.
  std::unordered_multimap<std::span<const std::int64_t>, std::list<Entry>::iterator, Hash, Equal> places_;
};

// The handle of a block, the same for the same arguments. Throws UserError as Block::parse does.
std::int64_t register_block(const std::string& notation, bool keep_convolutions);
// Throws UserError for a number that register_block never gave.
RegisteredBlock& registered_block(std::int64_t handle);

}  // namespace fuseblock::torch_binding
