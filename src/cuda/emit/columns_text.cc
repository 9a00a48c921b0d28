#include "cuda/emit/columns_text.h"

#include <algorithm>

#include "cuda/emit/position_steps.h"
#include "plan/narrator.h"

namespace fuseblock::cuda {
namespace {

std::size_t at(int i) { return static_cast<std::size_t>(i); }
std::string number_text(std::int64_t number) { return std::to_string(number); }
bool over_positions(const Extents& extents) { return extents[2] != 1 || extents[3] != 1 || extents[4] != 1; }

bool contains(const std::vector<int>& list, int item) {
  return std::find(list.begin(), list.end(), item) != list.end();
}
void add_once(std::vector<int>& list, int item) {
  if (!contains(list, item)) list.push_back(item);
}

// The body of a loop of the device code, over all of `count`, unrolled.
void open_loop(Text& text, const std::string& variable, const std::string& count) {
  text.line("#pragma unroll");
  text.open("for (int " + variable + " = 0; " + variable + " < " + count + "; ++" + variable + ") {");
}

// What an input of a sweep varies over.
enum class Variation : std::uint8_t {
  kElement,   // the whole domain, perhaps not over samples
  kOdd,       // channels and some of the positions' axes
  kPosition,  // positions, not channels
  kChannel,   // channels, not positions
  kUniform,   // samples at most
};

class ColumnsWriter : KernelWriter {
 public:
  ColumnsWriter(const Schedule& schedule, const KernelCut& cut, const ColumnsConstants& constants)
      : KernelWriter(schedule, cut), constants_(constants), narrator_(schedule) {
    for (int i = cut.first; i <= cut.last; ++i) sweeps_.push_back(i);
    domain_ = sweep(0).domain;
    find_inputs();
  }

  ColumnsText run() {
    Text structs;
    for (int i = 0; i < sweep_count(); ++i) write_sums(structs, i);
    Text programs;
    for (int i = 0; i < sweep_count(); ++i) write_sweep(programs, i);
    for (int i = 0; i < sweep_count(); ++i) write_ends(programs, i);
    write_run_tile(programs);
    Text inputs;
    write_inputs(inputs);
    Text bases;
    write_bases(bases);
    Text positions;
    write_position_inputs(positions);
    for (const char* name : {"tiles", "sample_tiles", "rows", "positions", "height", "width"})
      scalar("long long", name);

    const int tile = constants_.threads / (constants_.team * constants_.lanes) * constants_.positions;
    const int list = constants_.team == 1 ? 0 : constants_.team * tile * largest_sums_;
    const int totals = constants_.team == 1 ? 0 : tile * largest_sums_;
    const auto aligned = [](int bytes) { return (bytes + 127) / 128 * 128; };
    std::string text = head({{"kThreads", number_text(constants_.threads)},
                             {"kBlocks", number_text(constants_.blocks)},
                             {"kVector", number_text(constants_.vector)},
                             {"kPositions", number_text(constants_.positions)},
                             {"kElements", number_text(constants_.elements)},
                             {"kLanes", number_text(constants_.lanes)},
                             {"kTeam", number_text(constants_.team)},
                             {"kChannels", number_text(domain_[1])},
                             {"kAlongChannels", along_channels() ? "1" : "0"},
                             {"kResidency", number_text(static_cast<int>(constants_.residency))},
                             {"kStepBytes", number_text(step_bytes_ * constants_.threads)},
                             {"kListBytes", number_text(aligned(list))},
                             {"kTotalsBytes", number_text(aligned(totals))},
                             {"k16Bit", writes_16_bit() ? "1" : "0"}});
    const double rows = static_cast<double>(domain_[0]) * static_cast<double>(domain_[2]) *
                        static_cast<double>(domain_[3]) * static_cast<double>(domain_[4]);
    text += rows < 1e9 ? "typedef int Count;\n" : "typedef long long Count;\n";
    for (const char* file : {"types.cuh", "functions.cuh", "statistics.cuh", "copies.cuh"})
      text += "\n" + device_file(file);
    text += "\n" + structs.str() + "\n" + arguments_struct() + "\n" + device_file("columns_tile.cuh") + "\n" +
            bases.str() + "\n" + inputs.str() + "\n" + device_file("columns.cuh") + "\n" + positions.str() +
            "\n" + programs.str() + "\n" + device_file("columns.cu");
    ColumnsText result;
    result.kernel = finish("columns", std::move(text));
    result.step_bytes = step_bytes_;
    result.list_bytes = aligned(list) + aligned(totals);
    result.dense = dense_;
    result.channel_vectors = channel_vectors_;
    return result;
  }

