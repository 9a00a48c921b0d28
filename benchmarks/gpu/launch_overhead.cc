// Host time of a plan's run on a GPU beside that of a bare launch: what is between the program and the driver.
//
//   launch_overhead [BATCHES CALLS]     prints one JSON object: a row for each plan, times in microseconds
//
// Each is called in batches that fit into the GPU's queue of launches, so that the host never waits for the GPU, which is
// waited for between the batches; the median of the batches counts. `bare` is one launch of an empty kernel by the driver,
// with as many parameters as a small plan hands over.
#include <algorithm>
#include <array>
#include <chrono>
#include <cstdlib>
#include <functional>
#include <iomanip>
#include <iostream>
#include <memory>
#include <vector>

#include "cuda/jit/cache.h"
#include "cuda/jit/driver.h"
#include "cuda/jit/module.h"
#include "fuseblock/plan.h"

namespace fuseblock {
namespace {

struct Count {
  long batches = 101;
  long calls = 100;  // in a batch; the queue holds about a thousand launches
};

double median_us(const Count& count, const jit::Driver& driver, jit::CUstream stream,
                 const std::function<void()>& call) {
  using Clock = std::chrono::steady_clock;
  std::vector<double> times;
  for (long batch = 0; batch < count.batches; ++batch) {
    jit::check(driver.cuStreamSynchronize(stream), "cuStreamSynchronize");
    const auto begin = Clock::now();
    for (long i = 0; i < count.calls; ++i) call();
    times.push_back(std::chrono::duration<double, std::micro>(Clock::now() - begin).count() /
                    static_cast<double>(count.calls));
  }
  jit::check(driver.cuStreamSynchronize(stream), "cuStreamSynchronize");
  std::nth_element(times.begin(), times.begin() + times.size() / 2, times.end());
  return times[times.size() / 2];
}

// A kernel that does nothing, with the parameters of a norm.
double bare_us(const Count& count, const jit::Driver& driver, jit::CUstream stream) {
  jit::KernelSource source;
  source.name = source.entry = "empty";
  source.text =
      "struct Arguments { unsigned long long words[40]; };\n"
      "extern \"C\" __global__ void empty(Arguments arguments) {}\n";
  const jit::DeviceFacts facts = jit::device_facts(0);
  const jit::Kernel kernel =
      jit::load_kernel(*jit::kernel_cache()
                            .find(source, jit::architecture_for(facts.compute_major, facts.compute_minor))
                            .cubin);
  std::array<std::uint64_t, 40> words = {};
  std::array<void*, 1> parameters = {words.data()};
  jit::Launch launch;
  launch.function = kernel.function;
  launch.grid = {132, 1, 1};
  launch.block = {256, 1, 1};
  launch.stream = stream;
  launch.parameters = parameters.data();
  launch.name = "empty";
  return median_us(count, driver, stream, [&] { jit::launch(driver, launch); });
}

// A plan with tensors of its own.
class BoundPlan {
 public:
  BoundPlan(const jit::Driver& driver, const Plan& plan, jit::CUstream stream)
      : driver_(driver), plan_(plan) {
    for (const NamedType& input : plan.inputs())
      arguments_.inputs.push_back(
          {memory(input.type), input.type.dtype, input.type.extents, input.type.strides()});
    for (const NamedType& output : plan.outputs())
      arguments_.outputs.push_back(
          {memory(output.type), output.type.dtype, output.type.extents, output.type.strides()});
    workspace_ = memory(plan.workspace_bytes());
    arguments_.stream = stream;
  }

  void run() const { plan_.run(arguments_, {workspace_, plan_.workspace_bytes()}); }

 private:
  std::byte* memory(const TensorType& type) { return memory(static_cast<std::size_t>(type.byte_count())); }
  // Kept until the program ends.
  std::byte* memory(std::size_t bytes) const {
    jit::CUdeviceptr pointer = 0;
    jit::check(driver_.cuMemAlloc(&pointer, bytes + 1), "cuMemAlloc");
    jit::check(driver_.cuMemsetD8Async(pointer, 0, bytes + 1, nullptr), "cuMemsetD8Async");
    return reinterpret_cast<std::byte*>(pointer);  // NOLINT(performance-no-int-to-ptr): what the driver gives
  }

  const jit::Driver& driver_;
  Plan plan_;
  Arguments arguments_;
  std::byte* workspace_ = nullptr;
};

struct Measured {
  const char* name;
  const char* block;
  const char* input;
};

constexpr std::array kPlans = {
    Measured{"group_norm_silu", "group_norm(8) | silu", "bf16[2,64,16,16]"},
    Measured{"group_norm_silu_team", "group_norm(8) | silu", "bf16[1,32,128,128]"},
    Measured{"group_norm_silu_residual", "group_norm(8) | add(skip) | silu", "bf16[2,64,16,16]"},
    Measured{"layer_norm", "layer_norm(c)", "bf16[2,64,16,16]"},
    Measured{"hardswish_gn_mean", "hardswish | group_norm(4) | mean(h,w)", "f32[4,16,16,16]"},
};

void print(const Count& count) {
  const jit::Driver& driver = jit::require_driver();
  const jit::ContextScope context(0);
  jit::CUstream stream = nullptr;
  jit::check(driver.cuStreamCreate(&stream, 1), "cuStreamCreate");
  const double bare = bare_us(count, driver, stream);
  std::cout << std::fixed << std::setprecision(3) << "{\"bare_us\": " << bare << ", \"rows\": [";
  const char* comma = "";
  for (const Measured& which : kPlans) {
    const Plan plan = Plan::make(Block::parse(which.block), which.input, {}, Device::by_name("cuda"));
    for (const bool forward : {true, false}) {
      const BoundPlan bound(driver, forward ? plan : plan.backward(), stream);
      bound.run();
      const double time = median_us(count, driver, stream, [&] { bound.run(); });
      std::cout << comma << "\n {\"case\": \"" << which.name << "\", \"direction\": \""
                << (forward ? "forward" : "backward") << "\", \"run_us\": " << time
                << ", \"above_bare_us\": " << time - bare << "}";
      comma = ",";
    }
  }
  std::cout << "\n]}\n";
}

}  // namespace
}  // namespace fuseblock

int main(int words, char** word) {
  try {
    fuseblock::Count count;
    const auto number = [&](int which) { return std::max(1L, std::strtol(word[which], nullptr, 10)); };
    if (words == 3) count = {number(1), number(2)};
    fuseblock::print(count);
  } catch (const fuseblock::Error& error) {
    std::cerr << error.what() << "\n";
    return 1;
  }
  return 0;
}
