// The text of a kernel `rows` (device/rows.cuh): constants, programs and finalise steps around the device files.
#pragma once

#include "cuda/emit/kernel_writer.h"

namespace fuseblock::cuda {

struct RowsConstants {
  int threads = 256;
  int blocks = 1;     // a multiprocessor
  int cluster = 1;    // blocks of a team that is a cluster
  int vector = 8;     // elements a thread moves at once
  int pieces = 1;     // such vectors of a thread in one step
  int ring = 0;       // steps of a thread in its ring; 0: none, elements are read wherever they lie
  bool again = true;  // some of a unit's chunks are never in the ring
  // Units by which a unit's first sweep is ahead of the last one, without barriers (device/rows_ahead.cuh); 0: the next
  // unit's is, with barriers.
  int ahead = 0;
  bool apart = true;  // where it is above 0: a warp's chunks are not neighbours,
  int held = 0;       // a unit's first chunks that are in registers and not in the ring,
  int begun = 0;      // steps whose copies begin at once at the start, the ring's others one by one; 0: all,
  bool barriers = false;  // and whether warps hand units over as a checker of races knows it
};

struct RowsText {
  EmittedKernel kernel;
  int ring_inputs = 0;
  int ring_vector_bytes = 0;      // of all inputs in the ring, a thread
  int shared_bytes = 0;           // without the ring
  bool tail = false;              // the last block works statistics of all units out
  bool without_barriers = false;  // `constants.ahead` may be above 0
  std::vector<int> list_numbers =
      {};  // numbers that a sweep's statistics of one channel are, in a team's list
};

// Inputs and outputs over positions are dense where there is a ring (`constants.ring` above 0), any views else.
RowsText rows_text(const Schedule& schedule, const KernelCut& cut, const RowsConstants& constants);

}  // namespace fuseblock::cuda
