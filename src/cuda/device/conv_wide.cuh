// conv_wide: a sweep over a convolution with many channels, by tensor cores, tile by tile
// (device/conv_wide_tile.cuh).
//
// Tiles are numbered sample by sample, channel block by channel block; a thread block takes a run of them,
// all runs as long as each other, which may go over several samples. It goes by stages of weights, which are
// copied kStages - 1 ahead into a ring. The input of the next chunk of channels, or of the next tile, is
// fetched and put beside the products of this one, some cells a stage, so that the products never wait for a
// tile to begin. kWarpsM x kWarpsN warps have kMTiles * 16 positions and kNTiles * 8 channels of a tile each;
// a lane has kRows positions and kColumns channels. Their sums start at the bias, stay in registers and go
// through the sweep's program and sinks there.
//
// Statistics of each channel are kept by each thread over all tiles of a span (a sample with a block of
// channels), in shared memory between tiles; then merged lane by lane and warp by warp, and run by run of the
// sample by the block that comes last, in an order that depends on the shapes and the grid alone.
//
// Before this stand device/conv_wide_tile.cuh, device/conv_wide_mma.cuh, Shared, device/conv_sums.cuh and
// device/conv_runs.cuh; behind it the program of the sweep, the finalise steps and `finish_sample`, which
// calls them; last the kernel, device/conv_wide.cu.

__device__ void finish_sample(const Arguments& a, const Unit& unit);

__device__ inline int warp_row() { return (int)threadIdx.x / 32 % kWarpsM; }
__device__ inline int warp_column() { return (int)threadIdx.x / 32 / kWarpsM; }

// A lane's channel in its block of channels, by its number among kColumns.
__device__ inline int channel_of(int e) {
  return warp_column() * kNTiles * 8 + e / 2 * 8 + (int)threadIdx.x % 4 * 2 + e % 2;
}

// Addresses of a lane's rows: of the staged input for each product of 16 positions, of a stage of weights for
// its first two of eight channels.
__device__ inline void find_rows(const Arguments& a, const Tile& tile, unsigned int (&rows)[kMTiles]) {
  const int lane = (int)threadIdx.x % 32;
#pragma unroll
  for (int m = 0; m < kMTiles; ++m)
    rows[m] = (site_of(a, tile, (warp_row() * kMTiles + m) * 16 + lane % 16).place + lane / 16 * kQuad) * 16;
}
__device__ inline unsigned int column_offset() {
  const int lane = (int)threadIdx.x % 32;
  return (lane / 8 % 2 * kBlockChannels + warp_column() * kNTiles * 8 + lane / 16 * 8 + lane % 8) * 16;
}

// The program and the sinks, for the sums of a tile.
template <class Sweep>
__device__ inline void take_sums(const Arguments& a, const Unit& unit, const Tile& tile, Shared& shared,
                                 const float (&sums)[kMTiles][kNTiles][4], int& count) {
  const int block = channel_block_of(tile.span);
  const int first = first_channel_of(block), channels = channels_of(block);
  typename Sweep::Places places[kRows];
  unsigned int inside = 0;
#pragma unroll
  for (int i = 0; i < kRows; ++i) {
    const Site site =
        site_of(a, tile, (warp_row() * kMTiles + i / 2) * 16 + i % 2 * 8 + (int)threadIdx.x % 32 / 4);
    if (site.inside) inside |= 1u << i;
    places[i] = Sweep::places(a, unit, site);
  }
#pragma unroll
  for (int e = 0; e < kColumns; ++e) {
    const bool there = kGroupOut % kBlockChannels == 0 || channel_of(e) < channels;
    const int c = first + (there ? channel_of(e) : 0);
    const typename Sweep::Channel channel = unit.values->channels0[c];
    const typename Sweep::Steps steps = Sweep::steps(a, c);
    typename Sweep::Results results[kRows];
#pragma unroll
    for (int i = 0; i < kRows; ++i)
      results[i] = Sweep::program(channel, places[i], steps, sums[i / 2][e / 2][i % 2 * 2 + e % 2]);
    // Most tiles have all their positions: those go without branches.
    constexpr unsigned int kAll = (1u << kRows) - 1;
    if constexpr (Sweep::kStatistics) {
      typename Sweep::Kept& kept = shared.kept0[e][threadIdx.x];
      if (count == 0) kept.begin(results, inside);
      if (inside == kAll)
        kept.add(results, kAll);
      else
        kept.add(results, inside);
    }
    if (there && inside == kAll) {
#pragma unroll
      for (int i = 0; i < kRows; ++i) Sweep::store(places[i], steps, results[i]);
    } else if (there) {
#pragma unroll
      for (int i = 0; i < kRows; ++i)
        if (inside >> i & 1) Sweep::store(places[i], steps, results[i]);
    }
  }
  count += __popc(inside);
}

template <class Sweep>
__device__ inline void begin_span(const Arguments& a, const Unit& unit, int span, Shared& shared,
                                  int& count) {
  const int block = channel_block_of(span);
  const int first = first_channel_of(block), channels = channels_of(block);
  __syncthreads();
  for (int c = (int)threadIdx.x; c < channels; c += kThreads)
    Sweep::read_channel(a, unit, first + c, unit.values->channels0[first + c]);
  if constexpr (Sweep::kStatistics) {
#pragma unroll
    for (int e = 0; e < kColumns; ++e) shared.kept0[e][threadIdx.x].clear();
  }
  count = 0;
  __syncthreads();
}

