#include "cuda/emit/rows_text.h"

#include <algorithm>

#include "cuda/emit/rounded_products.h"
#include "cuda/emit/sums_text.h"
#include "cuda/emit/unit_text.h"

namespace fuseblock::cuda {
namespace {

std::size_t at(int i) { return static_cast<std::size_t>(i); }
std::string number_text(std::int64_t number) { return std::to_string(number); }

class RowsWriter : UnitWriter {
 public:
  RowsWriter(const Schedule& schedule, const KernelCut& cut, const RowsConstants& constants)
      : UnitWriter(schedule, cut), constants_(constants) {
    find_unit_sums();
    if (constants.ring > 0) find_ring();
    for (int input : ring_) ring_vector_bytes_ += vector_bytes(input);
  }

  RowsText run() {
    Text structs;
    for (int i = 0; i < sweep_count(); ++i) write_sums(structs, i);
    Text inputs;
    write_inputs(inputs);
    Text values;
    write_unit_values(values);
    Text programs;
    for (int i = 0; i < sweep_count(); ++i) write_sweep(programs, i);
    write_finalise_units(programs);
    const std::vector<int> outputs = statistic_outputs(cut_.remaining, true);
    const bool tail = !cut_.remaining.empty() || !outputs.empty();
    if (tail) write_finalise_all(programs, cut_.remaining, outputs);
    write_run_units(programs, tail);

    scalar("long long", "rounds");
    scalar("long long", "rest");
    scalar("long long", "positions");
    scalar("long long", "height");
    scalar("long long", "width");
    scalar("long long", "team");
    scalar("long long", "steps");
    scalar("long long", "again");
    scalar("long long", "lead");
    if (tail) scalar("unsigned int*", "finished");
    if (is_ahead()) scalar("long long", "tag");
    for (int i = 0; i < sweep_count(); ++i)
      if (has_statistics(i) && constants_.cluster == 1)
        scalar(is_ahead() ? "tagged::Words*" : "uint2*", "team_list" + number_text(i));

    shared_bytes_ = (shared_bytes_ + 127) / 128 * 128;
    std::string text = head({{"kThreads", number_text(constants_.threads)},
                             {"kWarps", "kThreads / 32"},
                             {"kBlocks", number_text(constants_.blocks)},
                             {"kCluster", number_text(constants_.cluster)},
                             {"kVector", number_text(constants_.vector)},
                             {"kPieces", number_text(constants_.pieces)},
                             {"kElements", "kVector"},
                             {"kRing", number_text(constants_.ring)},
                             {"kRingBytes", number_text(ring_vector_bytes_) + " * kThreads"},
                             {"kChannels", number_text(domain_[1])},
                             {"kUnitChannels", number_text(cut_.unit_channels)},
                             {"kSharedBytes", number_text(shared_bytes_)},
                             {"kAgain", constants_.again ? "1" : "0"},
                             {"kWhole", whole_chunks() ? "1" : "0"},
                             {"k16Bit", writes_16_bit() ? "1" : "0"},
                             {"kFirstDistance", "1"},
                             {"kEndDistance", "32"}});
    if (is_ahead())
      text += "constexpr int kAhead = " + number_text(constants_.ahead) +
              ";\nconstexpr int kApart = " + (constants_.apart ? "1" : "0") +
              ";\nconstexpr int kHeld = " + number_text(constants_.held) +
              ";\nconstexpr int kBegun = " + number_text(begun()) + ";\n";
    const double elements = static_cast<double>(cut_.unit_channels) * static_cast<double>(domain_[2]) *
                            static_cast<double>(domain_[3]) * static_cast<double>(domain_[4]);
    text += elements < 1e9 ? "typedef int Count;\n" : "typedef long long Count;\n";
    for (const char* file : {"types.cuh", "functions.cuh", "statistics.cuh", "running.cuh", "copies.cuh",
                             "pieces.cuh", "team.cuh", "crew.cuh"})
      text += "\n" + device_file(file);
    if (is_ahead())
      for (const char* file : handover_files()) text += "\n" + device_file(file);
    text += "\n" + structs.str() + "\n" + arguments_struct() + "\n" + inputs.str() + "\n" + values.str();
    for (const char* file :
         {"rows.cuh", lanes_apart() ? "rows_lanes.cuh" : "rows_visit.cuh", "rows_sweeps.cuh"})
      text += "\n" + device_file(file);
    if (is_ahead())
      text += "\n" + device_file("rows_ahead_statistics.cuh") + "\n" + device_file("rows_ahead.cuh");
    text +=
        "\n" + with_functions(programs.str()) + "\n" + device_file(is_ahead() ? "rows_ahead.cu" : "rows.cu");
    RowsText result;
    result.kernel = finish("rows", std::move(text));
    result.ring_inputs = static_cast<int>(ring_.size());
    result.ring_vector_bytes = ring_vector_bytes_;
    result.shared_bytes = shared_bytes_;
    result.tail = tail;
    result.list_numbers = list_numbers_;
    result.without_barriers = without_barriers();
    return result;
  }

