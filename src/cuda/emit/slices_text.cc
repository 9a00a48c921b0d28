#include "cuda/emit/slices_text.h"

#include <algorithm>
#include <cstdlib>

#include "cuda/emit/position_steps.h"
#include "cuda/emit/rounded_products.h"
#include "cuda/emit/unit_text.h"

namespace fuseblock::cuda {
namespace {

std::size_t at(int i) { return static_cast<std::size_t>(i); }
std::string number_text(std::int64_t number) { return std::to_string(number); }

constexpr int kLargestVectorBytes = 128;
constexpr int kAlignment = 128;
// Of a struct's members, and what it has where it has nothing.
constexpr int kPadding = 16;
// Blocks of a team, one a lane, and parts of all its groups that every block takes by itself.
constexpr int kMostMembers = 32;
constexpr std::int64_t kMostParts = 256;

class SlicesWriter : UnitWriter {
 public:
  SlicesWriter(const Schedule& schedule, const KernelCut& cut, const SlicesConstants& constants)
      : UnitWriter(schedule, cut), constants_(constants) {
    find_groups();
    find_ring();
    for (int input : ring_) ring_chunk_bytes_ += chunk_bytes(input);
    for (int i = 0; i < sweep_count(); ++i) {
      const Sweep& which = sweep(i);
      std::vector<std::int32_t> taken;
      for (const Sink& sink : which.sinks) taken.push_back(sink.step);
      programs_.push_back(split_by_channels(
          which.steps, static_cast<int>(which.inputs.size()),
          [&](int input) { return !is_channel_input(which.inputs[at(input)]); }, taken));
    }
  }

  SlicesText run() {
    Text structs;
    for (int i = 0; i < sweep_count(); ++i) write_structs(structs, i);
    Text inputs;
    write_inputs(inputs);
    Text values;
    write_unit_values(values);
    Text programs;
    for (int i = 0; i < sweep_count(); ++i) write_sweep(programs, i);
    write_finalise_units(programs);
    const std::vector<int> outputs = statistic_outputs(cut_.remaining, true);
    const bool tail = !cut_.remaining.empty() || !outputs.empty();
    write_finalise_all(programs, cut_.remaining, outputs);
    if (in_cluster())
      write_run_unit(programs);
    else
      write_unit_functions(programs);

    for (const char* name : {"units", "positions", "height", "width", "team", "steps", "kept"})
      if (!in_cluster() || !names_divided(name)) scalar("long long", name);
    scalar("unsigned int*", "finished");
    for (int i = 0; i < sweep_count(); ++i)
      if (has_statistics(i) && !in_cluster()) scalar("uint2*", "team_list" + number_text(i));

    const int units = constants_.ahead ? 2 : 1;
    const int shared_bytes = (list_bytes_ + units * unit_bytes_ + kAlignment - 1) / kAlignment * kAlignment;
    std::string text = head(in_cluster() ? cluster_constants(shared_bytes, tail) : constants(shared_bytes, tail));
    const double positions =
        static_cast<double>(domain_[2]) * static_cast<double>(domain_[3]) * static_cast<double>(domain_[4]);
    text += positions < 1e9 ? "typedef int Count;\n" : "typedef long long Count;\n";
    for (const char* file : {"types.cuh", "functions.cuh", "statistics.cuh", "vector_statistics.cuh",
                             in_cluster() ? "arrivals.cuh" : "copies.cuh", "team.cuh", "crew.cuh", "slices_place.cuh"})
      text += "\n" + device_file(file);
    text += "\n" + structs.str() + "\n" + arguments_struct() + "\n" + inputs.str() + "\n" + values.str();
    const std::string name = in_cluster() ? "slices_cluster" : "slices";
    text += "\n" + device_file(name + ".cuh");
    if (hands_groups() && !in_cluster()) text += "\n" + device_file("slices_groups.cuh");
    text += "\n" + with_functions(programs.str()) + "\n" + device_file(name + ".cu");
    SlicesText result;
    result.kernel = finish(name, std::move(text));
    result.vector_bytes = ring_chunk_bytes_ / constants_.pieces;
    result.shared_bytes = shared_bytes;
    result.unit_bytes = unit_bytes_;
    result.tail = tail;
    result.passes = sweep_count();
    result.list_numbers = list_numbers_;
    return result;
  }

