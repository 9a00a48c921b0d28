// The text of a kernel `conv` (device/conv.cuh): constants, program and finalise steps around the device
// files.
#pragma once

#include <array>

#include "cuda/emit/kernel_writer.h"

namespace fuseblock::cuda {

enum class ConvMode : std::uint8_t { kTf32, kStrict, k16Bits };

// By the type of the elements that are multiplied and the plan's precision.
ConvMode conv_mode(Precision precision, DType dtype);
// `tf32`, `strict`, `16 bits`.
std::string conv_mode_name(ConvMode mode);

struct ConvConstants {
  ConvMode mode = ConvMode::kStrict;
  int threads = 256;
  int blocks = 1;     // a multiprocessor
  int rows = 2;       // products of 16 positions that a warp has at once
  int columns = 1;    // of eight channels each
  int promote = 0;    // steps whose sums are taken by themselves; 0: all
  bool down = false;  // the products are rows of the image one below the other
  int vector = 1;     // elements of a copy
  int lead = 0;       // columns of the box before the tensor's first, where a tile begins with that
  int stages = 1;     // tiles in shared memory
  std::array<int, 3> tile = {1, 1, 1};  // positions by d, h, w
  std::array<int, 3> box = {1, 1, 1};   // of the input
  int pitch = 1;                        // from one staged row to the next
  int plane = 1;
  int volume = 1;
};

struct ConvText {
  EmittedKernel kernel;
  int shared_bytes = 0;  // without the stages
  int list_numbers = 0;  // numbers that the statistics of one channel are
  bool tail = false;     // the last block works statistics of all samples out
};

ConvText conv_text(const Schedule& schedule, const KernelCut& cut, const ConvConstants& constants);

}  // namespace fuseblock::cuda
