// The launch of a kernel `slices`: how wide a slice is, and how units are divided among teams of thread blocks.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "cuda/emit/slices_text.h"
#include "cuda/gpu.h"

namespace fuseblock::cuda {

// What decides the division.
struct SlicesWork {
  std::int64_t samples = 1;
  std::int64_t channels = 1;
  std::int64_t positions = 1;
  std::int64_t group = 1;  // channels that belong together
  int passes = 1;
  int statistics = 1;             // passes that take some
  bool last_statistics = false;   // the last one is among them
  bool group_statistics = false;  // of whole groups alone
  bool leaves_registers = true;   // programs are short enough for chunks in registers beside them
  int hoisted_numbers = 3;        // that a thread keeps of a channel
  int inputs = 1;                 // over positions
  int smallest_bytes = 2;         // of an element of what is read or written
  int input_bytes = 2;            // of one element of all inputs
  int output_bytes = 2;           // and of all outputs
};

// How a launch is divided.
struct SlicesDivision {
  SlicesConstants constants;
  std::int64_t channels = 1;  // of a slice
  int team = 1;               // blocks
  int teams = 1;              // at work at the same time
  int steps = 1;              // chunks of a block
  int kept = 1;               // of these in the ring, or in registers, for later passes
  std::int64_t units = 0;
  double seconds = 0;  // by the cost model
};

// What FUSEBLOCK_SLICES fixes, 0, or -1 of `registers`, `lead` and `packed`, for what it leaves open (docs/environment.md).
struct SlicesChoice {
  int channels = 0;
  int team = 0;
  int vector = 0;
  int pieces = 0;
  int threads = 0;
  int blocks = 0;
  int ring = 0;
  int ahead = 0;
  int own = 0;  // 1: no chunks are dealt out
  int spare = 0;
  int registers = -1;
  int lead = -1;
  int packed = -1;  // where chunks are in registers: 1 if rows go on from warp to warp
  int cluster = 0;  // 1: none
  int whole = -1;   // 1: whole samples on chip (device/slices_whole.cuh); 0: none

  // Whether it leaves clusters to the planner: what it fixes is nothing of teams' alone.
  bool may_cluster() const {
    return cluster == 0 && team == 0 && ring == 0 && ahead == 0 && own == 0 && spare == 0 && registers < 1 &&
           lead < 0 && packed < 1 && whole < 1;
  }
  // Whether it leaves whole samples to the planner, or asks for them, with their team, threads and vectors in registers.
  bool may_be_whole() const {
    const bool leaves = channels == 0 && vector == 0 && pieces == 0 && blocks == 0 && ring == 0 &&
                        ahead == 0 && own == 0 && spare == 0 && lead < 0 && packed < 0 && cluster < 2;
    return leaves && (whole > 0 || (whole < 0 && team == 0 && threads == 0 && registers < 0));
  }
  // Whether it leaves chunks in registers to the planner: what it fixes is at most widths, and that there are no clusters.
  bool may_have_registers() const {
    return team == 0 && pieces == 0 && threads == 0 && blocks == 0 && ring == 0 && ahead == 0 && own == 0 &&
           spare == 0 && registers < 0 && lead < 0 && packed < 1 && cluster < 2;
  }

  // Throws UserError that names the word it does not know.
  static SlicesChoice parse(const std::string& text);
};

// A width of slices, and what it asks of a block: bytes of shared memory without the ring, for each unit under way, and of
// a thread's vectors of one piece.
struct SlicesWidth {
  SlicesConstants constants;
  std::int64_t channels = 1;
  int shared_bytes = 0;
  int unit_bytes = 0;
  int vector_bytes = 0;
  int register_bytes = 0;  // of shared memory where chunks are in registers; 0: as many as elsewhere
};

// Every width that fits the tensors and a block, without what it asks.
std::vector<SlicesWidth> slices_widths(const SlicesWork& work, const SlicesChoice& choice);

// Whether chunks may stay in registers from the first sweep to the last one.
bool may_have_registers(const SlicesWork& work);

// What divisions with chunks in registers are asked for in place of this one, the cost model's for `fixed`, the best kind first; none
// where it is of no kind that was measured. Whether what comes of one is of such a kind.
std::vector<SlicesChoice> choose_registers(const Gpu& gpu, const SlicesWork& work,
                                           const SlicesDivision& division, const SlicesChoice& fixed);
bool suits_registers(const Gpu& gpu, const SlicesDivision& division);

// The best division into slices of this width; none where the ring does not fit.
std::optional<SlicesDivision> divide_slices(const Gpu& gpu, const SlicesWork& work, const SlicesWidth& width,
                                            const SlicesChoice& choice);

// Bytes that memory moves for each of a slice of so many channels: sectors are moved whole, and lines of which a request has only
// some take longer.
double slice_waste(const SlicesWork& work, std::int64_t channels);

// Whether clusters were measured to be faster for such work, on such a GPU.
bool suits_clusters(const Gpu& gpu, const SlicesWork& work);
// A division into whole samples that are on chip, all at once; none where there is no room, or, unless it is asked for, where that was not
// measured to be faster.
std::optional<SlicesDivision> divide_whole(const Gpu& gpu, const SlicesWork& work,
                                           const SlicesChoice& choice);
// The best division into slices of this width that are kept in the registers of clusters; none where they do not fit.
std::optional<SlicesDivision> divide_cluster(const Gpu& gpu, const SlicesWork& work, const SlicesWidth& width,
                                             const SlicesChoice& choice);

}  // namespace fuseblock::cuda