 private:
  bool in_cluster() const { return constants_.cluster > 1; }
  // Whether a number of Arguments says how blocks divide units that are larger than they.
  static bool names_divided(const std::string& name) {
    return name == "units" || name == "team" || name == "steps" || name == "kept";
  }

  typedef std::vector<std::pair<std::string, std::string>> Constants;
  Constants constants(int shared_bytes, bool tail) const {
    return {{"kThreads", number_text(constants_.threads)},
            {"kWarps", "kThreads / 32"},
            {"kBlocks", number_text(constants_.blocks)},
            {"kVector", number_text(constants_.vector)},
            {"kPieces", number_text(constants_.pieces)},
            {"kElements", "1"},
            {"kRing", number_text(constants_.ring)},
            {"kRingBytes", number_text(ring_chunk_bytes_) + " * kThreads"},
            {"kColumnBytes", number_text(column_bytes())},
            {"kChannels", number_text(domain_[1])},
            {"kUnitChannels", number_text(cut_.unit_channels)},
            {"kRowPositions", number_text(constants_.row_positions)},
            {"kPasses", number_text(sweep_count())},
            {"kAgain", constants_.again ? "1" : "0"},
            {"kAhead", constants_.ahead ? "1" : "0"},
            {"kListSlots", number_text(list_slots())},
            {"kSharedBytes", number_text(shared_bytes)},
            {"kTail", tail ? "1" : "0"},
            {"k16Bit", writes_16_bit() ? "1" : "0"},
            {"kFirstDistance", "1"},
            {"kEndDistance", "32"}};
  }
  // Without those of the ring and of teams.
  Constants cluster_constants(int shared_bytes, bool tail) const {
    Constants all = constants(shared_bytes, tail);
    std::erase_if(all, [](const auto& each) {
      return each.first.starts_with("kRing") || each.first == "kColumnBytes" || each.first == "kPasses" ||
             each.first == "kAgain" || each.first == "kAhead";
    });
    all.insert(all.begin() + 3, {"kCluster", number_text(constants_.cluster)});
    const char* trial = std::getenv("FUSEBLOCK_TRIAL");
    all.push_back({"kTrial", trial == nullptr ? "0" : trial});
    return all;
  }

  bool is_channel_input(int input) const { return !over_positions(slot(input).extents) && !in_ring(input); }
  // Groups whose statistics the team's blocks hand over in place of those of channels: few of them, and lists in turn that who
  // writes knows to be read.
  void find_groups() {
    merged_place_ = "c";
    for (int i = 0; i < sweep_count(); ++i) {
      if (in_cluster()) {
        groups_.push_back(common_group(i));
        unit_sums_.push_back(groups_.back() > 0);
        continue;
      }
      const bool small = constants_.team > 1 && constants_.team <= kMostMembers;
      const std::int64_t group = small && !constants_.ahead ? common_group(i) : 0;
      const bool few = group > 0 && cut_.unit_channels / group * constants_.team <= kMostParts;
      groups_.push_back(few ? group : 0);
      unit_sums_.push_back(few);
    }
    find_local_values();
  }

  // Places of a block's list of statistics: one for each of its rows and slots, and enough to collect a team's.
  int list_slots() const {
    const int slots = constants_.row_positions * static_cast<int>(cut_.unit_channels);
    const int row_warps = (slots / constants_.vector + 31) / 32;
    return std::max(constants_.threads / 32 / row_warps * slots, static_cast<int>(cut_.unit_channels) + 16);
  }

  static std::string sum_name(const Sink& sink) { return "s" + std::to_string(sink.part); }

  std::vector<const Sink*> statistics_of(int i) const {
    std::vector<const Sink*> taken;
    for (const Sink& sink : sweep(i).sinks)
      if (sink.kind == SinkKind::kStatistic) taken.push_back(&sink);
    return taken;
  }

