// What the texts of all kernels have in common: names of values, the Arguments struct, statistics.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "cuda/emit/formula_text.h"
#include "cuda/emit/text.h"
#include "cuda/kernels.h"
#include "plan/schedule.h"

namespace fuseblock::cuda {

// A kernel's text, and what its launch must hand over: one struct of tensors (address and five strides each), then
// numbers and addresses of eight bytes each, in this order.
struct EmittedKernel {
  std::string entry;
  std::string text;
  std::vector<int> tensors;          // slots
  std::vector<std::string> scalars;  // their names, for the launch to fill in
};

class KernelWriter {
 public:
  KernelWriter(const Schedule& schedule, const KernelCut& cut);

 protected:
  const Part& part(int number) const { return schedule_.graph[number]; }
  const Slot& slot(int number) const { return schedule_.slots[static_cast<std::size_t>(number)]; }
  const ScheduleStep& step(int number) const { return schedule_.steps[static_cast<std::size_t>(number)]; }

  DType element_type(int slot) const;
  // The member of Arguments for a slot, which becomes one where it is not: `a.group_norm_weight`.
  std::string tensor(int slot);
  // A number of Arguments: `a.units`.
  std::string scalar(const std::string& type, const std::string& name);
  // The slot of a component of a statistic, wherever it is read from; of the part itself for plain values.
  int statistic_slot(int part) const;
  // The struct for a statistic, such as `Moments<double>`.
  std::string statistic_type(int part, const std::string& number) const;

  // `typedef float real;` and the other constants, then Arguments, which holds all tensors and scalars used so far.
  std::string head(const std::vector<std::pair<std::string, std::string>>& constants) const;
  std::string arguments_struct() const;
  EmittedKernel finish(const std::string& entry, std::string text) const;

  // Writes the function `finalise_all`, by which one block works out the statistics that need all units.
  void write_finalise_all(Text& text, const std::vector<int>& parts, const std::vector<int>& outputs);
  // The outputs of the cut's finalise steps that are statistics of `parts`, or not of them.
  std::vector<int> statistic_outputs(const std::vector<int>& parts, bool among) const;

  const Schedule& schedule_;
  const KernelCut& cut_;
  bool single_;  // real is float
  std::vector<int> tensors_;
  std::vector<std::pair<std::string, std::string>> scalars_;  // type, name
  std::vector<std::string> names_;                            // by slot

 private:
  bool is_merge(int part) const;
  // The statistic whose first component a part is; the part itself where it is none.
  int merge_of(int part) const;
  // A merge, into memory where it is `kept`, and into outputs.
  void write_merge_all(Text& text, int number, const std::vector<int>& outputs, bool kept);
  // A formula, or the same numbers for other groups of channels.
  void write_value_all(Text& text, int number);
  // A loop over numbers for each sample and channel.
  static void open_statistics(Text& text, const Extents& extents);
  // The statistic that a merge takes of its operand at (n, c).
  std::string state_everywhere(int part);
  // The value of a part at (n, c), in memory.
  std::string everywhere(int part, const std::string& n, const std::string& c);
};

// The text of a device file, by its name in src/cuda/device.
const std::string& device_file(const std::string& name);
// All of them by their names.
const std::map<std::string, std::string>& device_files();

// Programs, behind the functions that only some of them call.
std::string with_functions(const std::string& programs);

}  // namespace fuseblock::cuda
