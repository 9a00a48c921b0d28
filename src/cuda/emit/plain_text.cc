#include "cuda/emit/plain_text.h"

#include <algorithm>
#include <map>
#include <set>

#include "cuda/emit/plain_values.h"
#include "cuda/emit/rounded_products.h"

namespace fuseblock::cuda {
namespace {

// Nanoseconds by which the first and the last teams of a multiprocessor begin apart from each other, and one more.
constexpr int kApart = 15000;

std::size_t at(int i) { return static_cast<std::size_t>(i); }
std::string number_text(std::int64_t number) { return std::to_string(number); }

class PlainWriter : public PlainValues {
 public:
  PlainWriter(const Schedule& schedule, const KernelCut& cut, const PlainConstants& constants)
      : PlainValues(schedule, cut), constants_(constants) {
    result_.sweeps = sweep_count();
    result_.whole = has_common();
    result_.together = sweep_count() > 1 && !result_.whole;
    result_.joins = sweep_count() == 1 && !result_.whole && of_unit(0) && !has_channels(0) &&
                    cut.remaining.empty() && cut.unit_channels > 1;
    for (int i = 0; i < sweep_count(); ++i)
      result_.inputs = std::max(result_.inputs, static_cast<int>(position_inputs(i).size()));
  }

  PlainText run() {
    Text body;
    write_kernel(body);
    std::string text = head({{"kThreads", number_text(constants_.threads)},
                             {"kKept", number_text(constants_.kept)},
                             {"kEdges", constants_.edges ? "1" : "0"}});
    const std::string program = with_own_functions(body.str());
    if (needs_functions(program)) text += "constexpr int k16Bit = 0;\n";
    text += "\n" + device_file("plain.cuh");
    if (needs_functions(program)) text += "\n" + device_file("functions.cuh");
    text += "\n" + addresses_struct(written_) + "\n" + with_functions(program);
    result_.kernel = finish("plain", std::move(text));
    return result_;
  }

 private:
  bool is_written(int number) const {
    return std::find(written_.begin(), written_.end(), number) != written_.end();
  }

  // Moments of groups and values of formulas: the statements of a finalise step.
  void write_finalise(Text& text, int i) {
    for (int number : step(i).parts) {
      const Part& which = part(number);
      if (!in_unit(number) || sweep_of(number) >= 0) continue;
      if (which.kind == PartKind::kMerge && which.statistic == Statistic::kMoments && unit_sum(number) < 0) {
        const std::string value = value_name(number);
        const std::int64_t channels = group_size(number);
        const std::string own = value + "_c";
        const std::string sum = merges_unit(number) ? "unit_sum<" : "group_sum<";
        text.line("const Moments group_" + own + " = " +
                  (channels == 1 ? own : "merged(" + own + ", " + sum + number_text(channels) + ">)") + ";");
      }
      if (which.kind != PartKind::kPointwise) continue;
      const auto steps = which.formula.steps();
      const std::string name = name_of(number) + "_c";
      Text statements;
      std::string value =
          write_nested(
              statements, steps, [&](int input) { return at_lane(which.operands[at(input)]); }, "float", true,
              {static_cast<std::int32_t>(steps.size()) - 1}, {}, name + "_")
              .back();
      nest(statements, value, text);
      if (value.size() <= kMostInside && uses(number) == 1 && !sums_lanes(value)) {
        inside_[number] = value;
        continue;
      }
      text.line("const float " + name + " = " + value + ";");
    }
    write_outputs(text, i);
  }

