#include "cuda/emit/kernel_writer.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <functional>
#include <set>

#include "cuda/conv_sum.h"
#include "plan/narrator.h"
#include "plan/slot_memory.h"

namespace fuseblock::cuda {
namespace {

// A value may be called neither as the language's words nor as what else the device code's structs hold.
constexpr auto kLanguageWords = std::to_array<const char*>(
    {"alignas",      "alignof",  "and",       "and_eq",   "asm",       "auto",
     "bitand",       "bitor",    "bool",      "break",    "case",      "catch",
     "char",         "class",    "compl",     "const",    "constexpr", "const_cast",
     "continue",     "decltype", "default",   "delete",   "do",        "double",
     "dynamic_cast", "else",     "enum",      "explicit", "export",    "extern",
     "false",        "float",    "for",       "friend",   "goto",      "if",
     "inline",       "int",      "long",      "mutable",  "namespace", "new",
     "noexcept",     "not",      "not_eq",    "nullptr",  "operator",  "or",
     "or_eq",        "private",  "protected", "public",   "register",  "reinterpret_cast",
     "return",       "short",    "signed",    "sizeof",   "static",    "static_assert",
     "static_cast",  "struct",   "switch",    "template", "this",      "thread_local",
     "throw",        "true",     "try",       "typedef",  "typeid",    "typename",
     "union",        "unsigned", "using",     "virtual",  "void",      "volatile",
     "wchar_t",      "while",    "xor",       "xor_eq"});
constexpr auto kDeviceNames = std::to_array<const char*>(
    {"a",       "at",           "channel",      "i",          "inputs",      "piece",       "position",
     "results", "again",        "arrived",      "block_sums", "block_tiles", "bundle",      "bundle_sums",
     "c",       "depths",       "elements",     "finished",   "height",      "in_d",        "in_h",
     "in_w",    "items",        "kept",         "lead",       "list0",       "n",           "nothing",
     "out_d",   "out_h",        "out_w",        "positions",  "real",        "rest",        "rounds",
     "rows",    "sample_items", "sample_tiles", "segments",   "steps",       "strip_tiles", "strips",
     "team",    "team_list0",   "team_list1",   "team_list2", "team_list3",  "tiles",       "tiles_h",
     "tiles_w", "unit",         "units",        "weights",    "width",       "base",        "begin",
     "end",     "first",        "own",          "part",       "samples",     "before",      "blocks",
     "in",      "block",        "channels",     "next",       "size",        "stride",      "teams",
     "from",    "tag"});

// Statistics that a block works out one a thread; fewer have a warp each.
constexpr std::int64_t kManySets = 64;
constexpr std::int64_t kMostInt = std::int64_t{1} << 30;

std::size_t at(int i) { return static_cast<std::size_t>(i); }

// The type that counts so far.
std::string count_type(std::int64_t end) { return end < kMostInt ? "int" : "long long"; }

// A name as an identifier; `taken` holds those that are used.
std::string identifier(const std::string& name, std::set<std::string>& taken) {
  std::string result;
  for (char letter : name) {
    const bool plain = std::isalnum(static_cast<unsigned char>(letter)) != 0;
    if (plain)
      result += letter;
    else if (!result.empty() && result.back() != '_')
      result += '_';
  }
  while (!result.empty() && result.back() == '_') result.pop_back();
  if (result.empty() || std::isdigit(static_cast<unsigned char>(result.front())) != 0)
    result = "value_" + result;
  // As the values of programs are: t5.
  if (result.size() > 1 && result.find_first_not_of("0123456789", 1) == std::string::npos && result[0] == 't')
    result += "_";
  const std::string base = result;
  for (int number = 2; !taken.insert(result).second; ++number) result = base + "_" + std::to_string(number);
  return result;
}

}  // namespace

KernelWriter::KernelWriter(const Schedule& schedule, const KernelCut& cut)
    : schedule_(schedule), cut_(cut), single_(arithmetic_type(schedule.inputs) == DType::kF32) {
  std::set<std::string> taken(kLanguageWords.begin(), kLanguageWords.end());
  taken.insert(kDeviceNames.begin(), kDeviceNames.end());
  const Narrator narrator(schedule);
  names_.resize(schedule.slots.size());
  // The caller's tensors have their own names; what is made on the way to them may be called the same.
  for (const bool of_caller : {true, false})
    for (std::size_t i = 0; i < schedule.slots.size(); ++i) {
      const SlotKind kind = schedule.slots[i].kind;
      if ((kind == SlotKind::kArgument || kind == SlotKind::kOutput) == of_caller)
        names_[i] = identifier(narrator.slot_label(static_cast<int>(i)), taken);
    }
}

DType KernelWriter::element_type(int number) const { return cuda::element_type(schedule_, number); }

std::string KernelWriter::tensor(int number) {
  // A component lives in the statistic that has it.
  const Slot& which = slot(number);
  if (which.kind == SlotKind::kStatistic && part(which.part).kind == PartKind::kComponent)
    number = statistic_slot(which.part);
  if (std::find(tensors_.begin(), tensors_.end(), number) == tensors_.end()) tensors_.push_back(number);
  return "a." + names_[at(number)];
}

std::string KernelWriter::scalar(const std::string& type, const std::string& name) {
  const std::pair<std::string, std::string> entry = {type, name};
  if (std::find(scalars_.begin(), scalars_.end(), entry) == scalars_.end()) scalars_.push_back(entry);
  return "a." + name;
}

int KernelWriter::statistic_slot(int number) const {
  const Part& which = part(number);
  if (which.kind == PartKind::kComponent) return schedule_.statistic_slot(which.operands[0], which.component);
  for (std::size_t i = 0; i < schedule_.slots.size(); ++i)
    if (schedule_.slots[i].part == number && schedule_.slots[i].kind != SlotKind::kOutput)
      return static_cast<int>(i);
  throw InternalError("a statistic that lives nowhere: " + which.name);
}

std::string KernelWriter::statistic_type(int number, const std::string& type) const {
  switch (part(number).statistic) {
    case Statistic::kSum: return "Sum<" + type + ">";
    case Statistic::kMax: return "Largest<" + type + ">";
    case Statistic::kMin: return "Smallest<" + type + ">";
    case Statistic::kMoments: return "Moments<" + type + ">";
    case Statistic::kExpSum: return "ExpSum<" + type + ">";
  }
  throw InternalError("an unknown statistic");
}

std::string KernelWriter::head(const std::vector<std::pair<std::string, std::string>>& constants) const {
  Text text;
  text.line(std::string("typedef ") + (single_ ? "float" : "double") + " real;");
  for (const auto& [name, value] : constants) text.line("constexpr int " + name + " = " + value + ";");
  return text.str();
}

std::string KernelWriter::arguments_struct() const {
  Text text;
  text.line("// What a launch hands over.");
  text.open("struct Arguments {");
  for (int number : tensors_)
    text.line("Tensor<" + element_name(element_type(number)) + "> " + names_[at(number)] + ";");
  for (const auto& [type, name] : scalars_) text.line(type + " " + name + ";");
  text.close("};");
  return text.str();
}

EmittedKernel KernelWriter::finish(const std::string& entry, std::string text) const {
  EmittedKernel result = {entry, std::move(text), tensors_, {}};
  for (const auto& [type, name] : scalars_) result.scalars.push_back(name);
  return result;
}

std::vector<int> KernelWriter::statistic_outputs(const std::vector<int>& parts, bool among) const {
  std::vector<int> result;
  for (int i = cut_.first; i <= cut_.last; ++i) {
    if (step(i).kind != StepKind::kFinalise) continue;
    for (int output : step(i).operands) {
      const bool found = std::find(parts.begin(), parts.end(), slot(output).part) != parts.end();
      if (found == among) result.push_back(output);
    }
  }
  return result;
}

std::string KernelWriter::everywhere(int number, const std::string& n, const std::string& c) {
  const std::string from = tensor(statistic_slot(number));
  return "number(" + from + ".at(" + n + ", " + c + "))";
}

std::string KernelWriter::state_everywhere(int number) {
  const Part& which = part(number);
  const Part& operand = part(which.operands[0]);
  std::string state;
  if (which.kind == PartKind::kReduce) {
    state = everywhere(which.operands[0], "n", "c");
    if (which.statistic == Statistic::kMoments) state += ", 0, 1";
    if (which.statistic == Statistic::kExpSum) state += ", 1";
    return state;
  }
  for (int i = 0; i < component_count(which.statistic); ++i)
    state += (i == 0 ? "" : ", ") + tensor(schedule_.statistic_slot(which.operands[0], i)) + ".at(n, c)";
  if (which.statistic == Statistic::kMoments)
    state += ", " + literal(static_cast<double>(operand.count), false);
  return state;
}

void KernelWriter::write_merge_all(Text& text, int number, const std::vector<int>& outputs, bool kept) {
  const Part& which = part(number);
  const Part& operand = part(which.operands[0]);
  const bool over_n = which.axes.contains(Axis::kN);
  const bool over_c = which.axes.contains(Axis::kC) && operand.extents[1] != 1;
  const std::int64_t samples = operand.extents[0];
  const std::int64_t channels = operand.extents[1];
  const std::int64_t group = over_c ? channels / which.groups : 1;
  const std::int64_t sets = (over_n ? 1 : samples) * (channels / group);
  const std::int64_t size = (over_n ? samples : 1) * group;
  const std::string type = statistic_type(number, "double");
  const std::string per_sample = std::to_string(channels / group);
  // A thread for each of many sets, so that many are read at once; else a warp.
  const bool by_thread = sets >= kManySets;
  const std::string number_type = count_type(sets * size);
  // A group's statistic stands at every channel of the group; elsewhere a set has one place.
  const std::int64_t places = over_c && which.groups > 1 ? group : 1;
  const bool by_channel = by_thread && over_n && group == 1;  // a set is a channel
  const std::string set = by_channel ? "c" : "set";
  const std::string width = by_thread ? "" : " / 32";
  text.open("for (" + number_type + " " + set + " = threadIdx.x" + width + "; " + set + " < " +
            std::to_string(sets) + "; " + set + " += blockDim.x" + width + ") {");
  text.line(type + " total;");
  text.line("total.clear();");
  text.line("#pragma unroll 4");
  if (by_channel) {
    text.line("for (" + number_type + " n = 0; n < " + std::to_string(size) + "; ++n) total.merge(" + type +
              "{" + state_everywhere(number) + "});");
  } else {
    text.open("for (" + number_type + " i = " + (by_thread ? "0" : "threadIdx.x % 32") + "; i < " +
              std::to_string(size) + "; i += " + (by_thread ? "1" : "32") + ") {");
    text.line(
        "const " + number_type +
        (over_n ? " n = i" + (group == 1 ? "" : " / " + std::to_string(group)) : " n = set / " + per_sample) +
        ";");
    text.line("const " + number_type + " c = set % " + per_sample +
              (group == 1 ? "" : " * " + std::to_string(group) + " + i % " + std::to_string(group)) + ";");
    text.line("total.merge(" + type + "{" + state_everywhere(number) + "});");
    text.close();
  }
  // In a kernel `columns` the lanes that merge_lanes joins are those of a position.
  if (!by_thread)
    text.line(cut_.kind == KernelKind::kColumns ? "total = warp::merge_whole(total);"
                                                : "total = warp::from_first(warp::merge(total));");
  if (places != 1)
    text.open("for (int i = " + std::string(by_thread ? "0" : "threadIdx.x % 32") + "; i < " +
              std::to_string(places) + "; i += " + (by_thread ? "1" : "32") + ") {");
  else if (!by_thread)
    text.open("if (threadIdx.x % 32 == 0) {");
  const std::string n = over_n ? "0" : "set / " + per_sample;
  std::string c = by_channel ? "c" : over_n ? "set" : "set % " + per_sample;
  if (places != 1) c += " * " + std::to_string(places) + " + i";
  for (int i = 0; i < component_count(which.statistic) && kept; ++i)
    text.line(tensor(schedule_.statistic_slot(number, i)) + ".at(" + n + ", " + c + ") = total." +
              (i == 0 ? "first" : "second") + ";");
  for (int output : outputs)
    text.line("assign(" + tensor(output) + ".at(" + n + ", " + c + "), total.first);");
  if (places != 1 || !by_thread) text.close();
  text.close();
}

int KernelWriter::merge_of(int number) const {
  const Part& which = part(number);
  return which.kind == PartKind::kComponent && which.component == 0 ? which.operands[0] : number;
}

bool KernelWriter::is_merge(int number) const {
  return part(number).kind == PartKind::kMerge || part(number).kind == PartKind::kReduce;
}

void KernelWriter::write_finalise_all(Text& text, const std::vector<int>& parts,
                                      const std::vector<int>& outputs) {
  text.line("// Statistics of all units, worked out by one block.");
  text.open("__device__ void finalise_all(const Arguments& a) {");
  // Outputs that are merges are written where these are made; a merge that nothing else takes is kept nowhere.
  std::vector<int> others;
  std::map<int, std::vector<int>> of_merge;
  for (int output : outputs) {
    const int from = merge_of(slot(output).part);
    const bool here = std::find(parts.begin(), parts.end(), from) != parts.end() && is_merge(from) &&
                      slot(output).extents == slot(schedule_.statistic_slot(from, 0)).extents;
    (here ? of_merge[from] : others).push_back(output);
  }
  // By other parts, or outputs; its first component is the merge itself.
  std::function<bool(int)> taken = [&](int number) {
    for (int i = 0; i < static_cast<int>(schedule_.graph.parts.size()); ++i) {
      const std::vector<int>& operands = part(i).operands;
      if (std::find(operands.begin(), operands.end(), number) == operands.end()) continue;
      if (merge_of(i) == i || merge_of(i) != number || taken(i)) return true;
    }
    return std::any_of(others.begin(), others.end(), [&](int each) { return slot(each).part == number; });
  };
  bool first = true;
  for (int number : parts) {
    const Part& which = part(number);
    if (which.kind == PartKind::kComponent) continue;
    if (!first) text.line("__syncthreads();");
    first = false;
    text.line("// " + Narrator(schedule_).label(number));
    if (is_merge(number))
      write_merge_all(text, number, of_merge[number], of_merge[number].empty() || taken(number));
    else
      write_value_all(text, number);
  }
  if (!first && !others.empty()) text.line("__syncthreads();");
  for (int output : others) {
    open_statistics(text, slot(output).extents);
    text.line("assign(" + tensor(output) + ".at(n, c), " + everywhere(slot(output).part, "n", "c") + ");");
    text.close();
  }
  text.close();
}

void KernelWriter::open_statistics(Text& text, const Extents& extents) {
  const std::string type = count_type(extents[0] * extents[1]);
  const std::string channels = std::to_string(extents[1]);
  text.open("for (" + type + " i = threadIdx.x; i < " + std::to_string(extents[0] * extents[1]) +
            "; i += blockDim.x) {");
  text.line("const " + type + " n = i / " + channels + ", c = i % " + channels + ";");
}

void KernelWriter::write_value_all(Text& text, int number) {
  const Part& which = part(number);
  open_statistics(text, which.extents);
  std::string value;
  if (which.kind == PartKind::kRegroup) {
    const std::int64_t other = part(which.operands[0]).extents[1];
    value = everywhere(which.operands[0], "n",
                       "c * " + std::to_string(other) + " / " + std::to_string(which.extents[1]));
  } else {
    const auto steps = which.formula.steps();
    value =
        write_nested(text, steps, [&](int input) { return everywhere(which.operands[at(input)], "n", "c"); },
                     "double", false, {static_cast<std::int32_t>(steps.size()) - 1})
            .back();
  }
  text.line(tensor(statistic_slot(number)) + ".at(n, c) = " + value + ";");
  text.close();
}

std::string with_functions(const std::string& programs) {
  const bool sums = programs.find("one_plus_") != std::string::npos;
  return sums ? device_file("one_plus.cuh") + "\n" + programs : programs;
}

}  // namespace fuseblock::cuda
