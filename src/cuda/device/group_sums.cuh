// Moments of the channels of a thread's vector, joined by groups of kGroup channels before anything is merged, in the kernels `slices_cluster` and
// `slices_whole`, where a sweep takes moments alone and nobody asks for those of single channels. `taken_of` is what they are taken of.

// Moments of a thread's channels while it takes positions: sums and squares of the distances from one element of the channel's group.
// Where that is far from the mean of the group, so is the variance large of which they are a part.
template <int kGroup>
struct GroupSums {
  real pivots[kVector], sums[kVector], squares[kVector];

  // `taken_of` is what the plan takes of an element's results.
  template <class Results>
  __device__ void start(const Place& place, const Results (&results)[kVector]) {
#pragma unroll
    for (int v = 0; v < kVector; ++v) {
      const bool begins = v == 0 || (place.column * kVector + v) % kGroup == 0;
      pivots[v] = begins ? taken_of(results[v]) : pivots[v > 0 ? v - 1 : 0];
      sums[v] = squares[v] = 0;
    }
  }
  template <class Results>
  __device__ void add(const Results (&results)[kVector]) {
#pragma unroll
    for (int v = 0; v < kVector; ++v) {
      const real distance = taken_of(results[v]) - pivots[v];
      sums[v] += distance;
      squares[v] += distance * distance;
    }
  }
  // What there is of the group that begins at channel `begin` of the vector, or before it, after so many positions.
  __device__ Moments<real> of_group(int begin, int positions) const {
    real sum = 0, square = 0, pivot = 0;
    int channels = 0;
#pragma unroll
    for (int v = 0; v < kVector; ++v) {
      if (v < begin || v >= begin + kGroup) continue;
      sum += sums[v];
      square += squares[v];
      pivot = pivots[v];
      ++channels;
    }
    const real count = channels * positions;
    if (count == 0) return {0, 0, 0};
    const real distance = quotient(sum, count);
    const real second = square - sum * distance;
    return {pivot + distance, second < 0 ? (real)0 : second, count};
  }
};

// A thread's part of each of its groups into the block's list, those of neighbouring lanes merged (device/group_lists.cuh).
template <int kGroup, class Sums>
__device__ inline void list_parts(const Place& place, const GroupSums<kGroup>& sums, int taken, Sums* list) {
  typedef parts::Groups<kGroup> All;
#pragma unroll
  for (int g = 0; g < All::kOfThread; ++g) {
    const int group = All::kWhole ? place.column / All::kColumnsOfOne * All::kOfThread + g
                                  : place.column * kVector / kGroup + g;
    const int begin = All::kWhole ? g * All::kJoined : group * kGroup - place.column * kVector;
    const Moments<real> part = sums.of_group(begin, taken);
    Sums total = *reinterpret_cast<const Sums*>(&part);
#pragma unroll
    for (int distance = All::kNeighbours / 2; distance > 0; distance /= 2)
      total.merge(warp::shuffle_down(total, distance));
    const int set = (place.column - All::first_column(group)) / All::kNeighbours;
    if (place.active && place.column % All::kNeighbours == 0 && begin < kVector)
      list[(place.row() * All::kSets + set) * All::kOfUnit + group] = total;
  }
}
