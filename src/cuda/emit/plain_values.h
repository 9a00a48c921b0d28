// What the text of a kernel `plain` calls its values: numbers at the channel of a lane, and elements of tensors.
#pragma once

#include <map>

#include "cuda/emit/unit_text.h"

namespace fuseblock::cuda {

// Of a value that stands inside another.
constexpr std::size_t kMostInside = 120;

// A program that calls the compiler's own functions, in float, where those of device/functions.cuh are nothing else.
std::string with_own_functions(std::string text);
// Whether it calls others of that file.
bool needs_functions(const std::string& program);
// Whether a value is a sum over lanes, which all of them must take part in.
bool sums_lanes(const std::string& value);
std::vector<std::string> split_lines(const std::string& lines);
// A value without the brackets around all of it.
std::string bare(const std::string& value);
// Writes statements; the last ones stand in `use` where that is short enough and takes each of them once.
void nest(const Text& statements, std::string& use, Text& text);

// A whole number of a kernel.
struct Name {
  std::string name;
  std::string value;
};
// Writes the names that the steps take, or others of them do, in as few lines as hold them.
void write_names(Text& text, const std::vector<Name>& names, const std::string& steps);
// Writes values with their names, `x = 1`, two in a line that holds them.
void write_floats(Text& text, const std::vector<std::string>& values);

class PlainValues : public UnitWriter {
 public:
  PlainValues(const Schedule& schedule, const KernelCut& cut);

  // See is_for_plain.
  bool takes() const;

 protected:
  // The inputs of a sweep's program that vary over positions, slots; always in the same order.
  std::vector<int> position_inputs(int i) const;
  // Whether an input is one for all channels of a sample.
  bool is_common(int number) const;
  bool has_common() const;
  bool is_dense(int number) const;
  // Whether a tensor is one of contiguous f32 elements.
  bool is_f32(int number) const;
  // Whether a tensor that does not vary over positions can be indexed by n and c.
  bool is_small(int number) const;
  // A name for a part, once.
  std::string name_of(int number);
  // The value that a statistic is taken of: `hardswish`.
  std::string value_name(int number);
  // Where a tensor's element lies, by the names of its sample and its channel.
  std::string index(int number, const std::string& channel) const;
  std::string element(int number, const std::string& channel);
  // A statistic or parameter at the channel `c` of a lane.
  std::string at_lane(int number, int component = 0);
  std::string regrouped(int number);
  std::int64_t group_size(int number) const;
  // Whether a merge is one over all channels of the unit.
  bool merges_unit(int number) const;
  std::string group_sum_text(int number);
  // How often the value of a formula is taken: by parts, outputs, sums over the batch and sweeps, which count twice.
  int uses(int number) const;

  // Whether a step behind this kernel takes a component of a statistic. What joins the statistic takes all of them.
  bool is_read_later(int number, int component) const;
  // Whether a statistic is one for all channels of the unit, and in all lanes: sums of groups are in those of channels alone.
  bool is_of_unit(int number) const;

  // Arguments with the addresses of tensors, of which the slots `written` can be written to, and the scalars.
  std::string addresses_struct(const std::vector<int>& written) const;

  std::map<int, std::string> inside_;  // values that stand where they are taken, by parts
  bool by_units_ = true;               // whether the kernel has a number `unit`

 private:
  bool takes_sweep(int i) const;
  bool takes_local(int number) const;
  // A sum over the batch, or a formula for each channel.
  bool takes_remaining(int number) const;

  std::map<int, std::string> part_names_;
};

}  // namespace fuseblock::cuda
