#include "cuda/emit/conv_roll_text.h"

#include "cuda/emit/conv_sweep_text.h"
#include "cuda/emit/warpgroup_text.h"

namespace fuseblock::cuda {
namespace {

std::string number_text(std::int64_t number) { return std::to_string(number); }

class ConvRollWriter : ConvSweepWriter {
 public:
  ConvRollWriter(const Schedule& schedule, const KernelCut& cut, const ConvRollConstants& constants)
      : ConvSweepWriter(schedule, cut),
        constants_(constants),
        form_(constants.folded ? folded(conv_) : conv_),
        columns_(static_cast<int>((conv_.channels + 7) / 8)),
        sums_(static_cast<int>(form_.geometry.filter[0]) * columns_ * 4) {
    apart_ = true;
    late_bias_ = constants.rounds > 1;
    tangents_ = late_bias_;
    starts_ = constants.rounds > 1 && constants.mode == ConvMode::k16Bits && chunks() % 2 != 0;
    moves_sums_ = constants.taps;
  }

  ConvText run() {
    Text structs;
    write_structs(structs);
    Text tensors;
    write_tensors(tensors);
    Text products;
    write_warpgroup_products(products, sums_, element_type(input_), true);
    // The first planes of a strip have fewer depths.
    for (int depths = 1; constants_.taps && depths <= form_.geometry.filter[0]; ++depths)
      write_warpgroup_products_taken(products, depths * columns_ * 4, element_type(input_),
                                     depths < form_.geometry.filter[0]);
    Text values;
    write_unit_values(values);
    Text programs;
    const bool tail = write_programs(programs);
    for (const char* name : {"items", "sample_items", "tiles", "strips", "segments", "depths", "in_d", "in_h",
                             "in_w", "out_d", "out_h", "out_w"})
      scalar("long long", name);
    write_run_item(programs, "char*");

    std::string text = head(constants(tail));
    text += "typedef int Count;\n";
    text += constants_.dense ? "typedef int Offset;\n\n" : "typedef long long Offset;\n\n";
    text += device_file("types.cuh");
    text += "\ntypedef " + element_name(element_type(input_)) + " Element;\n";
    if (constants_.taps) text += ranged() ? "typedef f16 Factor;\n" : "typedef Element Factor;\n";
    for (const char* file : {"functions.cuh", "statistics.cuh", "branchless.cuh", "crew.cuh", "team.cuh",
                             "mma.cuh", "warpgroup.cuh"})
      text += "\n" + device_file(file);
    if (constants_.rounds > 1)
      text += "\n" + device_file("arrivals.cuh") + "\n" + device_file("conv_roll_barriers.cuh");
    text += "\n" + products.str() + "\n" + structs.str() + "\n" + arguments_struct() + "\n" + tensors.str() +
            "\n" + rows_text() + "\n" + values.str();
    text += "\n" + device_file("conv_sums.cuh");
    if (!constants_.taps) text += "\n" + device_file("conv_roll_sites.cuh");
    text += "\n" + device_file("conv_program.cuh") + "\n" + device_file("conv_roll_channels.cuh");
    if (!constants_.taps) text += "\n" + device_file("conv_take.cuh");
    text += "\n" + device_file("conv_join.cuh");
    if (constants_.rounds > 1)
      text += "\n" + device_file("conv_roll_round.cuh") + "\n" + device_file("conv_roll_positions.cuh");
    text += "\n" + device_file(sweep_file());
    text += "\n" + programs.str() + "\n" + device_file("conv_roll.cu");
    ConvText result;
    result.kernel = finish("conv_roll", std::move(text));
    result.shared_bytes = shared_bytes_;
    result.list_numbers = totals() ? numbers_ : 0;
    result.tail = tail;
    return result;
  }

 private:
  // Whether elements are not what products take, and may be out of its range.
  bool ranged() const { return element_type(input_) == DType::kF32; }

  const char* sweep_file() const {
    if (constants_.rounds > 1) return "conv_roll_rounds.cuh";
    return constants_.taps ? "conv_roll_planes.cuh" : "conv_roll.cuh";
  }

  // Rows in shared memory, how they are staged, and the weights they meet.
  std::string rows_text() const {
    if (constants_.taps) return device_file("conv_roll_pairs.cuh") + "\n" + device_file("conv_roll_taps.cuh");
    const bool rounds = constants_.rounds > 1;
    return device_file("conv_roll_tile.cuh") + "\n" +
           (rounds ? device_file("conv_roll_elements.cuh") + "\n" : "") + device_file(staging_file()) + "\n" +
           device_file("conv_roll_weights.cuh") + (rounds ? "\n" + device_file("conv_roll_starts.cuh") : "");
  }

  const char* staging_file() const {
    if (constants_.rounds > 1) return constants_.flat ? "conv_roll_flat.cuh" : "conv_roll_pieces.cuh";
    return constants_.windows ? "conv_roll_windows.cuh" : "conv_roll_rows.cuh";
  }

  // Of the filter, as large as rows are.
  std::int64_t chunks() const {
    auto of = [](std::int64_t extent, int pack) { return (extent + pack - 1) / pack; };
    return of(conv_.in_channels, constants_.pack[0]) * of(form_.geometry.filter[1], constants_.pack[1]) *
           of(form_.geometry.filter[2], constants_.pack[2]);
  }