 private:
  int sweep_count() const { return static_cast<int>(sweeps_.size()); }
  const Sweep& sweep(int i) const { return step(sweeps_[at(i)]).sweep; }
  bool along_channels() const { return constants_.access == ColumnsAccess::kAlongChannels; }
  bool along_positions() const { return constants_.access == ColumnsAccess::kAlongPositions; }
  bool strided() const { return constants_.access == ColumnsAccess::kStrided; }
  bool has_statistics(int i) const {
    return std::any_of(sweep(i).sinks.begin(), sweep(i).sinks.end(),
                       [](const Sink& sink) { return sink.kind == SinkKind::kStatistic; });
  }

  // Whether everything that the sweeps write is rounded to 16 bits.
  bool writes_16_bit() const {
    bool any = false;
    for (int i = 0; i < sweep_count(); ++i)
      for (const std::vector<Sink>* sinks : {&sweep(i).sinks, &sweep(i).epilogue.sinks})
        for (const Sink& sink : *sinks) {
          if (sink.kind != SinkKind::kStore) continue;
          any = true;
          if (byte_size(element_type(sink.slots[0])) != 2) return false;
        }
    return any && single_;
  }

  Variation variation(int number) const {
    const Extents& own = slot(number).extents;
    const bool all_positions = own[2] == domain_[2] && own[3] == domain_[3] && own[4] == domain_[4];
    if (own == domain_ || (all_positions && own[1] == domain_[1] && over_positions(domain_)))
      return Variation::kElement;
    if (over_positions(own)) return own[1] == 1 ? Variation::kPosition : Variation::kOdd;
    return own[1] == 1 ? Variation::kUniform : Variation::kChannel;
  }
  bool over_all_positions(int number) const {
    const Extents& own = slot(number).extents;
    return own[2] == domain_[2] && own[3] == domain_[3] && own[4] == domain_[4];
  }
  // The sweep that reduces to the slot's value; -1 where it is made elsewhere.
  int reduced_by(int number) const {
    for (int i = 0; i < sweep_count(); ++i)
      for (const Sink& sink : sweep(i).sinks)
        if (sink.kind == SinkKind::kStatistic && contains(sink.slots, number)) return i;
    return -1;
  }
  // Whether a sweep's input is the same for all channels.
  bool at_positions(int number) const {
    if (reduced_by(number) >= 0) return true;
    const Variation how = variation(number);
    return how == Variation::kPosition || how == Variation::kUniform;
  }