  // What others need of a step's statistics.
  void write_outputs(Text& text, int i) {
    std::vector<std::pair<int, std::string>> stores;
    std::vector<int> batch_values;
    for (int number : step(i).parts) {
      const Part& which = part(number);
      if (!in_unit(number) || !cut_.shared[at(number)] || which.kind == PartKind::kComponent) continue;
      const bool merged = which.kind == PartKind::kMerge || which.kind == PartKind::kReduce;
      if (!cut_.later[at(number)]) {
        batch_values.push_back(number);
        continue;
      }
      for (int k = 0; k < (merged ? component_count(which.statistic) : 1); ++k)
        if (!merged || is_read_later(number, k))
          stores.emplace_back(merged ? schedule_.statistic_slot(number, k) : statistic_slot(number),
                              at_lane(number, k));
    }
    for (int output : step(i).operands) {
      const int from = slot(output).part;
      if (std::find(cut_.remaining.begin(), cut_.remaining.end(), from) == cut_.remaining.end())
        stores.emplace_back(output, at_lane(from));
    }
    write_stores(text, stores, batch_values);
  }
  // Where one block of a unit does it for all.
  std::string chosen_block() const {
    return alone_ || result_.whole || constants_.joined ? "" : "blockIdx.x % " + team_text() + " == 0 && ";
  }
  void write_stores(Text& text, const std::vector<std::pair<int, std::string>>& stores,
                    const std::vector<int>& batch_values = {}) {
    // By one thread what is one for all channels, by a thread for each channel what others need of it.
    std::vector<std::string> of_unit;
    std::vector<std::string> of_channels;
    for (const auto& [to, value] : stores) {
      std::string stored = bare(value);
      if (sums_lanes(value)) {  // all of them
        stored = names_[at(to)] + "_c";
        text.line("const float " + stored + " = " + value + ";");
      }
      const std::string place = index(to, "c");
      written_.push_back(to);
      (place == "unit" || place == "n" ? of_unit : of_channels)
          .push_back(tensor(to) + "[" + place + "] = " + stored + ";");
    }
    for (int number : batch_values) {
      const std::string list = "batch_" + value_name(number);
      of_channels.push_back(scalar("float*", list) + "[n * " + number_text(domain_[1]) +
                            " + c] = " + bare(at_lane(number)) + ";");
      result_.lists.emplace_back(list, 4);
    }
    write_lines_if(text, "threadIdx.x == 0", of_unit);
    write_lines_if(text, "threadIdx.x < " + number_text(cut_.unit_channels), of_channels);
  }
  void write_lines_if(Text& text, const std::string& condition, const std::vector<std::string>& lines) const {
    if (lines.empty()) return;
    text.open("if (" + chosen_block() + condition + ") {");
    for (const std::string& line : lines) text.line(line);
    text.close();
  }