// Merges the block's statistics of a span, and those of the whole sample where it is the last to come.
template <class Sweep>
__device__ inline void end_span(const Arguments& a, const Unit& unit, int span, Shared& shared, int count) {
#pragma unroll
  for (int e = 0; e < kColumns; ++e) {
    const typename Sweep::Sums total = merge_lanes_at<4, 32>(shared.kept0[e][threadIdx.x].whole(count));
    if (threadIdx.x % 32 < 4) shared.list0[warp_row()][channel_of(e)] = total;
  }
  if (join_runs<Block>(a, unit, span, shared.list0)) finish_sample(a, unit);
}

// All tiles of a block's run. `image` has room for the staged input of two chunks, `ring` for kStages stages
// of weights.
template <class Sweep>
__device__ inline void sweep_run(const Arguments& a, Shared& shared, char* image, char* ring) {
  const int begin = run_begin(a, (int)blockIdx.x), end = run_begin(a, (int)blockIdx.x + 1);
  if (begin >= end) return;
  Stage ahead = first_stage(a, begin);
#pragma unroll 1
  for (int i = 0; i < kStages - 1; ++i) {
    if (ahead.tile < end) {
      begin_weights(a, ahead, ring + i * kStageBytes);
      advance(a, end, ahead);
    }
    thread::copy_commit();
  }
  // Registers are for products: tiles are in shared memory, this one and the next, and the last, which some
  // may still read.
  constexpr int kTiles = 3;
  if (threadIdx.x == 0) shared.tiles[begin % kTiles] = tile_of(a, begin);
  __syncthreads();
#pragma unroll 1
  for (int i = 0; i < kThreadCells; ++i)
    put(fetch(a, source_of(a, shared.tiles[begin % kTiles], 0), i, shared.offsets), image);

  const unsigned int images = (unsigned int)__cvta_generic_to_shared(image);
  const unsigned int columns = (unsigned int)__cvta_generic_to_shared(ring) + column_offset();
  int slot = 0, buffer = 0;
  int count = 0;
#pragma unroll 1
  for (int number = begin; number < end; ++number) {
    const Tile& tile = shared.tiles[number % kTiles];
    const Tile& next = shared.tiles[(number + 1) % kTiles];
    if (threadIdx.x == 0 && number + 1 < end) shared.tiles[(number + 1) % kTiles] = tile_of(a, number + 1);
    __syncthreads();
    const Unit unit = {sample_of(tile.span), 0, &shared.values};
    if (number == begin || number % (int)a.tiles == 0) begin_span<Sweep>(a, unit, tile.span, shared, count);
    unsigned int rows[kMTiles];
    find_rows(a, tile, rows);
    float sums[kMTiles][kNTiles][4];
    const int block = channel_block_of(tile.span);
#pragma unroll
    for (int e = 0; e < kColumns; ++e) {
      const bool there = kGroupOut % kBlockChannels == 0 || channel_of(e) < channels_of(block);
      const float bias =
          there ? Sweep::bias(unit.values->channels0[first_channel_of(block) + channel_of(e)]) : 0.0f;
#pragma unroll
      for (int m = 0; m < kMTiles; ++m) sums[m][e / 2][e % 2] = sums[m][e / 2][2 + e % 2] = bias;
    }
#pragma unroll 1
    for (int chunk = 0; chunk < kChunks; ++chunk) {
      const bool more = chunk + 1 < kChunks || number + 1 < end;
      const Source source = chunk + 1 < kChunks ? source_of(a, tile, chunk + 1) : source_of(a, next, 0);
      char* other = image + (1 - buffer) * kImageBytes;
      int cell = more ? 0 : kThreadCells;
#pragma unroll 1
      for (int depth = tile.depth; depth < tile.depth_end; ++depth)
#pragma unroll 1
        for (int part = 0; part < kFilterH * kRowParts; ++part) {
          thread::copy_wait_constant<kStages - 2>();
          __syncthreads();
          if (ahead.tile < end) {
            begin_weights(a, ahead, ring + (slot == 0 ? kStages - 1 : slot - 1) * kStageBytes);
            advance(a, end, ahead);
          }
          thread::copy_commit();
          Fetched cells[kPieces];
#pragma unroll
          for (int i = 0; i < kPieces; ++i) {
            cells[i].place = -1;
            if (cell + i < kThreadCells) cells[i] = fetch(a, source, cell + i, shared.offsets);
          }
          const int place = depth * kPlane + part / kRowParts * kDilationH * kPitch +
                            part % kRowParts * kRowTaps * kDilationW;
          multiply(rows, images + buffer * kImageBytes + place * 16, columns + slot * kStageBytes, sums);
#pragma unroll
          for (int i = 0; i < kPieces; ++i) put(cells[i], other);
          cell += kPieces;
          slot = slot + 1 == kStages ? 0 : slot + 1;
        }
#pragma unroll 1
      for (; cell < kThreadCells; ++cell) put(fetch(a, source, cell, shared.offsets), other);
      buffer = 1 - buffer;
    }
    take_sums<Sweep>(a, unit, tile, shared, sums, count);
    if constexpr (Sweep::kStatistics)
      if (number + 1 == end || (number + 1) % (int)a.tiles == 0)
        end_span<Sweep>(a, unit, tile.span, shared, count);
  }
}
