#include "cuda/emit/plain_values.h"

#include <algorithm>
#include <cctype>
#include <cstring>
#include <ranges>
#include <set>

namespace fuseblock::cuda {
namespace {

constexpr std::int64_t kLanes = 32;
constexpr std::int64_t kMostChannels = 8;  // of a block
constexpr const char* kMomentsOfGroups = "moments_of_groups_moments_";
// Of a value that stands in one line.
constexpr std::size_t kMostLetters = 130;

std::size_t at(int i) { return static_cast<std::size_t>(i); }
std::string number_text(std::int64_t number) { return std::to_string(number); }

// Letters of a line of names.
constexpr std::size_t kMostNames = 92;

bool is_letter(const std::string& text, std::size_t i) {
  return i < text.size() && (std::isalnum(static_cast<unsigned char>(text[i])) != 0 || text[i] == '_');
}

bool has_word(const std::string& text, const std::string& word) {
  for (std::size_t i = text.find(word); i != std::string::npos; i = text.find(word, i + 1))
    if (!is_letter(text, i - 1) && !is_letter(text, i + word.size())) return true;
  return false;
}

std::string without_comments(const std::string& lines) {
  std::string result;
  for (const std::string& line : split_lines(lines)) result += line.substr(0, line.find("//")) + "\n";
  return result;
}

// Replaces a word, and what follows it, wherever it stands.
void replace_all(std::string& text, const std::string& from, const std::string& to) {
  for (std::size_t place = text.find(from); place != std::string::npos;) {
    const char before = place == 0 ? ' ' : text[place - 1];
    const bool whole = std::isalnum(static_cast<unsigned char>(before)) == 0 && before != '_';
    if (whole) text.replace(place, from.size(), to);
    place = text.find(from, place + (whole ? to.size() : from.size()));
  }
}

}  // namespace

std::string with_own_functions(std::string text) {
  for (const auto& [from, to] : {std::pair("reciprocal_root(", "rsqrtf("), std::pair("exponential(", "expf("),
                                 std::pair("logarithm(", "logf("), std::pair("absolute(", "fabsf("),
                                 std::pair("hyperbolic_tangent(", "tanhf("),
                                 std::pair("square_root(", "sqrtf("), std::pair("error_function(", "erff(")})
    replace_all(text, from, to);
  return text;
}

bool needs_functions(const std::string& program) {
  for (const char* name :
       {"minimum(", "maximum(", "exponential_minus_1(", "log_1_plus_exp(", "sigmoid(", "one_plus_"})
    if (program.find(name) != std::string::npos) return true;
  return false;
}

bool sums_lanes(const std::string& value) {
  return value.find("group_sum<") != std::string::npos || value.find("unit_sum<") != std::string::npos;
}

std::vector<std::string> split_lines(const std::string& lines) {
  std::vector<std::string> result;
  for (std::size_t begin = 0; begin < lines.size();) {
    const std::size_t end = lines.find('\n', begin);
    result.push_back(lines.substr(begin, end - begin));
    begin = end + 1;
  }
  return result;
}

PlainValues::PlainValues(const Schedule& schedule, const KernelCut& cut) : UnitWriter(schedule, cut) {
  find_ring();
  find_unit_sums();
  // What forward saved is called as what it is, and so are moments.
  const auto rename = [&](std::string& name, const std::string& other) {
    if (std::find(names_.begin(), names_.end(), other) == names_.end()) name = other;
  };
  // Parameters of the only layer that has some need not say whose they are.
  std::set<std::string> layers;
  for (const std::string& name : names_)
    for (const char* ending : {"_weight", "_bias"})
      if (name.ends_with(ending) && !name.starts_with("d_"))
        layers.insert(name.substr(0, name.size() - std::strlen(ending)));
  for (std::size_t i = 0; i < names_.size(); ++i) {
    std::string& name = names_[i];
    const Slot& which = schedule.slots[i];
    for (const char* parameter : {"weight", "bias"})
      for (const std::string before : {"", "d_"})
        if (layers.size() == 1 && name == before + *layers.begin() + "_" + parameter)
          rename(name, before + parameter);
    if (name.starts_with("saved_")) rename(name, name.substr(6));
    if (which.kind == SlotKind::kStatistic && name.starts_with(kMomentsOfGroups))
      rename(name, (which.component == 0 ? "group_mean_" : "group_squares_") + value_name(which.part));
  }
}

bool PlainValues::takes() const {
  if (!single_ || cut_.kind != KernelKind::kRows || cut_.unit_channels > kLanes) return false;
  // The warps of a block are shared out among the channels that have common inputs.
  if (has_common() && kMostChannels % cut_.unit_channels != 0) return false;
  for (int i = 0; i < sweep_count(); ++i)
    if (!takes_sweep(i)) return false;
  for (int i = cut_.first; i <= cut_.last; ++i)
    if (step(i).kind == StepKind::kFinalise)
      for (int number : step(i).parts)
        if (in_unit(number) ? !takes_local(number) : !takes_remaining(number)) return false;
  return true;
}

std::vector<int> PlainValues::position_inputs(int i) const {
  std::vector<int> result;
  for (int input : ring_)
    if (std::find(sweep(i).inputs.begin(), sweep(i).inputs.end(), input) != sweep(i).inputs.end())
      result.push_back(input);
  for (int input : sweep(i).inputs)
    if (is_common(input) && std::find(result.begin(), result.end(), input) == result.end())
      result.push_back(input);
  return result;
}

bool PlainValues::is_common(int number) const {
  Extents common = domain_;
  common[1] = 1;
  return domain_[1] != 1 && slot(number).extents == common && is_direct(number) && is_f32(number);
}

bool PlainValues::has_common() const {
  for (int i = 0; i < sweep_count(); ++i)
    for (int input : sweep(i).inputs)
      if (is_common(input)) return true;
  return false;
}

bool PlainValues::is_f32(int number) const {
  return layout_of(schedule_, slot(number)) == Layout::kContiguous &&
         slot(number).kind != SlotKind::kStatistic && element_type(number) == DType::kF32;
}

bool PlainValues::is_dense(int number) const { return slot(number).extents == domain_ && is_f32(number); }

bool PlainValues::is_small(int number) const {
  const Extents& extents = slot(number).extents;
  return !over_positions(extents) && (extents[1] == 1 || domain_[1] % extents[1] == 0) &&
         (slot(number).kind == SlotKind::kStatistic || element_type(number) == DType::kF32);
}

bool PlainValues::takes_sweep(int i) const {
  const Sweep& which = sweep(i);
  if (which.source >= 0 || !which.epilogue.sinks.empty() || position_inputs(i).empty()) return false;
  for (int input : which.inputs)
    if (in_ring(input) ? !is_dense(input) : is_direct(input) ? !is_common(input) : !is_small(input))
      return false;
  int stores = 0;
  for (const Sink& sink : which.sinks) {
    if (sink.kind == SinkKind::kStore) {
      ++stores;
      if (!is_dense(sink.slots[0])) return false;
    } else if (sink.kind != SinkKind::kStatistic || (part(sink.part).statistic != Statistic::kSum &&
                                                     part(sink.part).statistic != Statistic::kMoments)) {
      return false;
    }
  }
  // Later sweeps read what the first keeps.
  return stores <= 1 && (i == 0 || has_common() || position_inputs(i) == position_inputs(0));
}

bool PlainValues::takes_local(int number) const {
  const Part& which = part(number);
  if (which.kind == PartKind::kReduce) return which.statistic == Statistic::kSum;
  if (which.kind == PartKind::kMerge)
    return which.statistic == Statistic::kSum || which.statistic == Statistic::kMoments;
  return which.kind == PartKind::kComponent || which.kind == PartKind::kPointwise ||
         which.kind == PartKind::kRegroup;
}

bool PlainValues::takes_remaining(int number) const {
  const Part& which = part(number);
  if (which.extents[0] != 1 || (which.extents[1] != 1 && which.extents[1] != domain_[1])) return false;
  if (which.kind == PartKind::kPointwise || which.kind == PartKind::kComponent) return true;
  const Part& operand = part(which.operands[0]);
  return (which.kind == PartKind::kMerge || which.kind == PartKind::kReduce) &&
         which.statistic == Statistic::kSum && !which.axes.contains(Axis::kC) &&
         operand.extents[0] == domain_[0] && operand.extents[1] == which.extents[1] && domain_[0] > 1 &&
         in_unit(which.operands[0]);
}

std::string PlainValues::name_of(int number) {
  if (const auto found = part_names_.find(number); found != part_names_.end()) return found->second;
  std::string name;
  for (char letter : narrator_.label(number)) {
    if (std::isalnum(static_cast<unsigned char>(letter)) != 0)
      name += letter;
    else if (!name.empty() && name.back() != '_')
      name += '_';
  }
  while (!name.empty() && name.back() == '_') name.pop_back();
  const std::string base = name;
  auto is_taken = [&](const auto& each) { return each.second == name; };
  for (int k = 2; std::any_of(part_names_.begin(), part_names_.end(), is_taken); ++k)
    name = base + "_" + number_text(k);
  return part_names_[number] = name;
}

std::string PlainValues::value_name(int number) {
  int value = number;
  while (part(value).kind == PartKind::kMerge || part(value).kind == PartKind::kReduce)
    value = part(value).operands[0];
  return name_of(value);
}

std::string PlainValues::index(int number, const std::string& channel) const {
  const Extents& extents = slot(number).extents;
  if (by_units_ && extents[0] != 1 && extents[1] != 1 && domain_[1] / extents[1] == cut_.unit_channels)
    return "unit";
  std::string result;
  if (extents[0] != 1) result = extents[1] == 1 ? "n" : "n * " + number_text(extents[1]);
  if (extents[1] != 1) {
    const std::int64_t share = domain_[1] / extents[1];
    const bool plain = channel.find(' ') == std::string::npos;
    const std::string own = share == 1 ? channel
                            : plain    ? channel + " / " + number_text(share)
                                       : "(" + channel + ") / " + number_text(share);
    result += (result.empty() ? "" : " + ") + own;
  }
  return result.empty() ? "0" : result;
}

std::string PlainValues::element(int number, const std::string& channel) {
  const std::string from = tensor(number);
  const std::string value = from + "[" + index(number, channel) + "]";
  return slot(number).kind == SlotKind::kStatistic ? "(float)" + value : value;
}

std::string PlainValues::at_lane(int number, int component) {
  const Part& which = part(number);
  if (which.kind == PartKind::kComponent) return at_lane(which.operands[0], which.component);
  const bool merged = which.kind == PartKind::kMerge || which.kind == PartKind::kReduce;
  const bool moments = merged && which.statistic == Statistic::kMoments;
  const std::string field = component == 0 ? ".mean" : ".squares";
  if (const int i = moments ? unit_sum(number) : -1; i >= 0) return "group_" + value_name(number) + field;
  if (sweep_of(number) >= 0)
    return (moments ? value_name(number) : "sum_" + value_name(number)) + "_c" + (moments ? field : "");
  if (!in_unit(number)) return element(statistic_slot(number), "c");
  if (which.kind == PartKind::kRegroup) return regrouped(number);
  if (moments) return "group_" + value_name(number) + "_c" + field;
  if (merged) return group_sum_text(number);
  if (const auto found = inside_.find(number); found != inside_.end()) {
    const bool tight = found->second.find(' ') == std::string::npos;
    return tight ? found->second : "(" + found->second + ")";
  }
  return name_of(number) + "_c";
}

std::string PlainValues::regrouped(int number) {
  const Part& which = part(number);
  const int operand = which.operands[0];
  if (which.extents[1] < part(operand).extents[1]) return at_lane(operand);
  return element(statistic_slot(operand), "c");
}

std::int64_t PlainValues::group_size(int number) const {
  const Part& which = part(number);
  const std::int64_t channels = part(which.operands[0]).extents[1];
  return which.axes.contains(Axis::kC) && channels != 1 ? channels / which.groups : 1;
}

bool PlainValues::merges_unit(int number) const {
  return group_size(number) == cut_.unit_channels && cut_.unit_channels > 1;
}

std::string PlainValues::group_sum_text(int number) {
  const std::string value = at_lane(part(number).operands[0]);
  const std::int64_t channels = group_size(number);
  if (channels == 1) return value;
  return (merges_unit(number) ? "unit_sum<" : "group_sum<") + number_text(channels) + ">(" + bare(value) +
         ")";
}

int PlainValues::uses(int number) const {
  int count = 0;
  for (int i = 0; i < static_cast<int>(schedule_.graph.parts.size()); ++i) {
    const Part& user = part(i);
    const bool alias =
        user.kind == PartKind::kReduce && user.statistic == Statistic::kSum && group_size(i) == 1;
    const auto found = static_cast<int>(std::count(user.operands.begin(), user.operands.end(), number));
    // A sum of one is the value itself.
    count += found != 0 && alias ? uses(i) : found;
  }
  for (int i = cut_.first; i <= cut_.last; ++i) {
    const auto takes = [&](int each) { return each >= 0 && slot(each).part == number; };
    const std::vector<int>& inputs = step(i).sweep.inputs;
    if (step(i).kind == StepKind::kSweep)
      count += 2 * static_cast<int>(std::count_if(inputs.begin(), inputs.end(), takes));
    if (step(i).kind == StepKind::kFinalise)
      count += static_cast<int>(std::count_if(step(i).operands.begin(), step(i).operands.end(), takes));
  }
  return count + (cut_.later[at(number)] ? 2 : 0);
}

bool PlainValues::is_read_later(int number, int component) const {
  const auto takes = [&](int other) {
    return other == number || (part(other).kind == PartKind::kComponent &&
                               part(other).operands[0] == number && part(other).component == component);
  };
  const auto reads = [&](int input) {
    return input >= 0 && (slot(input).part == number ? slot(input).component == component
                                                     : slot(input).part >= 0 && takes(slot(input).part));
  };
  for (int i = cut_.last + 1; i < static_cast<int>(schedule_.steps.size()); ++i) {
    const ScheduleStep& later = step(i);
    for (const std::vector<int>* slots : {&later.sweep.inputs, &later.sweep.epilogue.inputs, &later.operands})
      if (std::any_of(slots->begin(), slots->end(), reads)) return true;
    for (const Prologue& staged : later.sweep.staged)
      if (std::any_of(staged.inputs.begin(), staged.inputs.end(), reads)) return true;
    if (later.kind != StepKind::kFinalise) continue;
    for (int each : later.parts)
      if (std::any_of(part(each).operands.begin(), part(each).operands.end(), takes)) return true;
  }
  return false;
}

bool PlainValues::is_of_unit(int number) const {
  const Part& which = part(number);
  if (which.kind == PartKind::kArgument) return which.extents[1] == 1;
  if (which.kind == PartKind::kRegroup)
    return which.extents[1] / std::max<std::int64_t>(part(which.operands[0]).extents[1], 1) ==
           cut_.unit_channels;
  if (which.kind == PartKind::kMerge || which.kind == PartKind::kReduce)
    return unit_sum(number) >= 0 || (in_unit(number) && sweep_of(number) < 0 && merges_unit(number));
  if (which.kind != PartKind::kPointwise && which.kind != PartKind::kComponent) return false;
  return in_unit(number) && std::all_of(which.operands.begin(), which.operands.end(),
                                        [&](int operand) { return is_of_unit(operand); });
}

std::string PlainValues::addresses_struct(const std::vector<int>& written) const {
  Text text;
  text.line("// What a launch hands over.");
  text.open("struct Arguments {");
  for (int number : tensors_) {
    const bool is_written = std::find(written.begin(), written.end(), number) != written.end();
    const std::string type = slot(number).kind == SlotKind::kStatistic ? "double" : "float";
    text.line((is_written ? "" : "const ") + type + "* " + names_[at(number)] + ";");
  }
  for (const auto& [type, name] : scalars_) text.line(type + " " + name + ";");
  text.close("};");
  return text.str();
}

std::string bare(const std::string& value) {
  if (!value.starts_with("(") || value.starts_with("(float)")) return value;
  int depth = 0;
  for (std::size_t i = 0; i < value.size(); ++i) {
    depth += value[i] == '(' ? 1 : value[i] == ')' ? -1 : 0;
    if (depth == 0) return i + 1 == value.size() ? value.substr(1, value.size() - 2) : value;
  }
  return value;
}

void nest(const Text& statements, std::string& use, Text& text) {
  std::vector<std::string> lines = split_lines(statements.str());
  while (!lines.empty()) {
    const std::string& last = lines.back();
    const std::size_t equals = last.find(" = ");
    const std::string name = last.substr(12, equals - 12);  // behind `const float `
    const std::string value = last.substr(equals + 3, last.size() - equals - 4);
    const std::size_t place = use.find(name);
    if (place == std::string::npos || use.find(name, place + 1) != std::string::npos ||
        use.size() + value.size() > kMostLetters)
      break;
    const char before = place == 0 ? ' ' : use[place - 1];
    const char behind = place + name.size() < use.size() ? use[place + name.size()] : ';';
    const bool whole = (before == '(' || place == 0 || use.substr(0, place).ends_with("= ")) &&
                       (behind == ')' || behind == ';' || behind == ',');
    const bool product = place == 0 && behind == ' ' && value.find(" + ") == std::string::npos &&
                         value.find(" ? ") == std::string::npos && value.find(" - ") == std::string::npos;
    use.replace(place, name.size(), whole || product ? value : "(" + value + ")");
    lines.pop_back();
  }
  for (const std::string& line : lines) text.line(line);
}

void write_names(Text& text, const std::vector<Name>& names, const std::string& steps) {
  std::string taken = without_comments(steps);
  std::vector<std::string> kept;
  for (const Name& name : std::views::reverse(names)) {
    if (!has_word(taken, name.name)) continue;
    taken += name.value + "\n";
    kept.insert(kept.begin(), name.name + " = " + name.value);
  }
  std::string line;
  for (const std::string& each : kept) {
    if (!line.empty() && line.size() + each.size() > kMostNames) {
      text.line("const int " + line + ";");
      line.clear();
    }
    line += (line.empty() ? "" : ", ") + each;
  }
  if (!line.empty()) text.line("const int " + line + ";");
}

void write_floats(Text& text, const std::vector<std::string>& values) {
  for (std::size_t i = 0; i < values.size(); ++i) {
    const bool two = i + 1 < values.size() && values[i].size() + values[i + 1].size() <= kMostNames;
    text.line("const float " + values[i] + (two ? ", " + values[i + 1] : "") + ";");
    i += two ? 1 : 0;
  }
}

}  // namespace fuseblock::cuda