 private:
  // Whether a sweep does something else where a channel ends.
  bool by_channel(int i) const {
    if (has_channels(i) || (has_statistics(i) && !of_unit(i))) return true;
    return std::any_of(sweep(i).inputs.begin(), sweep(i).inputs.end(),
                       [&](int input) { return is_direct(input); });
  }

  // Whether every chunk is whole, and of one channel.
  bool whole_chunks() const {
    const std::int64_t positions = domain_[2] * domain_[3] * domain_[4];
    return constants_.ring > 0 && positions % (std::int64_t{32} * constants_.vector * constants_.pieces) == 0;
  }

  // Whether every lane may be at a channel of its own: channels end inside of chunks and not inside of vectors, and
  // nobody asks for their statistics.
  bool lanes_apart() const {
    const std::int64_t positions = domain_[2] * domain_[3] * domain_[4];
    if (constants_.ring == 0 || whole_chunks() || positions % constants_.vector != 0) return false;
    for (int i = 0; i < sweep_count(); ++i)
      if (has_statistics(i) && !of_unit(i)) return false;
    return true;
  }

  // Whether warps can go on without barriers (device/rows_ahead.cuh): one warp works a unit's statistics out, and nothing is
  // taken before the first sweep or behind the last.
  bool without_barriers() const {
    if (sweep_count() != 2 || constants_.ring == 0 || !by_first_warp(0) || has_statistics(1)) return false;
    Text around;
    write_begin(around, "unit");
    write_end(around);
    return around.str().empty();
  }
  bool is_ahead() const { return constants_.ahead > 0; }
  // How blocks of a team, and warps of a block, hand a unit to each other then.
  std::vector<const char*> handover_files() const {
    if (constants_.barriers) return {"tagged.cuh", "arrivals.cuh", "rows_ahead_barriers.cuh"};
    return {"tagged.cuh", "rows_ahead_counts.cuh"};
  }
  // Copies of a thread that begin at once.
  int begun() const {
    return constants_.begun > 0 ? std::min(constants_.begun, constants_.ring) : constants_.ring;
  }

  // The types of a sweep's statistics and of its channels' values, or those of none.
  std::string sums_type(int i) const { return has_statistics(i) ? "Sums" + number_text(i) : "NoSums"; }
  std::string channel_type(int i) const { return has_channels(i) ? "Channel" + number_text(i) : "NoChannel"; }

