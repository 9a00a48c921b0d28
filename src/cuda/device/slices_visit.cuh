// One piece of a chunk: a row's vector.
template <class Sweep>
__device__ inline void visit_piece(const Arguments& a, const Unit& unit, const Place& place, Count row,
                                   long long offset, const Inputs& inputs, int piece,
                                   const typename Sweep::Hoisted (&channels)[kVector],
                                   typename Sweep::VectorSums& sums) {
  typename Sweep::Results results[kVector];
#pragma unroll
  for (int v = 0; v < kVector; ++v)
    results[v] = Sweep::program(a, channels[v], inputs, piece, v, unit, place, row);
  sums.add(results);
  Sweep::store(a, offset, results);
}
