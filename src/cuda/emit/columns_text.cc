#include "cuda/emit/columns_text.h"

#include <algorithm>

#include "cuda/emit/columns_sums.h"
#include "cuda/emit/position_steps.h"
#include "cuda/emit/rounded_products.h"
#include "plan/narrator.h"

namespace fuseblock::cuda {
namespace {

std::size_t at(int i) { return static_cast<std::size_t>(i); }
std::string number_text(std::int64_t number) { return std::to_string(number); }
class ColumnsWriter : ColumnsSumsWriter {
 public:
  ColumnsWriter(const Schedule& schedule, const KernelCut& cut, const ColumnsConstants& constants)
      : ColumnsSumsWriter(schedule, cut, constants), narrator_(schedule) {}

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
    Text totals_text;
    write_totals(totals_text);
    for (const char* name : {"tiles", "sample_tiles", "rows", "positions", "height", "width"})
      scalar("long long", name);
    if (numbers() > 0) {
      for (const char* name : {"block_tiles", "bundle"}) scalar("long long", name);
      scalar("real*", "block_sums");
      scalar("double*", "bundle_sums");
      scalar("unsigned int*", "finished");
    }

    const int tile = constants_.threads / (constants_.team * constants_.lanes) * constants_.positions;
    const int list = constants_.team == 1 ? 0 : constants_.team * tile * largest_sums_;
    const int totals = constants_.team == 1 ? 0 : tile * largest_sums_;
    const auto aligned = [](int bytes) { return (bytes + 127) / 128 * 128; };
    const int channels = constants_.team * constants_.lanes * constants_.elements;
    const int steps = static_cast<int>((domain_[1] + channels - 1) / channels);
    int tile_bytes = aligned(list) + aligned(totals);
    if (constants_.residency == Residency::kShared) tile_bytes += steps * step_bytes_ * constants_.threads;
    const int sums_offset = constants_.sums_in_shared ? tile_bytes : 0;
    const int sums_bytes = steps * constants_.elements * numbers() * (single_ ? 4 : 8) * constants_.threads;
    std::string text = head({{"kThreads", number_text(constants_.threads)},
                             {"kBlocks", number_text(constants_.blocks)},
                             {"kVector", number_text(constants_.vector)},
                             {"kPositions", number_text(constants_.positions)},
                             {"kElements", number_text(constants_.elements)},
                             {"kLanes", number_text(constants_.lanes)},
                             {"kTeam", number_text(constants_.team)},
                             {"kChannels", number_text(domain_[1])},
                             {"kAlongChannels", along_channels() ? "1" : "0"},
                             {"kFirstDistance", along_channels() ? "1" : "32 / kLanes"},
                             {"kEndDistance", along_channels() ? "kLanes" : "32"},
                             {"kResidency", number_text(static_cast<int>(constants_.residency))},
                             {"kStepBytes", number_text(step_bytes_ * constants_.threads)},
                             {"kListBytes", number_text(aligned(list))},
                             {"kTotalsBytes", number_text(aligned(totals))},
                             {"kSums", number_text(numbers())},
                             {"kSumsInShared", constants_.sums_in_shared ? "1" : "0"},
                             {"kSumsOffset", number_text(sums_offset)},
                             {"kAhead", copies_ahead() ? "1" : "0"},
                             {"kBySample", sums_by_sample() ? "1" : "0"},
                             {"k16Bit", writes_16_bit() ? "1" : "0"}});
    const double rows = static_cast<double>(domain_[0]) * static_cast<double>(domain_[2]) *
                        static_cast<double>(domain_[3]) * static_cast<double>(domain_[4]);
    text += rows < 1e9 ? "typedef int Count;\n" : "typedef long long Count;\n";
    for (const char* file : {"types.cuh", "functions.cuh", "statistics.cuh", "copies.cuh"})
      text += "\n" + device_file(file);
    if (numbers() > 0) text += "\n" + device_file("team.cuh");
    text += "\n" + structs.str() + "\n" + arguments_struct() + "\n" + device_file("columns_tile.cuh") + "\n" +
            bases.str() + "\n" + inputs.str() + "\n";
    if (numbers() > 0)
      text += totals_text.str() + "\n" + device_file("columns_sums.cuh");
    else
      text += "struct Gathered {};\n";
    text += "\n" + device_file("columns.cuh") + "\n" + positions.str() + "\n" +
            with_functions(programs.str()) + "\n" +
            device_file(numbers() > 0 ? "columns_gathering.cu" : "columns.cu");
    ColumnsText result;
    result.kernel = finish("columns", std::move(text));
    result.shared_bytes =
        constants_.sums_in_shared ? tile_bytes + sums_bytes : std::max(tile_bytes, sums_bytes);
    result.sums = numbers();
    result.by_sample = sums_by_sample();
    result.dense = dense_;
    result.channel_vectors = channel_vectors_;
    return result;
  }

 private:
  // Whether a block's last sweep begins to copy its next tile. Sums in registers are merged in the columns.
  bool copies_ahead() const {
    return constants_.residency == Residency::kShared && numbers() > 0 && constants_.sums_in_shared;
  }

  // Whether everything that the sweeps write is rounded to 16 bits.
  bool writes_16_bit() const {
    bool any = false;
    for (int i = 0; i < sweep_count(); ++i) {
      if (takes_statistic_of_each(schedule_, sweep(i))) return false;
      for (const std::vector<Sink>* sinks : {&sweep(i).sinks, &sweep(i).epilogue.sinks})
        for (const Sink& sink : *sinks) {
          if (sink.kind != SinkKind::kStore) continue;
          any = true;
          if (byte_size(element_type(sink.slots[0])) != 2) return false;
        }
    }
    return any && single_ && sums_end_in_16_bits();
  }