  void write_structs(Text& text, int i) {
    const std::string name = number_text(i);
    std::vector<std::int32_t> steps;
    for (const Sink& sink : sweep(i).sinks)
      if (std::find(steps.begin(), steps.end(), sink.step) == steps.end()) steps.push_back(sink.step);
    text.line("// Sweep " + name + ": what its sinks take of an element.");
    text.open("struct Results" + name + " {");
    for (std::int32_t step : steps) text.line("real r" + number_text(step) + ";");
    text.close("};");
    text.line("// What its program takes that does not vary over positions, and what that comes to.");
    const std::vector<int> inputs = channel_inputs(i);
    text.open("struct Channel" + name + " {");
    if (inputs.empty()) text.line("int nothing;");
    for (int k : inputs) text.line("real i" + number_text(k) + ";");
    text.close("};");
    const std::size_t hoisted = programs_[at(i)].results.size();
    text.open("struct Hoisted" + name + " {");
    if (hoisted == 0) text.line("int nothing;");
    for (std::size_t k = 0; k < hoisted; ++k) text.line("real h" + std::to_string(k) + ";");
    text.close("};");
    write_sums(text, i);
    const int real_bytes = single_ ? 4 : 8;
    const int channels = static_cast<int>(cut_.unit_channels);
    int numbers = 0;
    for (const Sink* sink : statistics_of(i)) numbers += state_numbers(part(sink->part).statistic);
    list_numbers_.push_back(numbers);
    unit_bytes_ += real_bytes * (static_cast<int>(inputs.size()) + numbers) * channels;
    list_bytes_ += numbers * real_bytes * list_slots();
    if (in_cluster() && numbers > 0)
      list_bytes_ += numbers * real_bytes * constants_.cluster * channels / static_cast<int>(group_of(i));
  }

  // Its statistics: of one channel, and of the channels of a thread.
  void write_sums(Text& text, int i) {
    const std::string name = number_text(i);
    const std::vector<const Sink*> taken = statistics_of(i);
    auto each = [&](const std::string& head, const auto& line) {
      text.open(head);
      for (const Sink* sink : taken) text.line(line(*sink));
      text.close();
    };
    text.line("// Its statistics: of a channel, and of a thread's channels.");
    text.open("struct Sums" + name + " {");
    if (taken.empty()) text.line("int nothing;");
    for (const Sink* sink : taken)
      text.line(statistic_type(sink->part, "real") + " " + sum_name(*sink) + ";");
    each("__device__ void clear() {", [](const Sink& sink) { return sum_name(sink) + ".clear();"; });
    each("__device__ void merge(const Sums" + name + "& other) {",
         [](const Sink& sink) { return sum_name(sink) + ".merge(other." + sum_name(sink) + ");"; });
    each("__device__ void merge_lanes() {",
         [](const Sink& sink) { return sum_name(sink) + ".merge_lanes();"; });
    if (in_cluster()) write_merge_all(text, name, taken);
    text.close("};");

    text.open("struct VectorSums" + name + " {");
    if (taken.empty()) text.line("int nothing;");
    for (const Sink* sink : taken)
      text.line("OfVector<" + statistic_type(sink->part, "real") + "> " + sum_name(*sink) + ";");
    each("__device__ void clear() {", [](const Sink& sink) { return sum_name(sink) + ".clear();"; });
    text.open("__device__ void add(const Results" + name + " (&results)[kVector]) {");
    write_values(text, taken, "add");
    text.close();
    text.open("__device__ void start(const Results" + name + " (&results)[kVector]) {");
    write_values(text, taken, "start");
    text.close();
    each("__device__ void took(int count) {",
         [](const Sink& sink) { return sum_name(sink) + ".took(count);"; });
    each("__device__ void finish() {", [](const Sink& sink) { return sum_name(sink) + ".finish();"; });
    each("template <int kRows, int kApart> __device__ void merge_rows(int row) {",
         [](const Sink& sink) { return sum_name(sink) + ".template merge_rows<kRows, kApart>(row);"; });
    text.open("__device__ Sums" + name + " at(int v) const {");
    text.line("Sums" + name + " sums;");
    for (const Sink* sink : taken) text.line("sums." + sum_name(*sink) + " = " + sum_name(*sink) + ".at(v);");
    text.line("return sums;");
    text.close();
    text.close("};");
  }

