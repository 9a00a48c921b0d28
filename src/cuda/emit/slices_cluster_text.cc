// The text of a kernel `slices_cluster`.
#include <algorithm>

#include "cuda/emit/slice_writer.h"

namespace fuseblock::cuda {
namespace {

std::size_t at(int i) { return static_cast<std::size_t>(i); }
std::string number_text(std::int64_t number) { return std::to_string(number); }

constexpr int kWarpThreads = 32;
// Bytes of a barrier, with those that it is aligned to.
constexpr int kBarrierBytes = 16;

class ClusterWriter : public SliceWriter {
 public:
  ClusterWriter(const Schedule& schedule, const KernelCut& cut, const SlicesConstants& constants)
      : SliceWriter(schedule, cut, constants) {
    find_groups();
  }

 private:
  // Blocks hand over statistics of groups where nobody asks for those of single channels.
  void find_groups() {
    merged_place_ = "c";
    for (int i = 0; i < sweep_count(); ++i) {
      groups_.push_back(common_group(i));
      unit_sums_.push_back(groups_.back() > 0);
    }
    find_local_values();
  }
  // Whether moments are joined by groups before anything is merged (device/group_sums.cuh).
  bool joins_groups(int i) const {
    const std::vector<const Sink*> taken = statistics_of(i);
    return groups_[at(i)] > 1 && single_ && constants_.row_positions == 1 && taken.size() == 1 &&
           part(taken[0]->part).statistic == Statistic::kMoments;
  }
  int list_slots() const override {
    int most = 0;
    const int columns = static_cast<int>(cut_.unit_channels) / constants_.vector;
    const int warp_rows = columns > 0 && columns < kWarpThreads ? kWarpThreads / columns : 1;
    for (int i = 0; i < sweep_count(); ++i)
      if (has_statistics(i))
        most = std::max(most, joins_groups(i) ? warp_rows * part_slots(static_cast<int>(groups_[at(i)]))
                                              : SliceWriter::list_slots());
    return std::max(most, 1);
  }
  // Channels of what they hand over.
  std::int64_t group_of(int i) const { return std::max<std::int64_t>(groups_[at(i)], 1); }

  std::string name() const override { return "slices_cluster"; }

  Constants constants(int shared_bytes, bool tail) const override {
    return {{"kThreads", number_text(constants_.threads)},
            {"kWarps", "kThreads / 32"},
            {"kBlocks", number_text(constants_.blocks)},
            {"kCluster", number_text(constants_.cluster)},
            {"kVector", number_text(constants_.vector)},
            {"kPieces", number_text(constants_.pieces)},
            {"kElements", "1"},
            {"kChannels", number_text(domain_[1])},
            {"kUnitChannels", number_text(cut_.unit_channels)},
            {"kRowPositions", number_text(constants_.row_positions)},
            {"kListSlots", number_text(list_slots())},
            {"kSharedBytes", number_text(shared_bytes)},
            {"kTail", tail ? "1" : "0"},
            {"k16Bit", writes_16_bit() ? "1" : "0"},
            {"kFirstDistance", "1"},
            {"kEndDistance", "32"}};
  }

  std::vector<std::string> first_files() const override {
    return {"types.cuh",
            "functions.cuh",
            "statistics.cuh",
            "vector_statistics.cuh",
            "column_statistics.cuh",
            "arrivals.cuh",
            "team.cuh",
            "crew.cuh",
            "slices_rows.cuh",
            "slices_place.cuh",
            "slices_thread.cuh"};
  }
  std::vector<std::string> files() const override {
    bool pairs = false;
    for (int i = 0; i < sweep_count(); ++i) pairs = pairs || paired_sigmoid(i) >= 0;
    std::vector<std::string> found = {"thread_number.cuh", "group_lists.cuh", "group_sums.cuh",
                                      "slices_cluster.cuh"};
    if (pairs) found.insert(found.begin(), "sigmoids.cuh");
    return found;
  }
  bool goes_by_vectors() const override { return true; }

  void add_scalars() override {
    for (const char* name : {"positions", "height", "width"}) scalar("long long", name);
    scalar("unsigned int*", "finished");
  }

  void write_more_sums(Text& text, const std::string& name,
                       const std::vector<const Sink*>& taken) const override {
    write_merge_all(text, name, taken);
  }

  void write_reading(Text& text) override {
    text.open(
        "__device__ inline void read_piece(const Arguments& a, long long offset, Inputs& inputs, int piece) "
        "{");
    for (int input : ring_)
      text.line("inputs." + names_[at(input)] + "[piece] = load_vector(reinterpret_cast<const " +
                vector_type(input) + "*>(" + tensor(input) + ".data + offset));");
    text.close();
    text.open(
        "__device__ inline Inputs load_inputs(const Arguments& a, long long offset, Count row, Count end) {");
    text.line("Inputs inputs;");
    text.line("#pragma unroll");
    text.line("for (int i = 0; i < kPieces; ++i)");
    text.line(
        "  if (row + i * kStride < end) read_piece(a, offset + i * (long long)kStrideElements, inputs, i);");
    text.line("return inputs;");
    text.close();
  }

