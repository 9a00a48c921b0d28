// What the texts of the kernels `slices` and `slices_cluster` have in common: the programs of their sweeps, element by element of
// a thread's vectors of channels, and what they take beside elements.
#pragma once

#include <span>
#include <string>
#include <utility>
#include <vector>

#include "cuda/emit/position_steps.h"
#include "cuda/emit/slices_text.h"
#include "cuda/emit/unit_text.h"

namespace fuseblock::cuda {

class SliceWriter : public UnitWriter {
 public:
  SliceWriter(const Schedule& schedule, const KernelCut& cut, const SlicesConstants& constants);
  SliceWriter(const SliceWriter&) = delete;
  SliceWriter& operator=(const SliceWriter&) = delete;
  virtual ~SliceWriter() = default;

  SlicesText run();

 protected:
  using Constants = std::vector<std::pair<std::string, std::string>>;

  // What each kernel has for itself: its name; its constants; device files, before Arguments and behind UnitValues;
  virtual std::string name() const = 0;
  virtual Constants constants(int shared_bytes, bool tail) const = 0;
  virtual std::vector<std::string> first_files() const = 0;
  virtual std::vector<std::string> files() const = 0;
  // that of the kernel itself;
  virtual std::string kernel_file() const { return name() + ".cu"; }
  // its numbers in Arguments;
  virtual void add_scalars() = 0;
  // more functions of a struct of statistics; how a thread comes by its vectors, behind the struct Inputs;
  virtual void write_more_sums(Text& text, const std::string& name,
                               const std::vector<const Sink*>& taken) const = 0;
  virtual void write_reading(Text& text) = 0;
  // what a block keeps for each channel of a unit that sweeps take, members of UnitValues; and the struct Shared;
  virtual void write_prepared(Text& text) = 0;
  virtual void write_shared(Text& text) = 0;
  // the struct of a thread's statistics of its channels; a constant of a sweep; and the functions that call all others in the plan's order.
  virtual std::string vector_sums() const = 0;
  virtual std::string sweep_constant(int i) const = 0;
  virtual void write_unit_functions(Text& text) = 0;
  // Whether a sweep goes from one of a thread's vectors to the next, so that sigmoids may be taken by pairs (emit/sigmoid_pairs.h).
  virtual bool goes_by_vectors() const { return false; }

  int vector_bytes(int input) const;
  // Of a thread, all pieces of a chunk.
  int chunk_bytes(int input) const { return constants_.pieces * vector_bytes(input); }
  std::string vector_type(int input) const { return "Vector<" + element_name(element_type(input)) + ">"; }

  SlicesConstants constants_;
  std::vector<std::int64_t> groups_;  // by sweep: channels of what is handed over; 0: each by itself
  int ring_chunk_bytes_ = 0;          // of a thread, all pieces of a chunk
  int unit_bytes_ = 0;                // of shared memory, for each unit under way
  int list_bytes_ = 0;
  std::vector<int> list_numbers_;

  // Places of a block's list of statistics: one for each of its rows and slots, and enough to collect a team's.
  virtual int list_slots() const;
  // Those of a sweep that hands parts of groups over: of each set of rows one for each group, and for each of its vectors where these are
  // not neighbouring lanes, a power of two (`Groups` of device/group_lists.cuh).
  int part_slots(int group) const;
  // For write_more_sums: merge_all(parts), which joins several at once.
  void write_merge_all(Text& text, const std::string& name, const std::vector<const Sink*>& taken) const;
  // What the program of a sweep takes of a channel.
  int hoisted_numbers(int i) const {
    return static_cast<int>(programs_[static_cast<std::size_t>(i)].results.size());
  }
  std::vector<const Sink*> statistics_of(int i) const;
  // The sigmoid of a sweep that is taken by pairs, by its place among the steps of an element; -1 where there is none.
  std::int32_t paired_sigmoid(int i) const;
  static std::string sum_name(const Sink& sink) { return "s" + std::to_string(sink.part); }

 private:
  bool is_channel_input(int input) const { return !over_positions(slot(input).extents) && !in_ring(input); }
  void write_structs(Text& text, int i);
  // Its statistics: of one channel, and of the channels of a thread.
  void write_sums(Text& text, int i);
  // Hands what a sink takes of each of the thread's channels to its statistic.
  static void write_values(Text& text, const std::vector<const Sink*>& taken, const std::string& function);
  void write_inputs(Text& text);
  void write_unit_values(Text& text);
  void write_sweep(Text& text, int i);
  // The program of an element, and of all of a vector.
  void write_element(Text& text, int i);
  void write_vector(Text& text, int i);
  // Of the steps of an element the first, or all of them; the input behind the program's own is `of_argument`. Returns their names.
  std::vector<std::string> write_element_steps(Text& text, int i, std::span<const Formula::Step> steps);
  void write_element_results(Text& text, int i, const std::vector<std::string>& names);

  std::vector<PositionSteps> programs_;  // by sweep: what is the same at all positions, and the rest
};

// The text of a kernel `slices_cluster`.
SlicesText slices_cluster_text(const Schedule& schedule, const KernelCut& cut,
                               const SlicesConstants& constants);
// And of a kernel `slices_whole`.
SlicesText slices_whole_text(const Schedule& schedule, const KernelCut& cut,
                             const SlicesConstants& constants);

}  // namespace fuseblock::cuda
