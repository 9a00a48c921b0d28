#include "cuda/emit/slices_text.h"

#include <algorithm>

#include "cuda/emit/slice_writer.h"

namespace fuseblock::cuda {
namespace {

std::size_t at(int i) { return static_cast<std::size_t>(i); }
std::string number_text(std::int64_t number) { return std::to_string(number); }

constexpr int kLargestVectorBytes = 128;
// Blocks of a team, one or two a lane, and parts of all its groups that every block takes by itself.
constexpr int kMostMembers = 64;
constexpr std::int64_t kMostParts = 1280;

class SlicesWriter : public SliceWriter {
 public:
  SlicesWriter(const Schedule& schedule, const KernelCut& cut, const SlicesConstants& constants)
      : SliceWriter(schedule, cut, constants) {
    find_groups();
  }

  std::vector<int> part_groups() const {
    std::vector<int> found;
    for (int i = 0; i < sweep_count(); ++i)
      found.push_back(parts_[at(i)] ? static_cast<int>(cut_.unit_channels / groups_[at(i)]) : 0);
    return found;
  }

 private:
  // Groups whose statistics the team's blocks hand over in place of those of channels: few of them, and lists in turn that who
  // writes knows to be read.
  void find_groups() {
    merged_place_ = "c";
    for (int i = 0; i < sweep_count(); ++i) {
      const std::int64_t group = constants_.ahead ? 0 : common_group(i);
      parts_.push_back(hands_parts(i, group));
      const bool groups =
          parts_.back() || (group > 0 && few_parts(constants_.team, cut_.unit_channels / group));
      groups_.push_back(groups ? group : 0);
      unit_sums_.push_back(groups);
    }
    find_local_values();
  }

  // Whether a sweep's statistics are handed over as device/slices_parts.cuh does it, whatever the team.
  bool hands_parts(int i, std::int64_t group) const {
    const std::vector<const Sink*> taken = statistics_of(i);
    return in_registers() && group > 0 && single_ && constants_.row_positions == 1 && taken.size() == 1 &&
           part(taken[0]->part).statistic == Statistic::kMoments &&
           cut_.unit_channels / group <= constants_.threads;
  }
  bool has_parts() const { return std::find(parts_.begin(), parts_.end(), true) != parts_.end(); }

  int list_slots() const override {
    return has_parts() ? part_slots(static_cast<int>(groups_[0])) : SliceWriter::list_slots();
  }

  std::string name() const override { return "slices"; }

  Constants constants(int shared_bytes, bool tail) const override {
    Constants all = {{"kThreads", number_text(constants_.threads)},
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
                     {"kDealt", constants_.dealt ? "1" : "0"},
                     {"kCounterWords", number_text(kDealtCounterBytes / 4)},
                     {"kAhead", constants_.ahead ? "1" : "0"},
                     {"kListSlots", number_text(list_slots())},
                     {"kSharedBytes", number_text(shared_bytes)},
                     {"kTail", tail ? "1" : "0"},
                     {"k16Bit", writes_16_bit() ? "1" : "0"},
                     {"kFirstDistance", "1"},
                     {"kEndDistance", "32"}};
    if (in_registers()) {
      all.emplace_back("kRegisters", number_text(constants_.registers));
      all.emplace_back("kLead", number_text(constants_.lead));
      all.emplace_back("kTagged", has_parts() ? "1" : "0");
      all.emplace_back("kPacked", constants_.packed ? "1" : "0");
    }
    return all;
  }

  bool in_registers() const { return constants_.registers > 0; }

  std::vector<std::string> first_files() const override {
    std::vector<std::string> found = {
        "types.cuh",        "functions.cuh",
        "statistics.cuh",   "vector_statistics.cuh",
        "copies.cuh",       "team.cuh",
        "crew.cuh",         constants_.packed ? "slices_rows_packed.cuh" : "slices_rows.cuh",
        "slices_place.cuh", constants_.packed ? "slices_thread_packed.cuh" : "slices_thread.cuh"};
    if (has_parts()) found.emplace_back("tagged.cuh");
    return found;
  }
  std::vector<std::string> files() const override {
    std::vector<std::string> found = {"slices.cuh"};
    if (hands_groups() && !has_parts()) found.emplace_back("slices_groups.cuh");
    if (in_registers()) found.emplace_back("slices_registers.cuh");
    if (has_parts()) {
      found.emplace_back("group_lists.cuh");
      found.emplace_back("slices_parts.cuh");
    }
    return found;
  }
  std::string kernel_file() const override { return in_registers() ? "slices_registers.cu" : "slices.cu"; }

  void add_scalars() override {
    for (const char* name : {"units", "positions", "height", "width", "team", "steps", "kept"})
      scalar("long long", name);
    scalar("unsigned int*", "finished");
    scalar("unsigned int*", "dealt");
    if (has_parts()) scalar("long long", "tag");
    for (int i = 0; i < sweep_count(); ++i)
      if (has_statistics(i)) scalar(has_parts() ? "tagged::Words*" : "uint2*", "team_list" + number_text(i));
  }