  void write_sums(Text& text, int i) {
    std::vector<const Sink*> taken;
    for (const Sink& sink : sweep(i).sinks)
      if (sink.kind == SinkKind::kStatistic) taken.push_back(&sink);
    const std::string name = number_text(i);
    write_channel_struct(text, i);
    shared_bytes_ += (single_ ? 4 : 8) * static_cast<int>(channel_inputs(i).size() *
                                                          static_cast<std::size_t>(cut_.unit_channels)) +
                     16;
    std::vector<TakenStatistic> statistics;
    for (const Sink* sink : taken)
      statistics.push_back(
          {"s" + number_text(sink->part), statistic_type(sink->part, "real"), result_number(i, sink->step)});
    if (!statistics.empty())
      write_sums_structs(text, name, of_unit(i), statistics, static_cast<int>(results_of(i).size()));
    int numbers = 0;
    for (const Sink* sink : taken) numbers += state_numbers(part(sink->part).statistic);
    list_numbers_.push_back(numbers);
    const int warps = constants_.threads / 32;
    const int channels = of_unit(i) ? 1 : static_cast<int>(cut_.unit_channels);
    shared_bytes_ += numbers * 8 * channels + 16;
    shared_bytes_ += (numbers == 0 ? 16 : numbers * (single_ ? 4 : 8) * (channels + warps)) + 16;
    // Where the team is a cluster.
    shared_bytes_ += numbers * (single_ ? 4 : 8) * channels + 16;
  }

  void write_inputs(Text& text) {
    text.line(
        "// Vectors of each value in the ring: those at `offset` in the tensors, which is `element` of the "
        "unit.");
    text.open("struct Inputs {");
    if (ring_.empty()) text.line("int nothing;");
    for (int input : ring_)
      text.line("Vector<" + element_name(element_type(input)) + "> " + names_[at(input)] + "[kPieces];");
    text.close("};");
    text.line(
        "__device__ inline void copy_inputs(const Arguments& a, long long offset, Count element, Count "
        "elements,");
    text.open("                                   unsigned int slot) {");
    int offset = 0;
    for (int input : ring_) {
      text.line("copy_pieces(" + slot_text(offset) + ", " + tensor(input) +
                ".data + offset, element, elements);");
      offset += vector_bytes(input);
    }
    text.close();
    text.open("__device__ inline Inputs ring_inputs(unsigned int slot) {");
    text.line(ring_.empty() ? "Inputs inputs = {};" : "Inputs inputs;");
    offset = 0;
    for (int input : ring_) {
      text.line("ring_pieces(" + slot_text(offset) + ", inputs." + names_[at(input)] + ");");
      offset += vector_bytes(input);
    }
    text.line("return inputs;");
    text.close();
    text.line("__device__ inline Inputs read_inputs(const Arguments& a, long long offset, Count element,");
    text.open("                                     Count elements) {");
    text.line(ring_.empty() ? "Inputs inputs = {};" : "Inputs inputs;");
    for (int input : ring_)
      text.line("read_pieces(" + tensor(input) + ".data + offset, element, elements, inputs." +
                names_[at(input)] + ");");
    text.line("return inputs;");
    text.close();
  }

  static std::string slot_text(int offset) {
    return offset == 0 ? "slot" : "slot + " + number_text(offset) + " * kThreads";
  }

  // Of a thread, all pieces.
  int vector_bytes(int input) const {
    return constants_.pieces * constants_.vector * static_cast<int>(byte_size(element_type(input)));
  }

  void write_unit_values(Text& text) {
    text.line("// Statistics of one unit, one number for each of its channels.");
    text.open("struct UnitValues {");
    for (int i = 0; i < sweep_count(); ++i)
      if (has_statistics(i))
        text.line("Sums" + number_text(i) + " totals" + number_text(i) + "[Sums" + number_text(i) +
                  "::kChannels];");
    shared_bytes_ += write_unit_members(text);
    for (int i = 0; i < sweep_count(); ++i)
      if (has_channels(i))
        text.line("Channel" + number_text(i) + " channels" + number_text(i) + "[kUnitChannels];");
    text.close("};");
    text.open("struct Shared {");
    text.line(std::string("UnitValues values[") + (is_ahead() ? "kAhead + 1" : "2") + "];");
    for (int i = 0; i < sweep_count(); ++i)
      if (has_statistics(i))
        text.line("Sums" + number_text(i) + " list" + number_text(i) + (is_ahead() ? "[kAhead]" : "[2]") +
                  "[Sums" + number_text(i) + "::kChannels + kWarps];");
    for (int i = 0; i < sweep_count(); ++i)
      if (has_statistics(i) && constants_.cluster > 1)
        text.line("Sums" + number_text(i) + " team" + number_text(i) + "[2][Sums" + number_text(i) +
                  "::kChannels];");
    if (is_ahead()) text.line("Handover handover;");
    text.close("};");
    text.line("static_assert(sizeof(Shared) <= kSharedBytes, \"the planner's count of shared memory\");");
    // As many of everything.
    shared_bytes_ = std::max(2, constants_.ahead + 1) * shared_bytes_ + 64;
  }