  void write_sums(Text& text, int i) {
    std::vector<const Sink*> taken;
    std::vector<int> steps;
    for (const Sink& sink : sweep(i).sinks) {
      add_once(steps, sink.step);
      if (is_reduction(sink)) taken.push_back(&sink);
    }
    auto name = [](const Sink& sink) { return "s" + number_text(sink.part); };
    text.line("// Sweep " + number_text(i) + ": what its sinks take of an element, and its statistics.");
    text.open("struct Results" + number_text(i) + " {");
    if (steps.empty()) text.line("int nothing;");
    for (int step : steps) text.line("real r" + number_text(step) + ";");
    text.close("};");
    if (taken.empty()) return;
    text.open("struct Sums" + number_text(i) + " {");
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
              " (&results)[kElements], unsigned int taken, const Weight<real>& weight) {");
    for (const Sink* sink : taken) {
      if (taken.size() > 1) text.open("{");
      text.line("real values[kElements];");
      text.line("#pragma unroll");
      text.line("for (int e = 0; e < kElements; ++e) values[e] = results[e].r" + number_text(sink->step) +
                ";");
      const bool weighted = part(sink->part).statistic == Statistic::kMoments;
      text.line(name(*sink) + (weighted ? ".add(values, taken, weight);" : ".add(values, taken);"));
      if (taken.size() > 1) text.close();
    }
    text.close();
    text.open("__device__ void merge_lanes() {");
    for (const Sink* sink : taken) text.line(name(*sink) + ".merge_lanes();");
    text.close();
    text.open("__device__ void merge_all(const Sums" + number_text(i) + " (&parts)[kTeam]) {");
    for (const Sink* sink : taken) {
      if (taken.size() > 1) text.open("{");
      text.line(statistic_type(sink->part, "real") + " own[kTeam];");
      text.line("#pragma unroll");
      text.line("for (int i = 0; i < kTeam; ++i) own[i] = parts[i]." + name(*sink) + ";");
      text.line(name(*sink) + ".merge_all(own);");
      if (taken.size() > 1) text.close();
    }
    text.close();
    text.close("};");
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
    const std::vector<bool> rounded = rounded_products(schedule_, which);
    text.line("// Sweep " + number_text(i) + ": " + narrator_.source(which));
    for (const std::string& line : narrator_.program(which)) text.line("//   " + line);
    for (const Sink& sink : which.sinks) text.line("//   -> " + narrator_.sink(sink));
    text.open("struct Sweep" + number_text(i) + " {");
    text.line("typedef Results" + number_text(i) + " Results;");
    text.line("typedef " + (has_statistics(i) ? "Sums" + number_text(i) : std::string("NoSums")) + " Sums;");
    write_gathered(text, i);

    text.line("// What is the same for all channels.");
    text.open("struct Positions {");
    text.line("int nothing;");
    for (std::size_t k = 0; k < split.results.size(); ++k) text.line("real q" + std::to_string(k) + ";");
    text.close("};");
    text.open(
        "static __device__ Positions positions(const PositionInputs& inputs, const Totals& totals, int p) {");
    text.line("Positions result;");
    const std::vector<std::int32_t> kept(split.results.begin(), split.results.end());
    std::vector<std::string> names =
        write_nested(text, split.position, [&](int input) { return position_text(which.inputs[at(input)]); },
                     "real", single_, kept, {rounded_at(rounded, split.position_places), !writes_16_bit()});
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
    std::vector<std::int32_t> wanted;
    for (std::int32_t step : taken) wanted.push_back(split.places[at(step)]);
    names = write_nested(text, split.element,
                         [&](int input) -> std::string {
                           if (input >= split.first_result)
                             return "position.q" + number_text(input - split.first_result);
                           return element_text(which.inputs[at(input)]);
                         },
                         "real", single_, wanted, {rounded_at(rounded, split.places), !writes_16_bit()});
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
        text.line(member + "[e] = has_channel(channel) ? to_real(" + from + ".at(sites.n[0], channel)) : 0;");
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
    text.line(
        "__device__ inline void run_tile(const Arguments& a, const Place& place, Count tile, Count "
        "next_tile,");
    text.open("                                char* memory, Gathered& gathered) {");
    text.line("const Sites sites = sites_of(a, place, tile);");
    text.line("const Bases bases = bases_of(a, sites);");
    text.line("char* column = memory + kListBytes + kTotalsBytes;");
    text.line("Kept kept;");
    if (!copies_ahead()) text.line("begin_tile(a, place, sites, bases, kept, column);");
    text.line("Next next = {next_tile >= 0};");
    if (copies_ahead()) {
      text.open("if (next.any) {");
      text.line("next.sites = sites_of(a, place, next_tile);");
      text.line("next.bases = bases_of(a, next.sites);");
      text.close();
    }
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
      if (!has_statistics(i)) text.line("NoSums nothing[kPositions];");
      text.line("sweep<Sweep" + name + ", " + (i == 0 ? "true" : "false") + ", " +
                (i + 1 == sweep_count() ? "true" : "false") +
                ">(a, place, sites, bases, positions, kept, column, " + sums + ", next, gathered, memory);");
      if (has_statistics(i)) text.line("merge_tile(place, " + sums + ", memory, memory + kListBytes);");
      if (has_end(i)) text.line("end_" + name + "(a, place, sites, bases, inputs, totals);");
      text.close();
    }
    text.close();
  }

  Narrator narrator_;
  int largest_sums_ = 4;
};

}  // namespace

ColumnsText columns_text(const Schedule& schedule, const KernelCut& cut, const ColumnsConstants& constants) {
  return ColumnsWriter(schedule, cut, constants).run();
}

}  // namespace fuseblock::cuda
