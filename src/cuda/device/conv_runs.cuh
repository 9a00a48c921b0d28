// Statistics of each channel where blocks take runs of tiles, which may go over several spans (a sample with
// a block of channels), in `conv_wide` and `conv_deep`. A block leaves what it has of a span in a list in
// memory; the block that comes last of a sample merges the lists, in an order that depends on the shapes and
// the grid alone.
//
// Before this stand the kernel's tiles (block_of, channels_of and first_channel_of), Shared and
// device/conv_sums.cuh.

// The blocks that have tiles of a span.
__device__ inline int first_block(const Arguments& a, int span) { return block_of(a, span * (int)a.tiles); }
__device__ inline int last_block(const Arguments& a, int span) {
  return block_of(a, (span + 1) * (int)a.tiles - 1);
}

// Merged over lanes at the distances kFirst, 2 * kFirst, ... below kEnd.
template <int kFirst, int kEnd, class Sums>
__device__ inline Sums merge_lanes_at(Sums total) {
#pragma unroll
  for (int distance = kFirst; distance < kEnd; distance *= 2) total.merge(from_lane_at(total, distance));
  return total;
}

// How many neighbouring threads of a crew merge the runs of a channel: a power of two.
__device__ constexpr int mergers_of(int threads) {
  int mergers = 1;
  while (mergers < 32 && 2 * mergers * kBlockChannels <= threads) mergers *= 2;
  return mergers;
}

// The statistics of a span's runs, of channel c of the block by kMergers neighbouring threads: each takes
// every kMergers-th run, some at once, since they come from afar.
template <int kMergers, class Sums>
__device__ inline Sums merge_runs(const Arguments& a, const Sums* list, int span, int c) {
  constexpr int kAtOnce = 8;
  const int end = last_block(a, span);
  Sums total;
  total.clear();
#pragma unroll 1
  for (int run = first_block(a, span) + (int)threadIdx.x % kMergers; run <= end; run += kMergers * kAtOnce) {
    Sums some[kAtOnce];
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i)
      some[i] = read_of_other_block(list + (min(run + i * kMergers, end) + span) * kBlockChannels + c);
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i)
      if (run + i * kMergers <= end) total.merge(some[i]);
  }
  return merge_lanes_at<1, kMergers>(total);
}

// Joins the statistics that the crew has put into `list0`, lists of a block's channels, with those of all
// other runs of the sample: true in the block that comes last, with the sample's own in `totals0`.
template <class Crew, class Sums, int kLists, int kListed>
__device__ inline bool join_runs(const Arguments& a, const Unit& unit, int span,
                                 const Sums (&list0)[kLists][kListed]) {
  Crew::sync();
  // Runs have their places in the order of blocks and spans.
  const int channels = channels_of(channel_block_of(span));
  for (int c = Crew::thread(); c < channels; c += Crew::kCrewThreads) {
    Sums total = list0[0][c];
#pragma unroll 1
    for (int i = 1; i < kLists; ++i) total.merge(list0[i][c]);
    a.list0[((int)blockIdx.x + span) * kBlockChannels + c] = total;
  }
  __threadfence();
  Crew::sync();
  __shared__ bool last;
  const int spans = unit.n * kChannelBlocks;
  if (Crew::thread() == 0) {
    int runs = 0;
    for (int i = 0; i < kChannelBlocks; ++i) runs += last_block(a, spans + i) - first_block(a, spans + i) + 1;
    last = atomicAdd(a.arrived + unit.n, 1u) == (unsigned int)runs - 1;
  }
  Crew::sync();
  if (!last) return false;
  __threadfence();
  constexpr int kMergers = mergers_of(Crew::kCrewThreads);
#pragma unroll 1
  for (int block = 0; block < kChannelBlocks; ++block)
#pragma unroll 1
    for (int first = 0; first < channels_of(block); first += Crew::kCrewThreads / kMergers) {
      const int c = first + Crew::thread() / kMergers;
      const bool there = c < channels_of(block);
      const Sums total = merge_runs<kMergers>(a, a.list0, spans + block, there ? c : 0);
      if (there && Crew::thread() % kMergers == 0) unit.values->totals0[first_channel_of(block) + c] = total;
    }
  Crew::sync();
  return true;
}
