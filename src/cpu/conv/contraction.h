// The gradient by the weight, contracted from tiles: for the result rows of a tile of one sample
//
//   d_weight[k][c][tap] += sum over positions g of  d_y[k][g] * staged[c][offset(tap) + g]
//
// with x staged exactly as for the forward tile, for convolutions and transposed ones alike. Prepared once for a
// geometry; immutable; any number of threads may use it at once, each with its own sums. Sums lie as the kernels make
// them, [group][source channel of the group][tap][result channel of the group]; `join` adds several of them up into
// the weight's own order.
#pragma once

#include <cstddef>
#include <cstdint>

#include "cpu/conv/dot_kernel.h"
#include "cpu/conv/grid.h"
#include "cpu/conv/outer_kernel.h"
#include "cpu/conv/staging.h"

namespace fuseblock::cpu {

template <typename T>
class ConvContraction {
 public:
  explicit ConvContraction(const ConvGeometry& geometry);

  const ConvGrid& grid() const { return grid_; }
  std::size_t weight_elements() const;

  std::size_t staged_elements(Range rows, Range channels) const {
    return cpu::staged_elements(grid_, rows, channels);
  }
  // The same array as a forward ConvSource of the geometry stages.
  void stage(Range rows, Range channels, RowLoader<T> load, T* staged) const {
    cpu::stage(grid_, rows, channels, load, staged);
  }

  // Bytes of scratch that `accumulate` needs, aligned as T and std::int64_t are.
  std::size_t scratch_bytes(Range rows) const;
  // Adds the products of these rows and result channels to `sums`, weight_elements() of them. `d_y` is a tile as
  // ConvSource::compute writes it; `staged` was staged for the same rows and for `channels`, which contain
  // grid().channels_read_by(ks). Sums within a call are made in T, in an order that `rows` alone fixes; they are
  // added to `sums` in double. Products with padding are never part of a sum, even if d_y is not finite.
  void accumulate(const T* staged, Range rows, Range channels, const T* d_y, std::int64_t d_y_pitch, Range ks,
                  double* sums, std::byte* scratch) const;

  // Pairs of a source channel and a tap: what `join` can be cut by.
  std::int64_t column_count() const { return grid_.source_channels() * grid_.filter_taps(); }
  // d_weight, dense as the weight is, from `count` arrays of sums that lie one behind the other, for these columns.
  void join(const double* sums, std::int64_t count, Range columns, double* d_weight) const;

 private:
  struct Call;
  struct Phase;
  struct TapPiece;

  std::int64_t sum_index(std::int64_t k, std::int64_t source_channel, std::int64_t tap) const;
  void list_columns(Call& call, const Phase& part) const;
  void accumulate_outer(Call call, const Spatial& phase) const;
  std::int64_t outer_row_count(Range rows) const;
  std::int64_t list_rows(const Call& call, const Spatial& phase, const TapPiece& taps, OuterRow* rows) const;
  void accumulate_taps(const Call& call, OuterTask<T> task, const TapPiece& taps, std::int64_t channels,
                       double* sums) const;
  void accumulate_dots(Call call, const Spatial& phase) const;
  void lay_out(const Call& call, const Phase& part, std::int64_t k, T* to) const;
  void accumulate_columns(const Call& call, DotTask<T> task, std::int64_t columns, double* sums) const;
  void accumulate_pairs(const Call& call) const;

  ConvGrid grid_;
  const DotKernel<T>* dots_;
  const OuterKernel<T>* outer_;  // null where there are too few result channels for it
};

extern template class ConvContraction<float>;
extern template class ConvContraction<double>;

}  // namespace fuseblock::cpu
