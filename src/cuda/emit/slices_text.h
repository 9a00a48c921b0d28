// The text of a kernel `slices` (device/slices.cuh): constants, programs and finalise steps around the device files.
#pragma once

#include "cuda/emit/kernel_writer.h"

namespace fuseblock::cuda {

struct SlicesConstants {
  int threads = 256;
  int blocks = 2;         // a multiprocessor
  int vector = 8;         // channels a thread moves at once
  int pieces = 2;         // such vectors of a thread in one chunk
  int row_positions = 1;  // positions of a row
  int ring = 2;           // chunks of a thread in its ring
  bool again = false;     // some of a unit's chunks do not stay in the ring for later passes
  bool dealt = false;     // and the second of two passes has them dealt out among a team's blocks
  bool ahead = false;     // a unit is begun before the one before it is ended
  int registers = 0;      // chunks of a thread that stay in its registers (device/slices_registers.cuh)
  bool packed = false;    // then rows may go on from warp to warp (device/slices_rows_packed.cuh)
  int lead = 0;           // where these are dealt out: chunks that a block has again before it draws some
  int team = 1;           // blocks that work on a unit
  // Blocks of a cluster that has a unit in its registers (device/slices_cluster.cuh), `pieces` being all vectors of a thread; 1: a
  // team with a ring.
  int cluster = 1;
  // Whether a team has a whole sample on chip, once (device/slices_whole.cuh): `registers` of a thread's vectors in registers, `ring` in shared
  // memory, one a chunk.
  bool whole = false;
};

// Rows of so many vectors, or sets of them that a warp has, of a block at the same time.
int slices_lists(const SlicesConstants& constants, int columns);

// Apart from each other, so that not all lie in one part of L2: counters of a unit's chunks that are dealt out, one for each warp of a block.
constexpr int kDealtCounterBytes = 128;

// Whether a team hands statistics of its groups over once through L2, where nobody asks for those of channels: few of them.
bool few_parts(std::int64_t team, std::int64_t groups);

struct SlicesText {
  EmittedKernel kernel;
  int vector_bytes = 0;           // of all inputs in the ring, a thread's vectors of one piece
  int shared_bytes = 0;           // without the ring
  int unit_bytes = 0;             // of these, what one unit takes
  bool group_statistics = false;  // nobody asks for those of single channels
  bool tail = false;              // the last block works statistics of all units out
  bool tagged = false;            // teams' lists need not be zero before the launch (device/tagged.cuh)
  int passes = 1;
  int hoisted_numbers = 0;  // that a thread keeps of a channel, of the sweep that has most
  // Numbers that a sweep's statistics of one channel are, in a team's list; 0 where it takes none.
  std::vector<int> list_numbers = {};
  // By sweeps: groups of a unit of which blocks hand parts over (device/slices_parts.cuh), 0 elsewhere.
  std::vector<int> part_groups = {};
};

// Whether there is a kernel `slices_whole` for these steps, where `cut.unit_channels` are all channels.
bool is_for_slices_whole(const Schedule& schedule, const KernelCut& cut, const SlicesConstants& constants);

// `cut.unit_channels` is the width of a slice. Inputs and outputs over positions are dense and channels_last.
SlicesText slices_text(const Schedule& schedule, const KernelCut& cut, const SlicesConstants& constants);

}  // namespace fuseblock::cuda
