// The text of a kernel `columns` (device/columns.cuh): constants and programs around the device files.
#pragma once

#include "cuda/emit/kernel_writer.h"

namespace fuseblock::cuda {

enum class ColumnsAccess : std::uint8_t {
  kAlongPositions,  // dense, contiguous: vectors of neighbouring positions
  kAlongChannels,   // dense, channels_last, or without positions: vectors of neighbouring channels
  kStrided,         // any views, element by element
};

enum class Residency : std::uint8_t { kNowhere, kRegisters, kShared };

struct ColumnsConstants {
  ColumnsAccess access = ColumnsAccess::kStrided;
  Residency residency = Residency::kNowhere;
  int threads = 256;
  int blocks = 2;     // a multiprocessor
  int vector = 1;     // elements of a vector
  int positions = 1;  // of a thread; the vector's where vectors lie along positions
  int elements =
      4;  // channels of a thread in one step; a multiple of the vector where vectors lie along channels
  int lanes = 1;  // lanes of a warp that share a position
  int team = 1;   // warps that share a position
  // Where a thread keeps sums over positions of its channels, where there are any: in its own columns of shared memory, or
  // in registers.
  bool sums_in_shared = false;
};

struct ColumnsText {
  EmittedKernel kernel;
  int shared_bytes = 0;    // a block's
  int sums = 0;            // gathered sums of one channel
  bool by_sample = false;  // they are wanted for each sample
  // Slots that a dense kernel takes as dense: over channels and positions, and over positions alone.
  std::vector<int> dense = {};
  // Slots over channels alone that are read as vectors.
  std::vector<int> channel_vectors = {};
};

ColumnsText columns_text(const Schedule& schedule, const KernelCut& cut, const ColumnsConstants& constants);

}  // namespace fuseblock::cuda
