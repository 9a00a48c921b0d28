// The launch of a kernel `conv`: how its positions are divided into tiles and items.
#pragma once

#include <cstdint>

#include "cuda/conv_sum.h"
#include "cuda/emit/conv_text.h"
#include "cuda/gpu.h"
#include "cuda/launch/cheapest.h"
#include "cuda/launch/conv_wishes.h"
#include "cuda/launch/kernel.h"

namespace fuseblock::cuda {

// What decides the division.
struct ConvWork {
  ConvSum conv;
  ConvMode mode = ConvMode::kStrict;
  int element_bytes = 4;
  int channel_numbers = 1;  // numbers that a thread keeps for each of its channels
  bool over_channels =
      false;             // reductions over channels: the program's results of a position are held at once
  bool stores = false;   // tensors are read or written at each position
  bool moments = false;  // of each channel are all that is taken, of the convolution and numbers of channels
  bool itself = false;   // of the convolution itself
  bool dense = true;     // rows of the input can be copied in vectors where they are long enough
  ConvWishes wishes;
};

// Wavefronts of shared memory that a warp's reads of one product's positions take, on average: 1 without
// conflicts.
double conv_conflicts(const ConvConstants& constants, const ConvWork& work);

// `shared_bytes` is what a block needs beside the stages.
ConvConstants divide_conv(const Gpu& gpu, const ConvWork& work, int shared_bytes);
// Those worth measuring, whatever the wishes are.
std::vector<Division> conv_divisions(const Gpu& gpu, const ConvWork& work, int shared_bytes);

// Tiles by d, h, w.
std::array<std::int64_t, 3> conv_tiles(const ConvConstants& constants, const ConvSum& conv);
// Items of a sample, and what the block with most of them takes, in tiles, for the blocks that run at once.
// An item takes `of_item` tiles by itself; a block has so many tiles at once.
struct ConvItems {
  std::int64_t of_sample = 1;
  double longest = 0;
};
ConvItems conv_items(std::int64_t samples, std::int64_t tiles, std::int64_t blocks, double of_item = 4,
                     std::int64_t at_once = 1);

}  // namespace fuseblock::cuda