  void write_merge_all(Text& text, const std::string& name, const std::vector<const Sink*>& taken) const {
    text.open("template <int kParts> __device__ void merge_all(const Sums" + name + " (&parts)[kParts]) {");
    for (const Sink* sink : taken) {
      text.open("{");
      text.line(statistic_type(sink->part, "real") + " all[kParts];");
      text.line("#pragma unroll");
      text.line("for (int i = 0; i < kParts; ++i) all[i] = parts[i]." + sum_name(*sink) + ";");
      text.line(sum_name(*sink) + ".merge_all(all);");
      text.close();
    }
    text.close();
  }

  // Hands what a sink takes of each of the thread's channels to its statistic.
  static void write_values(Text& text, const std::vector<const Sink*>& taken, const std::string& function) {
    for (const Sink* sink : taken) {
      text.open("{");
      text.line("real values[kVector];");
      text.line("#pragma unroll");
      text.line("for (int v = 0; v < kVector; ++v) values[v] = results[v].r" + number_text(sink->step) + ";");
      text.line(sum_name(*sink) + "." + function + "(values);");
      text.close();
    }
  }

  // Of a thread, all pieces of a chunk.
  int chunk_bytes(int input) const { return constants_.pieces * vector_bytes(input); }

  void write_inputs(Text& text) {
    text.line(
        "// A thread's vectors of a chunk, of each value in the ring. `offset` is where the first lies in "
        "the tensors,");
    text.line("// `row` its row in the unit, which has `end` of them.");
    text.open("struct Inputs {");
    if (ring_.empty()) text.line("int nothing;");
    for (int input : ring_) text.line(vector_type(input) + " " + names_[at(input)] + "[kPieces];");
    text.close("};");
    if (in_cluster()) return write_load_inputs(text);
    text.line(
        "__device__ inline void copy_inputs(const Arguments& a, long long offset, Count row, Count end,");
    text.open("                                   unsigned int slot) {");
    text.line("const bool whole = row + (kPieces - 1) * kStride < end;");
    for (const bool whole : {true, false}) {
      text.open(whole ? "if (whole) {" : "if (!whole) {");
      int place = 0;
      for (int input : ring_) {
        text.line("#pragma unroll");
        text.line("for (int i = 0; i < kPieces; ++i)");
        if (!whole) text.line("  if (row + i * kStride < end)");
        text.line("    thread::copy_begin_at(" + column(input, place) + ",");
        text.line("                       reinterpret_cast<const " + vector_type(input) + "*>(" +
                  tensor(input) + ".data + offset) + i * (kStrideElements / kVector));");
        place += chunk_bytes(input);
      }
      text.close();
    }
    text.close();
    text.open("__device__ inline Inputs ring_inputs(unsigned int slot) {");
    text.line(ring_.empty() ? "Inputs inputs = {};" : "Inputs inputs;");
    int place = 0;
    for (int input : ring_) {
      text.line("#pragma unroll");
      text.line("for (int i = 0; i < kPieces; ++i)");
      text.line("  inputs." + names_[at(input)] + "[i] = thread::read_shared<" + vector_type(input) + ">(" +
                column(input, place) + ");");
      place += chunk_bytes(input);
    }
    text.line("return inputs;");
    text.close();
  }

  void write_load_inputs(Text& text) {
    text.open(
        "__device__ inline Inputs load_inputs(const Arguments& a, long long offset, Count row, Count end) {");
    text.line("Inputs inputs;");
    for (int input : ring_) {
      text.line("#pragma unroll");
      text.line("for (int i = 0; i < kPieces; ++i)");
      text.line("  if (row + i * kStride < end)");
      text.line("    inputs." + names_[at(input)] + "[i] = load_vector(reinterpret_cast<const " +
                vector_type(input) + "*>(" + tensor(input) + ".data + offset) + i * (kStrideElements / kVector));");
    }
    text.line("return inputs;");
    text.close();
  }

