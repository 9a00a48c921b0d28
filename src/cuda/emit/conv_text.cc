#include "cuda/emit/conv_text.h"

#include "cuda/emit/conv_sweep_text.h"

namespace fuseblock::cuda {
namespace {

std::string number_text(std::int64_t number) { return std::to_string(number); }

class ConvWriter : ConvSweepWriter {
 public:
  ConvWriter(const Schedule& schedule, const KernelCut& cut, const ConvConstants& constants)
      : ConvSweepWriter(schedule, cut), constants_(constants) {}

  ConvText run() {
    Text structs;
    write_structs(structs);
    Text tensors;
    write_tensors(tensors);
    Text values;
    write_unit_values(values);
    Text programs;
    const bool tail = write_programs(programs);
    for (const char* name : {"items", "sample_items", "tiles", "tiles_h", "tiles_w", "in_d", "in_h", "in_w",
                             "out_d", "out_h", "out_w"})
      scalar("long long", name);
    write_run_item(programs, "Element*");

    std::string text = head(constants(tail));
    text += "typedef int Count;\n\n" + device_file("types.cuh");
    text += "\ntypedef " + element_name(element_type(input_)) + " Element;\n";
    for (const char* file : {"functions.cuh", "statistics.cuh", "branchless.cuh", "copies.cuh", "crew.cuh",
                             "team.cuh", "mma.cuh"})
      text += "\n" + device_file(file);
    text += "\n" + structs.str() + "\n" + arguments_struct() + "\n" + tensors.str();
    for (const char* file : {"conv_tile.cuh", "conv_mma.cuh"}) text += "\n" + device_file(file);
    text += "\n" + values.str() + "\n" + device_file("conv_sums.cuh") + "\n" +
            device_file("conv_program.cuh") + "\n" + device_file("conv_channels.cuh") + "\n" +
            device_file("conv_take.cuh") + "\n" + device_file("conv_join.cuh") + "\n" +
            device_file("conv.cuh") + "\n" + programs.str() + "\n" + device_file("conv.cu");
    ConvText result;
    result.kernel = finish("conv", std::move(text));
    result.shared_bytes = shared_bytes_;
    result.list_numbers = totals() ? numbers_ : 0;
    result.tail = tail;
    return result;
  }

 private:
  std::vector<std::pair<std::string, std::string>> constants(bool tail) const {
    const ConvConstants& c = constants_;
    std::vector<std::pair<std::string, std::string>> result = {
        {"kThreads", number_text(c.threads)},
        {"kWarps", "kThreads / 32"},
        {"kBlocks", number_text(c.blocks)},
        {"kMode", number_text(static_cast<int>(c.mode))},
        {"kBf16", element_type(input_) == DType::kBF16 ? "1" : "0"},
        {"kInChannels", number_text(conv_.in_channels)},
        {"kChannels", number_text(conv_.channels)},
        {"kUnitChannels", "kChannels"},
        {"kMTiles", number_text(c.rows)},
        {"kNTiles", number_text(c.columns)},
        {"kRows", "2 * kMTiles"},
        {"kColumns", "2 * kNTiles"},
        {"kPromote", number_text(c.promote)},
        {"kDown", c.down ? "1" : "0"},
        {"kVector", number_text(c.vector)},
        {"kLead", number_text(c.lead)},
        {"kStages", number_text(c.stages)},
        {"kOverPositions", over_channels_ ? "0" : "1"},
        {"kElements", over_channels_ ? "kColumns" : "kRows"},
        {"kFirstDistance", "1"},
        {"kEndDistance", over_channels_ ? "4" : "32"},
        {"kPitch", number_text(c.pitch)},
        {"kPlane", number_text(c.plane)},
        {"kVolume", number_text(c.volume)},
        {"kSharedBytes", number_text(shared_bytes_)},
        {"kTail", tail ? "1" : "0"},
        {"k16Bit", functions_text(c.mode)}};
    add_window(result, conv_.geometry);
    constexpr const char* kAxes = "DHW";
    for (std::size_t i = 0; i < 3; ++i) {
      result.emplace_back(std::string("kTile") + kAxes[i], number_text(c.tile[i]));
      result.emplace_back(std::string("kBox") + kAxes[i], number_text(c.box[i]));
    }
    result.emplace_back("kTileGroups", "(kTileD * kTileH * kTileW + 16 * kMTiles - 1) / (16 * kMTiles)");
    return result;
  }

  void write_tensors(Text& text) {
    write_input(text);
    write_weight(text);
  }

  void write_unit_values(Text& text) {
    const int channels = static_cast<int>(conv_.channels);
    shared_bytes_ = write_values(text);
    text.open("struct Shared {");
    text.line("UnitValues values;");
    text.line(totals() ? "Sums0 list0[kWarps][kChannels];" : "Sums0 list0[1][1];");
    shared_bytes_ += totals() ? 4 * channels * numbers_ * constants_.threads / 32 : 4 * numbers_;
    text.line("Prepared prepared;");
    text.close("};");
    text.line("static_assert(sizeof(Shared) <= kSharedBytes, \"the planner's count of shared memory\");");
    const int depth = constants_.mode == ConvMode::k16Bits ? 16 : 8;
    const int steps = static_cast<int>((conv_.terms() + depth - 1) / depth);
    shared_bytes_ += steps * constants_.columns * 32 * 4 * (constants_.mode == ConvMode::kStrict ? 4 : 2);
    shared_bytes_ += 4 * steps * depth;
    shared_bytes_ = (shared_bytes_ + 64 + 127) / 128 * 128;
  }

  ConvConstants constants_;
  int shared_bytes_ = 0;
};

}  // namespace

ConvMode conv_mode(Precision precision, DType dtype) {
  if (dtype != DType::kF32) return ConvMode::k16Bits;
  return precision == Precision::kTf32 ? ConvMode::kTf32 : ConvMode::kStrict;
}

std::string conv_mode_name(ConvMode mode) {
  switch (mode) {
    case ConvMode::kTf32: return "tf32";
    case ConvMode::kStrict: return "strict";
    case ConvMode::k16Bits: return "16 bits";
  }
  throw InternalError("an unknown mode of convolutions");
}

ConvText conv_text(const Schedule& schedule, const KernelCut& cut, const ConvConstants& constants) {
  return ConvWriter(schedule, cut, constants).run();
}

}  // namespace fuseblock::cuda
