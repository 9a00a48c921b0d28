// The text of a kernel `conv_deep` (device/conv_deep.cuh): constants, products, program and finalise steps
// around the device files.
#pragma once

#include "cuda/emit/conv_wide_text.h"

namespace fuseblock::cuda {

struct ConvDeepConstants {
  static constexpr int kRowChannels = 64;  // output channels of a product
  ConvMode mode = ConvMode::kStrict;
  int channel_groups = 2;  // warpgroups with 64 output channels each
  int tile_groups = 1;     // and with other positions
  int columns = 8;         // positions of a warpgroup's product
  int strip = 1;           // columns of the result
  int chunk_steps = 1;     // of products, that the channels of a chunk are
  int stages = 3;          // taps in the ring of weights that each row of warpgroups has
  int images = 2;          // chunks of input that are staged
  int pieces = 1;          // items of the input that a thread fetches at once
  bool pairs = false;      // two neighbouring positions are fetched at once
  bool vectors = false;    // neighbouring channels are neighbours in memory, 16 bytes at a time
  bool dense = false;      // planes of the input are contiguous, one channel behind the other
  bool far = false;        // positions may lie 2^31 elements apart
  int items = 0;           // positions of the input, or pairs, that a tile meets in a plane
  int shared_begin = 0;    // bytes of the ring and the staged input

  // Who stages the input and copies the weights, beside those who multiply. Of the registers that a launch
  // gives to each thread they hand some over.
  static constexpr int kProducers = 128;
  static constexpr int kStagers = 96;  // of these; the others copy
  // What consumers have beside their sums.
  static constexpr int kOtherRegisters = 56;
  int needed_registers() const { return parts() * columns / 2 + kOtherRegisters; }
  int producer_registers() const { return needed_registers() <= 184 ? 120 : 96; }
  int consumers() const { return channel_groups * tile_groups * 128; }
  int threads() const { return consumers() + kProducers; }
  int launch_registers() const { return 65536 / threads() / 8 * 8; }
  int consumer_registers() const {
    return (threads() * launch_registers() - kProducers * producer_registers()) / consumers() / 8 * 8;
  }
  int tile() const { return tile_groups * columns; }                    // positions
  int block_channels() const { return channel_groups * kRowChannels; }  // output channels of a tile
  int parts() const { return mode == ConvMode::kStrict ? 2 : 1; }       // that a number is staged as
  ConvCells cells() const { return {mode, block_channels(), chunk_steps, 1, parts()}; }
  // The weights' own: those of each row of warpgroups by themselves.
  ConvCells weight_cells() const { return {mode, kRowChannels, chunk_steps, 1, parts()}; }
};

ConvWideText conv_deep_text(const Schedule& schedule, const KernelCut& cut,
                            const ConvDeepConstants& constants);

// Bytes of shared memory beside the ring and the staged input.
int conv_deep_shared(const ConvDeepConstants& constants, int values_bytes, int list_numbers);

}  // namespace fuseblock::cuda
