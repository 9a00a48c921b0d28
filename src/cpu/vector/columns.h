// Reductions down the columns of a matrix that stays in L1, and numbers repeated along its rows: element i of x is in column i mod `columns`, and x may
// end inside a row.
//
// Each column is one chain in the order of its rows, in T, whatever the vector width, and no multiplication is fused
// with an addition: the results have the same bits on every target.
//
// T is float or double. Arrays need no alignment and are never read or written past their `columns` or `count`
// elements.
#pragma once

#include <cstddef>

namespace fuseblock::cpu {

// sums[j] += the elements of column j.
template <class T>
void add_columns(T* sums, const T* x, std::size_t columns, std::size_t count);

// sums[j] += x - shift[j], squares[j] += (x - shift[j])^2 over the elements x of column j.
template <class T>
void add_column_distances(T* sums, T* squares, const T* shift, const T* x, std::size_t columns,
                          std::size_t count);

// largest[j] = the largest of itself and column j, NaN if one of them is.
template <class T>
void maximum_columns(T* largest, const T* x, std::size_t columns, std::size_t count);

// smallest[j] = the smallest of itself and column j, NaN if one of them is.
template <class T>
void minimum_columns(T* smallest, const T* x, std::size_t columns, std::size_t count);

// Element i of `out` = values[i / columns], `rows` * `columns` of them.
template <class T>
void repeat_along_rows(const T* values, std::size_t rows, std::size_t columns, T* out);

}  // namespace fuseblock::cpu
