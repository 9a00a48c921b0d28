// The texts of a kernel `conv_wide` (device/conv_wide.cuh) and of `conv_weights`, which brings its weights
// into order, and those of `conv_deep`.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "cuda/conv_sum.h"
#include "cuda/emit/conv_text.h"

namespace fuseblock::cuda {

// How channels and weights are divided into cells, device/conv_wide_cells.cuh.
struct ConvCells {
  ConvMode mode = ConvMode::kStrict;
  int block_channels = 16;  // output channels of a tile
  int chunk_steps = 1;      // of products, that the channels of a chunk are
  int row_taps = 1;         // of a stage of weights; divides the filter's columns
  int parts = 1;            // tf32 numbers that a number is staged as
};
using ConstantTexts = std::vector<std::pair<std::string, std::string>>;
// Constants of the kernel and of its `conv_weights`.
ConstantTexts cell_constants(const ConvCells& cells, const ConvSum& conv, DType dtype);
EmittedKernel conv_weights_text(const Schedule& schedule, const KernelCut& cut, const ConvCells& cells);

struct ConvWideConstants {
  ConvMode mode = ConvMode::kStrict;
  int threads = 256;
  int blocks = 1;        // a multiprocessor
  int rows = 2;          // products of 16 positions that a warp has at once
  int columns = 2;       // of eight channels each; even
  int warp_columns = 1;  // warps beside each other, with other channels
  int chunk_steps = 1;   // of products, that the channels of a chunk are
  int row_taps = 1;      // of a stage of weights; divides the filter's columns
  int stages = 2;        // in the ring of weights
  int pieces = 1;        // cells of the input that a thread fetches at once
  bool vectors = false;  // neighbouring channels are neighbours in memory, 16 bytes at a time
  bool far = false;      // positions may lie 2^31 elements apart
  ConvBox box;
  int shared_bytes = 0;  // without the input and the weights

  int warp_rows() const { return threads / 32 / warp_columns; }
  int tile() const { return warp_rows() * rows * 16; }               // positions
  int block_channels() const { return warp_columns * columns * 8; }  // output channels of a tile
  ConvCells cells() const { return {mode, block_channels(), chunk_steps, row_taps, 1}; }
};

struct ConvWideText {
  EmittedKernel kernel;
  EmittedKernel weights;  // of `conv_weights`
  int values_bytes = 0;   // what is known of a sample; does not depend on the constants
  int list_numbers = 0;   // numbers that the statistics of one channel are, with and without their count
  int kept_numbers = 0;
  bool tail = false;  // the last block works statistics of all samples out
};

ConvWideText conv_wide_text(const Schedule& schedule, const KernelCut& cut,
                            const ConvWideConstants& constants);

}  // namespace fuseblock::cuda