  // Piece i of an input in the thread's column of a slot. `slot` is where the smallest vector of this thread would lie.
  std::string column(int input, int place) const {
    const int bytes = vector_bytes(input);
    const int more = bytes - column_bytes();
    std::string address = "slot + " + number_text(place) + " * kThreads";
    if (more > 0) address += " + " + number_text(more) + " * threadIdx.x";
    return address + " + i * kThreads * " + number_text(bytes);
  }
  int vector_bytes(int input) const {
    return constants_.vector * static_cast<int>(byte_size(element_type(input)));
  }
  int column_bytes() const {
    int smallest = kLargestVectorBytes;
    for (int input : ring_) smallest = std::min(smallest, vector_bytes(input));
    return smallest;
  }

  std::string vector_type(int input) const { return "Vector<" + element_name(element_type(input)) + ">"; }

  void write_unit_values(Text& text) {
    text.line("// Statistics of one unit, one number for each of its channels.");
    text.open("struct UnitValues {");
    for (int i = 0; i < sweep_count(); ++i)
      if (has_statistics(i))
        text.line("Sums" + number_text(i) + " totals" + number_text(i) + "[kUnitChannels];");
    for (int i = cut_.first; i <= cut_.last; ++i) {
      if (step(i).kind != StepKind::kFinalise) continue;
      for (int number : step(i).parts) {
        const Part& which = part(number);
        if (!in_unit(number) || which.kind == PartKind::kComponent || which.kind == PartKind::kRegroup)
          continue;
        const bool merged = which.kind == PartKind::kMerge || which.kind == PartKind::kReduce;
        unit_bytes_ += (single_ ? 4 : 8) * static_cast<int>(cut_.unit_channels) *
                       (merged ? state_numbers(which.statistic) : 1);
      }
    }
    write_unit_members(text);
    // A cluster's block has what comes of them.
    const std::string prepared = in_cluster() ? "Hoisted" : "Channel";
    for (int i = 0; i < sweep_count(); ++i)
      if (has_channels(i)) text.line(prepared + number_text(i) + " " + channels_name(i) + "[kUnitChannels];");
    text.line("int nothing;");
    text.close("};");
    if (in_cluster()) return write_cluster_memory(text);
    text.line("// Those of the units under way, and the block's list of each sweep.");
    text.open("struct Shared {");
    text.line("UnitValues values[1 + kAhead];");
    for (int i = 0; i < sweep_count(); ++i)
      if (has_statistics(i)) text.line("Sums" + number_text(i) + " list" + number_text(i) + "[kListSlots];");
    text.close("};");
    text.line("static_assert(sizeof(Shared) <= kSharedBytes, \"the planner's count of shared memory\");");
    unit_bytes_ += kPadding;
  }

  std::string channels_name(int i) const { return (in_cluster() ? "hoisted" : "channels") + number_text(i); }

  void write_cluster_memory(Text& text) {
    text.line("// These, and of each sweep the block's list and the parts of the cluster's blocks.");
    text.open("struct Shared {");
    for (int i = 0; i < sweep_count(); ++i)
      if (has_statistics(i)) text.line("arrivals::Barrier arrived" + number_text(i) + ";");
    text.line("UnitValues values;");
    for (int i = 0; i < sweep_count(); ++i) {
      if (!has_statistics(i)) continue;
      const std::string name = number_text(i);
      text.line("Sums" + name + " list" + name + "[kListSlots];");
      text.line("Sums" + name + " parts" + name + "[kCluster * (kUnitChannels / " + number_text(group_of(i)) + ")];");
    }
    text.close("};");
    text.line("static_assert(sizeof(Shared) <= kSharedBytes, \"the planner's count of shared memory\");");
    unit_bytes_ += kPadding + sweep_count() * kPadding;
  }
  // Channels of what a cluster's blocks hand over.
  std::int64_t group_of(int i) const { return std::max<std::int64_t>(groups_[at(i)], 1); }

