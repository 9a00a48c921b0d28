// Rows of T added into totals of double, element by element: what is reduced along the rows of a matrix.
//
// Totals grow in the order of the calls, so their bits depend on nothing else. T is float or double;
// exponentials are taken in T, all else in double. Arrays need no alignment and are never read or written
// past `count`.
#pragma once

#include <cstddef>
#include <cstdint>

namespace fuseblock::cpu {

// total[i] = row[i].
template <class T>
void set_totals(double* total, const T* row, std::size_t count);

// total[i] += row[i].
template <class T>
void add_to_totals(double* total, const T* row, std::size_t count);

// total[i] = the larger of total[i] and row[i], NaN if either is.
template <class T>
void maximum_to_totals(double* total, const T* row, std::size_t count);

// total[i] = the smaller of total[i] and row[i], NaN if either is.
template <class T>
void minimum_to_totals(double* total, const T* row, std::size_t count);

// Welford's step: mean[i] and m2[i], the moments of samples - 1 earlier rows, take in row[i]. `samples`
// counts the new row and is at least 2.
template <class T>
void moments_to_totals(double* mean, double* m2, const T* row, std::size_t count, std::int64_t samples);

// Largest elements and sums of exp(x - largest) of some rows take in those of further ones. A side whose
// largest is -infinity adds nothing to one whose largest is finite, whatever its sum.
template <class T>
void exp_sums_to_totals(double* top, double* sum, const T* other_top, const T* other_sum, std::size_t count);

}  // namespace fuseblock::cpu
