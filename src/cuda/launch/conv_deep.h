// The launch of a kernel `conv_deep`: how its positions and channels are divided into tiles.
#pragma once

#include "cuda/emit/conv_deep_text.h"
#include "cuda/launch/conv_wide.h"

namespace fuseblock::cuda {

// Whether `conv_deep` takes a convolution on a GPU.
bool conv_deepens(const Gpu& gpu, const ConvWideWork& work);

ConvDeepConstants divide_conv_deep(const Gpu& gpu, const ConvWideWork& work);
// Those worth measuring, whatever the wishes are.
std::vector<Division> conv_deep_divisions(const Gpu& gpu, const ConvWideWork& work);

// What a multiprocessor takes for its share, about.
double conv_deep_clocks(const Gpu& gpu, const ConvWideWork& work);

// Shared memory of a thread block.
int conv_deep_bytes(const ConvDeepConstants& constants, const ConvWideWork& work);

struct ConvDeepTiles {
  std::int64_t of_strip = 1;  // of one plane
  std::int64_t of_plane = 1;
  std::int64_t of_span = 1;  // a sample with a block of channels
  std::int64_t spans = 1;
  std::int64_t weight_bytes = 0;  // in the order of conv_weights
  // What a filter depth that meets the input costs beside a tile's own 1; 0 where runs have as many tiles
  // each. The whole is the sum over all tiles.
  std::int64_t depth_cost = 0;
  std::int64_t cost = 1;

  std::int64_t all() const { return of_span * spans; }
};
// `blocks` is how many run at once.
ConvDeepTiles conv_deep_tiles(const ConvDeepConstants& constants, const ConvWideWork& work,
                              std::int64_t blocks);

}  // namespace fuseblock::cuda