  void write_sweep(Text& text, int i) {
    const Sweep& which = sweep(i);
    const PositionSteps& program = programs_[at(i)];
    const std::vector<bool> rounded = rounded_products(schedule_, which);
    const std::string name = number_text(i);
    text.line("// Sweep " + name + ": " + narrator_.source(which));
    for (const std::string& line : narrator_.program(which)) text.line("//   " + line);
    for (const Sink& sink : which.sinks) text.line("//   -> " + narrator_.sink(sink));
    text.open("struct Sweep" + name + " {");
    for (const char* type : {"Results", "Sums", "VectorSums", "Channel", "Hoisted"})
      text.line(std::string("typedef ") + type + name + " " + type + ";");
    if (in_cluster())
      text.line(std::string("static constexpr bool kChannelValues = ") + (has_channels(i) ? "true;" : "false;"));
    else
      text.line(std::string("static constexpr bool kStatistics = ") + (has_statistics(i) ? "true;" : "false;"));

    for (const bool statistics : {false, true}) {
      text.open(std::string("static __device__ void ") + (statistics ? "statistics" : "parameters") +
                "(const Arguments& a, const Unit& unit, int c, Channel& channel) {");
      for (int k : channel_inputs(i)) {
        const int input = which.inputs[at(k)];
        if (made_here(input) == statistics)
          text.line("channel.i" + number_text(k) + " = (real)" + channel_value(input) + ";");
      }
      text.close();
    }

    text.open("static __device__ Hoisted hoisted(const Channel* channels, int c) {");
    text.line("Hoisted result = {};");
    if (!program.results.empty()) {
      text.line("const Channel channel = channels[c];");
      const std::vector<std::string> names = write_statements(
          text, program.position, [](int input) { return "channel.i" + std::to_string(input); }, "real",
          single_, {rounded_at(rounded, program.position_places), !writes_16_bit()});
      for (std::size_t k = 0; k < program.results.size(); ++k)
        text.line("result.h" + std::to_string(k) + " = " + names[at(program.results[k])] + ";");
    }
    text.line("return result;");
    text.close();

    text.line(
        "static __device__ Results program(const Arguments& a, const Hoisted& channel, const Inputs& inputs, "
        "int piece,");
    text.open("                                 int v, const Unit& unit, const Place& place, Count row) {");
    if (std::any_of(which.inputs.begin(), which.inputs.end(), [&](int input) { return is_direct(input); })) {
      text.line("const int c = unit.first_channel + place.channel(v);");
      text.line("const Position at = position_at((long long)row * kRowPositions + place.position(v), " +
                scalar("long long", "height") + ", " + scalar("long long", "width") + ");");
    }
    const std::vector<std::string> names = write_statements(
        text, program.element,
        [&](int input) -> std::string {
          if (input >= program.first_result) return "channel.h" + number_text(input - program.first_result);
          const int from = which.inputs[at(input)];
          if (in_ring(from)) return "element_at(inputs." + names_[at(from)] + "[piece], v)";
          return "to_real(" + tensor(from) + ".data[offset_at(" + tensor(from) + ", unit.n, c, at)])";
        },
        "real", single_, {rounded_at(rounded, program.places), !writes_16_bit()});
    text.line("Results results;");
    std::vector<std::int32_t> done;
    for (const Sink& sink : which.sinks) {
      if (std::find(done.begin(), done.end(), sink.step) != done.end()) continue;
      done.push_back(sink.step);
      text.line("results.r" + number_text(sink.step) + " = " + names[at(program.places[at(sink.step)])] +
                ";");
    }
    text.line("return results;");
    text.close();

    text.open(
        "static __device__ void store(const Arguments& a, long long offset, const Results "
        "(&results)[kVector]) {");
    for (const Sink& sink : which.sinks) {
      if (sink.kind != SinkKind::kStore) continue;
      text.open("{");
      text.line("real values[kVector];");
      text.line("#pragma unroll");
      text.line("for (int v = 0; v < kVector; ++v) values[v] = results[v].r" + number_text(sink.step) + ";");
      text.line("store_vector(" + tensor(sink.slots[0]) + ".data + offset, values);");
      text.close();
    }
    text.close();
    text.close("};");
  }

