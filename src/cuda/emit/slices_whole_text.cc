// The text of a kernel `slices_whole`.
#include <algorithm>

#include "cuda/emit/slice_writer.h"

namespace fuseblock::cuda {
namespace {

std::size_t at(int i) { return static_cast<std::size_t>(i); }
std::string number_text(std::int64_t number) { return std::to_string(number); }

class WholeWriter : public SliceWriter {
 public:
  WholeWriter(const Schedule& schedule, const KernelCut& cut, const SlicesConstants& constants)
      : SliceWriter(schedule, cut, constants) {
    merged_place_ = "c";
    for (int i = 0; i < sweep_count(); ++i) {
      groups_.push_back(common_group(i));
      unit_sums_.push_back(groups_.back() > 0);
    }
    find_local_values();
  }

  // Whether there is such a kernel: two sweeps over one tensor, the first of which takes moments of groups, the second none, and nothing is
  // worked out before or behind them.
  bool takes() const {
    if (sweep_count() != 2 || !single_ || ring_.size() != 1 || groups_[0] == 0 || has_statistics(1))
      return false;
    const std::vector<const Sink*> taken = statistics_of(0);
    if (taken.size() != 1 || part(taken[0]->part).statistic != Statistic::kMoments || has_channels(0) ||
        !has_channels(1))
      return false;
    return cut_.remaining.empty() && statistic_outputs(cut_.remaining, true).empty() &&
           step(cut_.first).kind == StepKind::kSweep && step(cut_.last).kind == StepKind::kSweep;
  }
  std::vector<int> part_groups() const {
    return {static_cast<int>(cut_.unit_channels / std::max<std::int64_t>(groups_[0], 1)), 0};
  }

 private:
  std::string name() const override { return "slices_whole"; }
  int list_slots() const override {
    return part_slots(static_cast<int>(std::max<std::int64_t>(groups_[0], 1)));
  }
  bool goes_by_vectors() const override { return true; }

  Constants constants(int shared_bytes, bool /*tail*/) const override {
    return {{"kThreads", number_text(constants_.threads)},
            {"kWarps", "kThreads / 32"},
            {"kTeam", number_text(constants_.team)},
            {"kVector", number_text(constants_.vector)},
            {"kPieces", number_text(constants_.registers)},
            {"kElements", "1"},
            {"kRegisters", "kPieces"},
            {"kRing", number_text(constants_.ring)},
            {"kRingBytes", number_text(ring_chunk_bytes_) + " * kThreads"},
            {"kChannels", number_text(domain_[1])},
            {"kUnitChannels", "kChannels"},
            {"kRowPositions", "1"},
            {"kListSlots", number_text(list_slots())},
            {"kSharedBytes", number_text(shared_bytes)},
            {"k16Bit", writes_16_bit() ? "1" : "0"},
            {"kFirstDistance", "1"},
            {"kEndDistance", "32"}};
  }

  std::vector<std::string> first_files() const override {
    return {"types.cuh",
            "functions.cuh",
            "statistics.cuh",
            "vector_statistics.cuh",
            "copies.cuh",
            "team.cuh",
            "crew.cuh",
            "tagged.cuh",
            "slices_rows_packed.cuh",
            "slices_place.cuh",
            "slices_thread_packed.cuh"};
  }
  std::vector<std::string> files() const override {
    std::vector<std::string> found = {"thread_number.cuh", "group_lists.cuh", "group_sums.cuh",
                                      "slices_whole.cuh"};
    if (paired_sigmoid(1) >= 0) found.insert(found.begin(), "sigmoids.cuh");
    return found;
  }

  void add_scalars() override {
    for (const char* name : {"positions", "height", "width", "tag"}) scalar("long long", name);
    scalar("tagged::Words*", "team_list0");
  }

  void write_more_sums(Text& text, const std::string& name,
                       const std::vector<const Sink*>& taken) const override {
    write_merge_all(text, name, taken);
  }

  void write_reading(Text& text) override {
    const int input = ring_[0];
    const std::string to = "inputs." + names_[at(input)] + "[piece]";
    const std::string from =
        "reinterpret_cast<const " + vector_type(input) + "*>(" + tensor(input) + ".data + offset)";
    text.line(
        "__device__ inline void read_piece(const Arguments& a, long long offset, Inputs& inputs, int piece) "
        "{");
    text.line("  " + to + " = load_vector(" + from + ");");
    text.line("}");
    text.line("__device__ inline void copy_piece(const Arguments& a, long long offset, unsigned int slot) {");
    text.line("  thread::copy_begin_at(slot, " + from + ");");
    text.line("}");
    text.line("__device__ inline void own_piece(unsigned int slot, Inputs& inputs) {");
    text.line("  inputs." + names_[at(input)] + "[0] = thread::read_shared<" + vector_type(input) +
              ">(slot);");
    text.line("}");
  }

  void write_prepared(Text& text) override {
    text.line("Hoisted1 hoisted1[kUnitChannels];");
    unit_bytes_ += 4 * static_cast<int>(cut_.unit_channels) * hoisted_numbers(1);
  }
  void write_shared(Text& text) override {
    text.line("// These, and the block's list.");
    text.open("struct Shared {");
    text.line("UnitValues values;");
    text.line("Sums0 list0[kListSlots];");
    text.close("};");
    text.line("static_assert(sizeof(Shared) <= kSharedBytes, \"the planner's count of shared memory\");");
  }

  std::string vector_sums() const override { return "OfVector"; }
  std::string sweep_constant(int i) const override {
    return std::string("kStatistics = ") + (has_statistics(i) ? "true" : "false");
  }

  void write_unit_functions(Text& text) override {
    const std::string group = "<" + number_text(groups_[0]) + ">(";
    text.line("// What moments are taken of.");
    text.line("__device__ inline real taken_of(const Results0& results) { return results.r" +
              number_text(statistics_of(0)[0]->step) + "; }");
    text.line("// The plan's steps for the unit.");
    text.line("__device__ inline void run_unit(const Arguments& a, const Team& team, const Place& place,");
    text.open("                                const Unit& unit, const Share& share, Shared& shared) {");
    text.line("Inputs inputs;");
    text.line("ask(a, share, inputs);");
    text.line("OwnChannels<Sweep1> channels;");
    text.line("channels.parameters(a, unit);");
    text.open("{");
    text.line("GroupSums<" + number_text(groups_[0]) + "> sums;");
    text.line("const int taken = first_sweep<Sweep0>(a, unit, place, share, inputs, sums);");
    text.line("list_parts(place, sums, taken, shared.list0);");
    text.close();
    text.line("give_parts" + group + "a, team, shared.list0, a.team_list0);");
    text.line("take_parts" + group + "a, team, a.team_list0, unit.values->totals0);");
    for (int i = cut_.first; i < cut_.last; ++i)
      if (has_finalise(i)) text.line("finalise_" + number_text(i) + "<Block>(a, unit, team);");
    text.line("channels.prepare(a, unit, unit.values->hoisted1);");
    text.line("last_sweep<Sweep1>(a, unit, place, share, inputs, unit.values->hoisted1);");
    text.close();
  }
};

}  // namespace

bool is_for_slices_whole(const Schedule& schedule, const KernelCut& cut, const SlicesConstants& constants) {
  return WholeWriter(schedule, cut, constants).takes();
}

SlicesText slices_whole_text(const Schedule& schedule, const KernelCut& cut,
                             const SlicesConstants& constants) {
  WholeWriter writer(schedule, cut, constants);
  SlicesText text = writer.run();
  text.part_groups = writer.part_groups();
  text.tagged = true;
  return text;
}

}  // namespace fuseblock::cuda
