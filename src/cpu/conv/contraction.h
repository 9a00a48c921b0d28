// The gradient by the weight, contracted from tiles: for the result rows of a tile of one sample
//
//   d_weight[k][c][tap] += sum over positions g of  d_y[k][g] * staged[c][offset(tap) + g]
//
// with x staged exactly as for the forward tile, for convolutions and transposed ones alike. Prepared once for a
// geometry; immutable; any number of threads may use it at once, each with its own d_weight.
#pragma once

#include <cstddef>
#include <cstdint>

#include "cpu/conv/dot_kernel.h"
#include "cpu/conv/grid.h"
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
  // Adds the products of these rows and result channels to d_weight, dense as the weight is. `d_y` is a tile as
  // ConvSource::compute writes it; `staged` was staged for the same rows and for `channels`, which contain
  // grid().channels_read_by(ks). Sums within a call are made in T, in an order that `rows` alone fixes; they are
  // added to d_weight in double. Products with padding are never part of a sum, even if d_y is not finite.
  void accumulate(const T* staged, Range rows, Range channels, const T* d_y, std::int64_t d_y_pitch, Range ks,
                  double* d_weight, std::byte* scratch) const;

 private:
  struct Call;
  struct Phase;

  void accumulate_phase(const Call& call, const Spatial& phase) const;
  void lay_out(const Call& call, const Phase& part, std::int64_t k, T* to) const;
  void accumulate_columns(const Call& call, DotTask<T> task, std::int64_t columns, double* d_weight) const;
  void accumulate_pairs(const Call& call) const;

  ConvGrid grid_;
  const DotKernel<T>* kernel_;
};

extern template class ConvContraction<float>;
extern template class ConvContraction<double>;

}  // namespace fuseblock::cpu
