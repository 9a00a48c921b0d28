#include "cuda/emit/pool_text.h"

#include "block/geometry.h"
#include "plan/narrator.h"

namespace fuseblock::cuda {
namespace {

int kind_number(OpCode code) {
  switch (code) {
    case OpCode::kMaxPool: return 0;
    case OpCode::kMaxPoolTake: return 1;
    case OpCode::kMaxPoolPut: return 2;
    case OpCode::kAvgPool: return 3;
    case OpCode::kAvgPoolGrad: return 4;
    default: throw InternalError("not a pool");
  }
}

class PoolWriter : KernelWriter {
 public:
  PoolWriter(const Schedule& schedule, const KernelCut& cut) : KernelWriter(schedule, cut) {}

  EmittedKernel run(bool channels_last) {
    const ScheduleStep& pool = step(cut_.first);
    const Part& which = part(pool.parts[0]);
    const PoolGeometry geometry = pool_geometry(schedule_.block, which.node);
    const OpCode code = schedule_.block.block().nodes()[static_cast<std::size_t>(which.node)].operation->code;
    std::vector<std::pair<std::string, std::string>> constants = {
        {"kVector", "1"},
        {"kElements", "1"},
        {"k16Bit", "0"},
        {"kKind", std::to_string(kind_number(code))},
        {"kChannels", std::to_string(which.extents[1])},
        {"kChannelsFirst", channels_last ? "1" : "0"},
        {"kDivisor", std::to_string(geometry.divisor_override)},
        {"kCountPad", geometry.count_include_pad ? "1" : "0"}};
    constexpr const char* kAxes = "DHW";
    for (std::size_t i = 0; i < 3; ++i) {
      const std::string axis(1, kAxes[i]);
      constants.emplace_back("kWindow" + axis, std::to_string(geometry.window[i]));
      constants.emplace_back("kStride" + axis, std::to_string(geometry.stride[i]));
      constants.emplace_back("kPad" + axis, std::to_string(geometry.pad[i]));
      constants.emplace_back("kDilation" + axis, std::to_string(geometry.dilation[i]));
    }
    Text functions;
    functions.line("// " + Narrator(schedule_).stage(pool));
    write_get(functions, "first_at", pool.operands[0]);
    // What says which element of a window is taken.
    write_get(functions, "judge_at", pool.operands.size() > 1 ? pool.operands[1] : pool.operands[0]);
    const std::string to = tensor(pool.result);
    functions.open(
        "__device__ inline void set_result(const Arguments& a, long long n, long long c, const Spatial& at, "
        "real value) {");
    functions.line("assign(" + to + ".data[offset_at(" + to + ", n, c, {at.d, at.h, at.w})], value);");
    functions.close();
    for (const char* name : {"elements", "in_d", "in_h", "in_w", "out_d", "out_h", "out_w"})
      scalar("long long", name);
    double elements = 1;
    for (std::int64_t extent : which.extents) elements *= static_cast<double>(extent);
    std::string text = head(constants);
    text += elements < 2e9 ? "typedef int Count;\n" : "typedef long long Count;\n";
    for (const char* file : {"types.cuh", "functions.cuh"}) text += "\n" + device_file(file);
    text += "\n" + arguments_struct() +
            "\n// A position by its coordinates.\nstruct Spatial {\n  int d, h, w;\n};\n\n" +
            functions.str() + "\n" + device_file("pool.cu");
    return finish("pool", std::move(text));
  }

 private:
  void write_get(Text& text, const std::string& name, int from_slot) {
    const std::string from = tensor(from_slot);
    text.open("__device__ inline real " + name +
              "(const Arguments& a, long long n, long long c, const Spatial& at) {");
    text.line("return to_real(" + from + ".data[offset_at(" + from + ", n, c, {at.d, at.h, at.w})]);");
    text.close();
  }
};

}  // namespace

EmittedKernel pool_text(const Schedule& schedule, const KernelCut& cut, bool channels_last) {
  return PoolWriter(schedule, cut).run(channels_last);
}

}  // namespace fuseblock::cuda
