// A program compiled for rows: the steps of a sweep or a prologue, evaluated on a chunk of neighbouring
// positions of one channel at a time. What does not vary along the chunk is worked out once; the rest lives
// in a few arrays in L1.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "cpu/vector/tile_ops.h"
#include "fuseblock/formula.h"

namespace fuseblock::cpu {

// Elements a program works on at once, at most: three such arrays fit L1.
inline constexpr std::int64_t kChunk = 2048;
// From one such array to the next. A multiple of 4 KB would make a load wait for the store to another array at the
// same place of its page.
inline constexpr std::int64_t kChunkPitch = kChunk + 16;
// The same for arrays of another length.
constexpr std::int64_t chunk_pitch(std::int64_t count) {
  return (count + kChunk - 1) / kChunk * kChunk + (kChunkPitch - kChunk);
}

// Elements of scratch that a list of operands takes, in whole cache lines.
template <class T>
constexpr std::size_t operand_elements(std::size_t operands) {
  constexpr std::size_t kLine = 64;
  return (operands * sizeof(TileOperand<T>) + kLine - 1) / kLine * kLine / sizeof(T);
}

template <class T>
class RowProgram {
 public:
  RowProgram() = default;
  // `input_varies` tells for each input whether it varies along positions; `wanted` are the steps whose
  // results the caller takes. Those that `repeatable` names too, and what is compared with an input by ==, have the
  // same bits in every program that computes them, whatever stands around them: an element is found again by its value.
  // `longest` is the largest number of positions of one evaluation.
  RowProgram(std::span<const Formula::Step> steps, const std::vector<bool>& input_varies,
             const std::vector<int>& wanted, const std::vector<int>& repeatable = {},
             std::int64_t longest = kChunk);

  // How many loops over the positions one evaluation takes.
  std::size_t loop_count() const;
  // Arrays that one evaluation writes: its results, and those of the scratch that hold what lies between.
  std::size_t array_count() const;
  // Elements of scratch for one evaluation.
  std::size_t scratch_elements() const;
  // Evaluates the program on `count` <= `longest` positions. The results stay valid until the next call with
  // this scratch. Where `targets` has memory for a wanted step, and it is one that is_written(), its result is made
  // there; targets may be empty, and must not overlap the inputs.
  void run(std::span<const TileOperand<T>> inputs, std::size_t count, T* scratch,
           std::span<T* const> targets = {}) const;
  // Whether wanted step number `i` is a result that the program can make in memory of the caller's.
  bool is_written(std::size_t i) const { return written_[i]; }
  // Whether a wanted step is input number `input` itself: result() then gives what the caller handed in.
  bool gives_input(std::size_t input) const;
  // The result of wanted step number `i` (as in `wanted`), if it was not made in a target.
  TileOperand<T> result(std::size_t i, std::span<const TileOperand<T>> inputs, const T* scratch) const;

 private:
  enum class Home : std::uint8_t { kInput, kRegister, kScalar };
  struct Place {
    Home home = Home::kScalar;
    std::int32_t index = -1;
  };
  struct Action {
    TileFunction<T> function = nullptr;
    std::array<Place, kMostOperands> operands;
    Place out;
    bool uniform = false;
    int target = -1;  // the wanted result that it makes
  };

  TileOperand<T> operand(Place place, std::span<const TileOperand<T>> inputs, const T* scratch) const;
  const T* scalars(const T* scratch) const { return scratch + registers_ * pitch_; }

  std::vector<Action> actions_;
  std::vector<Place> results_;
  std::vector<bool> written_;
  std::vector<T> constants_;  // the first scalars
  std::size_t pitch_ = static_cast<std::size_t>(kChunkPitch);
  std::size_t registers_ = 0;
  std::size_t scalars_ = 0;
};

extern template class RowProgram<float>;
extern template class RowProgram<double>;

}  // namespace fuseblock::cpu
