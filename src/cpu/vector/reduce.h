// Reductions of arrays that stay in L1: an array to a number, and an array into another element by element.
//
// The order of every sum is fixed and the same on all targets, whatever their vector width:
//   - blocks of 16 * P consecutive elements, P = 64 for float and 32 for double, the last one shorter;
//   - inside a block, element i belongs to partial sum i mod P; partial sums grow in the order of i, in T;
//   - the P partial sums are halved until one is left: p[j] += p[j + P/2], then p[j] += p[j + P/4], ...;
//   - block results are added in order, in double.
// No multiplication is fused with an addition. So the results have the same bits on every target and in every run,
// as long as the compiler fuses nothing either: this folder is compiled with -ffp-contract=off. sum_exp has the
// bits of `exp`, which agree on all targets with FMA and differ in the last place on others.
//
// T is float or double. Arrays need no alignment and are never read or written past `count`.
#pragma once

#include <cstddef>
#include <cstdint>

namespace fuseblock::cpu {

// 0 for an empty array.
template <class T>
double sum(const T* x, std::size_t count);

// NaN if an element is; -infinity for an empty array.
template <class T>
T largest(const T* x, std::size_t count);

// NaN if an element is; infinity for an empty array.
template <class T>
T smallest(const T* x, std::size_t count);

// sum of exp(x[i] - shift). With `shift` the largest element no term overflows; it must be finite.
template <class T>
double sum_exp(const T* x, T shift, std::size_t count);

// The mean, and the sum of the squared distances from it.
struct TileMoments {
  double mean = 0;
  double m2 = 0;
};

// Two passes: a mean rounded to T, then sums of the distances from it and of their squares, the first of which
// corrects both results. Where squares overflow in float the passes are made again in double. Zeros for an empty
// array.
template <class T>
TileMoments moments(const T* x, std::size_t count);
// The same with a number that may be near the mean, such as that of neighbouring elements: where it is, one pass of
// distances from it does.
template <class T>
TileMoments moments(const T* x, std::size_t count, double near);

// total[i] += row[i].
template <class T>
void add_row(T* total, const T* row, std::size_t count);

// total[i] += exp(row[i] - top[i]).
template <class T>
void add_exp_row(T* total, const T* row, const T* top, std::size_t count);

// total[i] = the larger of total[i] and row[i], NaN if either is.
template <class T>
void maximum_row(T* total, const T* row, std::size_t count);

// total[i] = the smaller of total[i] and row[i], NaN if either is.
template <class T>
void minimum_row(T* total, const T* row, std::size_t count);

// Welford's step: mean[i] and m2[i], the moments of samples - 1 earlier rows, take in row[i]. `samples` counts the
// new row; with 1 the arrays are only written.
template <class T>
void moments_row(T* mean, T* m2, const T* row, std::size_t count, std::int64_t samples);

// Chan's merge: mean[i] and m2[i] of `samples` rows take in those of `other_samples` further rows. At least one of
// the two is positive; moments of no samples are not looked at.
template <class T>
void merge_moments(T* mean, T* m2, std::int64_t samples, const T* other_mean, const T* other_m2,
                   std::int64_t other_samples, std::size_t count);

}  // namespace fuseblock::cpu
