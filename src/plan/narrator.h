// The pieces of a schedule in words: what its parts are called, and each sweep as source -> program -> sinks.
#pragma once

#include <string>
#include <vector>

#include "plan/schedule.h"

namespace fuseblock {

class Narrator {
 public:
  // The schedule must outlive this.
  explicit Narrator(const Schedule& schedule) : schedule_(schedule) {}

  // What a part is called: by the block, or by what it is.
  std::string label(int part) const;
  std::string slot_label(int slot) const;
  // `store y`, `output tanh`, `store y in the memory of output tanh`.
  std::string written(int slot) const;

  // `conv2d(64, k=3) of x`, `load x, skip`.
  std::string source(const Sweep& sweep) const;
  // The values that the program computes, in order: `group_norm = (y - mean(y)) * ...`. Empty where the sinks take what
  // the source yields.
  std::vector<std::string> program(const Sweep& sweep) const;
  // `store y`, `output tanh`, `moments of y for each n,c`, `sum of y over w`.
  std::string sink(const Sink& sink) const;
  // What is computed where reductions over channels end, then stored.
  std::vector<std::string> epilogue(const Sweep& sweep) const;
  // The statistics that a finalise step works out, without those that are only read out of others.
  std::vector<std::string> statistics(const ScheduleStep& step) const;
  // `max_pool(2) of y`, `host call: conv2d(8, k=3) of x`: a pool or a host call.
  std::string stage(const ScheduleStep& step) const;

 private:
  // Whether a statistic is over some of the positions of its operand and not all.
  bool is_partial(const Part& statistic) const;
  std::string component_label(int part) const;
  std::string pointwise_label(int part) const;
  // The name of a part with its formula over the names of its operands.
  std::string definition(int part) const;
  // The parts that a program computes to arrive at `wanted`, given the slots it reads.
  std::vector<int> computed(std::vector<int> wanted, const std::vector<int>& inputs, int source) const;
  int visited(const Sink& sink) const;

  const Schedule& schedule_;
};

// `[128,64,1,126,126]`
std::string extents_text(const Extents& extents);

}  // namespace fuseblock