  std::vector<std::pair<std::string, std::string>> constants(bool tail) const {
    const ConvRollConstants& c = constants_;
    std::vector<std::pair<std::string, std::string>> result = {
        {"kThreads", number_text(c.threads)},
        {"kWarps", "kThreads / 32"},
        {"kBlocks", number_text(c.blocks)},
        {"kMode", number_text(static_cast<int>(c.mode))},
        {"kVector", "1"},
        {"kInChannels", number_text(conv_.in_channels)},
        {"kChannels", number_text(conv_.channels)},
        {"kUnitChannels", "kChannels"},
        {"kTiles", number_text(c.products())},
        {"kMTiles", "1"},
        {"kNTiles", number_text(columns_)},
        {"kRows", "2 * kMTiles"},
        {"kColumns", "2 * kNTiles"},
        {"kPackC", number_text(c.pack[0])},
        {"kPackH", number_text(c.pack[1])},
        {"kPackW", number_text(c.pack[2])},
        {"kTileW", number_text(c.width)},
        {"kFolded", c.folded ? "1" : "0"},
        {"kQuadVectors", c.vector == 4 ? "1" : "0"},
        {"kOverPositions", over_channels_ ? "0" : "1"},
        {"kElements", over_channels_ ? "kColumns" : "kRows"},
        {"kFirstDistance", "1"},
        {"kEndDistance", over_channels_ ? "4" : "32"},
        {"kSharedBegin", number_text(c.stage_bytes)},
        {"kTail", tail ? "1" : "0"},
        {"k16Bit", functions_text(constants_.mode)}};
    if (c.rounds > 1) result.emplace_back("kRounds", number_text(c.rounds));
    if (c.taps) {
      result.emplace_back("kLinear", c.vector == 4 ? "1" : "0");
      result.emplace_back("kSquads", number_text(c.squads));
      result.emplace_back("kHalfStrips", c.half_strips ? "1" : "0");
      result.emplace_back("kRanged", ranged() ? "1" : "0");
    }
    add_window(result, form_.geometry);
    return result;
  }

  void write_tensors(Text& text) {
    const std::string input = tensor(input_);
    text.line("// " + narrator_.source(sweep(0)));
    text.open("__device__ inline const Element* input_data(const Arguments& a) {");
    text.line("return " + input + ".data;");
    text.close();
    text.open("__device__ inline long long input_offset(const Arguments& a, int n, int d) {");
    text.line("return offset_at(" + input +
              (constants_.folded ? ", n, 0, {0, d, 0});" : ", n, 0, {d, 0, 0});"));
    text.close();
    text.line("// How far apart neighbours lie by channel, row and column, and planes.");
    text.open("struct InputSteps {");
    text.line("Offset c, h, w;");
    text.line("long long d;");
    text.close("};");
    text.open("__device__ inline InputSteps input_steps(const Arguments& a) {");
    const std::string plane = input + (constants_.folded ? ".h" : ".d");
    if (constants_.dense)
      text.line("return {" + number_text(conv_.in[0] * conv_.in[1] * conv_.in[2]) + ", " +
                number_text(conv_.in[2]) + ", 1, " + plane + "};");
    else
      text.line("return {" + input + ".c, " + input + ".h, " + input + ".w, " + plane + "};");
    text.close();
    write_weight(text);
  }

  void write_unit_values(Text& text) {
    const ConvGeometry& geometry = form_.geometry;
    const int channels = static_cast<int>(conv_.channels);
    shared_bytes_ = write_values(text);
    text.open("struct Shared {");
    text.line("Prepared prepared;");
    text.line("UnitValues values;");
    if (constants_.taps) {
      text.line("Kept0 list0[kWarps][kChannels];");
      text.line("int counts[kWarps];");
      text.line("Starts starts[kSquads];");
      shared_bytes_ += constants_.squads * 2 * columns_ * 8 * 4 + 8 + constants_.threads / 8;
      shared_bytes_ += 4 * columns_ * 8 * 4 + 96;  // powers of two
    } else {
      text.line(totals() ? "Sums0 list0[kWarps][kChannels];" : "Sums0 list0[1][1];");
    }
    if (constants_.rounds > 1) {
      text.line("StageBarriers barriers;");
      text.line("float moved[kChannels];");
      shared_bytes_ += 24 + 4 * channels;
    }
    text.close("};");
    shared_bytes_ += totals() ? 4 * channels * numbers_ * constants_.threads / 32 : 4 * numbers_;
    const std::int64_t all = constants_.taps ? conv_roll_slots(form_) : chunks();
    const std::int64_t rows = (2 * geometry.filter[0] - 1) * columns_ * 8;
    const std::int64_t parts = constants_.mode == ConvMode::kStrict ? 2 : 1;
    shared_bytes_ += static_cast<int>(parts * 2 * ((all + 1) / 2) * rows * 16 + (all % 2 + 1) * 64 * 16);
    shared_bytes_ = (shared_bytes_ + 64 + 127) / 128 * 128;
    text.line("static_assert(sizeof(Shared) <= " + number_text(shared_bytes_) +
              ", \"the planner's count of shared memory\");");
  }

  ConvRollConstants constants_;
  ConvSum form_;  // as the kernel takes it
  int columns_;   // of eight channels
  int sums_;      // of a lane in one product
  int shared_bytes_ = 0;
};

}  // namespace

std::int64_t conv_roll_pair_planes(const ConvSum& form) { return (form.in_channels + 1) / 2; }

std::int64_t conv_roll_pair_rows(const ConvSum& form) {
  return form.in_channels / 2 * form.geometry.filter[1] +
         form.in_channels % 2 * ((form.geometry.filter[1] + 1) / 2);
}

std::int64_t conv_roll_slots(const ConvSum& form) {
  const std::int64_t rows = conv_roll_pair_rows(form);
  return ((form.geometry.filter[2] == 4 ? rows : (3 * rows + 3) / 4) + 1) / 2 * 2;
}

ConvText conv_roll_text(const Schedule& schedule, const KernelCut& cut, const ConvRollConstants& constants) {
  return ConvRollWriter(schedule, cut, constants).run();
}

}  // namespace fuseblock::cuda
