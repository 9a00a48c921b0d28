#include "cuda/emit/conv_direct_text.h"

#include "cuda/conv_sum.h"
#include "plan/narrator.h"

namespace fuseblock::cuda {
namespace {

std::size_t at(int i) { return static_cast<std::size_t>(i); }

class ConvDirectWriter : KernelWriter {
 public:
  ConvDirectWriter(const Schedule& schedule, const KernelCut& cut) : KernelWriter(schedule, cut) {}

  EmittedKernel run() {
    const Sweep& sweep = step(cut_.first).sweep;
    const ConvSum conv = conv_sum(schedule_, sweep.source);
    std::vector<std::pair<std::string, std::string>> constants = {
        {"kVector", "1"},
        {"kElements", "1"},
        {"k16Bit", "0"},
        {"kGather", conv.gathers ? "1" : "0"},
        {"kPadMode", std::to_string(static_cast<int>(conv.geometry.pad_mode))},
        {"kGroups", std::to_string(conv.geometry.groups)},
        {"kInChannels", std::to_string(conv.in_channels)},
        {"kChannels", std::to_string(conv.channels)}};
    add_window(constants, conv.geometry);
    Text functions;
    functions.line("// " + Narrator(schedule_).source(sweep));
    write_input(functions, sweep.staged[0]);
    const std::string weight = tensor(sweep.weight);
    functions.open(
        "__device__ inline real weight_at(const Arguments& a, int first, int second, const Spatial& tap) {");
    functions.line("return to_real(" + weight + ".data[offset_at(" + weight +
                   ", first, second, {tap.d, tap.h, tap.w})]);");
    functions.close();
    functions.open("__device__ inline real bias_at(const Arguments& a, int k) {");
    if (sweep.bias < 0) {
      functions.line("return 0;");
    } else {
      const std::string bias = tensor(sweep.bias);
      functions.line("return to_real(" + bias + ".data[" + bias + ".offset(0, k)]);");
    }
    functions.close();
    functions.open(
        "__device__ inline void set_result(const Arguments& a, long long n, int k, const Spatial& at, real "
        "value) {");
    for (const Sink& sink : sweep.sinks) {
      const std::string to = tensor(sink.slots[0]);
      functions.line("assign(" + to + ".data[offset_at(" + to + ", n, k, {at.d, at.h, at.w})], value);");
    }
    functions.close();
    for (const char* name : {"elements", "in_d", "in_h", "in_w", "out_d", "out_h", "out_w"})
      scalar("long long", name);
    double elements = 1;
    for (std::int64_t extent : sweep.domain) elements *= static_cast<double>(extent);
    std::string text = head(constants);
    text += elements < 2e9 ? "typedef int Count;\n" : "typedef long long Count;\n";
    for (const char* file : {"types.cuh", "functions.cuh"}) text += "\n" + device_file(file);
    text += "\n" + arguments_struct() +
            "\n// A position by its coordinates.\nstruct Spatial {\n  int d, h, w;\n};\n\n" +
            functions.str() + "\n" + device_file("conv_direct.cu");
    return finish("conv_direct", std::move(text));
  }

 private:
  // An element of the convolution's input, out of what its program reads.
  void write_input(Text& text, const Prologue& prologue) {
    text.open(
        "__device__ inline real input_at(const Arguments& a, long long n, long long c, const Spatial& at) {");
    const std::vector<std::string> names = write_statements(
        text, prologue.steps,
        [&](int input) {
          const std::string from = tensor(prologue.inputs[at(input)]);
          return "to_real(" + from + ".data[offset_at(" + from + ", n, c, {at.d, at.h, at.w})])";
        },
        "real", single_);
    text.line("return " + names.back() + ";");
    text.close();
  }
};

}  // namespace

EmittedKernel conv_direct_text(const Schedule& schedule, const KernelCut& cut) {
  return ConvDirectWriter(schedule, cut).run();
}

}  // namespace fuseblock::cuda
