#include "cuda/emit/unit_text.h"

#include <algorithm>

#include "cuda/emit/rounded_products.h"

namespace fuseblock::cuda {
namespace {

std::size_t at(int i) { return static_cast<std::size_t>(i); }
std::string number_text(std::int64_t number) { return std::to_string(number); }

}  // namespace

UnitWriter::UnitWriter(const Schedule& schedule, const KernelCut& cut)
    : KernelWriter(schedule, cut), narrator_(schedule) {
  for (int i = cut.first; i <= cut.last; ++i)
    if (step(i).kind == StepKind::kSweep) sweeps_.push_back(i);
  domain_ = sweep(0).domain;
  find_local_values();
}

void UnitWriter::write_sums_struct(Text& text, const std::string& name, const std::string& results,
                                   const std::vector<const Sink*>& taken) const {
  // What a statistic is called: `s5` for part 5.
  auto sum_name = [](const Sink* sink) { return "s" + number_text(sink->part); };
  text.open("struct " + name + " {");
  if (taken.empty()) text.line("int nothing;");
  for (const Sink* sink : taken) {
    const bool exp_sum = part(sink->part).statistic == Statistic::kExpSum;
    text.line((exp_sum ? "branchless::" : "") + statistic_type(sink->part, "real") + " " + sum_name(sink) +
              ";");
  }
  text.open("__device__ void clear() {");
  for (const Sink* sink : taken) text.line(sum_name(sink) + ".clear();");
  text.close();
  text.open("__device__ void add(const " + results + " (&results)[kElements], unsigned int taken) {");
  for (const Sink* sink : taken) {
    text.open("{");
    text.line("real values[kElements];");
    text.line("#pragma unroll");
    text.line("for (int i = 0; i < kElements; ++i) values[i] = results[i].r" + number_text(sink->step) + ";");
    text.line(sum_name(sink) + ".add(values, taken);");
    text.close();
  }
  text.close();
  text.open("__device__ void merge(const " + name + "& other) {");
  for (const Sink* sink : taken) text.line(sum_name(sink) + ".merge(other." + sum_name(sink) + ");");
  text.close();
  text.open("__device__ void merge_lanes() {");
  for (const Sink* sink : taken) text.line(sum_name(sink) + ".merge_lanes();");
  text.close();
  text.close("};");
}

bool UnitWriter::has_statistics(int i) const {
  return std::any_of(sweep(i).sinks.begin(), sweep(i).sinks.end(),
                     [](const Sink& sink) { return sink.kind == SinkKind::kStatistic; });
}

int UnitWriter::sweep_of(int number) const {
  for (int i = 0; i < sweep_count(); ++i)
    for (const Sink& sink : sweep(i).sinks)
      if (sink.kind == SinkKind::kStatistic && sink.part == number) return i;
  return -1;
}

void UnitWriter::find_ring() {
  std::vector<int> written;
  for (int i = 0; i < sweep_count(); ++i)
    for (const Sink& sink : sweep(i).sinks)
      if (sink.kind == SinkKind::kStore) written.push_back(sink.slots[0]);
  for (int i = 0; i < sweep_count(); ++i)
    for (int input : sweep(i).inputs) {
      const bool is_written = std::find(written.begin(), written.end(), input) != written.end();
      if (slot(input).kind == SlotKind::kStatistic || slot(input).extents != domain_ || is_written ||
          in_ring(input))
        continue;
      ring_.push_back(input);
    }
}

std::vector<int> UnitWriter::channel_inputs(int i) const {
  std::vector<int> result;
  for (std::size_t k = 0; k < sweep(i).inputs.size(); ++k) {
    const int input = sweep(i).inputs[k];
    if (!over_positions(slot(input).extents) && !in_ring(input)) result.push_back(static_cast<int>(k));
  }
  return result;
}

std::string UnitWriter::channel_value(int input) {
  const Slot& which = slot(input);
  if (which.kind == SlotKind::kStatistic) return in_unit_text(which.part, which.component);
  const std::string from = tensor(input);
  return "to_real(" + from + ".at(unit.n, unit.first_channel + c))";
}

std::string UnitWriter::channel_name(int i, int input) const {
  const std::string& name = names_[at(sweep(i).inputs[at(input)])];
  // The number that sets a statistic apart from a tensor of its name is not needed among them.
  const std::string plain = name.ends_with("_2") ? name.substr(0, name.size() - 2) : name;
  const std::vector<int> inputs = channel_inputs(i);
  const bool taken = std::any_of(inputs.begin(), inputs.end(), [&](int other) {
    return other != input && names_[at(sweep(i).inputs[at(other)])] == plain;
  });
  return taken ? name : plain;
}

void UnitWriter::write_channel_struct(Text& text, int i) const {
  const std::vector<int> inputs = channel_inputs(i);
  if (inputs.empty()) return;
  const std::string name = number_text(i);
  text.line("// Sweep " + name + ": what its program takes that does not vary over positions.");
  text.open("struct Channel" + name + " {");
  for (int k : inputs) text.line("real " + channel_name(i, k) + ";");
  text.close("};");
}

void UnitWriter::write_channel_functions(Text& text, int i) {
  if (!has_channels(i)) return;
  for (const bool statistics : {false, true}) {
    text.open(std::string("static __device__ void ") + (statistics ? "statistics" : "parameters") +
              "(const Arguments& a, const Unit& unit, int c, Channel& channel) {");
    for (int k : channel_inputs(i)) {
      const int input = sweep(i).inputs[at(k)];
      if (made_here(input) == statistics)
        text.line("channel." + channel_name(i, k) + " = " + channel_value(input) + ";");
    }
    text.close();
  }
}

bool UnitWriter::made_here(int input) const {
  const Slot& which = slot(input);
  if (which.kind != SlotKind::kStatistic) return false;
  const int owner = part(which.part).kind == PartKind::kComponent ? part(which.part).operands[0] : which.part;
  return sweep_of(owner) >= 0 || in_unit(which.part) || in_unit(owner);
}

bool UnitWriter::writes_16_bit() const {
  bool any = false;
  for (int i = 0; i < sweep_count(); ++i) {
    if (takes_statistic_of_each(schedule_, sweep(i))) return false;
    for (const Sink& sink : sweep(i).sinks) {
      if (sink.kind != SinkKind::kStore) continue;
      any = true;
      if (byte_size(element_type(sink.slots[0])) != 2) return false;
    }
  }
  const std::vector<int> outputs = statistic_outputs({}, false);
  return any && single_ && std::all_of(outputs.begin(), outputs.end(), [&](int output) {
           return byte_size(element_type(output)) == 2 || is_saved(output);
         });
}

bool UnitWriter::is_saved(int output) const {
  const std::size_t first = schedule_.outputs.size() - schedule_.saved.size();
  return !schedule_.reads_saved && slot(output).kind == SlotKind::kOutput && at(slot(output).number) >= first;
}

int UnitWriter::state_numbers(Statistic statistic) {
  return statistic == Statistic::kMoments ? 3 : component_count(statistic);
}

// A sweep's statistic may be its group's where it is kept in this kernel, and merges over groups of a unit's channels alone take it.
std::int64_t UnitWriter::common_group(int i) const {
  if (!has_statistics(i)) return 0;
  std::int64_t group = 0;
  auto merged_alone = [&](int number) {
    if (cut_.shared[at(number)]) return false;
    const auto direct = [&](int input) { return input >= 0 && slot(input).part == number; };
    for (int k = 0; k < sweep_count(); ++k)
      if (std::any_of(sweep(k).inputs.begin(), sweep(k).inputs.end(), direct)) return false;
    for (int k = 0; k < static_cast<int>(schedule_.graph.parts.size()); ++k) {
      const Part& user = part(k);
      if (std::find(user.operands.begin(), user.operands.end(), number) == user.operands.end()) continue;
      if (user.kind != PartKind::kMerge || !user.axes.contains(Axis::kC) || !in_unit(k)) return false;
      const std::int64_t channels = part(number).extents[1] / user.groups;
      if (group != 0 && channels != group) return false;
      group = channels;
    }
    return true;
  };
  for (const Sink& sink : sweep(i).sinks)
    if (sink.kind == SinkKind::kStatistic && !merged_alone(sink.part)) return 0;
  return group;
}

std::vector<std::int32_t> UnitWriter::results_of(int i) const {
  std::vector<std::int32_t> steps;
  for (const Sink& sink : sweep(i).sinks)
    if (std::find(steps.begin(), steps.end(), sink.step) == steps.end()) steps.push_back(sink.step);
  return steps;
}

int UnitWriter::result_number(int i, std::int32_t step) const {
  const std::vector<std::int32_t> steps = results_of(i);
  return static_cast<int>(std::find(steps.begin(), steps.end(), step) - steps.begin());
}

void UnitWriter::find_unit_sums() {
  for (int i = 0; i < sweep_count(); ++i) unit_sums_.push_back(common_group(i) == cut_.unit_channels);
  find_local_values();
}

int UnitWriter::unit_sum(int number) const {
  const Part& which = part(number);
  if (which.kind != PartKind::kMerge) return -1;
  const int i = sweep_of(which.operands[0]);
  return i >= 0 && of_unit(i) ? i : -1;
}

std::string UnitWriter::in_unit_text(int number, int component) {
  const Part& which = part(number);
  const std::string field = component == 0 ? ".first" : ".second";
  if (which.kind == PartKind::kComponent) return in_unit_text(which.operands[0], which.component);
  if (const int i = sweep_of(number); i >= 0)
    return "unit.values->totals" + number_text(i) + "[c].s" + number_text(number) + field;
  if (const int i = unit_sum(number); i >= 0)
    return "unit.values->totals" + number_text(i) + "[" + merged_place_ + "].s" +
           number_text(which.operands[0]) + field;
  if (in_unit(number)) {
    if (which.kind == PartKind::kRegroup) return regroup_text(number);
    const bool merged = which.kind == PartKind::kMerge || which.kind == PartKind::kReduce;
    if (local_values_[at(number)]) return "p" + number_text(number);
    return "unit.values->p" + number_text(number) + "[c]" + (merged ? field : "");
  }
  const int where = component == 0 ? statistic_slot(number) : schedule_.statistic_slot(number, component);
  const std::string from = tensor(where);
  return "to_real(" + from + ".at(unit.n, unit.first_channel + c))";
}

std::string UnitWriter::regroup_text(int number) {
  const Part& which = part(number);
  const int operand = which.operands[0];
  const std::int64_t groups = part(operand).extents[1];
  if (which.extents[1] < groups) return in_unit_text(operand);
  const std::string from = tensor(statistic_slot(operand));
  return "to_real(" + from + ".at(unit.n, (unit.first_channel + c) / " +
         number_text(which.extents[1] / groups) + "))";
}

bool UnitWriter::is_worked_out(int number) const {
  const Part& which = part(number);
  return in_unit(number) && which.kind != PartKind::kComponent && which.kind != PartKind::kRegroup &&
         unit_sum(number) < 0;
}

bool UnitWriter::merges_channels(int number) const {
  const Part& which = part(number);
  if (which.kind != PartKind::kMerge && which.kind != PartKind::kReduce) return false;
  return which.statistic != Statistic::kSum || group_channels(number) != 1;
}

std::int64_t UnitWriter::group_channels(int number) const {
  const Part& which = part(number);
  const Part& operand = part(which.operands[0]);
  const bool over_c = which.axes.contains(Axis::kC) && operand.extents[1] != 1;
  return over_c ? operand.extents[1] / which.groups : 1;
}

// A value is a name of one loop over channels where nothing but later values of the same loop take it.
void UnitWriter::find_local_values() {
  local_values_.assign(schedule_.graph.parts.size(), false);
  for (int i = cut_.first; i <= cut_.last; ++i) {
    if (step(i).kind != StepKind::kFinalise) continue;
    std::vector<int> loop;
    auto end_loop = [&] {
      for (int number : loop) local_values_[at(number)] = taken_only_by(number, loop);
      loop.clear();
    };
    for (int number : step(i).parts) {
      if (!is_worked_out(number)) continue;
      if (merges_channels(number))
        end_loop();
      else
        loop.push_back(number);
    }
    end_loop();
  }
}

bool UnitWriter::taken_only_by(int number, const std::vector<int>& users) const {
  const Part& which = part(number);
  if (which.kind == PartKind::kMerge || which.kind == PartKind::kReduce || cut_.shared[at(number)])
    return false;
  for (int i = 0; i < static_cast<int>(schedule_.graph.parts.size()); ++i) {
    const std::vector<int>& operands = part(i).operands;
    if (std::find(operands.begin(), operands.end(), number) != operands.end() &&
        std::find(users.begin(), users.end(), i) == users.end())
      return false;
  }
  // A sweep's own source has no slot.
  const auto takes = [&](int each) { return each >= 0 && slot(each).part == number; };
  for (int i = cut_.first; i <= cut_.last; ++i) {
    const ScheduleStep& which_step = step(i);
    const std::vector<int>& slots =
        which_step.kind == StepKind::kSweep ? which_step.sweep.inputs : which_step.operands;
    if (std::any_of(slots.begin(), slots.end(), takes)) return false;
  }
  return true;
}

bool UnitWriter::has_finalise(int i) const {
  return std::find(finalises_.begin(), finalises_.end(), i) != finalises_.end();
}

void UnitWriter::write_finalise_units(Text& text) {
  for (int i = cut_.first; i <= cut_.last; ++i) {
    if (step(i).kind != StepKind::kFinalise && !writes_totals(i)) continue;
    Text body;
    write_finalise_unit(body, i);
    if (body.str().empty()) continue;
    finalises_.push_back(i);
    text.line("template <class Crew>");
    text.open("__device__ void finalise_" + number_text(i) +
              "(const Arguments& a, const Unit& unit, const Team& team) {");
    write_finalise_unit(text, i);
    text.close();
  }
}

void UnitWriter::write_finalise_unit(Text& text, int i) {
  bool open = false;
  bool apart = false;  // whether others' values may be taken
  auto end_loop = [&] {
    if (open) text.close();
    open = false;
  };
  for (int number : step(i).kind == StepKind::kFinalise ? step(i).parts : std::vector<int>()) {
    if (!is_worked_out(number)) continue;
    if (merges_channels(number)) {
      end_loop();
      if (!apart) text.line("Crew::sync();");
      write_merge(text, number);
      text.line("Crew::sync();");
      apart = true;
      continue;
    }
    if (!open) text.open("for (int c = Crew::thread(); c < kUnitChannels; c += Crew::kCrewThreads) {");
    open = true;
    apart = false;
    write_value(text, number);
  }
  end_loop();
  write_to_memory(text, i, apart);
}

void UnitWriter::write_value(Text& text, int number) {
  const Part& which = part(number);
  const std::string name = "p" + number_text(number);
  std::string value;
  if (which.kind == PartKind::kMerge || which.kind == PartKind::kReduce) {
    value = "{" + in_unit_text(which.operands[0]) + "}";  // a sum of one
  } else {
    const auto steps = which.formula.steps();
    value = write_nested(
                text, steps, [&](int input) { return in_unit_text(which.operands[at(input)]); }, "real",
                single_, {static_cast<std::int32_t>(steps.size()) - 1}, {}, name + "_")
                .back();
  }
  text.line((local_values_[at(number)] ? "const real " + name : "unit.values->" + name + "[c]") + " = " +
            value + ";  // " + narrator_.label(number));
}

int UnitWriter::write_unit_members(Text& text) const {
  int bytes = 0;
  for (int i = cut_.first; i <= cut_.last; ++i) {
    if (step(i).kind != StepKind::kFinalise) continue;
    for (int number : step(i).parts) {
      const Part& which = part(number);
      if (!is_worked_out(number)) continue;
      const bool merged = which.kind == PartKind::kMerge || which.kind == PartKind::kReduce;
      if (!local_values_[at(number)])
        text.line((merged ? statistic_type(number, "real") : "real") + " p" + number_text(number) +
                  "[kUnitChannels];");
      bytes += static_cast<int>(cut_.unit_channels) * 8 * (merged ? state_numbers(which.statistic) : 1);
    }
  }
  return bytes;
}

bool UnitWriter::writes_totals(int i) const {
  if (step(i).kind != StepKind::kSweep) return false;
  return std::any_of(step(i).sweep.sinks.begin(), step(i).sweep.sinks.end(), [&](const Sink& sink) {
    return sink.kind == SinkKind::kStatistic && cut_.shared[at(sink.part)];
  });
}

void UnitWriter::write_to_memory(Text& text, int i, bool apart) {
  std::vector<std::pair<int, std::string>> stores;  // slot, value
  if (step(i).kind == StepKind::kSweep) {
    for (const Sink& sink : step(i).sweep.sinks)
      if (sink.kind == SinkKind::kStatistic && cut_.shared[at(sink.part)])
        for (std::size_t k = 0; k < sink.slots.size(); ++k)
          stores.emplace_back(sink.slots[k], in_unit_text(sink.part, static_cast<int>(k)));
  } else {
    for (int number : step(i).parts) {
      const Part& which = part(number);
      if (!in_unit(number) || !cut_.shared[at(number)] || which.kind == PartKind::kComponent) continue;
      const bool merged = which.kind == PartKind::kMerge || which.kind == PartKind::kReduce;
      for (int k = 0; k < (merged ? component_count(which.statistic) : 1); ++k)
        stores.emplace_back(merged ? schedule_.statistic_slot(number, k) : statistic_slot(number),
                            in_unit_text(number, k));
    }
    for (int output : step(i).operands) {
      const int from = slot(output).part;
      if (std::find(cut_.remaining.begin(), cut_.remaining.end(), from) == cut_.remaining.end())
        stores.emplace_back(output, in_unit_text(from));
    }
  }
  if (stores.empty()) return;
  if (!apart) text.line("Crew::sync();");
  text.line("if (team.member != 0) return;");
  text.open("for (int c = Crew::thread(); c < kUnitChannels; c += Crew::kCrewThreads) {");
  std::string last;  // condition
  for (const auto& [to, value] : stores) {
    const std::string condition = store_condition(to);
    if (condition != last && !last.empty()) text.close();
    if (condition != last && !condition.empty()) text.open("if (" + condition + ") {");
    last = condition;
    text.line(store_text(to, value));
  }
  if (!last.empty()) text.close();
  text.close();
}

std::string UnitWriter::store_condition(int to) const {
  const Extents& extents = slot(to).extents;
  std::string condition;
  if (extents[0] == 1 && domain_[0] != 1) condition = "unit.n == 0";
  if (extents[1] != domain_[1])
    condition += (condition.empty() ? "" : " && ") + std::string("(unit.first_channel + c) % ") +
                 number_text(domain_[1] / std::max<std::int64_t>(extents[1], 1)) + " == 0";
  return condition;
}

std::string UnitWriter::store_text(int to, const std::string& value) {
  const Extents& extents = slot(to).extents;
  std::string channel = "unit.first_channel + c";
  if (extents[1] != domain_[1])
    channel = "(" + channel + ") / " + number_text(domain_[1] / std::max<std::int64_t>(extents[1], 1));
  return "assign(" + tensor(to) + ".at(unit.n, " + channel + "), " + value + ");";
}

void UnitWriter::write_merge(Text& text, int number) {
  const Part& which = part(number);
  const Part& operand = part(which.operands[0]);
  const std::string type = statistic_type(number, "real");
  std::string state;
  if (which.kind == PartKind::kReduce) {
    state = in_unit_text(which.operands[0]);
    if (which.statistic == Statistic::kMoments) state += ", 0, 1";
    if (which.statistic == Statistic::kExpSum) state += ", 1";
  } else {
    for (int k = 0; k < component_count(which.statistic); ++k)
      state += (k == 0 ? "" : ", ") + in_unit_text(which.operands[0], k);
    if (which.statistic == Statistic::kMoments)
      state += ", " + literal(static_cast<double>(operand.count), single_);
  }
  text.line("// " + narrator_.label(number));
  text.line("merge_groups<Crew, kUnitChannels, " + number_text(group_channels(number)) + ">(unit.values->p" +
            number_text(number) + ", [&](int c) { return " + type + "{" + state + "}; });");
}

}  // namespace fuseblock::cuda