  // A sweep over the block's share, with what it takes that does not vary over positions.
  void write_sweep(Text& text, int i) {
    const Sweep& which = sweep(i);
    std::string sinks;
    for (const Sink& sink : which.sinks) sinks += (sinks.empty() ? "" : "; ") + narrator_.sink(sink);
    text.line("// Sweep: " + narrator_.source(which) + " -> " + sinks);
    std::vector<std::string> own_values;
    for (int k : channel_inputs(i)) {
      const int input = which.inputs[at(k)];
      if (channel_names_.contains(input)) continue;
      channel_names_[input] = channel_name(input);
      const std::string value = lane_value(input);
      // What is the same in all lanes needs no name of its own where it has one.
      const bool of_unit = is_of_unit(slot(input).part);
      if (of_unit && value.find_first_of(" [(") == std::string::npos)
        channel_names_[input] = value;
      else
        own_values.push_back(channel_names_[input] + " = " +
                             (of_unit ? value : "__shfl_sync(~0u, " + value + ", own)"));
    }
    write_floats(text, own_values);
    std::string sums;
    std::string output = "nullptr";
    std::int32_t stored = -1;
    std::vector<std::int32_t> wanted;
    for (const Sink& sink : which.sinks) {
      if (sink.kind == SinkKind::kStore) {
        output = tensor(sink.slots[0]);
        written_.push_back(sink.slots[0]);
        stored = sink.step;
      } else if (part(sink.part).statistic == Statistic::kMoments) {
        text.line("Moments " + value_name(sink.part) + "_sums;");
      } else {
        sums += (sums.empty() ? "float " : ", ") + sum_name(sink) + " = 0";
      }
      wanted.push_back(sink.step);
    }
    if (!sums.empty()) text.line(sums + ";");
    text.open("sweep<" + sharers() + ">(begin, end, {" + inputs_text(i) + "}, " + output + ", " +
              (result_.together ? "kept, " + next_text(i) : "nullptr, -1") + ", [&](const float* in, float&" +
              (stored >= 0 ? " out" : "") + ") {");
    // An element that is taken as it is needs no name.
    const bool bare = position_inputs(i).size() == 1 && which.steps.size() == 1;
    std::string named;
    for (int k = 0; k < static_cast<int>(position_inputs(i).size()); ++k)
      named += (k == 0 ? "const float " : ", ") + names_[at(position_inputs(i)[at(k)])] + " = in[" +
               number_text(4 * k) + "]";
    if (!bare) text.line(named + ";");
    Text statements;
    const std::vector<std::string> names =
        write_nested(statements, which.steps,
                     [&](int input) {
                       const int from = which.inputs[at(input)];
                       if (bare) return std::string("in[0]");
                       return in_ring(from) || is_common(from) ? names_[at(from)] : channel_names_.at(from);
                     },
                     "float", true, unique(wanted), {rounded_products(schedule_, which), true});
    std::vector<std::string> lines;
    std::map<std::int32_t, int> uses;
    for (std::int32_t step : wanted) ++uses[step];
    std::map<std::int32_t, std::string> values;
    for (std::int32_t step : unique(wanted)) {
      values[step] = names[at(step)];
      if (uses[step] < 2 || values[step].find(' ') == std::string::npos) continue;
      statements.line("const float result" + number_text(step) + " = " + values[step] + ";");
      values[step] = "result" + number_text(step);
    }
    for (const Sink& sink : which.sinks) {
      if (sink.kind == SinkKind::kStore) continue;
      if (part(sink.part).statistic == Statistic::kMoments)
        lines.push_back(value_name(sink.part) + "_sums.add(" + values[sink.step] + ");");
      else
        lines.push_back(sum_name(sink) + " += " + values[sink.step] + ";");
    }
    std::string returned = stored >= 0 ? values[stored] : "";
    std::string nothing;
    nest(statements, lines.size() == 1 && stored < 0 ? lines[0] : lines.empty() ? returned : nothing, text);
    for (const std::string& line : lines) text.line(line);
    if (stored >= 0) text.line("out = " + returned + ";");
    text.close("});");
  }
  std::string inputs_text(int i) {
    std::string inputs;
    for (int input : position_inputs(i))
      inputs += (inputs.empty() ? "" : ", ") + tensor(input) + (is_common(input) ? " - before" : "");
    return inputs;
  }
  // The share whose elements take the places of those that a sweep is done with.
  std::string next_text(int i) const { return i + 1 == sweep_count() && !constants_.edges ? "next" : "-1"; }
  // The threads of a share.
  std::string sharers() const {
    return result_.whole ? number_text(constants_.threads / cut_.unit_channels) : "kThreads";
  }
  static std::vector<std::int32_t> unique(const std::vector<std::int32_t>& steps) {
    std::vector<std::int32_t> result;
    for (std::int32_t step : steps)
      if (std::find(result.begin(), result.end(), step) == result.end()) result.push_back(step);
    return result;
  }
  std::string sum_name(const Sink& sink) { return "sum_" + value_name(sink.part); }

