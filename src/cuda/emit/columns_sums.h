// What the text of a kernel `columns` says of its gathered sums (device/columns_sums.cuh): sums over positions for each
// channel, and what is made of them when all tiles are done.
#pragma once

#include "cuda/emit/columns_access.h"

namespace fuseblock::cuda {

class ColumnsSumsWriter : protected ColumnsAccessWriter {
 protected:
  ColumnsSumsWriter(const Schedule& schedule, const KernelCut& cut, const ColumnsConstants& constants);

  // Sums of one channel, of all sweeps.
  int numbers() const { return static_cast<int>(sums_.size()); }
  // Whether they are wanted for each sample.
  bool sums_by_sample() const { return by_sample_; }
  // Members of a sweep's struct: how many of the sums it takes, from which on, and which of its results they are of.
  void write_gathered(Text& text, int sweep);
  // The functions `put_total` and, where something is left to work out, `finalise_all`.
  void write_totals(Text& text);
  bool has_tail() const { return !rest_.empty() || !rest_outputs_.empty(); }
  // Everything else that is made of the sums is rounded to 16 bits.
  bool sums_end_in_16_bits() const;

 private:
  struct Gathered {
    int sweep = 0;
    int step = 0;             // of the sweep's program
    int part = 0;             // the sum for each sample and channel
    std::vector<int> totals;  // parts that are this sum over a span of tiles
  };

  int owner(int number) const;
  void find_sums();
  // Whether a part is needed by what is worked out behind the totals, or by a later kernel.
  bool is_needed(int number) const;

  std::vector<Gathered> sums_;
  bool by_sample_ = false;
  std::vector<int> rest_;          // parts of the finalise steps that are no totals
  std::vector<int> rest_outputs_;  // and outputs
};

}  // namespace fuseblock::cuda
