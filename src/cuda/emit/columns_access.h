// How a kernel `columns` reaches its tensors: what they vary over, where a thread's elements begin, vectors of them.
#pragma once

#include <functional>

#include "cuda/emit/columns_text.h"
#include "cuda/emit/kernel_writer.h"

namespace fuseblock::cuda {

// What an input of a sweep varies over.
enum class Variation : std::uint8_t {
  kElement,   // the whole domain, perhaps not over samples
  kOdd,       // channels and some of the positions' axes
  kPosition,  // positions, not channels
  kChannel,   // channels, not positions
  kUniform,   // samples at most
};

class ColumnsAccessWriter : protected KernelWriter {
 protected:
  ColumnsAccessWriter(const Schedule& schedule, const KernelCut& cut, const ColumnsConstants& constants);

  int sweep_count() const { return static_cast<int>(sweeps_.size()); }
  const Sweep& sweep(int i) const { return step(sweeps_[static_cast<std::size_t>(i)]).sweep; }
  bool along_channels() const { return constants_.access == ColumnsAccess::kAlongChannels; }
  bool along_positions() const { return constants_.access == ColumnsAccess::kAlongPositions; }
  bool strided() const { return constants_.access == ColumnsAccess::kStrided; }
  // Whether a sink reduces over channels, or is a sum over positions that is taken along.
  bool is_reduction(const Sink& sink) const;
  bool is_gathered(const Sink& sink) const {
    return sink.kind == SinkKind::kStatistic && !is_reduction(sink);
  }
  // Whether a sweep reduces over channels.
  bool has_statistics(int i) const;

  Variation variation(int slot) const;
  bool over_all_positions(int slot) const;
  // The sweep that reduces to the slot's value; -1 where it is made elsewhere.
  int reduced_by(int slot) const;
  // Whether a sweep's input is the same for all channels.
  bool at_positions(int slot) const;
  // What sweep i leaves in memory for each position: statistics that others read, with their values, and its epilogue's
  // results, without.
  std::vector<std::pair<int, std::string>> position_stores(int i) const;
  // A reduction of this kernel at position p.
  std::string reduced_text(int slot) const;

  std::string vector_type(int slot) const;
  // The members of Bases for a slot: of its elements, or of its values at positions.
  std::string base_name(int slot) const { return names_[static_cast<std::size_t>(slot)]; }
  std::string position_base_name(int slot) const { return "at_" + base_name(slot); }
  // The struct Bases and the function that fills it.
  void write_bases(Text& text);
  // The struct Inputs, and the functions that read and copy it.
  void write_inputs(Text& text);
  // A loop over a thread's vectors of one step: `body` gets the vector's number and its address in memory.
  void write_vectors(Text& text, int slot,
                     const std::function<void(const std::string&, const std::string&)>& body);

  ColumnsConstants constants_;
  Extents domain_;
  std::vector<int> sweeps_;            // steps
  std::vector<int> elements_;          // slots: inputs over the domain
  std::vector<int> odd_;               // inputs over channels and some of the positions' axes
  std::vector<int> position_inputs_;   // inputs that do not vary over channels
  std::vector<int> stores_;            // outputs over the domain
  std::vector<int> position_outputs_;  // outputs over positions
  std::vector<int> dense_;             // of all these, those that a dense kernel takes as dense
  std::vector<int> channel_vectors_;   // inputs over channels that are read as vectors
  int step_bytes_ = 0;

 private:
  void find_inputs();
  // Vectors of one input that a thread reads in one step.
  int vectors() const;
  // Whether a dense value over the domain is the same for all samples of several, so that rows do not number it.
  bool repeats(int slot) const { return slot_extents(slot)[0] != domain_[0]; }
  const Extents& slot_extents(int number) const { return slot(number).extents; }
};

// Opens an unrolled loop of device code over all of `count`.
void open_loop(Text& text, const std::string& variable, const std::string& count);

// Small lists of numbers.
bool contains(const std::vector<int>& list, int item);
void add_once(std::vector<int>& list, int item);

}  // namespace fuseblock::cuda