  // A statistic that this kernel makes, at a lane's channel.
  std::string lane_value(int input) { return at_lane(slot(input).part, slot(input).component); }
  // A name for an input of sweeps that does not vary over positions.
  std::string channel_name(int input) const {
    const std::string name = "own_" + names_[at(input)];
    if (!name.ends_with("_2")) return name;
    // The number that sets a statistic apart from a tensor of its name is not needed among them.
    const std::string plain = name.substr(0, name.size() - 2);
    const bool taken = std::any_of(channel_names_.begin(), channel_names_.end(),
                                   [&](const auto& other) { return other.second == plain; });
    return taken ? name : plain;
  }
  // The parameters of all sweeps, which are on the way while the first begins.
  void write_parameters(Text& text) {
    std::vector<std::string> names;
    for (int i = 0; i < sweep_count(); ++i)
      for (int k : channel_inputs(i)) {
        const int input = sweep(i).inputs[at(k)];
        if (made_here(input) || channel_names_.contains(input)) continue;
        channel_names_[input] = channel_name(input);
        names.push_back(channel_names_[input] + " = " + element(input, first_text("own")));
      }
    write_floats(text, names);
  }
  std::string first_text(const std::string& channel) const {
    return cut_.unit_channels == domain_[1] ? channel : "first + " + channel;
  }

  // Waits for the blocks of the team; behind the last sweep the last of them goes on alone.
  void write_meeting(Text& text, bool last) {
    if (result_.whole) {
      text.line("__syncthreads();");
      return;
    }
    const std::string counter = scalar("unsigned int*", "arrived") + " + " +
                                (result_.waits == 0   ? "unit"
                                 : result_.waits == 1 ? "unit + " + scalar("long long", "units")
                                                      : "unit + " + number_text(result_.waits) + " * " +
                                                            scalar("long long", "units"));
    ++result_.waits;
    if (last)
      text.line("if (!arrive(" + counter + ", " + team_text() + ")) " +
                (result_.together ? "continue;" : "return;"));
    else
      text.line("meet(" + counter + ", " + team_text() + ");");
    alone_ = last;
  }

  // The statistics of all blocks of the team, at each lane's channel.
  void write_exchange(Text& text, int i) {
    if (!has_statistics(i)) return;
    if (constants_.joined) {
      for (const Sink& sink : sweep(i).sinks)
        if (sink.kind == SinkKind::kStatistic)
          text.line("const Moments group_" + value_name(sink.part) + " = merged(" + value_name(sink.part) +
                    "_sums, share_sum<kThreads>);");
      return;
    }
    const std::string place = "n * " + number_text(domain_[1]) + " + c";
    for (const Sink& sink : sweep(i).sinks) {
      if (sink.kind != SinkKind::kStatistic) continue;
      const bool moments = part(sink.part).statistic == Statistic::kMoments;
      const std::string list = "blocks_" + value_name(sink.part);
      text.line(scalar(moments ? "Moments*" : "float*", list) + "[" + block_text() + "] = " +
                (moments ? "merged(" + value_name(sink.part) + "_sums, share_sum<" + sharers() + ">)"
                         : "share_sum<" + sharers() + ">(" + sum_name(sink) + ")") +
                ";");
      result_.lists.emplace_back(list, moments ? 16 : 4);
    }
    write_meeting(text, i + 1 == sweep_count());
    for (const Sink& sink : sweep(i).sinks) {
      if (sink.kind != SinkKind::kStatistic) continue;
      const bool moments = part(sink.part).statistic == Statistic::kMoments;
      const std::string list = "a.blocks_" + value_name(sink.part);
      if (moments && of_unit(i)) {
        const std::string team = team_text();
        text.line("const Moments group_" + value_name(sink.part) + " = merged(threadIdx.x < " + team + " ? " +
                  list + "[unit * " + team + " + threadIdx.x] : Moments(), share_sum<kThreads>);");
        continue;
      }
      const std::string value = constants_.parts > 1
                                    ? (moments ? "channel_moments" : "channel_sum") + parts_text() + list +
                                          " + (" + place + ") * " + number_text(constants_.parts) + ")"
                                    : list + "[" + place + "]";
      text.line(std::string("const ") +
                (moments ? "Moments " + value_name(sink.part) : "float " + sum_name(sink)) + "_c = " + value +
                ";");
    }
    std::vector<std::pair<int, std::string>> stores;
    for (const Sink& sink : sweep(i).sinks)
      if (sink.kind == SinkKind::kStatistic && cut_.later[at(sink.part)])
        for (std::size_t k = 0; k < sink.slots.size(); ++k)
          stores.emplace_back(sink.slots[k], at_lane(sink.part, static_cast<int>(k)));
    write_stores(text, stores);
  }

