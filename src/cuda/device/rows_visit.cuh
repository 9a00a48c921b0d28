// The elements of the walk's next chunk, piece by piece.
template <class Sweep>
__device__ inline void visit(const Arguments& a, const Shares& shares, Walk<Sweep>& walk,
                             const Inputs& inputs) {
  const Count element = walk.element;
  const Count mine = element + (Count)(threadIdx.x % 32) * kVector;
  const long long offset = walk.offset;
  walk.element += kChunk;
  walk.offset += kChunk;
  if (Sweep::kByChannel)
    while (walk.channel_end <= element) next_channel(shares, walk);
  const Count length = stretch<Sweep>(shares);
  if (kWhole || element + kChunk <= walk.channel_end) {
    const Count position = mine - (walk.channel_end - length);
#pragma unroll
    for (int piece = 0; piece < kPieces; ++piece) {
      real results[Sweep::kResults][kVector];
#pragma unroll
      for (int i = 0; i < kVector; ++i)
        Sweep::program(a, walk.values, inputs, piece, i, walk.unit, walk.channel,
                       position + piece * kPiece + i, results);
      if constexpr (Sweep::kStatistics) walk.sums.add(results, kAllElements, piece == 0);
      Sweep::store(a, shares, walk.unit, mine + piece * kPiece, offset + piece * kPiece, results);
    }
    return;
  }
  // Channels end inside the chunk, or the unit does.
#pragma unroll
  for (int piece = 0; piece < kPieces; ++piece) {
    const Count first = mine + piece * kPiece;
    if (element + piece * kPiece >= shares.elements) break;
    const Count piece_end = element + (piece + 1) * kPiece;
    const Count end = piece_end < shares.elements ? piece_end : shares.elements;
    while (walk.channel_end <= element + piece * kPiece) next_channel(shares, walk);
    real results[Sweep::kResults][kVector];
    while (true) {
      const Count begin = walk.channel_end - length;
      unsigned int taken = 0;
#pragma unroll
      for (int i = 0; i < kVector; ++i) {
        if (first + i < begin || first + i >= walk.channel_end) continue;
        taken |= 1u << i;
        Sweep::program(a, walk.values, inputs, piece, i, walk.unit, walk.channel, first + i - begin, results);
      }
      if constexpr (Sweep::kStatistics) walk.sums.add(results, taken, true);
      if (walk.channel_end >= end) break;
      next_channel(shares, walk);
    }
    if (first < shares.elements) Sweep::store(a, shares, walk.unit, first, offset + piece * kPiece, results);
  }
}
