// Which positions of the result a lane of the kernel `conv_roll` has.

// A position of the result.
struct Corner {
  int d, h, w;

  __device__ operator Position() const { return position_at(d, h, w); }
};

// The first of a warpgroup's 64 positions of its product m, in the strip.
__device__ inline int first_of(int m) {
  return kThreads == 128 ? m * 64 : (m * (kThreads / 128) + (int)threadIdx.x / 128) * 64;
}

// The positions of a lane in its warpgroup's product m: rows g and g + 8 of a warp's 16.
struct Sites {
  Corner at[kRows];     // the band's first for those that are not there
  unsigned int inside;  // a bit for each
};

__device__ inline Sites sites_of(const Arguments& a, const Strip& strip, int m) {
  Sites sites;
  sites.inside = 0;
#pragma unroll
  for (int i = 0; i < kRows; ++i) {
    const unsigned int p =
        strip.first + first_of(m) + (int)threadIdx.x / 32 % 4 * 16 + i * 8 + (int)threadIdx.x % 32 / 4;
    const int h = (int)(p / kPitch), place = (int)(p % kPitch), w = column_at(place);
    const bool inside = place < kTileW && strip.column + w < (int)a.out_w && h < (int)a.out_h;
    if (inside) sites.inside |= 1u << i;
    sites.at[i] = {0, inside ? h : 0, inside ? strip.column + w : strip.column};
  }
  return sites;
}
