#include "cuda/emit/finalise_text.h"

namespace fuseblock::cuda {
namespace {

class FinaliseWriter : KernelWriter {
 public:
  FinaliseWriter(const Schedule& schedule, const KernelCut& cut) : KernelWriter(schedule, cut) {}

  EmittedKernel run() {
    Text function;
    std::vector<int> outputs;
    for (int output : step(cut_.first).operands) outputs.push_back(output);
    write_finalise_all(function, cut_.remaining, outputs);
    std::string text = head({{"kVector", "1"}, {"kElements", "1"}, {"k16Bit", "0"}});
    for (const char* file : {"types.cuh", "functions.cuh", "statistics.cuh"})
      text += "\n" + device_file(file);
    text += "\n" + arguments_struct() + "\n" + function.str() + "\n" + device_file("finalise.cu");
    return finish("finalise", std::move(text));
  }
};

}  // namespace

EmittedKernel finalise_text(const Schedule& schedule, const KernelCut& cut) {
  return FinaliseWriter(schedule, cut).run();
}

}  // namespace fuseblock::cuda