  // A pass, and where it takes statistics those of the block, handed to its team.
  void write_pass(Text& text, int which) {
    const std::string name = number_text(which);
    const std::string prepared =
        has_channels(which) ? "unit.values->channels" + name : "(Channel" + name + "*)0";
    if (has_channels(which))
      text.line("prepare_statistics<Sweep" + name + ">(a, unit, unit.values->channels" + name + ");");
    text.open("{");
    text.line("VectorSums" + name + " sums;");
    text.line("sweep<Sweep" + name + ", " + name + ">(a, shares, team, place, unit, ring, " + prepared +
              ", sums);");
    if (has_statistics(which)) {
      if (which == 0 && !begins_with_barrier()) text.line(barrier());
      text.line("list_rows(place, sums, shared.list" + name + ");");
      if (groups_[at(which)] > 0)
        text.line("give_groups<" + number_text(groups_[at(which)]) + ">(team, shared.list" + name + ", " +
                  lists(which) + ", round + 1);");
      else
        text.line("merge_block(team, shared.list" + name + ", unit.values->totals" + name + ", " +
                  lists(which) + ", round + 1);");
    }
    text.close();
  }

  static std::string lists(int which) {
    return "team_lists<Sums" + number_text(which) + ">(a.team_list" + number_text(which) + ", team, round)";
  }
  static std::string collect(int which) {
    return "collect(team, shared.list" + number_text(which) + ", " + lists(which) + ", round + 1);";
  }

  // Whether the values of a unit are written before its first sweep is done, or after it without a barrier in between.
  bool begins_with_barrier() const {
    return has_channels(0) || step(cut_.first).kind != StepKind::kSweep || !has_statistics(0);
  }
  static std::string barrier() { return "__syncthreads();  // the readers of the unit before are done"; }

  static void write_parameters(Text& text, int which) {
    const std::string name = number_text(which);
    text.line("prepare_parameters<Sweep" + name + ">(a, unit, unit.values->channels" + name + ");");
  }

  bool hands_groups() const {
    return std::any_of(groups_.begin(), groups_.end(), [](std::int64_t group) { return group > 0; });
  }

  void write_unit_functions(Text& text) {
    const std::string arguments =
        "const Arguments& a, const Shares& shares, const Team& team, const Place& place, const Unit& unit,";
    const std::string rest = "Ring& ring, Shared& shared, unsigned int round) {";
    text.line(
        "// The plan's steps for one unit, the team's of number `round`: until its first sweep is done,");
    text.line("__device__ inline void begin_unit(" + arguments);
    text.open("                                  " + rest);
    if (begins_with_barrier()) text.line(barrier());
    if (has_channels(0)) write_parameters(text, 0);
    int number = cut_.first;
    for (; step(number).kind != StepKind::kSweep; ++number)
      if (has_finalise(number)) text.line("finalise_" + number_text(number) + "<Block>(a, unit, team);");
    if (number > cut_.first) text.line("__syncthreads();");
    write_pass(text, 0);
    // While the other blocks are waited for.
    for (int i = 1; i < sweep_count(); ++i)
      if (has_channels(i)) write_parameters(text, i);
    text.close();

    text.line("// the statistics of that sweep from all blocks of the team,");
    text.open(
        "__device__ inline void collect_unit(const Arguments& a, const Team& team, Shared& shared, unsigned "
        "int round) {");
    if (has_statistics(0) && groups_[0] == 0) text.line(collect(0));
    text.close();

    text.line("// and what follows.");
    text.line("__device__ inline void end_unit(" + arguments);
    text.open("                                " + rest);
    int which = 0;
    for (; number <= cut_.last; ++number) {
      if (step(number).kind == StepKind::kFinalise) {
        if (has_finalise(number)) text.line("finalise_" + number_text(number) + "<Block>(a, unit, team);");
        text.line("__syncthreads();");
        continue;
      }
      if (which > 0) write_pass(text, which);
      if (has_statistics(which)) {
        const std::int64_t group = groups_[at(which)];
        if (which > 0 && group == 0) text.line(collect(which));
        text.line((group > 0 ? "take_groups<" + number_text(group) + ">" : "take_totals") +
                  "(team, unit.values->totals" + number_text(which) + ", " + lists(which) + ", round + 1);");
        if (has_finalise(number)) text.line("finalise_" + number_text(number) + "<Block>(a, unit, team);");
      }
      ++which;
    }
    text.close();
  }

