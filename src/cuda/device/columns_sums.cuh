// Gathered sums of the kernel `columns`: kSums sums over positions for each channel, taken along by its sweeps.
//
// A thread has the same channels in every tile, and keeps their sums over the tiles of its block, in registers or in its
// own columns of shared memory. At the end of a span (all tiles, or with kBySample those of one sample) they are merged:
// pairwise over the threads of a block that have the same channels; over a bundle of neighbouring blocks by the last of
// them that comes; over bundles by the last of these. The order is that of the blocks' numbers, whoever does it.
// A block's tiles follow each other, so that it has places `span + block` of the list in memory for itself, and a bundle
// `span + bundle`: a place has kSums numbers for each of kChannels channels.
//
// Before this stand device/columns_tile.cuh, device/team.cuh, `put_total`, which takes the sum over a whole span, and
// `finalise_all`, which works out what is made of the totals.

constexpr int kThreadChannels = kSteps * kElements;
constexpr int kSumWords = kThreadChannels * kSums;  // numbers of a thread

// What a thread keeps in registers.
struct Gathered {
  real sums[kSumsInShared ? 1 : kSumWords];
};

// The thread's column of shared memory: its numbers are kThreads apart.
__device__ inline real* sums_column(char* memory) {
  return reinterpret_cast<real*>(memory + kSumsOffset) + threadIdx.x;
}

__device__ inline void clear_sums(Gathered& gathered, real* column) {
#pragma unroll
  for (int i = 0; i < kSumWords; ++i) {
    if (kSumsInShared)
      column[i * kThreads] = 0;
    else
      gathered.sums[i] = 0;
  }
}

// Adds what a sweep has of one step.
template <class Sweep>
__device__ inline void gather_step(const Sites& sites, int step,
                                   const typename Sweep::Results (&results)[kPositions][kElements],
                                   Gathered& gathered, real* column) {
#pragma unroll
  for (int e = 0; e < kElements; ++e) {
    real sums[Sweep::kSums];
#pragma unroll
    for (int i = 0; i < Sweep::kSums; ++i) sums[i] = 0;
#pragma unroll
    for (int p = 0; p < kPositions; ++p)
      if (sites.inside[p]) Sweep::add_sums(results[p][e], sums);
#pragma unroll
    for (int i = 0; i < Sweep::kSums; ++i) {
      const int word = (step * kElements + e) * kSums + Sweep::kFirstSum + i;
      if (kSumsInShared)
        column[word * kThreads] += sums[i];
      else
        gathered.sums[word] += sums[i];
    }
  }
}

// The tiles of this block, one behind the other, and how they lie in spans.
struct Spans {
  Count span_tiles;   // of a span
  Count block_tiles;  // of a block, but for the last

  // The blocks, or bundles of them, that have tiles of a span; `share` is how many each has.
  __device__ Count first(Count span, Count share) const { return span * span_tiles / share; }
  __device__ Count last(Count span, Count share) const { return ((span + 1) * span_tiles - 1) / share; }
};

__device__ inline Spans spans_of(const Arguments& a) {
  return {(Count)(kBySample ? a.sample_tiles : a.tiles), (Count)a.block_tiles};
}

__device__ inline long long sums_place(Count span, int member, int number, int channel) {
  return ((long long)(span + member) * kSums + number) * kChannels + channel;
}

// Merges the sums of a span over the threads of this block, and clears them.
__device__ inline void end_span(const Arguments& a, const Place& place, const Spans& spans, Count span,
                                Gathered& gathered, char* memory) {
  real* column = sums_column(memory);
  if (!kSumsInShared) {
    __syncthreads();  // the tile's readers of this memory are done
#pragma unroll
    for (int i = 0; i < kSumWords; ++i) column[i * kThreads] = gathered.sums[i];
  }
#pragma unroll
  for (int half = kPlaces / 2; half > 0; half /= 2) {
    __syncthreads();
    if (place.group >= half) continue;
    const real* other = column + (thread_of_place({place.slot, place.group + half}) - (int)threadIdx.x);
#pragma unroll 4
    for (int i = 0; i < kSumWords; ++i) column[i * kThreads] += other[i * kThreads];
  }
  if (place.group == 0) {
    const bool whole = spans.first(span, spans.block_tiles) == spans.last(span, spans.block_tiles);
#pragma unroll 1
    for (int i = 0; i < kThreadChannels; ++i) {
      const int channel = channel_of(place, i / kElements, i % kElements);
      if (channel >= kChannels) continue;
#pragma unroll
      for (int number = 0; number < kSums; ++number) {
        const real sum = column[(i * kSums + number) * kThreads];
        if (whole)
          put_total(a, span, channel, number, sum);
        else
          a.block_sums[sums_place(span, (int)blockIdx.x, number, channel)] = sum;
      }
    }
  }
  __syncthreads();
  clear_sums(gathered, column);
}

// The sum of a channel over members of the list that have a share of the span.
template <class Number>
__device__ inline double merge_members(const Number* list, Count span, int first, int last, int number,
                                       int channel) {
  double total = 0;
#pragma unroll 8
  for (int member = first; member <= last; ++member) total += list[sums_place(span, member, number, channel)];
  return total;
}

// Behind the block's last tile: merges over blocks, and what is made of the totals.
__device__ inline void end_sums(const Arguments& a, const Spans& spans) {
  const int blocks = (int)gridDim.x;
  const int size = (int)a.bundle;  // blocks of a bundle, but for the last
  const int bundle = (int)blockIdx.x / size;
  const int first = bundle * size;
  const int last = first + size < blocks ? first + size - 1 : blocks - 1;
  if (!grid::is_last_of(a.finished + 1 + bundle, last - first + 1)) return;

  const Count tiles = (Count)a.tiles;
  const Count end_tile =
      (Count)(last + 1) * spans.block_tiles < tiles ? (last + 1) * spans.block_tiles : tiles;
  const Count last_span = (end_tile - 1) / spans.span_tiles;
  for (Count span = first * spans.block_tiles / spans.span_tiles; span <= last_span; ++span) {
    const int from = (int)spans.first(span, spans.block_tiles), to = (int)spans.last(span, spans.block_tiles);
    if (from == to) continue;
    const int own_from = from < first ? first : from, own_to = to > last ? last : to;
#pragma unroll
    for (int number = 0; number < kSums; ++number)
      for (int channel = (int)threadIdx.x; channel < kChannels; channel += kThreads) {
        const double total = merge_members(a.block_sums, span, own_from, own_to, number, channel);
        if (own_from == from && own_to == to)
          put_total(a, span, channel, number, total);
        else
          a.bundle_sums[sums_place(span, bundle, number, channel)] = total;
      }
  }
  const int bundles = (blocks + size - 1) / size;
  if (!grid::is_last_of(a.finished, bundles)) return;

  const Count share = size * spans.block_tiles;
  const Count span_count = tiles / spans.span_tiles;
  for (Count span = 0; span < span_count; ++span) {
    const int from = (int)spans.first(span, share), to = (int)spans.last(span, share);
    if (from == to) continue;
#pragma unroll
    for (int number = 0; number < kSums; ++number)
      for (int channel = (int)threadIdx.x; channel < kChannels; channel += kThreads)
        put_total(a, span, channel, number, merge_members(a.bundle_sums, span, from, to, number, channel));
  }
  __syncthreads();
  finalise_all(a);
}
