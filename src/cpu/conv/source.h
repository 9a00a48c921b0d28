// Convolution tiles: a convolution, a transposed one, linear, or the gradient of one of them by its input, for a
// range of result rows and result channels of one sample. Prepared once for a geometry; immutable; any number of
// threads may use it at once. A tile is made in two steps:
//   stage     copies what the rows read into a dense array (grid.h), through the caller's row loader
//   compute   runs the register-blocked kernel over it and compacts the result into tile[k][position]
// One staged array serves all result channels of its groups. T is float (f32, bf16, f16 tensors) or double.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "cpu/conv/broadcast_kernel.h"
#include "cpu/conv/grid.h"
#include "cpu/conv/pack_kernel.h"
#include "cpu/conv/staging.h"
#include "cpu/conv/sum_kernel.h"

namespace fuseblock::cpu {

template <typename T>
class ConvSource {
 public:
  ConvSource(const ConvGeometry& geometry, ConvDirection direction);

  const ConvGrid& grid() const { return grid_; }

  std::size_t packed_weight_elements() const;
  // `weight` is dense, as in block/geometry.h: [K][C / groups][filter], transposed [C][K / groups][filter].
  // Packs the weights of some blocks of result channels; blocks may be packed by several threads at once.
  void pack_weights(const T* weight, Range blocks, T* packed) const;
  void pack_weights(const T* weight, T* packed) const { pack_weights(weight, {0, block_count()}, packed); }
  std::int64_t block_count() const { return std::ssize(blocks_); }
  // Of the largest block.
  std::size_t packed_block_elements() const;

  std::size_t staged_elements(Range rows, Range channels) const {
    return cpu::staged_elements(grid_, rows, channels);
  }
  // `load` writes one whole source row; `staged` is filled completely.
  void stage(Range rows, Range channels, RowLoader<T> load, T* staged) const {
    cpu::stage(grid_, rows, channels, load, staged);
  }

  // Bytes of scratch that `compute` needs, aligned as T and std::int64_t are.
  std::size_t scratch_bytes() const;
  // Writes tile[k - ks.begin][position] for the positions of `rows` (flattened rows, w in full; tile_pitch
  // elements from one channel to the next) and result channels `ks`. `staged` was staged for the same rows and
  // for `channels`, which contain grid().channels_read_by(ks). `bias` has an element for each result channel, or
  // is null. Each result element has the same bits whatever tile it is part of.
  void compute(const T* staged, Range rows, Range channels, const T* packed, const T* bias, Range ks, T* tile,
               std::int64_t tile_pitch, std::byte* scratch) const;
  // The same from a dense weight, of which each block is packed when it is its turn, into `block` of
  // packed_block_elements(). For weights that are used once: they are read from memory and never written to it.
  void compute_packing(const T* staged, Range rows, Range channels, const T* weight, const T* bias, Range ks,
                       T* tile, std::int64_t tile_pitch, std::byte* scratch, T* block) const;

 private:
  // A block of result channels that the kernel keeps in registers; never of two groups.
  struct Block {
    Range ks;
    std::int64_t first_channel = 0;  // of the source channels it reads
    std::int64_t weights = 0;        // where its packed weights begin: [source channel][tap][block channel]
  };
  struct Piece;

  void pack_block(const T* weight, const Block& block, T* packed) const;
  Piece begin_tile(const T* staged, Range rows, Range channels, const T* bias, T* tile,
                   std::int64_t tile_pitch, std::byte* scratch) const;
  void compute_tile(const Piece& tile, Range rows, Range ks) const;
  void sum_piece(const Piece& piece, const Block& block) const;
  std::int64_t width(const Block& block) const { return block_width_ > 0 ? block_width_ : block.ks.size(); }
  void list_taps(const GridRun& run, Piece& piece) const;
  void begin_piece(std::int64_t start, Piece& piece) const;
  void broadcast_piece(const Piece& piece, const Block& block) const;
  void compute_rows(const Piece& tile, Range rows, Range ks) const;
  void compute_folded(const Piece& tile, Range rows, Range ks) const;

  ConvGrid grid_;
  const PackKernel<T>* pack_;
  const SumKernel<T>* kernel_;
  const BroadcastKernel<T>* broadcast_;  // null where there are too few result channels or terms for it
  std::vector<Block> blocks_;
  // Channels that the packed weights of a block have; 0: as many as the block has.
  std::int64_t block_width_ = 0;
  std::vector<Range> channel_blocks_;  // of the source channels of a group
};

extern template class ConvSource<float>;
extern template class ConvSource<double>;

}  // namespace fuseblock::cpu