  // The same for the one unit of a cluster.
  void write_run_unit(Text& text) {
    text.line("// The plan's steps for the unit.");
    text.open(
        "__device__ inline void run_unit(const Arguments& a, const Team& team, const Place& place, const Unit& unit, "
        "Shared& shared) {");
    text.open("if (threadIdx.x == 0) {");
    for (int i = 0; i < sweep_count(); ++i)
      if (has_statistics(i))
        text.line("expect_parts(&shared.arrived" + number_text(i) + ", (int)sizeof(shared.parts" +
                  number_text(i) + "));");
    text.close();
    text.line("__syncwarp();");
    text.line("have_begun();");
    text.line("const Share share = share_of(a, team, place, unit);");
    text.line("const Inputs inputs = load_inputs(a, share.begin, share.row, share.end);");
    for (int i = 0; i < sweep_count(); ++i)
      if (has_channels(i))
        text.line("Channel" + number_text(i) + " channel" + number_text(i) + " = parameters_of<Sweep" +
                  number_text(i) + ">(a, unit);");
    int which = 0;
    bool begun = false;
    for (int number = cut_.first; number <= cut_.last; ++number) {
      if (step(number).kind == StepKind::kSweep) write_cluster_pass(text, which++, begun);
      if (has_finalise(number)) text.line("finalise_" + number_text(number) + "<Block>(a, unit, team);");
    }
    if (!begun) text.line("cluster::wait();");
    text.close();
  }

  // A sweep, and its statistics from all blocks. `begun`: those of the cluster have met.
  void write_cluster_pass(Text& text, int which, bool& begun) const {
    const std::string name = number_text(which);
    const std::string prepared =
        has_channels(which) ? "unit.values->" + channels_name(which) : "(Hoisted" + name + "*)0";
    if (has_channels(which))
      text.line("prepare<Sweep" + name + ">(a, unit, channel" + name + ", " + prepared + ");");
    text.open("{");
    text.line("VectorSums" + name + " sums;");
    text.line("sweep<Sweep" + name + ">(a, unit, place, share, inputs, " + prepared + ", sums);");
    if (has_statistics(which)) {
      if (!begun) text.line("cluster::wait();");
      begun = true;
      const std::string group = "<" + number_text(group_of(which)) + ">(";
      text.line("give_part" + group + "team, place, sums, shared.list" + name + ", shared.parts" + name + ", &shared.arrived" + name + ");");
      text.line("take_parts" + group + "shared.parts" + name + ", unit.values->totals" + name + ", &shared.arrived" + name + ");");
    }
    text.close();
  }

  SlicesConstants constants_;
  std::vector<PositionSteps> programs_;  // by sweep: what is the same at all positions, and the rest
  int ring_chunk_bytes_ = 0;
  std::vector<std::int64_t> groups_;  // by sweep: channels of what is handed over; 0: each by itself
  int unit_bytes_ = 0;                // of shared memory, for each unit under way
  int list_bytes_ = 0;
  std::vector<int> list_numbers_;
};

}  // namespace

SlicesText slices_text(const Schedule& schedule, const KernelCut& cut, const SlicesConstants& constants) {
  return SlicesWriter(schedule, cut, constants).run();
}

}  // namespace fuseblock::cuda
