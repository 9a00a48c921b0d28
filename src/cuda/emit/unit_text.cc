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
  return "to_real(" + from + ".data[" + from + ".offset(unit.n, unit.first_channel + c)])";
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

// A sweep's statistic may be the unit's where it is kept in this kernel, and merges over all of a unit's channels alone
// take it.
void UnitWriter::find_unit_sums() {
  auto merged_alone = [&](int number) {
    if (cut_.shared[at(number)]) return false;
    const auto direct = [&](int input) { return slot(input).part == number; };
    for (int i = 0; i < sweep_count(); ++i)
      if (std::any_of(sweep(i).inputs.begin(), sweep(i).inputs.end(), direct)) return false;
    for (int i = 0; i < static_cast<int>(schedule_.graph.parts.size()); ++i) {
      const Part& user = part(i);
      if (std::find(user.operands.begin(), user.operands.end(), number) == user.operands.end()) continue;
      const bool over_unit = user.kind == PartKind::kMerge && user.axes.contains(Axis::kC) && in_unit(i) &&
                             part(number).extents[1] / user.groups == cut_.unit_channels;
      if (!over_unit) return false;
    }
    return true;
  };
  for (int i = 0; i < sweep_count(); ++i) {
    bool all = has_statistics(i);
    for (const Sink& sink : sweep(i).sinks)
      if (sink.kind == SinkKind::kStatistic) all = all && merged_alone(sink.part);
    unit_sums_.push_back(all);
  }
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
    return "unit.values->totals" + number_text(i) + "[0].s" + number_text(which.operands[0]) + field;
  if (in_unit(number)) {
    if (which.kind == PartKind::kRegroup) return regroup_text(number);
    const bool merged = which.kind == PartKind::kMerge || which.kind == PartKind::kReduce;
    return "unit.values->p" + number_text(number) + "[c]" + (merged ? field : "");
  }
  const int where = component == 0 ? statistic_slot(number) : schedule_.statistic_slot(number, component);
  const std::string from = tensor(where);
  return "to_real(" + from + ".data[" + from + ".offset(unit.n, unit.first_channel + c)])";
}

std::string UnitWriter::regroup_text(int number) {
  const Part& which = part(number);
  const int operand = which.operands[0];
  const std::int64_t groups = part(operand).extents[1];
  if (which.extents[1] < groups) return in_unit_text(operand);
  const std::string from = tensor(statistic_slot(operand));
  return "to_real(" + from + ".data[" + from + ".offset(unit.n, (unit.first_channel + c) / " +
         number_text(which.extents[1] / groups) + ")])";
}

void UnitWriter::write_finalise_units(Text& text) {
  for (int i = cut_.first; i <= cut_.last; ++i) {
    if (step(i).kind != StepKind::kFinalise && !writes_totals(i)) continue;
    text.line("template <class Crew>");
    text.open("__device__ void finalise_" + number_text(i) +
              "(const Arguments& a, const Unit& unit, const Team& team) {");
    bool open = false;
    auto end_loop = [&] {
      if (open) text.close();
      open = false;
    };
    auto begin_loop = [&] {
      if (!open) text.open("for (int c = Crew::thread(); c < kUnitChannels; c += Crew::kCrewThreads) {");
      open = true;
    };
    if (step(i).kind == StepKind::kFinalise)
      for (int number : step(i).parts) {
        const Part& which = part(number);
        if (!in_unit(number) || which.kind == PartKind::kComponent || which.kind == PartKind::kRegroup ||
            unit_sum(number) >= 0)
          continue;
        if (which.kind == PartKind::kMerge || which.kind == PartKind::kReduce) {
          end_loop();
          text.line("Crew::sync();");
          write_merge(text, number);
          text.line("Crew::sync();");
        } else {
          begin_loop();
          text.open("{  // " + narrator_.label(number));
          const std::string value =
              write_statements(
                  text, which.formula.steps(),
                  [&](int input) { return in_unit_text(which.operands[at(input)]); }, "real", single_)
                  .back();
          text.line("unit.values->p" + number_text(number) + "[c] = " + value + ";");
          text.close();
        }
      }
    end_loop();
    write_to_memory(text, i);
    text.close();
  }
}

int UnitWriter::write_unit_members(Text& text) const {
  int bytes = 0;
  for (int i = cut_.first; i <= cut_.last; ++i) {
    if (step(i).kind != StepKind::kFinalise) continue;
    for (int number : step(i).parts) {
      const Part& which = part(number);
      if (!in_unit(number) || which.kind == PartKind::kComponent || which.kind == PartKind::kRegroup ||
          unit_sum(number) >= 0)
        continue;
      const bool merged = which.kind == PartKind::kMerge || which.kind == PartKind::kReduce;
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

void UnitWriter::write_to_memory(Text& text, int i) {
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
  text.line("Crew::sync();");
  text.line("if (team.member != 0) return;");
  text.open("for (int c = Crew::thread(); c < kUnitChannels; c += Crew::kCrewThreads) {");
  for (const auto& [to, value] : stores) write_store(text, to, value);
  text.close();
}

void UnitWriter::write_store(Text& text, int to, const std::string& value) {
  const Extents& extents = slot(to).extents;
  std::string condition;
  std::string channel = "unit.first_channel + c";
  if (extents[0] == 1 && domain_[0] != 1) condition = "unit.n == 0";
  if (extents[1] != domain_[1]) {
    const std::int64_t group = domain_[1] / std::max<std::int64_t>(extents[1], 1);
    condition += (condition.empty() ? "" : " && ") + std::string("(unit.first_channel + c) % ") +
                 number_text(group) + " == 0";
    channel = "(unit.first_channel + c) / " + number_text(group);
  }
  const std::string name = tensor(to);
  text.line((condition.empty() ? "" : "if (" + condition + ") ") + "assign(" + name + ".data[" + name +
            ".offset(unit.n, " + channel + ")], " + value + ");");
}

void UnitWriter::write_merge(Text& text, int number) {
  const Part& which = part(number);
  const Part& operand = part(which.operands[0]);
  const bool over_c = which.axes.contains(Axis::kC) && operand.extents[1] != 1;
  const std::string group = number_text(over_c ? operand.extents[1] / which.groups : 1);
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
  text.open("for (int group = Crew::warp(); group < kUnitChannels / " + group +
            "; group += Crew::kCrewWarps) {");
  text.line(type + " total;");
  text.line("total.clear();");
  text.line("for (int c = group * " + group + " + threadIdx.x % 32; c < (group + 1) * " + group +
            "; c += 32) total.merge(" + type + "{" + state + "});");
  text.line("total = warp::from_first(warp::merge(total));");
  text.line("for (int c = group * " + group + " + threadIdx.x % 32; c < (group + 1) * " + group +
            "; c += 32) unit.values->p" + number_text(number) + "[c] = total;");
  text.close();
}

}  // namespace fuseblock::cuda
