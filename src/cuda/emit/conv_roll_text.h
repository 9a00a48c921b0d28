// The text of a kernel `conv_roll` (device/conv_roll.cuh): constants, products, program and finalise steps
// around the device files.
#pragma once

#include "cuda/conv_sum.h"
#include "cuda/emit/conv_text.h"

namespace fuseblock::cuda {

struct ConvRollConstants {
  ConvMode mode = ConvMode::kStrict;
  int threads = 256;                    // warpgroups of 128
  int blocks = 1;                       // a multiprocessor
  int rows = 1;                         // products of 64 positions that a warpgroup has at once
  int rounds = 1;                       // or one after the other, where filters have one depth
  bool folded = false;                  // rows of the image are depths
  int width = 1;                        // columns of a band
  std::array<int, 3> pack = {1, 1, 4};  // elements of a row of 16 bytes, by channels, rows and columns
  bool taps = false;                    // products have the input in registers, device/conv_roll_taps.cuh
  int squads = 1;                       // that take strips by themselves, with `taps`
  bool half_strips = false;             // the last strip of a band has half of the products, with `taps`
  bool windows = false;                 // rows are staged four at a time, device/conv_roll_windows.cuh
  bool flat = false;                    // or as a plane's elements lie, device/conv_roll_flat.cuh
  bool dense = true;                    // samples of the input are contiguous
  int vector = 1;                       // of which so many are read at once
  int depths = 1;                       // of a segment
  int stage_bytes = 0;                  // of two planes

  int squad_threads() const { return threads / squads; }
  int products() const { return rows * rounds; }  // of a warpgroup in a strip
};

// Of a kernel with `taps`: planes of pairs of elements, rows of the filter's pairs, and those that a lane
// reads in turn.
std::int64_t conv_roll_pair_planes(const ConvSum& form);
std::int64_t conv_roll_pair_rows(const ConvSum& form);
std::int64_t conv_roll_slots(const ConvSum& form);

// What `shared_bytes` counts here are the statistics and the weights.
ConvText conv_roll_text(const Schedule& schedule, const KernelCut& cut, const ConvRollConstants& constants);

}  // namespace fuseblock::cuda