  void write_sweep(Text& text, int i) {
    const Sweep& which = sweep(i);
    const std::string name = number_text(i);
    text.line("// Sweep " + name + ": " + narrator_.source(which));
    for (const std::string& line : narrator_.program(which)) text.line("//   " + line);
    for (const Sink& sink : which.sinks) text.line("//   -> " + narrator_.sink(sink));
    text.open("struct Sweep" + name + " {");
    text.line("typedef " + sums_type(i) + " Sums;");
    text.line("typedef " + (has_statistics(i) ? "Running" + name : sums_type(i)) + " Running;");
    text.line("typedef " + channel_type(i) + " Channel;");
    text.line("static constexpr int kResults = " + number_text(static_cast<int>(results_of(i).size())) + ";");
    text.line(std::string("static constexpr bool kByChannel = ") + (by_channel(i) ? "true" : "false") +
              ", kStatistics = " + (has_statistics(i) ? "true;" : "false;"));
    write_channel_functions(text, i);
    write_program(text, i);
    write_stores(text, i);
    text.close("};");
  }

  void write_program(Text& text, int i) {
    const Sweep& which = sweep(i);
    text.open(
        "static __device__ void program(const Arguments& a, const Channel& channel, const Inputs& inputs, "
        "int piece,");
    text.line("                                  int i, const Unit& unit, int c, Count position,");
    text.line("                                  real (&results)[kResults][kVector]) {");
    bool placed = false;
    for (int input : which.inputs) {
      placed = placed || is_direct(input);
      if (in_ring(input))
        text.line("const real " + names_[at(input)] + " = element_at(inputs." + names_[at(input)] +
                  "[piece], i);");
    }
    if (placed)
      text.line("const Position at = position_at(position, " + scalar("long long", "height") + ", " +
                scalar("long long", "width") + ");");
    const std::vector<std::int32_t> steps = results_of(i);
    const std::vector<std::string> names =
        write_nested(text, which.steps,
                     [&](int input) -> std::string {
                       const int from = which.inputs[at(input)];
                       if (in_ring(from)) return names_[at(from)];
                       if (!is_direct(from)) return "channel." + channel_name(i, input);
                       return "to_real(" + tensor(from) + ".data[offset_at(" + tensor(from) +
                              ", unit.n, unit.first_channel + c, at)])";
                     },
                     "real", single_, steps, {rounded_products(schedule_, which), !writes_16_bit()});
    for (std::size_t k = 0; k < steps.size(); ++k)
      text.line("results[" + std::to_string(k) + "][i] = " + names[at(steps[k])] + ";");
    text.close();
  }

