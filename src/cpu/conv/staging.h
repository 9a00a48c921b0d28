// Fills the staged array of a tile from the rows of one sample, padding and stride phases included.
#pragma once

#include <concepts>
#include <cstdint>
#include <memory>

#include "cpu/conv/grid.h"

namespace fuseblock::cpu {

// A reference to a function that writes whole rows (c, d, h) to (c, d, h + count - 1) of the source, each contiguous along
// w and `pitch` elements behind the one before. It lets the caller convert dtypes, follow strides and apply a prologue. Calls must not outlive the function.
template <typename T>
class RowLoader {
 public:
  template <std::invocable<std::int64_t, std::int64_t, std::int64_t, std::int64_t, T*, std::int64_t> Function>
  RowLoader(Function&& function)  // NOLINT(google-explicit-constructor)
      : object_(const_cast<void*>(static_cast<const void*>(std::addressof(function)))),
        call_([](void* object, std::int64_t c, std::int64_t d, std::int64_t h, std::int64_t count, T* rows,
                 std::int64_t pitch) {
          (*static_cast<std::remove_reference_t<Function>*>(object))(c, d, h, count, rows, pitch);
        }) {}

  void operator()(std::int64_t c, std::int64_t d, std::int64_t h, std::int64_t count, T* rows,
                  std::int64_t pitch) const {
    call_(object_, c, d, h, count, rows, pitch);
  }

 private:
  void* object_;
  void (*call_)(void*, std::int64_t, std::int64_t, std::int64_t, std::int64_t, T*, std::int64_t);
};

// Elements of the array that `stage` fills: the staged channels, what kernels read behind the last of them, and
// one source row of scratch.
std::size_t staged_elements(const ConvGrid& grid, Range rows, Range channels);

// Stages source channels `channels` for result rows `rows`. Each source row is loaded once for each staged row
// that it fills (more than once only where padding repeats it). Every element is written.
template <typename T>
void stage(const ConvGrid& grid, Range rows, Range channels, RowLoader<T> load, T* staged);

}  // namespace fuseblock::cpu