  // A value for each channel, worked out when all units are done.
  std::string of_batch(int number) {
    const Part& which = part(number);
    if (which.kind == PartKind::kComponent) return of_batch(which.operands[0]);
    if (!in_unit(number) && which.kind == PartKind::kPointwise && is_remaining(number)) {
      const auto found = inside_.find(number);
      if (found == inside_.end()) return name_of(number);
      const bool sum =
          found->second.find(" + ") != std::string::npos || found->second.find(" - ") != std::string::npos;
      return sum ? "(" + found->second + ")" : found->second;
    }
    if (is_remaining(number)) {
      const Part& operand = part(which.operands[0]);
      const int from = operand.kind == PartKind::kComponent ? operand.operands[0] : which.operands[0];
      const std::string samples = scalar("long long", "samples");
      const std::string channels = number_text(domain_[1]);
      // The sums of a sweep's blocks are there.
      if (sweep_of(from) >= 0)
        return "batch_sum" + parts_text() + "a.blocks_" + value_name(from) + " + c" +
               (constants_.parts > 1 ? " * " + number_text(constants_.parts) : "") + ", " + samples + ", " +
               channels + ")";
      return "batch_sum<1>(a.batch_" + value_name(from) + " + c, " + samples + ", " + channels + ")";
    }
    const int from = statistic_slot(number);
    const std::string place = tensor(from) + "[" + index(from, "c") + "]";
    return element_type(from) == DType::kF32 && slot(from).kind != SlotKind::kStatistic ? "(double)" + place
                                                                                        : place;
  }
  bool is_remaining(int number) const {
    return std::find(cut_.remaining.begin(), cut_.remaining.end(), number) != cut_.remaining.end();
  }
  std::vector<int> batch_outputs(const std::vector<int>& outputs, int number) const {
    std::vector<int> result;
    for (int output : outputs)
      if (slot(output).part == number) result.push_back(output);
    return result;
  }
  std::string team_text() const { return number_text(cut_.unit_channels * constants_.parts); }
  // The number of a block's share among all.
  std::string block_text() const {
    if (result_.whole) return "unit * " + team_text() + " + own";
    return result_.together ? "unit * " + team_text() + " + blockIdx.x % " + team_text() : "blockIdx.x";
  }
  std::string parts_text() const { return "<" + number_text(constants_.parts) + ">("; }
  bool is_taken_by_batch(int number) const {
    return std::any_of(cut_.remaining.begin(), cut_.remaining.end(), [&](int other) {
      const std::vector<int>& operands = part(other).operands;
      return std::find(operands.begin(), operands.end(), number) != operands.end();
    });
  }
  // The sweep's statistic whose sum over the batch a part is; -1 for others.
  int summed(int number) const {
    const Part& which = part(number);
    if (which.kind == PartKind::kComponent) return summed(which.operands[0]);
    const bool sums = which.kind == PartKind::kMerge && which.statistic == Statistic::kSum;
    return sums && sweep_of(which.operands[0]) >= 0 ? which.operands[0] : -1;
  }
  // Whether all that is left for the whole batch are such sums, each of another statistic.
  bool are_sums(const std::vector<int>& outputs) const {
    std::set<int> statistics;
    for (int output : outputs) statistics.insert(summed(slot(output).part));
    return statistics.size() == outputs.size() && !statistics.contains(-1) &&
           std::all_of(cut_.remaining.begin(), cut_.remaining.end(), [&](int i) { return summed(i) >= 0; });
  }
  void write_batch(Text& text) {
    const std::vector<int> outputs = statistic_outputs(cut_.remaining, true);
    if (cut_.remaining.empty() && outputs.empty()) return;
    if (constants_.batch_apart && are_sums(outputs)) {
      for (int output : outputs)
        result_.batch_sums.emplace_back("blocks_" + value_name(summed(slot(output).part)), output);
      return;
    }
    result_.finishes = true;
    const std::int64_t units = domain_[1] / cut_.unit_channels;
    text.line(
        "// Sums over the batch, by the last block that has statistics of these channels: a warp a channel.");
    std::string counter = scalar("unsigned int*", "arrived");
    if (result_.waits > 0)
      counter += " + " + std::string(result_.waits == 1 ? "" : number_text(result_.waits) + " * ") +
                 scalar("long long", "units");
    if (units > 1) counter += " + unit % " + number_text(units);
    text.line("if (" + chosen_block() + "arrive(" + counter + ", " + scalar("long long", "samples") + "))");
    text.open("  for (int i = threadIdx.x / 32; i < " + number_text(cut_.unit_channels) +
              "; i += kThreads / 32) {");
    text.line("const int c = " + first_text("i") + ";");
    for (int number : cut_.remaining) {
      const Part& which = part(number);
      if (which.kind != PartKind::kPointwise) continue;
      const auto steps = which.formula.steps();
      const std::string value =
          write_nested(
              text, steps, [&](int input) { return of_batch(which.operands[at(input)]); }, "double", false,
              {static_cast<std::int32_t>(steps.size()) - 1}, {}, name_of(number) + "_")
              .back();
      const std::vector<int> to = batch_outputs(outputs, number);
      if (to.size() == 1 && !is_taken_by_batch(number)) {
        written_.push_back(to[0]);
        text.line(tensor(to[0]) + "[" + index(to[0], "c") + "] = " + value + ";");
        continue;
      }
      if (to.empty() && value.size() <= kMostInside && uses(number) == 1) {
        inside_[number] = value;
        continue;
      }
      text.line("const double " + name_of(number) + " = " + value + ";");
    }
    for (int output : outputs) {
      if (is_written(output)) continue;
      written_.push_back(output);
      text.line(tensor(output) + "[" + index(output, "c") + "] = " + of_batch(slot(output).part) + ";");
    }
    text.close();
  }