  void write_stores(Text& text, int i) {
    const Sweep& which = sweep(i);
    text.line(
        "static __device__ void store(const Arguments& a, const Shares& shares, const Unit& unit, Count "
        "element,");
    text.open("                             long long offset, const real (&results)[kResults][kVector]) {");
    bool stores = false;
    for (const Sink& sink : which.sinks) stores = stores || sink.kind == SinkKind::kStore;
    if (stores && constants_.ring == 0) {
      text.line("const Count c = element / shares.positions;");
      text.line("const Position at = position_at(element - c * shares.positions, " +
                scalar("long long", "height") + ", " + scalar("long long", "width") + ");");
    }
    for (const Sink& sink : which.sinks) {
      if (sink.kind != SinkKind::kStore) continue;
      const std::string to = tensor(sink.slots[0]);
      const std::string result = "results[" + number_text(result_number(i, sink.step)) + "]";
      if (constants_.ring == 0)
        text.line("assign(" + to + ".data[offset_at(" + to + ", unit.n, unit.first_channel + c, at)], " +
                  result + "[0]);");
      else
        text.line("store_vector(" + to + ".data + offset, " + result + ");");
    }
    text.close();
  }

  // The step of the schedule that a sweep is.
  int step_of(int which) const {
    for (int i = cut_.first; i <= cut_.last; ++i) {
      if (step(i).kind != StepKind::kSweep) continue;
      if (which == 0) return i;
      --which;
    }
    throw InternalError("a sweep that the kernel does not have");
  }

  // Whether a unit's last statistics are worked out by one warp while the others begin the next unit.
  bool trails() const {
    return has_statistics(sweep_count() - 1) && cut_.unit_channels <= 64 && constants_.cluster == 1;
  }

  std::string channels_text(int which, const std::string& unit) const {
    return has_channels(which) ? unit + ".values->channels" + number_text(which) : "(NoChannel*)0";
  }
  static std::string turn_text(const std::string& round) {
    return (round == "round" ? round : "(" + round + ")") + " % 2";
  }
  std::string list_text(int which, const std::string& round) const {
    return has_statistics(which) ? "shared.list" + number_text(which) + "[" + turn_text(round) + "]"
                                 : "(NoSums*)0";
  }
  std::string walk_text(int which, const std::string& unit, const std::string& round) const {
    return "begin_walk<Sweep" + number_text(which) + ">(shares, " + unit + ", " + channels_text(which, unit) +
           ", " + list_text(which, round) + ")";
  }
  // Lists in turn: who writes the next but one knows that this one is read.
  std::string team_list_text(int which, const std::string& unit, const std::string& round) const {
    const std::string name = number_text(which);
    if (!has_statistics(which)) return "TeamList<NoSums>{}";
    const std::string totals = unit + ".values->totals" + name;
    if (constants_.cluster > 1)
      return "cluster_list(" + totals + ", shared.team" + name + "[" + turn_text(round) + "])";
    return "team_list(" + totals + ", a.team_list" + name + ", team, " + round + ")";
  }
  void write_give(Text& text, int which, const std::string& function) const {
    text.line(function + "(shares, team, " + list_text(which, "round") + ", " +
              team_list_text(which, "unit", "round") + ");");
  }
  // The sweep's statistics, and the finalise steps behind it.
  void write_take(Text& text, int which, const std::string& crew) const {
    text.line("take_statistics<" + crew + ">(shares, team, " + team_list_text(which, "unit", "round") + ");");
    if (has_finalise(step_of(which)))
      text.line("finalise_" + number_text(step_of(which)) + "<" + crew + ">(a, unit, team);");
  }
  void write_finalise_behind(Text& text, int which, const std::string& crew) const {
    const int end = which + 1 < sweep_count() ? step_of(which + 1) : cut_.last + 1;
    for (int i = step_of(which) + 1; i < end; ++i)
      if (has_finalise(i)) text.line("finalise_" + number_text(i) + "<" + crew + ">(a, unit, team);");
  }

  void write_prepare(Text& text, const std::string& what, const std::string& crew, int which,
                     const std::string& unit, const std::string& indent = "") const {
    if (!has_channels(which)) return;
    const std::string name = number_text(which);
    text.line(indent + "prepare_" + what + "<" + crew + ", Sweep" + name + ">(a, " + unit + ", " + unit +
              ".values->channels" + name + ");");
  }

