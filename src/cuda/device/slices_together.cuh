// One piece of a chunk: a row's vector, whose elements' sigmoids are computed together (device/sigmoids.cuh).
template <class Sweep>
__device__ inline void visit_piece(const Arguments& a, const Unit& unit, const Place& place, Count row,
                                   long long offset, const Inputs& inputs, int piece,
                                   const typename Sweep::Hoisted (&channels)[kVector],
                                   typename Sweep::VectorSums& sums) {
  typename Sweep::Results results[kVector];
  Sweep::programs(a, channels, inputs, piece, unit, place, row, results);
  sums.add(results);
  Sweep::store(a, offset, results);
}
