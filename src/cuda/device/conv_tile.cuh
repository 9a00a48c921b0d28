// Tiles of the kernel `conv`: which positions they have, and their input in shared memory.
//
// A tile is kTileD x kTileH x kTileW positions of the result. Its input is kBoxD x kBoxH x kBoxW elements of
// each channel, zeros where it reaches beyond the tensor, staged as [channel][d][h][w] with rows kPitch
// apart, planes kPlane and channels kVolume: a tap of the filter is an offset, the same for all positions.
// Rows are copied kVector elements at a time. The box begins kLead columns before the input of the tile's
// first position without padding: kPadW, or more, so that vectors are aligned.
//
// Before this stand the constants, Arguments, and input_data and input_offset, the tensor that is convolved.

constexpr int kTilePositions = kTileD * kTileH * kTileW;
constexpr int kRowCopies = kBoxW / kVector;
constexpr int kCopies = kInChannels * kBoxD * kBoxH * kRowCopies;
constexpr int kStageElements = kInChannels * kVolume;

// A position of the result; a tile by its first one.
struct Corner {
  int d, h, w;

  __device__ operator Position() const { return {d, h, w}; }
};

__device__ inline Corner corner_of(const Arguments& a, int tile) {
  const int row = tile / (int)a.tiles_w;
  return {row / (int)a.tiles_h * kTileD, row % (int)a.tiles_h * kTileH,
          (tile - row * (int)a.tiles_w) * kTileW};
}

// A vector of the staged input.
struct Piece {
  Element* staged;
  int c, d, h, w;  // in the tensor

  __device__ bool inside(const Arguments& a) const {
    return d >= 0 && d < (int)a.in_d && h >= 0 && h < (int)a.in_h && w >= 0 && w < (int)a.in_w;
  }
};

__device__ inline Piece piece_of(const Corner& corner, int number, Element* staged) {
  int rest = number / kRowCopies;
  const int w = (number - rest * kRowCopies) * kVector;
  const int h = rest % kBoxH;
  rest /= kBoxH;
  const int d = rest % kBoxD;
  const int c = rest / kBoxD;
  return {staged + c * kVolume + d * kPlane + h * kPitch + w, c, corner.d * kStrideD - kPadD + d,
          corner.h * kStrideH - kPadH + h, corner.w * kStrideW - kLead + w};
}

// Begins to copy a tile's input.
__device__ inline void stage(const Arguments& a, int n, const Corner& corner, Element* staged) {
  for (int i = (int)threadIdx.x; i < kCopies; i += kThreads) {
    const Piece piece = piece_of(corner, i, staged);
    if (piece.inside(a)) {
      thread::copy_begin(reinterpret_cast<Vector<Element>*>(piece.staged),
                         reinterpret_cast<const Vector<Element>*>(
                             input_data(a) + input_offset(a, n, piece.c, piece.d, piece.h, piece.w)));
    } else {
#pragma unroll
      for (int j = 0; j < kVector; ++j) assign(piece.staged[j], 0);
    }
  }
  thread::copy_commit();
}

// Rounds what this thread has copied, once its copies have ended.
__device__ inline void round_staged(const Corner& corner, Element* staged) {
  for (int i = (int)threadIdx.x; i < kCopies; i += kThreads) {
    Element* place = piece_of(corner, i, staged).staged;
#pragma unroll
    for (int j = 0; j < kVector; ++j) assign(place[j], to_tf32(to_real(place[j])));
  }
}

// The positions of a lane in a group of kMTiles * 16: rows g and g + 8 of each product. Positions are flat
// over the tile; where kDown, rows of the image are taken kMTiles at a time, one for each product.
struct Sites {
  int bases[kRows];     // places in the staged input, in bytes
  Corner at[kRows];     // in the result; the tile's first for those that are not there
  unsigned int inside;  // a bit for each
};

__device__ inline Sites sites_of(const Arguments& a, const Corner& corner, int group) {
  constexpr int kTogether = kDown != 0 ? kMTiles : 1;  // rows of the image
  Sites sites;
  sites.inside = 0;
#pragma unroll
  for (int i = 0; i < kRows; ++i) {
    const int p =
        (kDown != 0 ? group * 16 + i % 2 * 8 : group * (kMTiles * 16) + i * 8) + (int)threadIdx.x % 32 / 4;
    const int row = p / kTileW, w = p - row * kTileW;
    const int d = row / (kTileH / kTogether);
    const int h = (row - d * (kTileH / kTogether)) * kTogether + (kDown != 0 ? i / 2 : 0);
    const bool of_tile = p < kTilePositions / kTogether;
    sites.at[i] = {corner.d + d, corner.h + h, corner.w + w};
    const bool inside = of_tile && sites.at[i].d < (int)a.out_d && sites.at[i].h < (int)a.out_h &&
                        sites.at[i].w < (int)a.out_w;
    if (inside) sites.inside |= 1u << i;
    sites.bases[i] = of_tile
                         ? (d * kStrideD * kPlane + h * kStrideH * kPitch + w * kStrideW + kLead - kPadW) *
                               (int)sizeof(Element)
                         : 0;
    if (!inside) sites.at[i] = {corner.d, corner.h, corner.w};
  }
  return sites;
}