  // Whether the first warp alone works the statistics of a sweep out.
  bool by_first_warp(int which) const {
    return has_statistics(which) && of_unit(which) && cut_.unit_channels <= 128;
  }

  // What a unit's first sweep needs beforehand.
  void write_begin(Text& text, const std::string& unit) const {
    for (int i = cut_.first; i < step_of(0); ++i)
      if (has_finalise(i)) text.line("finalise_" + number_text(i) + "<Block>(a, " + unit + ", team);");
    if (!has_channels(0)) return;
    write_prepare(text, "parameters", "Block", 0, unit);
    write_prepare(text, "statistics", "Block", 0, unit);
    text.line("__syncthreads();");
  }

  // Behind the last sweep.
  void write_end(Text& text) const {
    const int last = sweep_count() - 1;
    const std::string crew = trails() ? "Warp" : "Block";
    if (trails()) {
      text.line("__syncthreads();");
      text.open("if ((int)threadIdx.x / 32 == round % kWarps) {");
    }
    if (has_statistics(last)) {
      write_give(text, last, trails() ? "give_statistics<Warp>" : "give_by_block");
      if (constants_.cluster > 1) text.line("cluster::wait();");
      write_take(text, last, crew);
    }
    write_finalise_behind(text, last, crew);
    if (trails()) text.close();
  }

  void write_run_units(Text& text, bool tail) const {
    if (is_ahead()) write_values(text);
    text.line("// The plan's steps for the units that the team takes in turn.");
    const std::string shares = is_ahead() ? "SharesAhead" : "Shares";
    text.line("__device__ inline void run_units(const Arguments& a, const " + shares +
              "& shares, const Team& team, " + (is_ahead() ? "RingAhead" : "Ring") + "& ring,");
    text.open("                                 Shared& shared, int rounds) {");
    if (sweep_count() == 1)
      write_single_sweep(text);
    else if (is_ahead())
      write_sweeps_ahead(text);
    else
      write_several_sweeps(text);
    if (constants_.cluster > 1) text.line("cluster::leave();");
    if (tail) text.line("if (grid::is_last_block(a.finished)) finalise_all(a);");
    text.close();
  }

  void write_single_sweep(Text& text) const {
    text.open("for (int round = 0; round < rounds; ++round) {");
    text.line("const Unit unit = unit_of_round(shares, team, round, shared);");
    write_begin(text, "unit");
    text.line("Walk<Sweep0> walk = " + walk_text(0, "unit", "round") + ";");
    text.line("sweep_first<true>(a, shares, team, ring, walk);");
    write_end(text);
    text.close();
  }

  void write_several_sweeps(Text& text) const {
    const int last = sweep_count() - 1;
    text.open("{");
    text.line("constexpr int round = 0;");
    text.line("const Unit unit = unit_of_round(shares, team, round, shared);");
    write_begin(text, "unit");
    text.line("Walk<Sweep0> walk = " + walk_text(0, "unit", "round") + ";");
    text.line("sweep_first<false>(a, shares, team, ring, walk);");
    if (has_statistics(0)) write_give(text, 0, "give_by_block");
    if (by_first_warp(0) && has_channels(1)) {
      text.line("if (is_first_warp())");
      write_prepare(text, "parameters", "Warp", 1, "unit", "  ");
    }
    text.close();
    text.open("for (int round = 0; round < rounds; ++round) {");
    text.line("const Unit unit = unit_of_round(shares, team, round, shared);");
    for (int which = 0; which < last; ++which) {
      if (which > 0) {
        text.open("{");
        text.line("Walk<Sweep" + number_text(which) + "> walk = " + walk_text(which, "unit", "round") + ";");
        text.line("sweep_between(a, shares, ring, walk);");
        text.close();
        if (has_statistics(which)) write_give(text, which, "give_by_block");
      }
      write_between(text, which);
    }
    text.line("const bool has_next = round + 1 < rounds;");
    text.line("const Unit following = unit_of_round(shares, team, round + 1, shared);");
    Text begin;
    write_begin(begin, "following");
    if (!begin.str().empty()) {
      text.open("if (has_next) {");
      write_begin(text, "following");
      text.close();
    }
    if (by_first_warp(0) && has_channels(1)) {
      text.line("if (has_next && is_first_warp())");
      write_prepare(text, "parameters", "Warp", 1, "following", "  ");
    }
    text.line("Walk<Sweep" + number_text(last) + "> walk = " + walk_text(last, "unit", "round") + ";");
    text.line("Walk<Sweep0> next = " + walk_text(0, "following", "round + 1") + ";");
    text.line("sweep_last(a, shares, team, ring, walk, next, has_next, " +
              team_list_text(0, "following", "round + 1") + ");");
    write_end(text);
    text.close();
  }

