// The launch of a kernel `rows`: how its units are divided among teams of thread blocks.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "cuda/emit/rows_text.h"
#include "cuda/gpu.h"

namespace fuseblock::cuda {

// Steps of a sweep in which a copy arrives.
inline constexpr int kRowsDelay = 2;
// Units by which a first sweep may be ahead of the last one.
inline constexpr int kRowsMostAhead = 3;
// Threads that are tried without barriers, too, where one unit is in the ring: with the taker they are 16 warps, which have 128
// registers a thread.
inline constexpr int kRowsBesideTaker = 480;
// Pieces of a long step.
inline constexpr int kRowsLong = 4;

struct RowsDivision {
  int team = 1;          // blocks
  bool cluster = false;  // which are a cluster
  int teams = 1;         // at work at the same time
  int steps = 1;         // chunks of a warp
  // Of these, the first, that are not in the ring: every sweep reads them from memory; without barriers they are in registers.
  int again = 0;
  int lead =
      0;  // chunks by which a unit's first sweep is before the last one of the unit before, or behind it
  std::int64_t units = 0;
  double cost = 0;  // by which divisions are compared
};

// Elements that a thread moves at once, for dense tensors with elements of `smallest` bytes; 0 where they cannot be
// copied four bytes at a time.
int rows_vector(const KernelCut& cut, const Extents& domain, std::int64_t smallest);

// The depth of the ring that fits, for blocks of these constants; `vector_bytes` is what a thread holds of all inputs in
// one step, `shared_bytes` the rest of a block's shared memory.
int rows_ring(const Gpu& gpu, const RowsConstants& constants, int vector_bytes, int shared_bytes);

// What the division depends on besides the constants.
struct RowsSweeps {
  int count = 1;
  bool last_statistics = false;  // the last one takes statistics
  bool small = false;            // two over one tensor, without such statistics and of few registers
  double bytes = 32;             // that a thread copies in one step
};

// What FUSEBLOCK_ROWS fixes of kernels for dense tensors, for measuring (docs/environment.md).
struct RowsChoice {
  std::optional<int> team;
  std::optional<int> threads;
  std::optional<int> blocks;
  std::optional<int> pieces;
  std::optional<int> ring;
  std::optional<int> kept;
  std::optional<int> ahead;
  std::optional<int> apart;
  std::optional<int> lead;
  std::optional<int> begun;
  std::optional<int> barriers;
  // Of the kernel `rows_registers`: vectors of a thread, 0 for `rows` in its place, and blocks of a cluster.
  std::optional<int> registers;
  std::optional<int> cluster;

  // Whether what it fixes leaves the choice between both, or asks for the other.
  bool may_have_registers() const {
    const bool asked = registers.value_or(0) > 0 || cluster;
    const bool leaves = !threads && !blocks && !registers;
    return !team && !pieces && !ring && !kept && !ahead && !apart && !lead && !begun && !barriers &&
           (asked || leaves);
  }

  // Throws UserError that names the word it does not know.
  static RowsChoice parse(const std::string& text);
};

// The cheapest division; of `choice` the team, the kept steps and the lead. Throws UserError where they cannot be had.
RowsDivision divide_rows(const Gpu& gpu, const KernelCut& cut, const Extents& domain,
                         const RowsConstants& constants, const RowsSweeps& sweeps, const RowsChoice& choice);

}  // namespace fuseblock::cuda
