// The text of a kernel `plain` (device/plain.cuh): one function, in which the sweeps and finalise steps stand one behind
// the other.
#pragma once

#include "cuda/emit/kernel_writer.h"

namespace fuseblock::cuda {

struct PlainConstants {
  int threads = 256;
  int blocks = 1;            // a multiprocessor
  int kept = 0;              // vectors that a block keeps in shared memory from the first sweep to the last
  int parts = 1;             // blocks that share a channel
  bool edges = true;         // channels do not consist of whole vectors
  bool joined = false;       // a block has all channels of a unit as one share; see PlainText::joins
  bool batch_apart = false;  // sums over the batch are left to others, where they are nothing but sums
};

struct PlainText {
  EmittedKernel kernel;  // its tensors are addresses alone
  int sweeps = 1;
  int inputs = 1;  // of a sweep, at most
  // Lists with a statistic of each block, by the names of their scalars: bytes of one statistic.
  std::vector<std::pair<std::string, int>> lists = {};
  int waits = 0;          // counters of each unit, the first of `arrived`
  bool finishes = false;  // behind them one for each unit of a sample
  bool together = false;  // blocks wait for each other: all of the grid run at the same time
  bool whole = false;     // a block has a unit, its warps shared out among the channels
  bool joins = false;     // the channels of a unit can be one share: what is taken of them is the unit's
  // Sums over the batch that are left to others: outputs, as slots, by the names of the lists to be summed.
  std::vector<std::pair<std::string, int>> batch_sums = {};
};

// Whether a kernel's steps can be written so: sweeps of f32 tensors whose elements lie one behind the other, sums and
// moments of them, units of at most a warp's channels; of what needs all units, sums over the batch. Inputs that are one
// for all channels are taken where a block's warps can be shared out among the channels of a unit.
bool is_for_plain(const Schedule& schedule, const KernelCut& cut);

PlainText plain_text(const Schedule& schedule, const KernelCut& cut, const PlainConstants& constants);

}  // namespace fuseblock::cuda
