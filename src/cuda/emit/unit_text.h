// What the text of a kernel `rows` or `slices` says of one unit: its statistics and the finalise steps on them.
#pragma once

#include <algorithm>

#include "cuda/emit/kernel_writer.h"
#include "plan/narrator.h"

namespace fuseblock::cuda {

// Numbers that a statistic is while it is taken.
int state_numbers(Statistic statistic);

class UnitWriter : public KernelWriter {
 public:
  UnitWriter(const Schedule& schedule, const KernelCut& cut);

 protected:
  int sweep_count() const { return static_cast<int>(sweeps_.size()); }
  const Sweep& sweep(int i) const { return step(sweeps_[static_cast<std::size_t>(i)]).sweep; }
  bool has_statistics(int i) const;
  // Whether a part is worked out by units, as an array of the unit's.
  bool in_unit(int number) const { return cut_.local[static_cast<std::size_t>(number)]; }
  // The sweep that takes a statistic; -1 where none does.
  int sweep_of(int number) const;

  // The steps of a sweep's program that its sinks take, each once: its results, in this order; and the place of one.
  std::vector<std::int32_t> results_of(int i) const;
  int result_number(int i, std::int32_t step) const;

  // Takes statistics of a whole unit at once where nobody asks for those of its channels.
  void find_unit_sums();
  // The channels of the groups over which a sweep's statistics are merged, where nobody asks for those of single channels, nor for
  // those of other groups; 0 elsewhere.
  std::int64_t common_group(int i) const;
  // Finds the values that are names of one loop; anew where `unit_sums_` has changed.
  void find_local_values();
  // Whether a sweep's statistics are taken so.
  bool of_unit(int i) const { return !unit_sums_.empty() && unit_sums_[static_cast<std::size_t>(i)]; }
  // The sweep that has taken what a merge over the unit's channels would give; -1 where none has.
  int unit_sum(int number) const;

  // The struct of a sweep's statistics, `taken` by its sinks out of results of the type `results`.
  void write_sums_struct(Text& text, const std::string& name, const std::string& results,
                         const std::vector<const Sink*>& taken) const;
  // A statistic in the code of a unit, at channel `c` of it; `component` of those that have several.
  std::string in_unit_text(int number, int component = 0);
  // A function for each finalise step, and for each sweep whose statistics are needed outside of the unit.
  void write_finalise_units(Text& text);
  // Members of UnitValues: what finalise steps work out for each channel. Returns their bytes, or a few more.
  int write_unit_members(Text& text) const;
  // Whether there is a function for a step: one that works nothing out by units has none.
  bool has_finalise(int step) const;
  // Whether a sweep's statistics are needed outside of the unit.
  bool writes_totals(int step) const;

  // Finds what the ring holds: values over the whole domain that no sweep of this kernel writes.
  void find_ring();
  bool in_ring(int input) const { return std::find(ring_.begin(), ring_.end(), input) != ring_.end(); }
  // Read at each element, wherever it lies.
  bool is_direct(int input) const { return over_positions(slot(input).extents) && !in_ring(input); }
  // The inputs of a sweep's program that do not vary over positions, by their places there.
  std::vector<int> channel_inputs(int i) const;
  bool has_channels(int i) const { return !channel_inputs(i).empty(); }
  // Such an input at channel `c` of the unit.
  std::string channel_value(int input);
  // What such an input is called in the struct of a sweep's channel, by its place among the program's.
  std::string channel_name(int i, int input) const;
  // That struct, and the functions that fill it in: `parameters` with what tensors give, `statistics` with what this kernel works out.
  void write_channel_struct(Text& text, int i) const;
  void write_channel_functions(Text& text, int i);
  // Whether a slot is a statistic that this kernel works out.
  bool made_here(int input) const;
  // Whether all elements that the sweeps write are rounded to 16 bits, and the outputs that are statistics, too.
  bool writes_16_bit() const;
  // The numbers that a statistic is while it is merged.
  static int state_numbers(Statistic statistic);

  Narrator narrator_;
  std::vector<int> sweeps_;  // steps
  std::vector<int> ring_;    // slots
  Extents domain_;
  std::vector<bool> unit_sums_;     // by sweeps; empty where no one is asked for
  std::string merged_place_ = "0";  // where such a sum stands among a unit's totals, for channel `c`

 private:
  // Whether an output is saved for backward.
  bool is_saved(int output) const;
  // Groups' numbers at their channels, or the other way round.
  std::string regroup_text(int number);
  // The statistics of a step that are outputs, or that somebody outside of the unit needs.
  // `apart`: behind a barrier already.
  void write_to_memory(Text& text, int step, bool apart);
  // Whether a finalise step works a part out by units, as a value of its own.
  bool is_worked_out(int number) const;
  // Whether a part joins what several threads have.
  bool merges_channels(int number) const;
  // The channels that a merge joins.
  std::int64_t group_channels(int number) const;
  bool taken_only_by(int number, const std::vector<int>& users) const;
  void write_finalise_unit(Text& text, int step);
  // The statement that works a value out for channel `c`.
  void write_value(Text& text, int number);
  // Where a thread writes to a tensor, empty for everywhere, and how.
  std::string store_condition(int to) const;
  std::string store_text(int to, const std::string& value);
  // Merges over groups of channels, one warp a group.
  void write_merge(Text& text, int number);

  std::vector<bool> local_values_;  // by parts: those that are names of one loop
  std::vector<int> finalises_;      // steps that have a function
};

}  // namespace fuseblock::cuda
