// Statistics of each channel that kernels over convolutions with few channels have kept, joined: lane by
// lane, warp by warp, and item by item of a sample.

// Leaves the statistics of all lanes and warps in `totals`.
template <class Sweep>
__device__ inline void merge_kept(const typename Sweep::Kept (&kept)[kColumns], int count, Shared& shared,
                                  typename Sweep::Sums* totals) {
  const int warp = (int)threadIdx.x / 32, lane = (int)threadIdx.x % 32;
#pragma unroll
  for (int e = 0; e < kColumns; ++e) {
    typename Sweep::Sums total = kept[e].whole(count);
#pragma unroll
    for (int distance = 4; distance < 32; distance *= 2) {
      const typename Sweep::Sums other = from_lane_at(total, distance);
      total.merge(other);
    }
    if (lane < 4 && channel_of(e) < kChannels) shared.list0[warp][channel_of(e)] = total;
  }
  __syncthreads();
  for (int c = (int)threadIdx.x; c < kChannels; c += kThreads) {
    typename Sweep::Sums total = shared.list0[0][c];
#pragma unroll 1
    for (int i = 1; i < kWarps; ++i) total.merge(shared.list0[i][c]);
    totals[c] = total;
  }
  __syncthreads();
}

// Joins the statistics of a sample's items, which lie in `list` item by item: true in the block that comes
// last, with the sample's own in `totals`. `arrived` is zero at the start of the launch.
template <class Sums>
__device__ inline bool join_items(const Arguments& a, int item, Sums* list, unsigned int* arrived,
                                  Sums* totals) {
  const int items = (int)a.sample_items;
  if (items == 1) return true;
  __shared__ bool last;
  for (int c = (int)threadIdx.x; c < kChannels; c += kThreads) list[item * kChannels + c] = totals[c];
  __threadfence();
  __syncthreads();
  if (threadIdx.x == 0) last = atomicAdd(arrived, 1u) == (unsigned int)items - 1;
  __syncthreads();
  if (!last) return false;
  __threadfence();
  for (int c = (int)threadIdx.x; c < kChannels; c += kThreads) {
    Sums total;
    total.clear();
#pragma unroll 1
    for (int i = 0; i < items; ++i) total.merge(read_of_other_block(list + i * kChannels + c));
    totals[c] = total;
  }
  __syncthreads();
  return true;
}
