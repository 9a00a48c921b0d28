#include "cuda/emit/columns_access.h"

#include <algorithm>

namespace fuseblock::cuda {
namespace {

std::size_t at(int i) { return static_cast<std::size_t>(i); }
std::string number_text(std::int64_t number) { return std::to_string(number); }
}  // namespace

bool contains(const std::vector<int>& list, int item) {
  return std::find(list.begin(), list.end(), item) != list.end();
}
void add_once(std::vector<int>& list, int item) {
  if (!contains(list, item)) list.push_back(item);
}

void open_loop(Text& text, const std::string& variable, const std::string& count) {
  text.line("#pragma unroll");
  text.open("for (int " + variable + " = 0; " + variable + " < " + count + "; ++" + variable + ") {");
}

ColumnsAccessWriter::ColumnsAccessWriter(const Schedule& schedule, const KernelCut& cut,
                                         const ColumnsConstants& constants)
    : KernelWriter(schedule, cut), constants_(constants) {
  for (int i = cut.first; i <= cut.last; ++i)
    if (step(i).kind == StepKind::kSweep) sweeps_.push_back(i);
  domain_ = sweep(0).domain;
  find_inputs();
}

bool ColumnsAccessWriter::is_reduction(const Sink& sink) const {
  return sink.kind == SinkKind::kStatistic && part(sink.part).axes == AxisSet{Axis::kC};
}
bool ColumnsAccessWriter::has_statistics(int i) const {
  return std::any_of(sweep(i).sinks.begin(), sweep(i).sinks.end(),
                     [&](const Sink& sink) { return is_reduction(sink); });
}

Variation ColumnsAccessWriter::variation(int number) const {
  const Extents& own = slot(number).extents;
  const bool all_positions = own[2] == domain_[2] && own[3] == domain_[3] && own[4] == domain_[4];
  if (own == domain_ || (all_positions && own[1] == domain_[1] && over_positions(domain_)))
    return Variation::kElement;
  if (over_positions(own)) return own[1] == 1 ? Variation::kPosition : Variation::kOdd;
  return own[1] == 1 ? Variation::kUniform : Variation::kChannel;
}
bool ColumnsAccessWriter::over_all_positions(int number) const {
  const Extents& own = slot(number).extents;
  return own[2] == domain_[2] && own[3] == domain_[3] && own[4] == domain_[4];
}
// The sweep that reduces to the slot's value; -1 where it is made elsewhere.
int ColumnsAccessWriter::reduced_by(int number) const {
  for (int i = 0; i < sweep_count(); ++i)
    for (const Sink& sink : sweep(i).sinks)
      if (is_reduction(sink) && contains(sink.slots, number)) return i;
  return -1;
}
// Whether a sweep's input is the same for all channels.
bool ColumnsAccessWriter::at_positions(int number) const {
  if (reduced_by(number) >= 0) return true;
  const Variation how = variation(number);
  return how == Variation::kPosition || how == Variation::kUniform;
}

void ColumnsAccessWriter::find_inputs() {
  for (int i = 0; i < sweep_count(); ++i) {
    for (int input : sweep(i).inputs) {
      if (reduced_by(input) >= 0) continue;
      switch (variation(input)) {
        case Variation::kElement: add_once(elements_, input); break;
        case Variation::kOdd: add_once(odd_, input); break;
        case Variation::kChannel:
          if (along_channels()) add_once(channel_vectors_, input);
          break;
        default: add_once(position_inputs_, input);
      }
    }
    for (int input : sweep(i).epilogue.inputs)
      if (reduced_by(input) < 0) add_once(position_inputs_, input);
    for (const Sink& sink : sweep(i).sinks)
      if (sink.kind == SinkKind::kStore) add_once(stores_, sink.slots[0]);
    for (const auto& [to, value] : position_stores(i)) add_once(position_outputs_, to);
  }
  for (int input : elements_)
    step_bytes_ += vectors() * constants_.vector * static_cast<int>(byte_size(element_type(input)));
  if (strided()) return;
  for (const std::vector<int>* slots : {&elements_, &stores_})
    for (int number : *slots) add_once(dense_, number);
  for (const std::vector<int>* slots : {&position_inputs_, &position_outputs_})
    for (int number : *slots)
      if (over_all_positions(number)) add_once(dense_, number);
}

// Vectors of one input that a thread reads in one step.
int ColumnsAccessWriter::vectors() const {
  return along_positions() ? constants_.elements
                           : constants_.positions * constants_.elements / constants_.vector;
}

// Statistics of sweep i that others read from memory: slot and value.
std::vector<std::pair<int, std::string>> ColumnsAccessWriter::position_stores(int i) const {
  std::vector<std::pair<int, std::string>> result;
  for (const Sink& sink : sweep(i).sinks) {
    if (!is_reduction(sink) || !cut_.shared[at(sink.part)]) continue;
    for (const int number : sink.slots)
      if (slot(number).kind != SlotKind::kTile) result.emplace_back(number, reduced_text(number));
  }
  for (const Sink& sink : sweep(i).epilogue.sinks) result.emplace_back(sink.slots[0], "");
  return result;
}

std::string ColumnsAccessWriter::reduced_text(int number) const {
  return "totals.sums" + number_text(reduced_by(number)) + "[p].s" + number_text(slot(number).part) +
         (slot(number).component == 0 ? ".first" : ".second");
}

void ColumnsAccessWriter::write_bases(Text& text) {
  Text members;
  Text values;
  bool placed = false;
  auto each = [&](const std::string& name, const std::string& value) {
    members.line("  long long " + name + "[kPositions];");
    values.line("#pragma unroll");
    values.line("  for (int p = 0; p < kPositions; ++p) bases." + name + "[p] = " + value + ";");
  };
  auto anywhere = [&](int number, const std::string& name) {
    placed = true;
    each(name, "offset_at(" + tensor(number) + ", sites.n[p], 0, where[p])");
  };
  auto once = [&](const std::string& name, const std::string& value) {
    members.line("  long long " + name + ";");
    values.line("  bases." + name + " = " + value + ";");
  };
  std::vector<int> all = elements_;
  for (int number : stores_) add_once(all, number);
  for (int number : all) {
    const std::string name = base_name(number);
    if (strided())
      anywhere(number, name);
    else if (along_positions())
      once(name, "sites.n[0] * " + tensor(number) + ".n + sites.position[0]");
    else if (repeats(number))
      each(name, "(long long)sites.position[p] * kChannels");
    else
      once(name, "(long long)sites.row[0] * kChannels");
  }
  for (int number : odd_) anywhere(number, base_name(number));
  all = position_inputs_;
  for (int number : position_outputs_) add_once(all, number);
  for (int number : all) {
    const std::string name = position_base_name(number);
    if (!over_positions(slot(number).extents))
      each(name, tensor(number) + ".offset(sites.n[p], 0)");
    else if (strided() || !over_all_positions(number))
      anywhere(number, name);
    else if (along_positions())
      each(name, "sites.n[p] * " + tensor(number) + ".n + sites.position[p]");
    else
      each(name, repeats(number) ? "sites.position[p]" : "sites.row[p]");
  }
  text.line(
      "// Where the thread's elements begin in each tensor, and its positions in those without channels.");
  text.open("struct Bases {");
  text.line("int nothing;");
  text.append(members.str());
  text.close("};");
  text.open("__device__ inline Bases bases_of(const Arguments& a, const Sites& sites) {");
  text.line("Bases bases;");
  if (placed) {
    text.line("Position where[kPositions];");
    text.line("#pragma unroll");
    text.line(
        "for (int p = 0; p < kPositions; ++p) where[p] = position_at(sites.position[p], a.height, "
        "a.width);");
  }
  text.append(values.str());
  text.line("return bases;");
  text.close();
}

// Writes a loop over the vectors of an input: `body` gets the vector's number and its address in memory.
void ColumnsAccessWriter::write_vectors(
    Text& text, int number, const std::function<void(const std::string&, const std::string&)>& body) {
  const std::string name = base_name(number);
  const std::string data = tensor(number) + ".data + bases." + name;
  if (along_positions()) {
    open_loop(text, "e", "kElements");
    text.line("const int channel = channel_of(place, step, e);");
    text.line("if (sites.inside[0] && has_channel(channel))");
    body("e", data + " + (long long)channel * (Count)a.positions");
  } else if (along_channels()) {
    open_loop(text, "v", "kPositions * kElements / kVector");
    text.line("const int p = v / (kElements / kVector);");
    text.line("const int channel = channel_of(place, step, v % (kElements / kVector) * kVector);");
    text.line("if (sites.inside[p] && has_channel(channel))");
    body("v", data + (repeats(number) ? "[p] + channel" : " + p * kPlaces * kChannels + channel"));
  } else {
    open_loop(text, "v", "kPositions * kElements");
    text.line("const int p = v / kElements;");
    text.line("const int channel = channel_of(place, step, v % kElements);");
    text.line("if (sites.inside[p] && has_channel(channel))");
    body("v", data + "[p] + channel * " + tensor(number) + ".c");
  }
  text.close();
}

std::string ColumnsAccessWriter::vector_type(int number) const {
  return "Vector<" + element_name(element_type(number)) + ">";
}

void ColumnsAccessWriter::write_inputs(Text& text) {
  const std::string count = number_text(vectors());
  const std::string arguments =
      "(const Arguments& a, const Place& place, const Sites& sites, const Bases& bases, int step";
  text.line("// What the sweeps read of one step.");
  text.open("struct Inputs {");
  if (elements_.empty()) text.line("int nothing;");
  for (int input : elements_) text.line(vector_type(input) + " " + names_[at(input)] + "[" + count + "];");
  text.close("};");
  text.open("__device__ inline Inputs read_inputs" + arguments + ") {");
  text.line("Inputs inputs;");
  for (int input : elements_)
    write_vectors(text, input, [&](const std::string& v, const std::string& address) {
      text.line("  inputs." + names_[at(input)] + "[" + v + "] = load_vector(reinterpret_cast<const " +
                vector_type(input) + "*>(" + address + "));");
    });
  text.line("return inputs;");
  text.close();
  text.line("// The thread's column of a step begins at `column`.");
  text.open("__device__ inline void copy_inputs" + arguments + ", char* column) {");
  int offset = 0;
  auto in_column = [&](int input, const std::string& v) {
    return "reinterpret_cast<" + vector_type(input) + "*>(column + " + number_text(offset) +
           " * kThreads) + " + v + " * kThreads + threadIdx.x";
  };
  auto pass = [&](int input) {
    offset += vectors() * constants_.vector * static_cast<int>(byte_size(element_type(input)));
  };
  for (int input : elements_) {
    write_vectors(text, input, [&](const std::string& v, const std::string& address) {
      text.line("  thread::copy_begin(" + in_column(input, v) + ", reinterpret_cast<const " +
                vector_type(input) + "*>(" + address + "));");
    });
    pass(input);
  }
  text.close();
  text.open("__device__ inline Inputs column_inputs(const char* read_only) {");
  text.line("char* column = const_cast<char*>(read_only);");
  text.line("Inputs inputs;");
  offset = 0;
  for (int input : elements_) {
    text.line("#pragma unroll");
    text.line("for (int v = 0; v < " + count + "; ++v)");
    text.line("  inputs." + names_[at(input)] + "[v] = load_vector(" + in_column(input, "v") + ");");
    pass(input);
  }
  text.line("return inputs;");
  text.close();
}

}  // namespace fuseblock::cuda
