// Runs cases on the GPU without PyTorch, every tensor in memory of its own that ends where the tensor does: what
// compute-sanitizer looks at (tests/gpu/sanitize.py).
//
//   gpu_runs [--case NAME]... FILE.cases ...
//   gpu_runs --case 'NAME[FUSEBLOCK_ROWS=ahead=2,team=4]' FILE.cases ...
//
// Each case, or each that is named, runs forward and backward in f32 and bf16, contiguous, channels_last and strided, and has
// a line at its end: runs, failures, seconds. With a division, by FUSEBLOCK_ROWS or FUSEBLOCK_SLICES, only in the layout that this is of.
// The exit status is 1 where a run fails and 2 for a bad command line.
#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <optional>

#include "cases.h"
#include "cuda/jit/driver.h"

namespace fuseblock::cases {
namespace {

enum class Kind : std::uint8_t { kContiguous, kChannelsLast, kStrided };

// Memory of the GPU, as long as this lives; full of a tensor's bytes where it is given some.
class DeviceMemory {
 public:
  explicit DeviceMemory(std::size_t bytes) {
    jit::check(jit::require_driver().cuMemAlloc(&pointer_, bytes == 0 ? 1 : bytes), "cuMemAlloc");
  }
  ~DeviceMemory() { jit::require_driver().cuMemFree(pointer_); }
  DeviceMemory(const DeviceMemory&) = delete;
  DeviceMemory& operator=(const DeviceMemory&) = delete;

  void fill(const std::vector<std::byte>& bytes) const {
    jit::check(jit::require_driver().cuMemcpyHtoD(pointer_, bytes.data(), bytes.size()), "cuMemcpyHtoD");
  }
  std::byte* data() const {
    return reinterpret_cast<std::byte*>(pointer_);  // NOLINT(performance-no-int-to-ptr): the driver's
  }

