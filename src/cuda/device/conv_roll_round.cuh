// A round of the kernel `conv_roll` (device/conv_roll_rounds.cuh): the positions that a lane has in it, whose
// turn it is, and its products. Instructions bound these kernels, so they are as few as can be.

// Position p of a strip's band.
struct Site {
  Corner at;
  bool inside;
};
__device__ inline Site site_at(const Arguments& a, const Strip& strip, unsigned int p, int depth) {
  const int w = (int)(p % kPitch);
  return {{depth, (int)(p / kPitch), strip.column + w},
          w < kTileW && (kOneBand || strip.column + w < (int)a.out_w) && p < (unsigned int)a.out_h * kPitch};
}

// The first of a lane's positions in a round; the other is eight behind it.
__device__ inline unsigned int first_position(const Strip& strip, int round) {
  return strip.first + first_of(round) + (int)threadIdx.x / 32 % 4 * 16 + (int)threadIdx.x % 32 / 4;
}

__device__ inline Sites sites_of_round(const Arguments& a, const Strip& strip, int round, int depth) {
  Sites sites;
  sites.inside = 0;
#pragma unroll
  for (int i = 0; i < kRows; ++i) {
    const Site site = site_at(a, strip, first_position(strip, round) + i * 8, depth);
    if (site.inside) sites.inside |= 1u << i;
    sites.at[i] = {depth, site.inside ? site.at.h : 0, site.inside ? site.at.w : strip.column};
  }
  return sites;
}

// Warpgroups take turns at something, from the first to the last and so on: a barrier for each, of itself and
// the one before it. `begin` comes before all turns, `end` behind them.
namespace turns {

constexpr int kGroups = kThreads / 128;
constexpr int kFirstBarrier = 1;  // 0 is that of __syncthreads

__device__ inline void wait(int group) {
  asm volatile("bar.sync %0, 256;" ::"r"(kFirstBarrier + group) : "memory");
}
__device__ inline void pass_on(int group) {
  asm volatile("bar.arrive %0, 256;" ::"r"(kFirstBarrier + (group + 1) % kGroups) : "memory");
}
__device__ inline void begin(int group) {
  if (group == kGroups - 1) pass_on(group);
}
__device__ inline void end(int group) {
  if (group == 0) wait(group);
}

}  // namespace turns

// The upper halves of descriptors of matrices, which are the same for all. The compiler does not know that
// nothing is added to them: one for each factor, they stay in the registers where products look for them.
struct UpperHalves {
  unsigned int rows, weights;

  __device__ explicit UpperHalves(const Arguments& a)
      : rows((unsigned int)(matrix_at(0, 0) >> 32) | (unsigned int)(a.strips >> 32)),
        weights((unsigned int)(matrix_at(0, 0) >> 32) | (unsigned int)(a.tiles >> 32)) {}
};
__device__ inline unsigned long long matrix_of(unsigned int lower, unsigned int upper) {
  unsigned long long matrix;
  asm("mov.b64 %0, {%1, %2};" : "=l"(matrix) : "r"(lower), "r"(upper));
  return matrix;
}

// The products of a round, whose sums begin at 0: as `multiply`, with less to do for descriptors.
__device__ inline void multiply_round(const Arguments& a, unsigned int rows, unsigned int weights,
                                      unsigned int zeros, float (&sums)[kSums]) {
  const UpperHalves upper(a);
  bool fresh = true;
  auto step = [&](int k, int part_of_rows, int part_of_weights) {
    const unsigned int from = rows + part_of_rows * kStageRows + chunk_offset(2 * k);
    const unsigned int next =
        2 * k + 1 < kChunks ? chunk_offset(2 * k + 1) - chunk_offset(2 * k) : zeros - from;
    const unsigned int by = weights + (part_of_weights * 2 * kSteps + 2 * k) * kWeightRows;
    warpgroup::multiply(sums, matrix_of(from + (next << 16), upper.rows),
                        matrix_of(by + (kWeightRows << 16), upper.weights), fresh ? 0 : 1);
    fresh = false;
  };
  if constexpr (kMode == kStrict) {
#pragma unroll
    for (int k = 0; k < kSteps; ++k) {
      if constexpr (kSteps <= 2) step(k, 1, 1);
      step(k, 1, 0);
      step(k, 0, 1);
    }
    // Nothing is added, which the compiler does not know: so it keeps no descriptor for the second time.
    rows += upper.rows >> 4;
    weights += upper.weights >> 4;
  }
#pragma unroll
  for (int k = 0; k < kSteps; ++k) step(k, 0, 0);
}
