// The elements of the walk's next chunk, piece by piece, where channels end inside of chunks and not inside of vectors (56 x 56
// positions), and no statistics are taken of single channels: every lane is at a channel of its own.
template <class Sweep>
__device__ inline void visit(const Arguments& a, const Shares& shares, Walk<Sweep>& walk,
                             const Inputs& inputs) {
  const Count mine = walk.element + (Count)(threadIdx.x % 32) * kVector;
  const long long offset = walk.offset;
  walk.element += kChunk;
  walk.offset += kChunk;
  const Count length = stretch<Sweep>(shares);
#pragma unroll
  for (int piece = 0; piece < kPieces; ++piece) {
    const Count first = mine + piece * kPiece;
    if (first >= shares.elements) break;
    if (Sweep::kByChannel)
      while (walk.channel_end <= first) next_channel(shares, walk);
    real results[Sweep::kResults][kVector];
#pragma unroll
    for (int i = 0; i < kVector; ++i)
      Sweep::program(a, walk.values, inputs, piece, i, walk.unit, walk.channel,
                     first - (walk.channel_end - length) + i, results);
    if constexpr (Sweep::kStatistics) walk.sums.add(results, kAllElements, piece == 0);
    Sweep::store(a, shares, walk.unit, first, offset + piece * kPiece, results);
  }
}
