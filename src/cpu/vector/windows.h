// Windows over an array: each result is taken from the elements of one window, in the order of its taps, the
// last tap axis fastest.
//
// Results lie in rows. The windows of neighbours in a row are `stride` elements apart, 1 and 2 being passes
// of vectors. A window without taps is empty: its maximum is -inf, its sum 0. Results are one behind the
// other (result_stride is 1) or, of sums of shares and of chosen elements, at every second place (2): what
// lies between two of them may be read and written back, so no other thread may write there meanwhile.
//
// Elements are of any type of a tensor; extremes are exact, sums are in double and rounded once to T, with no
// product fused into a sum: the results have the same bits on every target. Arrays need no alignment beyond
// their elements; nothing is read before the first or past the last element of the windows, nothing written
// past the results.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "fuseblock/type.h"

namespace fuseblock::cpu {

// Distances are in elements.
struct Windows {
  std::int64_t count = 1;              // results of a row
  std::int64_t stride = 1;             // of the windows of two neighbours in a row
  std::int64_t result_stride = 1;      // of these neighbours' results
  std::int64_t rows = 1;               // how many rows there are
  std::int64_t row_stride = 0;         // of the windows of two rows
  std::int64_t result_row_stride = 0;  // of the results of two rows
  std::array<std::int64_t, 3> taps = {1, 1, 1};
  std::array<std::int64_t, 3> steps = {0, 0, 0};  // of two taps
};

// The number of tap (a, b, c) of a window is first + a * steps[0] + b * steps[1] + c * steps[2].
struct TapNumbers {
  std::int64_t first = 0;
  std::array<std::int64_t, 3> steps = {0, 0, 0};
};

// The largest element of each window, NaN where one of them is; of equal zeros the first. T is float, or
// double where the elements are f64.
template <class T>
void window_maxima(const void* x, DType dtype, const Windows& windows, T* largest);

// The number of the tap that holds the largest element: the first of equal ones, but the last NaN if there is
// one. -1 for an empty window. Numbers are stored by their low 32 bits.
void window_places(const void* x, DType dtype, const Windows& windows, const TapNumbers& numbers,
                   std::int32_t* places);

// (sum of the elements) / divisor.
template <class T>
void window_means(const void* x, DType dtype, const Windows& windows, double divisor, T* means);

// sum of (element / divisor).
template <class T>
void window_shares(const void* x, DType dtype, const Windows& windows, double divisor, T* sums);

// The places of the elements of windows: an array in which neighbours are one behind the other, the other
// distances as in Windows.
struct PlacesBeside {
  const std::int32_t* places = nullptr;
  std::int64_t row_stride = 0;
  std::array<std::int64_t, 3> steps = {0, 0, 0};
};

// The sum of the elements whose tap has the number that lies in their place.
template <class T>
void window_chosen(const void* x, DType dtype, const Windows& windows, const PlacesBeside& beside,
                   const TapNumbers& numbers, T* sums);

}  // namespace fuseblock::cpu