  // What a warp does that works a unit's values out.
  void write_values(Text& text) const {
    std::vector<std::string> names;
    for (const Sink& sink : sweep(0).sinks)
      if (sink.kind == SinkKind::kStatistic) names.push_back("s" + number_text(sink.part));
    write_sums_of_warp(text, names);
    text.line("// What the last sweep takes of a round's unit, by the taker.");
    text.open("struct Values {");
    text.line("static __device__ void work_out(const Arguments& a, const Shares& shares, const Team& team,");
    text.open("                                Shared& shared, int round) {");
    text.line("const Unit unit = unit_in_turn(shares, team, round, shared);");
    if (has_channels(1)) text.line("touch_parameters<Warp, Sweep1>(a, unit);");
    text.line("shared.handover.await_given(round);");
    write_prepare(text, "parameters", "Warp", 1, "unit");
    text.line("take_by_warp(team, list_in_turn(a, unit.values->totals0, team, round));");
    if (has_finalise(step_of(0))) text.line("finalise_" + number_text(step_of(0)) + "<Warp>(a, unit, team);");
    write_finalise_behind(text, 0, "Warp");
    write_prepare(text, "statistics", "Warp", 1, "unit");
    text.line("shared.handover.end(round);");
    text.close();
    text.line("static __device__ const " + channel_type(1) + "* channels(const Unit& unit) { return " +
              channels_text(1, "unit") + "; }");
    text.close("};");
  }
  // Two sweeps, the first one kAhead units ahead of the last and some chunks more.
  void write_sweeps_ahead(Text& text) const {
    text.line("begin_rounds(shared);");
    text.open("if (is_taker()) {");
    text.line("fetch_lists<Sums0>(a, team);");
    text.line(
        "for (int round = 0; round < rounds; ++round) Values::work_out(a, shares, team, shared, round);");
    text.line("return;");
    text.close();
    text.line("sweep_rounds<Values, Sweep1, Sweep0>(a, shares, team, ring, shared, rounds);");
  }

  // From the end of a sweep to the beginning of the next one. What tensors give to that is fetched while the other blocks
  // are waited for, or a round before.
  void write_between(Text& text, int which) const {
    if (has_statistics(which) && constants_.cluster > 1) text.line("cluster::wait();");
    const std::string crew = by_first_warp(which) ? "Warp" : "Block";
    if (by_first_warp(which)) text.open("if (is_first_warp()) {");
    if (which != 0 || !by_first_warp(0)) write_prepare(text, "parameters", crew, which + 1, "unit");
    if (has_statistics(which)) write_take(text, which, crew);
    write_finalise_behind(text, which, crew);
    write_prepare(text, "statistics", crew, which + 1, "unit");
    if (by_first_warp(which)) text.close();
    text.line("__syncthreads();");
  }

  RowsConstants constants_;
  int ring_vector_bytes_ = 0;
  int shared_bytes_ = 0;
  std::vector<int> list_numbers_;
};

}  // namespace

RowsText rows_text(const Schedule& schedule, const KernelCut& cut, const RowsConstants& constants) {
  return RowsWriter(schedule, cut, constants).run();
}

}  // namespace fuseblock::cuda
