// The launch of a kernel `conv_wide`: how its positions and channels are divided into tiles.
#pragma once

#include <cstdint>

#include "cuda/conv_sum.h"
#include "cuda/emit/conv_wide_text.h"
#include "cuda/gpu.h"
#include "cuda/launch/cheapest.h"
#include "cuda/launch/conv_wishes.h"
#include "cuda/launch/kernel.h"

namespace fuseblock::cuda {

// What decides the division.
struct ConvWideWork {
  ConvSum conv;
  ConvMode mode = ConvMode::kStrict;
  int element_bytes = 4;
  int values_bytes = 0;  // of a block's shared memory, for what is known of a sample
  int list_numbers = 0;  // numbers that the statistics of one channel are, with and without their count
  int kept_numbers = 0;
  bool vectors = false;  // channels are read 16 bytes at a time
  bool dense = false;    // planes of the input are contiguous, one channel behind the other
  bool far = false;      // positions may lie 2^31 elements apart
  ConvWishes wishes;
};

ConvWideConstants divide_conv_wide(const Gpu& gpu, const ConvWideWork& work);
// Those worth measuring, whatever the wishes are.
std::vector<Division> conv_wide_divisions(const Gpu& gpu, const ConvWideWork& work);

// Shared memory of a thread block.
int conv_wide_bytes(const ConvWideConstants& constants, const ConvWideWork& work);

struct ConvWideTiles {
  std::int64_t of_strip = 1;
  std::int64_t of_span = 1;  // a sample with a block of channels
  std::int64_t spans = 1;
  std::int64_t weight_bytes = 0;  // in the order of conv_weights

  std::int64_t all() const { return of_span * spans; }
};
ConvWideTiles conv_wide_tiles(const ConvWideConstants& constants, const ConvWideWork& work);

}  // namespace fuseblock::cuda
