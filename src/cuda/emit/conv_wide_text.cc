#include "cuda/emit/conv_wide_text.h"

#include "cuda/emit/conv_sweep_text.h"

namespace fuseblock::cuda {
namespace {

std::string number_text(std::int64_t number) { return std::to_string(number); }

class ConvWeightsWriter : KernelWriter {
 public:
  ConvWeightsWriter(const Schedule& schedule, const KernelCut& cut, const ConvCells& cells)
      : KernelWriter(schedule, cut), cells_(cells) {}

  EmittedKernel run() {
    const Sweep& sweep = step(cut_.first).sweep;
    const ConvSum conv = conv_sum(schedule_, sweep.source);
    const DType dtype = element_type(sweep.weight);
    ConstantTexts constants = cell_constants(cells_, conv, dtype);
    constants.emplace_back("kFlipped", conv.gathers ? "0" : "1");
    Text functions;
    const std::string weight = tensor(sweep.weight);
    functions.line("// The weight of " + Narrator(schedule_).source(sweep));
    functions.open(
        "__device__ inline Element weight_at(const Arguments& a, int k, int c, const Position& tap) {");
    functions.line(
        "return " + weight + ".data[offset_at(" + weight +
        (conv.gathers ? ", k, c, tap)];" : ", k / kGroupOut * kGroupIn + c, k % kGroupOut, tap)];"));
    functions.close();
    scalar("char*", "weights");
    std::string text = head(constants) + "\n" + device_file("types.cuh");
    text += "\ntypedef " + element_name(dtype) + " Element;\n";
    for (const char* file : {"mma.cuh", "conv_wide_cells.cuh"}) text += "\n" + device_file(file);
    text += "\n" + arguments_struct() + "\n" + functions.str() + "\n" + device_file("conv_weights.cu");
    return finish("conv_weights", std::move(text));
  }

 private:
  ConvCells cells_;
};

class ConvWideWriter : ConvSweepWriter {
 public:
  ConvWideWriter(const Schedule& schedule, const KernelCut& cut, const ConvWideConstants& constants)
      : ConvSweepWriter(schedule, cut), constants_(constants) {}

  ConvWideText run() {
    Text structs;
    write_structs(structs);
    Text input;
    write_input(input);
    Text values;
    const int values_bytes = write_values(values);
    write_shared(values);
    Text programs;
    const bool tail = write_programs(programs);
    for (const char* name :
         {"items", "tiles", "strip_tiles", "in_d", "in_h", "in_w", "out_d", "out_h", "out_w"})
      scalar("long long", name);
    write_finish_sample(programs);

    std::string text = head(constants(tail)) + types_text(constants_.far);
    for (const char* file : {"functions.cuh", "statistics.cuh", "branchless.cuh", "copies.cuh", "crew.cuh",
                             "team.cuh", "mma.cuh", "conv_wide_cells.cuh"})
      text += "\n" + device_file(file);
    text += "\n" + structs.str() + "\n" + arguments_struct() + "\n" + input.str();
    for (const char* file : {"conv_wide_tile.cuh", "conv_wide_mma.cuh"}) text += "\n" + device_file(file);
    text += "\n" + values.str();
    for (const char* file : {"conv_sums.cuh", "conv_runs.cuh", "conv_wide.cuh"})
      text += "\n" + device_file(file);
    text += "\n" + programs.str() + "\n" + device_file("conv_wide.cu");
    ConvWideText result;
    result.kernel = finish("conv_wide", std::move(text));
    result.weights = conv_weights_text(schedule_, cut_, constants_.cells());
    result.values_bytes = values_bytes;
    result.list_numbers = totals() ? numbers_ : 0;
    result.kept_numbers = totals() ? kept_numbers_ : 0;
    result.tail = tail;
    return result;
  }

 private:
  ConstantTexts constants(bool tail) const {
    const ConvWideConstants& c = constants_;
    ConstantTexts result = cell_constants(c.cells(), conv_, element_type(input_));
    const ConstantTexts own = {{"kThreads", number_text(c.threads)},
                               {"kWarps", "kThreads / 32"},
                               {"kBlocks", number_text(c.blocks)},
                               {"kUnitChannels", "kChannels"},
                               {"kMTiles", number_text(c.rows)},
                               {"kNTiles", number_text(c.columns)},
                               {"kRows", "2 * kMTiles"},
                               {"kColumns", "2 * kNTiles"},
                               {"kWarpsN", number_text(c.warp_columns)},
                               {"kWarpsM", "kWarps / kWarpsN"},
                               {"kTile", "kWarpsM * kMTiles * 16"},
                               {"kStages", number_text(c.stages)},
                               {"kPieces", number_text(c.pieces)},
                               {"kVectors", c.vectors ? "1" : "0"},
                               {"kStrip", number_text(c.box.strip)},
                               {"kCrossings", number_text(c.box.crossings)},
                               {"kBoxH", number_text(c.box.rows)},
                               {"kBoxW", number_text(c.box.columns)},
                               {"kPitch", number_text(c.box.pitch)},
                               {"kQuad", number_text(c.box.quad)},
                               {"kElements", "kRows"},
                               {"kFirstDistance", "1"},
                               {"kEndDistance", "32"},
                               {"kSharedBytes", number_text(c.shared_bytes)},
                               {"kTail", tail ? "1" : "0"},
                               {"k16Bit", functions_text(c.mode)}};
    result.insert(result.end(), own.begin(), own.end());
    return result;
  }

  void write_shared(Text& text) const {
    text.open("struct Shared {");
    text.line("UnitValues values;");
    text.line(totals() ? "Sums0 list0[kWarpsM][kBlockChannels];" : "Sums0 list0[1][1];");
    text.line(totals() ? "Kept0 kept0[kColumns][kThreads];" : "Kept0 kept0[1][1];");
    text.line("Offset offsets[kThreadCells][kThreads];");
    text.line("Tile tiles[3];");
    text.close("};");
    text.line("static_assert(sizeof(Shared) <= kSharedBytes, \"the planner's count of shared memory\");");
  }

  ConvWideConstants constants_;
};

}  // namespace

ConstantTexts cell_constants(const ConvCells& cells, const ConvSum& conv, DType dtype) {
  const ConvGeometry window = conv.window();
  ConstantTexts result = {{"kMode", number_text(static_cast<int>(cells.mode))},
                          {"kBf16", dtype == DType::kBF16 ? "1" : "0"},
                          {"kVector", "1"},
                          {"kChannels", number_text(conv.channels)},
                          {"kGroups", number_text(window.groups)},
                          {"kGroupIn", number_text(conv.in_channels / window.groups)},
                          {"kGroupOut", number_text(conv.channels / window.groups)},
                          {"kBlockChannels", number_text(cells.block_channels)},
                          {"kChunkSteps", number_text(cells.chunk_steps)},
                          {"kRowTaps", number_text(cells.row_taps)},
                          {"kParts", number_text(cells.parts)}};
  add_window(result, window);
  return result;
}

EmittedKernel conv_weights_text(const Schedule& schedule, const KernelCut& cut, const ConvCells& cells) {
  return ConvWeightsWriter(schedule, cut, cells).run();
}

ConvWideText conv_wide_text(const Schedule& schedule, const KernelCut& cut,
                            const ConvWideConstants& constants) {
  return ConvWideWriter(schedule, cut, constants).run();
}

}  // namespace fuseblock::cuda