  void write_prepared(Text& text) override {
    const int real_bytes = single_ ? 4 : 8;
    const int channels = static_cast<int>(cut_.unit_channels);
    for (int i = 0; i < sweep_count(); ++i) {
      if (!has_channels(i)) continue;
      text.line("Hoisted" + number_text(i) + " hoisted" + number_text(i) + "[kUnitChannels];");
      unit_bytes_ += real_bytes * channels * hoisted_numbers(i);
    }
  }

  void write_shared(Text& text) override {
    const int real_bytes = single_ ? 4 : 8;
    text.line("// These, and of each sweep the block's list and the parts of the cluster's blocks.");
    text.open("struct Shared {");
    for (int i = 0; i < sweep_count(); ++i)
      if (has_statistics(i)) text.line("arrivals::Barrier arrived" + number_text(i) + ";");
    text.line("UnitValues values;");
    for (int i = 0; i < sweep_count(); ++i) {
      if (!has_statistics(i)) continue;
      const std::string name = number_text(i);
      text.line("Sums" + name + " list" + name + "[kListSlots];");
      text.line("Sums" + name + " parts" + name + "[kCluster * (kUnitChannels / " + number_text(group_of(i)) +
                ")];");
      const int parts = constants_.cluster * static_cast<int>(cut_.unit_channels / group_of(i));
      list_bytes_ += list_numbers_[at(i)] * real_bytes * parts + kBarrierBytes;
    }
    text.close("};");
    text.line("static_assert(sizeof(Shared) <= kSharedBytes, \"the planner's count of shared memory\");");
  }

  std::string sweep_constant(int i) const override {
    return std::string("kStatistics = ") + (has_statistics(i) ? "true" : "false") +
           ", kChannelValues = " + (has_channels(i) ? "true" : "false");
  }
  std::string vector_sums() const override { return "OfColumn"; }

  void write_unit_functions(Text& text) override {
    for (int i = 0; i < sweep_count(); ++i) {
      if (!joins_groups(i)) continue;
      text.line("// What moments are taken of.");
      text.line("__device__ inline real taken_of(const Results" + number_text(i) +
                "& results) { return results.r" + number_text(statistics_of(i)[0]->step) + "; }");
    }
    text.line("// The plan's steps for the unit.");
    text.open(
        "__device__ inline void run_unit(const Arguments& a, const Team& team, const Place& place, "
        "const Unit& unit, Shared& shared) {");
    text.open("if (threadIdx.x == 0) {");
    for (int i = 0; i < sweep_count(); ++i)
      if (has_statistics(i)) text.line("begin_parts(&shared.arrived" + number_text(i) + ");");
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
      if (step(number).kind == StepKind::kSweep) write_pass(text, which++, begun);
      if (has_finalise(number)) text.line("finalise_" + number_text(number) + "<OneEach>(a, unit, team);");
    }
    text.close();
  }

  // A sweep, and its statistics from all blocks. `begun`: those of the cluster have met.
  void write_pass(Text& text, int which, bool& begun) const {
    const std::string name = number_text(which);
    const std::string prepared =
        has_channels(which) ? "unit.values->hoisted" + name : "(Hoisted" + name + "*)0";
    if (has_channels(which))
      text.line("prepare<Sweep" + name + ">(a, unit, channel" + name + ", " + prepared + ");");
    text.open("{");
    const std::string group = number_text(group_of(which));
    text.line((joins_groups(which) ? "GroupSums<" + group + ">" : "VectorSums" + name) + " sums;");
    text.line((has_statistics(which) ? "const int taken = " : "") + std::string("sweep<Sweep") + name +
              ">(a, unit, place, share, inputs, " + prepared + ", sums);");
    if (has_statistics(which)) {
      if (!begun) text.line("cluster::wait();");
      begun = true;
      text.line("give_part<" + group + ">(team, place, sums, taken, shared.list" + name + ", shared.parts" +
                name + ", &shared.arrived" + name + ");");
      text.line("take_parts<" + group + ">(" + "shared.parts" + name + ", unit.values->totals" + name +
                ", &shared.arrived" + name + ");");
    }
    text.close();
  }
};

}  // namespace

SlicesText slices_cluster_text(const Schedule& schedule, const KernelCut& cut,
                               const SlicesConstants& constants) {
  return ClusterWriter(schedule, cut, constants).run();
}

}  // namespace fuseblock::cuda