  void write_kernel(Text& text) {
    Text steps;
    write_parameters(steps);
    for (int i = cut_.first, which = 0; i <= cut_.last; ++i) {
      if (step(i).kind == StepKind::kSweep) {
        write_sweep(steps, which);
        write_exchange(steps, which);
        ++which;
      } else {
        write_finalise(steps, i);
      }
    }
    write_batch(steps);  // behind the last sweep, which needs the registers
    text.open("extern \"C\" __global__ void __launch_bounds__(kThreads, " + number_text(constants_.blocks) +
              ") plain(const Arguments a) {");
    scalar("long long", "samples");
    if (result_.together)
      open_units(text, steps.str());
    else
      write_share(text, steps.str());
    for (const std::string& line : split_lines(steps.str())) text.line(line);
    if (result_.together) text.close();
    text.close();
  }
  std::string per_unit(const std::string& unit) const {
    return "(" + unit + " * " + number_text(cut_.unit_channels) + "ll + own) * a.positions";
  }
  // Where a part of a channel begins.
  std::string part_begin(const std::string& part) const {
    const std::string parts = number_text(constants_.parts);
    return part + " * a.positions" + (constants_.edges ? " / " + parts : " / 4 / " + parts + " * 4");
  }
  // The sample, the channels and the lane's own one.
  std::vector<Name> channel_names() const {
    const std::int64_t units = domain_[1] / cut_.unit_channels;
    const std::string of_sample = number_text(units);
    const std::string last = number_text(cut_.unit_channels - 1);
    std::vector<Name> names = {{"n", units == 1 ? "unit" : "unit / " + of_sample}};
    if (units > 1)
      names.push_back({"first", "unit % " + of_sample + " * " + number_text(cut_.unit_channels)});
    names.push_back({"c", first_text("min((int)threadIdx.x % 32, " + last + ")")});
    return names;
  }
  // A block's only share.
  void write_share(Text& text, const std::string& steps) {
    const std::string positions = scalar("long long", "positions");
    const std::string team = team_text();
    std::vector<Name> names = {{"unit", "blockIdx.x"}};
    if (result_.whole)
      names.push_back({"own", "threadIdx.x / " + sharers()});
    else if (!constants_.joined)
      names = {{"unit", "blockIdx.x / " + team}, {"own", "blockIdx.x % " + team + per_part()}};
    for (const Name& name : channel_names()) names.push_back(name);
    Text share;
    if (constants_.parts > 1) {
      share.line("const long long base = " + per_unit("unit") + ", part = blockIdx.x % " +
                 number_text(constants_.parts) + ";");
      share.line("const long long begin = base + " + part_begin("part") + ", end = base + " +
                 part_begin("(part + 1)") + ";");
    } else if (constants_.joined) {
      const std::string channels = number_text(cut_.unit_channels);
      share.line("const long long begin = unit * " + channels + "ll * " + positions + ", end = begin + " +
                 channels + " * " + positions + ";");
    } else {
      share.line("const long long begin = " + per_unit("unit") + ", end = begin + " + positions + ";");
    }
    if (result_.whole)
      share.line("const long long before = begin - n * " + positions +
                 ";  // of what is one for all channels");
    write_names(text, names, share.str() + steps);
    for (const std::string& line : split_lines(share.str())) text.line(line);
  }
  std::string per_part() const { return constants_.parts == 1 ? "" : " / " + number_text(constants_.parts); }
  // The units of a team, one after the other: while the last sweep stores, what is kept of the next comes.
  void open_units(Text& text, const std::string& steps) {
    const std::string positions = scalar("long long", "positions");
    const std::string units = scalar("long long", "units");
    const std::string team = team_text();
    text.line("extern __shared__ float4 kept[];");
    const std::string parts = number_text(constants_.parts);
    text.line("const int own = blockIdx.x % " + team + per_part() +
              (constants_.parts > 1 ? ", part = blockIdx.x % " + parts : "") + ", teams = gridDim.x / " +
              team + ";");
    std::string size = positions;
    if (constants_.parts > 1) {
      text.line("const long long from = " + part_begin("part") + ", size = " + part_begin("(part + 1)") +
                " - from;");
      size = "size";
    }
    text.line("long long begin = " + per_unit("blockIdx.x / " + team) +
              (constants_.parts > 1 ? " + from" : "") + ", stride = teams * " +
              number_text(cut_.unit_channels) + " * " + positions + ";");
    text.line("__nanosleep(" + number_text(constants_.blocks) + " * blockIdx.x / gridDim.x * " +
              number_text(kApart / constants_.blocks) + ");  // some teams read while others wait");
    const std::string inputs = "{" + inputs_text(0) + "}";
    if (!constants_.edges) text.line("keep(begin, begin + " + size + ", " + inputs + ", kept);");
    text.open("for (int unit = blockIdx.x / " + team + "; unit < " + units +
              "; unit += teams, begin += stride) {");
    write_names(text, channel_names(), steps);
    if (constants_.edges) {
      text.line("const long long end = begin + " + size + ";");
      text.line("keep(begin, end, " + inputs + ", kept);");
    } else {
      text.line("const long long end = begin + " + size + ", next = unit + teams < " + units +
                " ? begin + stride : -1;");
    }
  }

  PlainConstants constants_;
  PlainText result_;
  std::vector<int> written_;                  // slots
  std::map<int, std::string> channel_names_;  // of inputs that do not vary over positions, by slots
  bool alone_ = false;                        // one block of each unit is left
};

}  // namespace

bool is_for_plain(const Schedule& schedule, const KernelCut& cut) {
  return PlainWriter(schedule, cut, {}).takes();
}

PlainText plain_text(const Schedule& schedule, const KernelCut& cut, const PlainConstants& constants) {
  return PlainWriter(schedule, cut, constants).run();
}

}  // namespace fuseblock::cuda
