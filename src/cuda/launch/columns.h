// The launch of a kernel `columns`: how a tile is divided among the threads of a block.
#pragma once

#include <cstdint>
#include <string>

#include "cuda/emit/columns_text.h"
#include "cuda/gpu.h"
#include "fuseblock/plan.h"

namespace fuseblock::cuda {

// What decides the division, for dense tensors.
struct ColumnsWork {
  ColumnsAccess access = ColumnsAccess::kAlongPositions;
  std::int64_t channels = 1;
  std::int64_t positions = 1;  // of a sample
  std::int64_t samples = 1;
  int smallest_bytes = 4;  // of an element of what is read or written
  int input_bytes = 4;     // of one element of all inputs
  int real_bytes = 4;
  int state_bytes = 12;  // statistics of a position in the largest of the sweeps
  int sweeps = 1;
  int results = 1;         // numbers that the sinks of a sweep take of an element, at most
  int channel_inputs = 0;  // values over channels alone
  int sums = 0;            // gathered sums of one channel
};

// The tiles of a launch and how they are shared out among its blocks.
struct ColumnsDivision {
  std::int64_t tiles = 1;
  std::int64_t sample_tiles = 1;  // of a sample
  std::int64_t blocks = 1;
  // Where sums are gathered: tiles of a block, blocks that merge their sums together, and spans of tiles whose sums are
  // wanted.
  std::int64_t block_tiles = 1;
  std::int64_t bundle = 1;
  std::int64_t spans = 1;

  std::int64_t bundles() const { return (blocks + bundle - 1) / bundle; }
};

// As choices name it: registers, shared, memory.
std::string residency_name(Residency residency);

// Steps of a thread on its tile.
int columns_steps(const ColumnsConstants& constants, std::int64_t channels);
// Positions of a tile.
int columns_tile(const ColumnsConstants& constants);

// `text` is of these constants.
ColumnsDivision divide_tiles(const Gpu& gpu, const ColumnsWork& work, const ColumnsConstants& constants,
                             const ColumnsText& text);

// Throws UserError where no division is as the choices ask.
ColumnsConstants divide_columns(const Gpu& gpu, const ColumnsWork& work, const KernelChoices& choices = {});

}  // namespace fuseblock::cuda
