#include "cpu/conv/source.h"

#include <algorithm>
#include <array>

namespace fuseblock::cpu {
namespace {

// Source channels are summed in blocks whose packed weights and staged rows stay in L1 while the kernel walks
// along a piece. Blocks also bound the number of terms that one accumulator adds up. Both depend on the geometry
// alone, so that every target and every tile has the same blocks.
constexpr std::int64_t kChannelBlockBytes = 24 * 1024;
constexpr std::int64_t kChannelBlockTerms = 512;

// The broadcast kernel transposes its sums, which pays from this number of terms on; and it fills its blocks of two
// vectors up with zeros, at most one channel in this many. As the blocks above, this is decided for every target alike.
constexpr std::int64_t kFewestBroadcastTerms = 128;
constexpr std::int64_t kIdleChannels = 8;

// Whether taps along w read neighbouring elements, of some result phase at least.
bool has_neighbouring_taps(const GridAxis& axis) {
  return std::any_of(axis.taps.begin(), axis.taps.end(), [](const std::vector<AxisTap>& taps) {
    if (taps.size() < 2 || taps[0].phase != taps[1].phase) return false;
    const std::int64_t distance = taps[1].offset - taps[0].offset;
    return distance == 1 || distance == -1;
  });
}

// Whether the broadcast kernel can fill its lanes and has enough to add up.
template <typename T>
bool fills_broadcast(const ConvGrid& grid) {
  constexpr std::int64_t kBlock = kBroadcastVectors * 64 / sizeof(T);
  const std::int64_t channels = grid.result_channels_per_group();
  const std::int64_t padded = (channels + kBlock - 1) / kBlock * kBlock;
  return (padded - channels) * kIdleChannels <= padded &&
         grid.source_channels_per_group() * grid.filter_taps() >= kFewestBroadcastTerms;
}

// Without taps that share broadcasts the sum kernel needs fewer loads.
template <typename T>
bool shares_broadcasts(const ConvGrid& grid) {
  return has_neighbouring_taps(grid.axis(2)) && fills_broadcast<T>(grid);
}

// With few positions the sum kernel's lanes would be idle. Of one tap, whose terms both kernels add in the same order.
template <typename T>
bool has_few_positions(const ConvGrid& grid) {
  return grid.filter_taps() == 1 && grid.row_count() * grid.result()[2] <= kMaxBroadcastPositions &&
         fills_broadcast<T>(grid);
}

std::int64_t count_channel_blocks(const ConvGrid& grid, bool broadcast, std::int64_t element_bytes) {
  std::int64_t rows = 1;
  for (int i = 0; i < 2; ++i) {
    std::int64_t most = 1;
    for (const auto& taps : grid.axis(i).taps) most = std::max<std::int64_t>(most, std::ssize(taps));
    rows *= most;
  }
  const std::int64_t columns =
      broadcast ? kMaxBroadcastPositions * 2 : std::min(grid.axis(2).staged_extent(), kPiecePositions);
  const std::int64_t channel_bytes =
      (grid.filter_taps() * (broadcast ? kMaxBroadcastChannels : kMaxBlockChannels) + rows * columns) *
      element_bytes;
  const std::int64_t channels = std::max<std::int64_t>(
      1, std::min(kChannelBlockBytes / channel_bytes, kChannelBlockTerms / grid.filter_taps()));
  return (grid.source_channels_per_group() + channels - 1) / channels;
}

// Of the part of the scratch that has the taps and their segments: whole cache lines.
std::size_t tap_bytes(const ConvGrid& grid) {
  constexpr std::size_t kLine = 64;
  const auto taps = static_cast<std::size_t>(grid.filter_taps());
  return (taps * (sizeof(GridTap) + sizeof(TapSegment)) + kLine - 1) / kLine * kLine;
}

// Equal parts of neighbouring rows of a run.
struct Band {
  std::int64_t row = 0;
  std::int64_t rows = 0;
  Range columns;
  std::int64_t sums = 0;  // its first position, counted from the piece's
};

// The real positions of flat positions `part`: the end of a row, whole rows, the begin of a row.
std::array<Band, 3> bands_of(Range part, std::int64_t pitch, std::int64_t columns) {
  std::array<Band, 3> bands;
  std::int64_t row = part.begin / pitch;
  if (const std::int64_t column = part.begin - row * pitch; column > 0) {
    const Range rest = {column, std::min(column + part.size(), columns)};
    if (rest.size() > 0) bands[0] = {row, 1, rest, 0};
    ++row;
  }
  const std::int64_t whole = std::max<std::int64_t>(0, (part.end - row * pitch + pitch - columns) / pitch);
  bands[1] = {row, whole, {0, columns}, row * pitch - part.begin};
  row += whole;
  if (part.end > row * pitch) bands[2] = {row, 1, {0, part.end - row * pitch}, row * pitch - part.begin};
  return bands;
}

}  // namespace

// What the steps of `compute` share: the whole call, then narrowed down to a run and to a piece of its grid.
template <typename T>
struct ConvSource<T>::Piece {
  const T* staged = nullptr;
  Range channels;
  StagedLayout layout;
  const T* packed = nullptr;
  std::int64_t first_weight = 0;  // where `packed` begins in all packed weights
  const T* bias = nullptr;
  T* tile = nullptr;
  std::int64_t tile_pitch = 0;
  T* sums = nullptr;       // [block channel][kPiecePositions]
  T* broadcast = nullptr;  // [position][block channel]
  GridTap* taps = nullptr;
  std::int64_t tap_count = 0;
  TapSegment* segments = nullptr;
  std::int64_t segment_count = 0;
  PaddedColumns padded;
  std::int64_t start = 0;  // of the piece in a staged channel
  std::int64_t positions = 0;
};

template <typename T>
ConvSource<T>::ConvSource(const ConvGeometry& geometry, ConvDirection direction)
    : grid_(geometry, direction),
      pack_(&pack_kernel<T>()),
      kernel_(&sum_kernel<T>()),
      broadcast_(shares_broadcasts<T>(grid_) || has_few_positions<T>(grid_) ? &broadcast_kernel<T>()
                                                                            : nullptr) {
  if (broadcast_ != nullptr) block_width_ = kBroadcastVectors * broadcast_->lanes;
  const std::int64_t per_group = grid_.result_channels_per_group();
  const std::int64_t terms = grid_.source_channels_per_group() * grid_.filter_taps();
  const std::int64_t most = broadcast_ != nullptr ? block_width_ : kernel_->max_block_channels;
  const std::int64_t parts = (per_group + most - 1) / most;
  std::int64_t weights = 0;
  for (std::int64_t group = 0; group < grid_.groups(); ++group) {
    for (std::int64_t i = 0; i < parts; ++i) {
      const Range part = broadcast_ != nullptr ? Range{i * most, std::min((i + 1) * most, per_group)}
                                               : balanced_part(per_group, parts, i);
      blocks_.push_back({.ks = {group * per_group + part.begin, group * per_group + part.end},
                         .first_channel = group * grid_.source_channels_per_group(),
                         .weights = weights});
      weights += width(blocks_.back()) * terms;
    }
  }
  const std::int64_t channel_blocks = count_channel_blocks(grid_, shares_broadcasts<T>(grid_), sizeof(T));
  for (std::int64_t i = 0; i < channel_blocks; ++i)
    channel_blocks_.push_back(balanced_part(grid_.source_channels_per_group(), channel_blocks, i));
}

template <typename T>
std::size_t ConvSource<T>::packed_weight_elements() const {
  if (blocks_.empty()) return 0;
  const std::int64_t terms = grid_.source_channels_per_group() * grid_.filter_taps();
  return static_cast<std::size_t>(blocks_.back().weights + width(blocks_.back()) * terms);
}

template <typename T>
std::size_t ConvSource<T>::packed_block_elements() const {
  const std::int64_t terms = grid_.source_channels_per_group() * grid_.filter_taps();
  std::int64_t widest = 0;
  for (const Block& block : blocks_) widest = std::max(widest, width(block));
  return static_cast<std::size_t>(widest * terms);
}

template <typename T>
void ConvSource<T>::pack_weights(const T* weight, Range blocks, T* packed) const {
  for (std::int64_t i = blocks.begin; i < blocks.end; ++i)
    pack_block(weight, blocks_[i], packed + blocks_[i].weights);
}

template <typename T>
void ConvSource<T>::pack_block(const T* weight, const Block& block, T* packed) const {
  const Range channels = grid_.channels_read_by(block.ks);
  PackTask<T> task = {.row_stride = grid_.weight_stride(), .rows = block.ks.size(), .width = width(block)};
  // Filters of as many source channels at a time as lie one behind the other.
  const std::int64_t step = grid_.channels_lie_together() ? channels.size() : 1;
  task.columns = step * grid_.filter_taps();
  for (std::int64_t c = channels.begin; c < channels.end; c += step, packed += task.columns * task.width) {
    task.from = weight + grid_.weight_index(block.ks.begin, c, 0);
    pack_->pack(task, packed);
  }
}

template <typename T>
std::size_t ConvSource<T>::scratch_bytes() const {
  const std::int64_t sums = broadcast_ == nullptr
                                ? kMaxBlockChannels * kPiecePositions
                                : kMaxBroadcastChannels * (2 * kPiecePositions + kTransposedPositions);
  return tap_bytes(grid_) + static_cast<std::size_t>(sums) * sizeof(T);
}

template <typename T>
typename ConvSource<T>::Piece ConvSource<T>::begin_tile(const T* staged, Range rows, Range channels,
                                                        const T* bias, T* tile, std::int64_t tile_pitch,
                                                        std::byte* scratch) const {
  Piece piece;
  piece.staged = staged;
  piece.channels = channels;
  piece.layout = grid_.layout(rows);
  piece.bias = bias;
  piece.tile = tile;
  piece.tile_pitch = tile_pitch;
  piece.taps = reinterpret_cast<GridTap*>(scratch);
  piece.segments = reinterpret_cast<TapSegment*>(piece.taps + grid_.filter_taps());
  piece.sums = reinterpret_cast<T*>(scratch + tap_bytes(grid_));
  piece.broadcast = piece.sums + kMaxBroadcastChannels * kPiecePositions;
  return piece;
}

template <typename T>
void ConvSource<T>::compute_tile(const Piece& tile, Range rows, Range ks) const {
  if (grid_.folds()) {
    compute_folded(tile, rows, ks);
  } else {
    compute_rows(tile, rows, ks);
  }
}

template <typename T>
void ConvSource<T>::compute(const T* staged, Range rows, Range channels, const T* packed, const T* bias,
                            Range ks, T* tile, std::int64_t tile_pitch, std::byte* scratch) const {
  if (rows.size() <= 0 || ks.size() <= 0 || grid_.result()[2] == 0) return;
  Piece piece = begin_tile(staged, rows, channels, bias, tile, tile_pitch, scratch);
  piece.packed = packed;
  compute_tile(piece, rows, ks);
}

template <typename T>
void ConvSource<T>::compute_packing(const T* staged, Range rows, Range channels, const T* weight,
                                    const T* bias, Range ks, T* tile, std::int64_t tile_pitch,
                                    std::byte* scratch, T* block) const {
  if (rows.size() <= 0 || ks.size() <= 0 || grid_.result()[2] == 0) return;
  Piece piece = begin_tile(staged, rows, channels, bias, tile, tile_pitch, scratch);
  piece.packed = block;
  for (const Block& each : blocks_) {
    const Range part = {std::max(each.ks.begin, ks.begin), std::min(each.ks.end, ks.end)};
    if (part.size() <= 0) continue;
    pack_block(weight, each, block);
    piece.first_weight = each.weights;
    piece.tile = tile + (part.begin - ks.begin) * tile_pitch;
    compute_tile(piece, rows, part);
  }
}

// The taps of a run, and for the broadcast kernel their segments: each row of taps in the order of the staged row.
template <typename T>
void ConvSource<T>::list_taps(const GridRun& run, Piece& piece) const {
  piece.tap_count = grid_.list_taps(run, piece.layout, piece.taps);
  piece.segment_count = 0;
  if (broadcast_ == nullptr) return;
  const std::int64_t row_taps = std::ssize(grid_.axis(2).taps[run.phase[2]]);
  for (std::int64_t row = 0; row < piece.tap_count; row += row_taps) {
    GridTap* const taps = piece.taps + row;
    if (taps[row_taps - 1].offset < taps[0].offset) std::reverse(taps, taps + row_taps);
    bool neighbours = true;
    for (std::int64_t i = 1; i < row_taps; ++i)
      neighbours = neighbours && taps[i].offset == taps[i - 1].offset + 1;
    const std::int64_t most = neighbours ? broadcast_->max_taps : 1;
    const std::int64_t parts = (row_taps + most - 1) / most;
    for (std::int64_t i = 0; i < parts; ++i) {
      const Range part = balanced_part(row_taps, parts, i);
      TapSegment& segment = piece.segments[piece.segment_count++];
      segment.offset = taps[part.begin].offset;
      segment.column = segment.offset - taps[0].offset;
      segment.weights = taps[part.begin].tap * block_width_;
      segment.taps = part.size();
      segment.step = part.size() > 1 ? (taps[part.begin + 1].tap - taps[part.begin].tap) * block_width_ : 0;
    }
  }
}

// Where the zeros between the rows of the source lie, seen from a piece that begins there. Rows of taps are whole rows of
// the source apart, so the columns of one are those of all.
template <typename T>
void ConvSource<T>::begin_piece(std::int64_t start, Piece& piece) const {
  piece.start = start;
  piece.padded = {};
  const GridAxis& axis = grid_.axis(2);
  if (broadcast_ == nullptr || axis.pad_mode != PadMode::kZeros || axis.phases.size() != 1) return;
  const std::int64_t zeros = piece.layout.pitch - axis.unpadded[0].size();
  if (zeros == 0 || piece.tap_count == 0) return;
  piece.padded.pitch = piece.layout.pitch;
  piece.padded.zeros = zeros;
  piece.padded.first = axis.unpadded[0].end - (start + piece.taps[0].offset);
  for (std::int64_t i = 0; i < piece.segment_count; ++i)
    piece.padded.reach = std::max(piece.padded.reach, piece.segments[i].column + piece.segments[i].taps - 1);
}

// All terms of one block of result channels at the piece's positions.
template <typename T>
void ConvSource<T>::sum_piece(const Piece& piece, const Block& block) const {
  if (broadcast_ != nullptr) return broadcast_piece(piece, block);
  SumTask<T> task;
  task.channel_stride = piece.layout.channel_stride;
  task.taps = piece.taps;
  task.tap_count = piece.tap_count;
  task.filter_taps = grid_.filter_taps();
  task.block_channels = static_cast<int>(block.ks.size());
  task.bias = piece.bias == nullptr ? nullptr : piece.bias + block.ks.begin;
  task.out = piece.sums;
  task.positions = piece.positions;
  for (const Range& part : channel_blocks_) {
    task.staged = piece.staged + piece.start +
                  (block.first_channel + part.begin - piece.channels.begin) * piece.layout.channel_stride;
    task.channels = part.size();
    task.weights = piece.packed + block.weights - piece.first_weight +
                   part.begin * grid_.filter_taps() * block.ks.size();
    kernel_->add(task);
    task.first = false;
  }
}

template <typename T>
void ConvSource<T>::broadcast_piece(const Piece& piece, const Block& block) const {
  BroadcastTask<T> task;
  task.channel_stride = piece.layout.channel_stride;
  task.segments = piece.segments;
  task.segment_count = piece.segment_count;
  task.filter_taps = grid_.filter_taps();
  task.vectors = static_cast<int>((block.ks.size() + broadcast_->lanes - 1) / broadcast_->lanes);
  task.bias = piece.bias == nullptr ? nullptr : piece.bias + block.ks.begin;
  task.bias_channels = static_cast<int>(block.ks.size());
  task.padded = piece.padded;
  task.sums = piece.broadcast;
  task.positions = piece.positions;
  for (const Range& part : channel_blocks_) {
    task.staged = piece.staged + piece.start +
                  (block.first_channel + part.begin - piece.channels.begin) * piece.layout.channel_stride;
    task.channels = part.size();
    task.weights =
        piece.packed + block.weights - piece.first_weight + part.begin * grid_.filter_taps() * block_width_;
    broadcast_->add(task);
    task.first = false;
  }
  broadcast_->transpose(piece.broadcast, piece.positions, piece.sums, kPiecePositions);
}

template <typename T>
void ConvSource<T>::compute_rows(const Piece& tile, Range rows, Range ks) const {
  const std::int64_t pitch = tile.layout.pitch;
  const std::int64_t width = grid_.result()[2];
  const std::int64_t row_step = grid_.axis(1).result_step * width;
  const std::int64_t column_step = grid_.axis(2).result_step;
  // Copies the sums of a band to the tile, rows of the result without the columns between them.
  const auto compact = [&](const Band& band, const T* sums, T* run_tile) {
    const T* from = sums + band.sums;
    T* to = run_tile + band.row * row_step + band.columns.begin * column_step;
    if (column_step == 1) return kernel_->copy(from, pitch, band.rows, band.columns.size(), to, row_step);
    for (std::int64_t row = 0; row < band.rows; ++row, from += pitch, to += row_step) {
      for (std::int64_t i = 0; i < band.columns.size(); ++i) to[i * column_step] = from[i];
    }
  };
  const auto first_block = std::partition_point(blocks_.begin(), blocks_.end(),
                                                [&](const Block& block) { return block.ks.end <= ks.begin; });
  Piece piece = tile;
  grid_.for_each_run(rows, true, [&](const GridRun& run) {
    list_taps(run, piece);
    const std::int64_t start = grid_.start(run, piece.layout);
    T* const run_tile = tile.tile + (run.d * grid_.result()[1] + run.h - rows.begin) * width + run.phase[2];
    const std::int64_t run_positions = (run.rows - 1) * pitch + run.columns;
    for (std::int64_t first = 0; first < run_positions; first += kPiecePositions) {
      begin_piece(start + first, piece);
      piece.positions = std::min(kPiecePositions, run_positions - first);
      const std::array<Band, 3> bands = bands_of({first, first + piece.positions}, pitch, run.columns);
      for (auto block = first_block; block != blocks_.end() && block->ks.begin < ks.end; ++block) {
        sum_piece(piece, *block);
        for (std::int64_t k = std::max(block->ks.begin, ks.begin); k < std::min(block->ks.end, ks.end); ++k) {
          const T* const sums = piece.sums + (k - block->ks.begin) * kPiecePositions;
          for (const Band& band : bands) compact(band, sums, run_tile + (k - ks.begin) * tile.tile_pitch);
        }
      }
    }
  });
}

// Each result row is the sum of the padded rows that repeat it, each folded along w.
template <typename T>
void ConvSource<T>::compute_folded(const Piece& tile, Range rows, Range ks) const {
  const std::int64_t width = grid_.result()[2];
  const std::int64_t step = grid_.axis(2).result_step;
  for (std::int64_t k = ks.begin; k < ks.end; ++k) {
    T* const to = tile.tile + (k - ks.begin) * tile.tile_pitch;
    std::fill_n(to, rows.size() * width, tile.bias == nullptr ? T(0) : tile.bias[k]);
  }
  Piece piece = tile;
  piece.bias = nullptr;
  const auto add_run = [&](std::int64_t row, const GridRun& run) {
    list_taps(run, piece);
    const std::int64_t start = grid_.start(run, piece.layout);
    for (std::int64_t first = 0; first < run.columns; first += kPiecePositions) {
      begin_piece(start + first, piece);
      piece.positions = std::min(kPiecePositions, run.columns - first);
      for (const Block& block : blocks_) {
        const Range wanted = {std::max(block.ks.begin, ks.begin), std::min(block.ks.end, ks.end)};
        if (wanted.size() <= 0) continue;
        sum_piece(piece, block);
        for (std::int64_t k = wanted.begin; k < wanted.end; ++k) {
          const T* const sums = piece.sums + (k - block.ks.begin) * kPiecePositions;
          T* const to = piece.tile + (k - ks.begin) * piece.tile_pitch + (row - rows.begin) * width;
          for (std::int64_t i = 0; i < piece.positions; ++i)
            to[grid_.folded_column((first + i) * step + run.phase[2])] += sums[i];
        }
      }
    }
  };
  for (std::int64_t row = rows.begin; row < rows.end; ++row) {
    for (const std::int64_t d : grid_.folded(0, row / grid_.result()[1])) {
      for (const std::int64_t h : grid_.folded(1, row % grid_.result()[1]))
        grid_.for_each_run_of_row(d, h, [&](const GridRun& run) { add_run(row, run); });
    }
  }
}

template class ConvSource<float>;
template class ConvSource<double>;

}  // namespace fuseblock::cpu