 private:
  jit::CUdeviceptr pointer_ = 0;
};

// A tensor in the GPU's memory: dense in its layout, or every second element of a tensor that begins off any alignment.
struct Placed {
  std::unique_ptr<DeviceMemory> memory;
  TensorView view;
};

Placed place(const TensorType& type, const Tensor* values, Kind kind) {
  const bool strided = kind == Kind::kStrided && type.rank() > 1;
  const std::int64_t step = strided ? 2 : 1;
  const std::int64_t origin = strided ? 1 : 0;
  const auto size = static_cast<std::size_t>(byte_size(type.dtype));
  const std::int64_t count = type.element_count();
  std::vector<std::byte> bytes(static_cast<std::size_t>(origin + step * (count - 1) + 1) * size);
  Placed result;
  result.view = {nullptr, type.dtype, type.extents, type.strides()};
  if (values != nullptr)
    for (std::int64_t i = 0; i < count; ++i)
      std::memcpy(bytes.data() + static_cast<std::size_t>(origin + step * i) * size,
                  values->data() + static_cast<std::size_t>(i) * size, size);
  for (std::int64_t& stride : result.view.strides) stride *= step;
  result.memory = std::make_unique<DeviceMemory>(bytes.size());
  // Outputs stay as the driver gives them: what reads them before they are written is found out.
  if (values != nullptr) result.memory->fill(bytes);
  result.view.data = result.memory->data() + static_cast<std::size_t>(origin) * size;
  return result;
}

void run(const Plan& plan, const TensorMap& tensors, Kind kind) {
  std::vector<Placed> placed;
  Arguments arguments;
  for (const NamedType& input : plan.inputs()) {
    placed.push_back(place(input.type, &tensors.at(input.name), kind));
    arguments.inputs.push_back(placed.back().view);
  }
  for (const NamedType& output : plan.outputs()) {
    placed.push_back(place(output.type, nullptr, kind));
    arguments.outputs.push_back(placed.back().view);
  }
  const jit::Driver& driver = jit::require_driver();
  const DeviceMemory workspace(plan.workspace_bytes());
  jit::CUstream stream = nullptr;
  jit::check(driver.cuStreamCreate(&stream, 1), "cuStreamCreate");
  arguments.stream = stream;
  plan.run(arguments, {workspace.data(), plan.workspace_bytes()});
  jit::check(driver.cuStreamSynchronize(stream), "cuStreamSynchronize");
  jit::check(driver.cuStreamDestroy(stream), "cuStreamDestroy");
}

TypedBlock typed(const Case& which, DType dtype, Kind kind) {
  TensorType x = TensorType::parse(which.input);
  const Layout layout = kind == Kind::kChannelsLast ? Layout::kChannelsLast : Layout::kContiguous;
  x.dtype = dtype;
  x.layout = layout;
  TypeMap others;
  for (const auto& [name, text] : which.others) {
    TensorType type = TensorType::parse(text);
    type.dtype = dtype;
    if (type.extents == x.extents) type.layout = layout;
    others[name] = type;
  }
  return TypedBlock::infer(Block::parse(which.block), x, others);
}

// The gradients by all arguments; where there is no kernel for that, as by a convolution's weight, by x alone or none.
std::optional<Plan> backward_of(const Plan& plan) {
  for (const std::vector<std::string>& wanted : {std::vector<std::string>{}, {"x"}}) {
    try {
      return plan.backward(wanted);
    } catch (const NotSupportedError&) {
      continue;
    }
  }
  return std::nullopt;
}

// How many plans ran.
int run_case(const Case& which, DType dtype, Kind kind) {
  const TypedBlock block = typed(which, dtype, kind);
  const Plan plan = Plan::make(block, Device::by_name("cuda"));
  TensorMap tensors = random_arguments(block, 1);
  run(plan, tensors, kind);
  if (block.differentiable().empty()) return 1;
  const std::optional<Plan> backward = backward_of(plan);
  if (!backward) return 1;
  tensors.merge(random_output_gradients(block, 1));
  run(*backward, tensors, kind);
  return 2;
}

// A case, in every layout or divided in a certain way.
struct Wanted {
  std::string text;  // by which it was asked for
  Case which;
  std::vector<Kind> kinds = {Kind::kContiguous, Kind::kChannelsLast, Kind::kStrided};
  std::string variable = {};  // and its value, that fix the division
  std::string division = {};
};

// `NAME`, `NAME[FUSEBLOCK_ROWS=...]` or `NAME[FUSEBLOCK_SLICES=...]`.
Wanted wanted(const std::string& text, const std::vector<Case>& cases) {
  const std::size_t open = text.find('[');
  const std::string name = text.substr(0, open);
  const auto found =
      std::find_if(cases.begin(), cases.end(), [&](const Case& each) { return each.name == name; });
  if (found == cases.end()) throw UserError("there is no case " + name);
  Wanted result = {text, *found};
  if (open == std::string::npos) return result;
  const std::size_t equals = text.find('=', open);
  result.variable = text.substr(open + 1, equals - open - 1);
  const bool slices = result.variable == "FUSEBLOCK_SLICES";
  if (!text.ends_with(']') || (!slices && result.variable != "FUSEBLOCK_ROWS"))
    throw UserError("expected NAME[FUSEBLOCK_ROWS=...] or NAME[FUSEBLOCK_SLICES=...], got " + text);
  result.division = text.substr(equals + 1, text.size() - equals - 2);
  result.kinds = {slices ? Kind::kChannelsLast : Kind::kContiguous};
  return result;
}

// Whether all runs of a case did well.
bool run_all_of(const Wanted& asked) {
  const Case& which = asked.which;
  if (!asked.variable.empty()) setenv(asked.variable.c_str(), asked.division.c_str(), 1);
  const auto start = std::chrono::steady_clock::now();
  const int rank = TensorType::parse(which.input).rank();
  int runs = 0;
  int failures = 0;
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    for (const Kind kind : asked.kinds) {
      if (kind == Kind::kChannelsLast && rank < 4) continue;
      try {
        runs += run_case(which, dtype, kind);
      } catch (const Error& error) {
        ++failures;
        std::cout << asked.text << " " << to_string(dtype) << " " << static_cast<int>(kind) << ": "
                  << error.what() << "\n";
      }
    }
  }
  const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start;
  if (!asked.variable.empty()) unsetenv(asked.variable.c_str());
  std::cout << asked.text << ": " << runs << " runs, " << failures << " failures, " << elapsed.count()
            << " s\n"
            << std::flush;
  return failures == 0;
}

int run_all(const std::vector<std::string>& only, const std::vector<std::filesystem::path>& files) {
  const std::vector<Case> cases = read_cases(files);
  std::vector<Wanted> all;
  for (const std::string& text : only) all.push_back(wanted(text, cases));
  if (only.empty())
    for (const Case& which : cases) all.push_back({which.name, which});
  const jit::ContextScope context(0);
  bool well = true;
  for (const Wanted& asked : all) well = run_all_of(asked) && well;
  return well ? EXIT_SUCCESS : EXIT_FAILURE;
}

}  // namespace
}  // namespace fuseblock::cases

int main(int count, char** words) {
  std::vector<std::string> only;
  std::vector<std::filesystem::path> files;
  for (int i = 1; i < count; ++i) {
    const std::string word = words[i];
    if (word == "--case" && i + 1 < count)
      only.emplace_back(words[++i]);
    else
      files.emplace_back(word);
  }
  if (files.empty()) {
    std::cerr << "usage: gpu_runs [--case NAME]... FILE.cases ...\n";
    return 2;
  }
  try {
    return fuseblock::cases::run_all(only, files);
  } catch (const fuseblock::Error& error) {
    std::cerr << error.what() << "\n";
    return EXIT_FAILURE;
  }
}