  void write_more_sums(Text& text, const std::string& name,
                       const std::vector<const Sink*>& taken) const override {
    if (has_parts()) write_merge_all(text, name, taken);
  }

  void write_reading(Text& text) override {
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

  // Piece i of an input in the thread's column of a slot. `slot` is where the smallest vector of this thread would lie.
  std::string column(int input, int place) const {
    const int bytes = vector_bytes(input);
    const int more = bytes - column_bytes();
    std::string address = "slot + " + number_text(place) + " * kThreads";
    if (more > 0) address += " + " + number_text(more) + " * threadIdx.x";
    return address + " + i * kThreads * " + number_text(bytes);
  }
  int column_bytes() const {
    int smallest = kLargestVectorBytes;
    for (int input : ring_) smallest = std::min(smallest, vector_bytes(input));
    return smallest;
  }

  void write_prepared(Text& text) override {
    for (int i = 0; i < sweep_count(); ++i)
      if (has_channels(i))
        text.line("Channel" + number_text(i) + " channels" + number_text(i) + "[kUnitChannels];");
  }
  void write_shared(Text& text) override {
    text.line("// Those of the units under way, and the block's list of each sweep.");
    text.open("struct Shared {");
    text.line("UnitValues values[1 + kAhead];");
    for (int i = 0; i < sweep_count(); ++i)
      if (has_statistics(i)) text.line("Sums" + number_text(i) + " list" + number_text(i) + "[kListSlots];");
    text.close("};");
    text.line("static_assert(sizeof(Shared) <= kSharedBytes, \"the planner's count of shared memory\");");
  }

  std::string vector_sums() const override { return "OfVector"; }
  std::string sweep_constant(int i) const override {
    return std::string("kStatistics = ") + (has_statistics(i) ? "true" : "false");
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
    if (in_registers())
      text.line(std::string("registers::") + (which == 0 ? "first" : "last") + "_sweep<Sweep" + name +
                ">(a, shares, team, place, unit, ring, held, " + prepared + ", sums);");
    else
      text.line("sweep<Sweep" + name + ", " + name + ">(a, shares, team, place, unit, ring, " + prepared +
                ", sums);");
    if (has_statistics(which) && parts_[at(which)]) {
      text.line("parts::list_groups<" + number_text(groups_[at(which)]) + ">(sums, shared.list" + name +
                ");");
      text.line("parts::give<" + of_parts(which) + ">(a, team, shared.list" + name + ", unit.values->totals" +
                name + ", " + parts_list(which) + ");");
    } else if (has_statistics(which)) {
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

  // The channels of a group and the blocks of the team; the unit's list of parts.
  std::string of_parts(int which) const {
    return number_text(groups_[at(which)]) + ", " + number_text(constants_.team);
  }
  std::string parts_list(int which) const {
    return "parts::list_of<" + number_text(groups_[at(which)]) + ">(a.team_list" + number_text(which) +
           ", team, round)";
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

  void write_unit_functions(Text& text) override {
    const std::string arguments =
        "const Arguments& a, const Shares& shares, const Team& team, const Place& place, const Unit& unit,";
    const std::string rest = std::string("Ring& ring, ") + (in_registers() ? "registers::Held& held, " : "") +
                             "Shared& shared, unsigned int round) {";
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
        if (parts_[at(which)])
          text.line("parts::take<" + of_parts(which) + ">(a, " + parts_list(which) + ", shared.list" +
                    number_text(which) + ", unit.values->totals" + number_text(which) + ");");
        else
          text.line((group > 0 ? "take_groups<" + number_text(group) + ", " +
                                     number_text((constants_.team + 31) / 32) + ">"
                               : "take_totals") +
                    "(team, unit.values->totals" + number_text(which) + ", " + lists(which) +
                    ", round + 1);");
        if (has_finalise(number)) text.line("finalise_" + number_text(number) + "<Block>(a, unit, team);");
      }
      ++which;
    }
    text.close();
  }

  std::vector<bool> parts_;  // by sweep: whether its statistics are handed over by device/slices_parts.cuh
};

}  // namespace

int slices_lists(const SlicesConstants& constants, int columns) {
  if (constants.packed) return constants.threads / columns;
  const int row_warps = (columns + 31) / 32;
  return constants.threads / 32 / row_warps;
}

bool few_parts(std::int64_t team, std::int64_t groups) {
  return team > 1 && team <= kMostMembers && groups * team <= kMostParts;
}

SlicesText slices_text(const Schedule& schedule, const KernelCut& cut, const SlicesConstants& constants) {
  if (constants.cluster > 1) return slices_cluster_text(schedule, cut, constants);
  if (constants.whole) return slices_whole_text(schedule, cut, constants);
  SlicesWriter writer(schedule, cut, constants);
  SlicesText text = writer.run();
  text.part_groups = writer.part_groups();
  text.tagged =
      std::any_of(text.part_groups.begin(), text.part_groups.end(), [](int groups) { return groups > 0; });
  return text;
}

}  // namespace fuseblock::cuda