  void find_inputs() {
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
  int vectors() const {
    return along_positions() ? constants_.elements
                             : constants_.positions * constants_.elements / constants_.vector;
  }

  // Statistics of sweep i that others read from memory: slot and value.
  std::vector<std::pair<int, std::string>> position_stores(int i) const {
    std::vector<std::pair<int, std::string>> result;
    for (const Sink& sink : sweep(i).sinks) {
      if (sink.kind != SinkKind::kStatistic || !cut_.shared[at(sink.part)]) continue;
      for (std::size_t k = 0; k < sink.slots.size(); ++k)
        if (slot(sink.slots[k]).kind != SlotKind::kTile)
          result.emplace_back(sink.slots[k], reduced_text(sink.slots[k]));
    }
    for (const Sink& sink : sweep(i).epilogue.sinks) result.emplace_back(sink.slots[0], "");
    return result;
  }

  std::string reduced_text(int number) const {
    return "totals.sums" + number_text(reduced_by(number)) + "[p].s" + number_text(slot(number).part) +
           (slot(number).component == 0 ? ".first" : ".second");
  }

  void write_sums(Text& text, int i) {
    std::vector<const Sink*> taken;
    std::vector<int> steps;
    for (const Sink& sink : sweep(i).sinks) {
      add_once(steps, sink.step);
      if (sink.kind == SinkKind::kStatistic) taken.push_back(&sink);
    }
    auto name = [](const Sink& sink) { return "s" + number_text(sink.part); };
    text.line("// Sweep " + number_text(i) + ": what its sinks take of an element, and its statistics.");
    text.open("struct Results" + number_text(i) + " {");
    if (steps.empty()) text.line("int nothing;");
    for (int step : steps) text.line("real r" + number_text(step) + ";");
    text.close("};");
    text.open("struct Sums" + number_text(i) + " {");
    if (taken.empty()) text.line("int nothing;");
    int numbers = 0;
    for (const Sink* sink : taken) {
      const Statistic statistic = part(sink->part).statistic;
      text.line(statistic_type(sink->part, "real") + " " + name(*sink) + ";");
      numbers += statistic == Statistic::kMoments ? 3 : component_count(statistic);
    }
    largest_sums_ = std::max(largest_sums_, numbers * (single_ ? 4 : 8));
    text.open("__device__ void clear() {");
    for (const Sink* sink : taken) text.line(name(*sink) + ".clear();");
    text.close();
    text.open("__device__ void add(const Results" + number_text(i) +
              " (&results)[kElements], unsigned int taken) {");
    for (const Sink* sink : taken) {
      text.open("{");
      text.line("real values[kElements];");
      text.line("#pragma unroll");
      text.line("for (int e = 0; e < kElements; ++e) values[e] = results[e].r" + number_text(sink->step) +
                ";");
      text.line(name(*sink) + ".add(values, taken);");
      text.close();
    }
    text.close();
    text.open("__device__ void merge(const Sums" + number_text(i) + "& other) {");
    for (const Sink* sink : taken) text.line(name(*sink) + ".merge(other." + name(*sink) + ");");
    text.close();
    text.close("};");
  }

  // Whether a dense value over the domain is the same for all samples of several, so that rows do not number it.
  bool repeats(int number) const { return slot(number).extents[0] != domain_[0]; }
  std::string base_name(int number) const { return names_[at(number)]; }
  std::string position_base_name(int number) const { return "at_" + names_[at(number)]; }

  void write_bases(Text& text) {
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
  template <class Body>
  void write_vectors(Text& text, int number, const Body& body) {
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

  std::string vector_type(int number) const { return "Vector<" + element_name(element_type(number)) + ">"; }

  void write_inputs(Text& text) {
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

  void write_position_inputs(Text& text) {
    text.line("// What does not vary over channels.");
    text.open("struct PositionInputs {");
    text.line("int nothing;");
    for (int input : position_inputs_) text.line("real i" + number_text(input) + "[kPositions];");
    text.close("};");
    text.open(
        "__device__ inline PositionInputs read_positions(const Arguments& a, const Sites& sites, const "
        "Bases& bases) {");
    text.line("PositionInputs inputs;");
    for (int input : position_inputs_) {
      const std::string member = "inputs.i" + number_text(input) + "[p]";
      const std::string base = "bases." + position_base_name(input);
      if (along_positions() && over_all_positions(input) && over_positions(slot(input).extents)) {
        text.open("if (sites.inside[0]) {");
        text.line("const " + vector_type(input) + " vector = load_vector(reinterpret_cast<const " +
                  vector_type(input) + "*>(" + tensor(input) + ".data + " + base + "[0]));");
        text.line("#pragma unroll");
        text.line("for (int p = 0; p < kPositions; ++p) " + member + " = element_at(vector, p);");
        text.close();
      } else {
        text.line("#pragma unroll");
        text.line("for (int p = 0; p < kPositions; ++p) " + member + " = sites.inside[p] ? to_real(" +
                  tensor(input) + ".data[" + base + "[p]]) : 0;");
      }
    }
    text.line("return inputs;");
    text.close();
    text.line("// Statistics of the thread's positions.");
    text.open("struct Totals {");
    text.line("int nothing;");
    for (int i = 0; i < sweep_count(); ++i)
      if (has_statistics(i)) text.line("Sums" + number_text(i) + " sums" + number_text(i) + "[kPositions];");
    text.close("};");
  }

  // The value of an input that is the same for all channels, at position p.
  std::string position_text(int number) const {
    return reduced_by(number) >= 0 ? reduced_text(number) : "inputs.i" + number_text(number) + "[p]";
  }

  void write_sweep(Text& text, int i) {
    const Sweep& which = sweep(i);
    std::vector<std::int32_t> taken;
    for (const Sink& sink : which.sinks) add_once(taken, sink.step);
    const PositionSteps split = split_by_channels(
        which.steps, static_cast<int>(which.inputs.size()),
        [&](int input) { return !at_positions(which.inputs[at(input)]); }, taken);
    text.line("// Sweep " + number_text(i) + ": " + narrator_.source(which));
    for (const std::string& line : narrator_.program(which)) text.line("//   " + line);
    for (const Sink& sink : which.sinks) text.line("//   -> " + narrator_.sink(sink));
    text.open("struct Sweep" + number_text(i) + " {");
    text.line("typedef Results" + number_text(i) + " Results;");
    text.line("typedef Sums" + number_text(i) + " Sums;");

    text.line("// What is the same for all channels.");
    text.open("struct Positions {");
    text.line("int nothing;");
    for (std::size_t k = 0; k < split.results.size(); ++k) text.line("real q" + std::to_string(k) + ";");
    text.close("};");
    text.open(
        "static __device__ Positions positions(const PositionInputs& inputs, const Totals& totals, int p) {");
    text.line("Positions result;");
    std::vector<std::string> names = write_statements(
        text, split.position, [&](int input) { return position_text(which.inputs[at(input)]); }, "real",
        single_);
    for (std::size_t k = 0; k < split.results.size(); ++k)
      text.line("result.q" + std::to_string(k) + " = " + names[at(split.results[k])] + ";");
    text.line("return result;");
    text.close();
    write_channels(text, which);

    text.open(
        "static __device__ Results program(const Arguments& a, const Place& place, const Sites& sites, const "
        "Bases& bases,");
    text.line(
        "                                  int step, const Positions& position, const Channels& channels,");
    text.line("                                  const Inputs& inputs, int p, int e) {");
    names = write_statements(
        text, split.element,
        [&](int input) -> std::string {
          if (input >= split.first_result) return "position.q" + number_text(input - split.first_result);
          return element_text(which.inputs[at(input)]);
        },
        "real", single_);
    text.line("Results results;");
    for (std::int32_t step : taken)
      text.line("results.r" + number_text(step) + " = " + names[at(split.places[at(step)])] + ";");
    text.line("return results;");
    text.close();
    write_store(text, which, i);
    text.close("};");
  }

  // Values at channels, the same for all positions of a sample.
  void write_channels(Text& text, const Sweep& which) {
    std::vector<int> slots;
    for (int input : which.inputs)
      if (reduced_by(input) < 0 && variation(input) == Variation::kChannel) add_once(slots, input);
    text.open("struct Channels {");
    if (slots.empty()) text.line("int nothing;");
    for (int input : slots)
      text.line("real i" + number_text(input) + (by_sample(input) ? "[kPositions]" : "") + "[kElements];");
    text.close("};");
    text.open(
        "static __device__ Channels channels(const Arguments& a, const Place& place, const Sites& sites, int "
        "step) {");
    text.line("Channels channels;");
    for (int input : slots) {
      const std::string from = tensor(input);
      const std::string member = "channels.i" + number_text(input);
      if (!along_channels()) {
        open_loop(text, "e", "kElements");
        text.line("const int channel = channel_of(place, step, e);");
        text.line(member + "[e] = has_channel(channel) ? to_real(" + from + ".data[" + from +
                  ".offset(sites.n[0], channel)]) : 0;");
        text.close();
        continue;
      }
      if (by_sample(input)) open_loop(text, "p", "kPositions");
      open_loop(text, "v", "kElements / kVector");
      text.line("const int channel = channel_of(place, step, v * kVector);");
      text.line(vector_type(input) + " vector;");
      const std::string row =
          by_sample(input) ? from + ".data + sites.n[p] * " + from + ".n" : from + ".data";
      text.line(std::string("if (") + (by_sample(input) ? "sites.inside[p] && " : "") +
                "has_channel(channel)) vector = load_vector(reinterpret_cast<const " + vector_type(input) +
                "*>(" + row + " + channel));");
      text.line("#pragma unroll");
      text.line("for (int i = 0; i < kVector; ++i) " + member + (by_sample(input) ? "[p]" : "") +
                "[v * kVector + i] = element_at(vector, i);");
      text.close();
      if (by_sample(input)) text.close();
    }
    text.line("return channels;");
    text.close();
  }

  // Rows of a tile may be of several samples.
  bool by_sample(int input) const { return along_channels() && slot(input).extents[0] != 1; }

  std::string element_text(int number) {
    switch (variation(number)) {
      case Variation::kElement:
        if (along_positions()) return "element_at(inputs." + names_[at(number)] + "[e], p)";
        if (along_channels())
          return "element_at(inputs." + names_[at(number)] + "[(p * kElements + e) / kVector], e % kVector)";
        return "element_at(inputs." + names_[at(number)] + "[p * kElements + e], 0)";
      case Variation::kChannel:
        return "channels.i" + number_text(number) + (by_sample(number) ? "[p]" : "") + "[e]";
      case Variation::kOdd:
        return "(sites.inside[p] && has_channel(channel_of(place, step, e)) ? to_real(" + tensor(number) +
               ".data[bases." + base_name(number) + "[p] + channel_of(place, step, e) * " + tensor(number) +
               ".c]) : 0)";
      default: throw InternalError("a value at positions in the program of elements");
    }
  }

  void write_store(Text& text, const Sweep& which, int i) {
    text.open(
        "static __device__ void store(const Arguments& a, const Place& place, const Sites& sites, const "
        "Bases& bases,");
    text.line("                             int step, const Results" + number_text(i) +
              " (&results)[kPositions][kElements]) {");
    for (const Sink& sink : which.sinks) {
      if (sink.kind != SinkKind::kStore) continue;
      const std::string result = ".r" + number_text(sink.step);
      write_vectors(text, sink.slots[0], [&](const std::string&, const std::string& address) {
        if (strided()) {
          text.line("  assign(*(" + address + "), results[p][v % kElements]" + result + ");");
          return;
        }
        text.open("{");
        text.line("real values[kVector];");
        text.line("#pragma unroll");
        text.line("for (int i = 0; i < kVector; ++i) values[i] = " +
                  std::string(along_positions() ? "results[i][e]"
                                                : "results[p][v % (kElements / kVector) * kVector + i]") +
                  result + ";");
        text.line("store_vector(" + address + ", values);");
        text.close();
      });
    }
    text.close();
  }

  bool has_end(int i) const { return !position_stores(i).empty(); }

  // What follows a sweep at each position: its statistics in memory, and its epilogue.
  void write_ends(Text& text, int i) {
    if (!has_end(i)) return;
    const Epilogue& epilogue = sweep(i).epilogue;
    text.line("// Behind sweep " + number_text(i) + ", by the first thread of each position.");
    for (const std::string& line : narrator_.epilogue(sweep(i))) text.line("//   " + line);
    text.line("__device__ inline void end_" + number_text(i) +
              "(const Arguments& a, const Place& place, const Sites& sites,");
    text.open(
        "                             const Bases& bases, const PositionInputs& inputs, const Totals& "
        "totals) {");
    text.line("if (place.slot != 0) return;");
    open_loop(text, "p", "kPositions");
    text.line("if (!sites.inside[p]) continue;");
    std::vector<std::string> names;
    if (!epilogue.sinks.empty())
      names = write_statements(
          text, epilogue.steps, [&](int input) { return position_text(epilogue.inputs[at(input)]); }, "real",
          single_);
    auto store = [&](int to, const std::string& value) {
      text.line("assign(" + tensor(to) + ".data[bases." + position_base_name(to) + "[p]], " + value + ");");
    };
    for (const auto& [to, value] : position_stores(i))
      if (!value.empty()) store(to, value);
    for (const Sink& sink : epilogue.sinks) store(sink.slots[0], names[at(sink.step)]);
    text.close();
    text.close();
  }

  void write_run_tile(Text& text) {
    text.line("// The plan's sweeps on one tile.");
    text.open(
        "__device__ inline void run_tile(const Arguments& a, const Place& place, Count tile, char* memory) "
        "{");
    text.line("const Sites sites = sites_of(a, place, tile);");
    text.line("const Bases bases = bases_of(a, sites);");
    text.line("char* column = memory + kListBytes + kTotalsBytes;");
    text.line("Kept kept;");
    text.line("begin_tile(a, place, sites, bases, kept, column);");
    text.line("const PositionInputs inputs = read_positions(a, sites, bases);");
    text.line("Totals totals;");
    for (int i = 0; i < sweep_count(); ++i) {
      const std::string name = number_text(i);
      const std::string sums = has_statistics(i) ? "totals.sums" + name : "nothing";
      text.open("{");
      text.line("Sweep" + name + "::Positions positions[kPositions];");
      text.line("#pragma unroll");
      text.line("for (int p = 0; p < kPositions; ++p) positions[p] = Sweep" + name +
                "::positions(inputs, totals, p);");
      if (!has_statistics(i)) text.line("Sums" + name + " nothing[kPositions];");
      text.line("sweep<Sweep" + name + ", " + (i == 0 ? "true" : "false") +
                ">(a, place, sites, bases, positions, kept, column, " + sums + ");");
      if (has_statistics(i)) text.line("merge_tile(place, " + sums + ", memory, memory + kListBytes);");
      if (has_end(i)) text.line("end_" + name + "(a, place, sites, bases, inputs, totals);");
      text.close();
    }
    text.close();
  }

  ColumnsConstants constants_;
  Narrator narrator_;
  Extents domain_;
  std::vector<int> sweeps_;            // steps
  std::vector<int> elements_;          // slots: inputs over the domain
  std::vector<int> odd_;               // inputs over channels and some of the positions' axes
  std::vector<int> position_inputs_;   // inputs that do not vary over channels
  std::vector<int> stores_;            // outputs over the domain
  std::vector<int> position_outputs_;  // outputs over positions
  std::vector<int> dense_;
  std::vector<int> channel_vectors_;
  int step_bytes_ = 0;
  int largest_sums_ = 4;
};

}  // namespace

ColumnsText columns_text(const Schedule& schedule, const KernelCut& cut, const ColumnsConstants& constants) {
  return ColumnsWriter(schedule, cut, constants).run();
}

}  // namespace fuseblock::cuda
