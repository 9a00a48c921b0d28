#include "cuda/emit/conv_deep_text.h"

#include <algorithm>

#include "cuda/emit/conv_sweep_text.h"
#include "cuda/emit/warpgroup_text.h"

namespace fuseblock::cuda {
namespace {

// From one channel to the next in shared memory, where 32 positions of 8 of them change lanes: no bank
// conflicts in either direction.
constexpr int kExchangePitch = 40;

std::string number_text(std::int64_t number) { return std::to_string(number); }

class ConvDeepWriter : ConvSweepWriter {
 public:
  ConvDeepWriter(const Schedule& schedule, const KernelCut& cut, const ConvDeepConstants& constants)
      : ConvSweepWriter(schedule, cut), constants_(constants) {
    moves_ = true;
    crew_ = "Consumers";
  }

  ConvWideText run() {
    Text structs;
    write_structs(structs);
    Text input;
    write_input(input);
    write_input_steps(input);
    Text products;
    write_warpgroup_products(products, constants_.columns / 2, element_type(input_), true);
    Text values;
    const int values_bytes = write_values(values);
    write_shared(values, values_bytes);
    Text programs;
    const bool tail = write_programs(programs);
    for (const char* name : {"items", "tiles", "plane_tiles", "strip_tiles", "depth_cost", "cost", "in_d",
                             "in_h", "in_w", "out_d", "out_h", "out_w"})
      scalar("long long", name);
    write_finish_sample(programs);

    std::string text = head(constants(tail)) + types_text(constants_.far);
    for (const char* file : {"functions.cuh", "statistics.cuh", "branchless.cuh", "arrivals.cuh", "crew.cuh",
                             "team.cuh", "mma.cuh", "warpgroup.cuh", "conv_wide_cells.cuh"})
      text += "\n" + device_file(file);
    text += "\n" + products.str() + "\n" + structs.str() + "\n" + arguments_struct() + "\n" + input.str() +
            "\n" + device_file("conv_deep_tile.cuh") + "\n" + device_file("conv_deep_input.cuh") + "\n" +
            values.str();
    for (const char* file : {"conv_sums.cuh", "conv_runs.cuh", "conv_deep.cuh"})
      text += "\n" + device_file(file);
    text += "\n" + programs.str() + "\n" + device_file("conv_deep.cu");
    ConvWideText result;
    result.kernel = finish("conv_deep", std::move(text));
    result.weights = conv_weights_text(schedule_, cut_, constants_.weight_cells());
    result.values_bytes = values_bytes;
    result.list_numbers = totals() ? numbers_ : 0;
    result.kept_numbers = totals() ? kept_numbers_ : 0;
    result.tail = tail;
    return result;
  }

 private:
  ConstantTexts constants(bool tail) const {
    const ConvDeepConstants& c = constants_;
    ConstantTexts result = cell_constants(c.cells(), conv_, element_type(input_));
    const bool stores = std::any_of(sweep(0).sinks.begin(), sweep(0).sinks.end(),
                                    [](const Sink& sink) { return sink.kind == SinkKind::kStore; });
    const ConstantTexts own = {{"kThreads", number_text(c.threads())},
                               {"kWarps", "kThreads / 32"},
                               {"kProducers", number_text(ConvDeepConstants::kProducers)},
                               {"kStagers", number_text(ConvDeepConstants::kStagers)},
                               {"kConsumers", "kThreads - kProducers"},
                               {"kLaunchRegisters", number_text(c.launch_registers())},
                               {"kProducerRegisters", number_text(c.producer_registers())},
                               {"kConsumerRegisters", number_text(c.consumer_registers())},
                               {"kUnitChannels", "kChannels"},
                               {"kGroupsM", number_text(c.channel_groups)},
                               {"kGroupsN", number_text(c.tile_groups)},
                               {"kColumnsN", number_text(c.columns)},
                               {"kStrip", number_text(c.strip)},
                               {"kStages", number_text(c.stages)},
                               {"kImages", number_text(c.images)},
                               {"kPieces", number_text(c.pieces)},
                               {"kPair", c.pairs ? "2" : "1"},
                               {"kVectors", c.vectors ? "1" : "0"},
                               {"kStores", stores ? "1" : "0"},
                               {"kExchangePitch", number_text(kExchangePitch)},
                               {"kRows", "8"},
                               {"kElements", "kRows"},
                               {"kFirstDistance", "1"},
                               {"kEndDistance", "32"},
                               {"kSharedBegin", number_text(c.shared_begin)},
                               {"kTail", tail ? "1" : "0"},
                               {"k16Bit", functions_text(c.mode)}};
    result.insert(result.end(), own.begin(), own.end());
    return result;
  }

  void write_input_steps(Text& text) {
    const std::string input = tensor(input_);
    text.line("// How far apart neighbours lie by channel, row and column.");
    text.open("struct InputSteps {");
    text.line("Offset c, h, w;");
    text.close("};");
    text.open("__device__ inline InputSteps input_steps(const Arguments& a) {");
    if (constants_.dense)
      text.line("return {" + number_text(conv_.in[0] * conv_.in[1] * conv_.in[2]) + ", " +
                number_text(conv_.in[2]) + ", 1};");
    else
      text.line("return {(Offset)" + input + ".c, (Offset)" + input + ".h, (Offset)" + input + ".w};");
    text.close();
  }

  void write_shared(Text& text, int values_bytes) const {
    text.open("struct Shared {");
    text.line("alignas(16) float exchange[kStores != 0 ? kConsumers / 32 : 1][8][kExchangePitch];");
    text.line("UnitValues values;");
    text.line(totals() ? "Sums0 list0[kGroupsN][kBlockChannels];" : "Sums0 list0[1][1];");
    text.line("Spots spots[2];  // of this tile and the next");
    text.line("Cell spare[kStagers];  // for what is not there");
    text.line("arrivals::Barrier full[kGroupsM][kStages], empty[kGroupsM][kStages];");
    text.line("arrivals::Barrier staged[kImages], taken[kImages];");
    text.line("int run[2];");
    text.close("};");
    text.line("static_assert(sizeof(Shared) <= " +
              number_text(conv_deep_shared(constants_, values_bytes, totals() ? numbers_ : 0)) +
              ", \"the planner's count of shared memory\");");
  }

  ConvDeepConstants constants_;
};

}  // namespace

ConvWideText conv_deep_text(const Schedule& schedule, const KernelCut& cut,
                            const ConvDeepConstants& constants) {
  return ConvDeepWriter(schedule, cut, constants).run();
}

int conv_deep_shared(const ConvDeepConstants& constants, int values_bytes, int list_numbers) {
  constexpr int kOther = 512;
  const int exchange = constants.consumers() / 32 * 8 * kExchangePitch * 4;
  const int list = constants.tile_groups * constants.block_channels() * list_numbers * 4;
  const int spots = 2 * constants.items * (constants.far ? 16 : 8);
  constexpr int kSpare = ConvDeepConstants::kStagers * 16;
  return (exchange + values_bytes + list + spots + kSpare + kOther + 127) / 128 * 128;
}

}  // namespace fuseblock::cuda
