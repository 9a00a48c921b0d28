// The functions of libcuda.so.1 that src/cuda/jit/driver.cc opens, for one GPU that does not exist. Launches run at once, in
// the thread that asks for them, one at a time, unless their stream is captured (captures.h); events are names only.
#include <dlfcn.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <charconv>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "captures.h"
#include "cuda/jit/cuda_types.h"
#include "grid.h"
#include "memory.h"

using namespace fuseblock::
    jit;  // NOLINT(google-build-using-namespace): this file stands in for their library
using fuseblock_emulated::Extent3;
using fuseblock_emulated::KernelCode;

// Handles are pointers to these.
namespace fuseblock::jit {

struct CUctx_st {};
struct CUevent_st {
  std::chrono::steady_clock::time_point time;
};
struct CUfunc_st {
  KernelCode code;
  int max_threads = 1024;
  int dynamic_bytes = 48 * 1024;  // the most that a launch may ask for
};
struct CUmod_st {
  void* library = nullptr;
  std::map<std::string, std::unique_ptr<CUfunc_st>> functions;
};

}  // namespace fuseblock::jit

namespace {

constexpr auto kInvalidValue = static_cast<CUresult>(1);
constexpr auto kInvalidImage = static_cast<CUresult>(200);
constexpr auto kNotFound = static_cast<CUresult>(500);
constexpr auto kLaunchFailed = static_cast<CUresult>(719);
constexpr auto kTooLarge = static_cast<CUresult>(720);

constexpr int kKiB = 1024;
constexpr int kSharedBlock = 227 * kKiB;
constexpr int kSharedMultiprocessor = 228 * kKiB;
constexpr int kThreadsMultiprocessor = 2048;
constexpr int kBlocksMultiprocessor = 32;

struct Known {
  CUresult result;
  const char* name;
  const char* words;
};

constexpr Known kResults[] = {
    {CUDA_SUCCESS, "CUDA_SUCCESS", "no error"},
    {kInvalidValue, "CUDA_ERROR_INVALID_VALUE", "invalid argument"},
    {CUDA_ERROR_OUT_OF_MEMORY, "CUDA_ERROR_OUT_OF_MEMORY", "out of memory"},
    {kInvalidImage, "CUDA_ERROR_INVALID_IMAGE", "device kernel image is invalid"},
    {kNotFound, "CUDA_ERROR_NOT_FOUND", "named symbol not found"},
    {CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED",
     "operation not permitted when stream is capturing"},
    {fuseblock_emulated::kCaptureInvalidated, "CUDA_ERROR_STREAM_CAPTURE_INVALIDATED",
     "operation failed due to a previous error during capture"},
    {CUDA_ERROR_STREAM_CAPTURE_IMPLICIT, "CUDA_ERROR_STREAM_CAPTURE_IMPLICIT",
     "operation would make the legacy stream depend on a capturing blocking stream"},
    {kLaunchFailed, "CUDA_ERROR_LAUNCH_FAILED", "unspecified launch failure"},
    {kTooLarge, "CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE", "too many blocks in cooperative launch"},
};

CUctx_st the_context;
thread_local CUcontext current_context = nullptr;
// What the last refusal in this thread was about: cuGetErrorString says it.
thread_local CUresult refused = CUDA_SUCCESS;
thread_local std::string refusal;

CUresult refuse(CUresult result, std::string words) {
  refused = result;
  refusal = std::move(words);
  return result;
}

// Whether a call that belongs into no capture may go on; refused else.
CUresult outside_of_captures(const char* function) {
  const CUresult result = fuseblock_emulated::admit_outside_of_captures();
  return result == CUDA_SUCCESS ? result
                                : refuse(result, std::string(function) + " while a stream is captured");
}

int multiprocessors() {
  static const int kCount = [] {
    int count = 4;
    // NOLINTNEXTLINE(concurrency-mt-unsafe): nothing here sets variables
    if (const char* text = std::getenv("FUSEBLOCK_EMULATED_MULTIPROCESSORS"))
      std::from_chars(text, text + std::strlen(text), count);
    return std::max(count, 1);
  }();
  return kCount;
}

int blocks_on_multiprocessor(const CUfunc_st& function, int threads, std::size_t dynamic_bytes) {
  const int warps = (threads + 31) / 32 * 32;
  const auto shared = static_cast<int>(function.code.static_bytes + dynamic_bytes) + kKiB;
  if (threads > function.max_threads || shared - kKiB > kSharedBlock) return 0;
  return std::min({kThreadsMultiprocessor / warps, kSharedMultiprocessor / shared, kBlocksMultiprocessor});
}

fuseblock_emulated::LaunchShape shape_of(const CUlaunchConfig& config) {
  fuseblock_emulated::LaunchShape shape;
  shape.grid = {config.gridDimX, config.gridDimY, config.gridDimZ};
  shape.block = {config.blockDimX, config.blockDimY, config.blockDimZ};
  shape.dynamic_bytes = config.sharedMemBytes;
  for (unsigned int i = 0; i < config.numAttrs; ++i) {
    const CUlaunchAttribute& attribute = config.attrs[i];
    if (attribute.id == CU_LAUNCH_ATTRIBUTE_COOPERATIVE) shape.cooperative = attribute.value.cooperative != 0;
    if (attribute.id == CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION)
      shape.cluster = {attribute.value.clusterDim.x, attribute.value.clusterDim.y,
                       attribute.value.clusterDim.z};
  }
  return shape;
}

std::uint64_t product(const Extent3& extent) { return std::uint64_t{extent.x} * extent.y * extent.z; }

// Why a launch is not possible; empty where it is.
std::string refusal_of(const CUfunc_st& function, const fuseblock_emulated::LaunchShape& shape) {
  const std::uint64_t threads = product(shape.block);
  const std::uint64_t cluster = product(shape.cluster);
  if (product(shape.grid) == 0 || threads == 0) return "a grid or a block without threads";
  if (threads > static_cast<std::uint64_t>(function.max_threads))
    return std::to_string(threads) + " threads in a block, the kernel is compiled for " +
           std::to_string(function.max_threads);
  if (shape.dynamic_bytes > static_cast<std::size_t>(function.dynamic_bytes))
    return std::to_string(shape.dynamic_bytes) + " bytes of dynamic shared memory, the kernel may have " +
           std::to_string(function.dynamic_bytes);
  if (function.code.static_bytes + shape.dynamic_bytes > static_cast<std::size_t>(kSharedBlock))
    return std::to_string(function.code.static_bytes + shape.dynamic_bytes) +
           " bytes of shared memory in a block";
  if (cluster == 0 || cluster > 16 || shape.grid.x % shape.cluster.x != 0 ||
      shape.grid.y % shape.cluster.y != 0 || shape.grid.z % shape.cluster.z != 0)
    return "the grid does not divide into the clusters";
  return "";
}

// NOLINTNEXTLINE(performance-no-int-to-ptr): that is what the driver's addresses are
void* pointer_of(CUdeviceptr address) { return reinterpret_cast<void*>(address); }

std::string symbol(const char* what, const char* kernel) {
  return std::string("fuseblock_emulated_").append(what).append("_").append(kernel);
}

}  // namespace

#define FUSEBLOCK_EXPORT extern "C" __attribute__((visibility("default"))) CUresult
// The declarations are the table of src/cuda/jit/driver.h; nothing calls these functions by name.
#pragma GCC diagnostic ignored "-Wmissing-declarations"

// NOLINTBEGIN(readability-identifier-naming): the names are NVIDIA's
FUSEBLOCK_EXPORT cuInit(unsigned int /*flags*/) { return CUDA_SUCCESS; }

// Newer than every compiler.
FUSEBLOCK_EXPORT cuDriverGetVersion(int* version) {
  *version = 1'000'000;
  return CUDA_SUCCESS;
}

FUSEBLOCK_EXPORT cuGetErrorName(CUresult error, const char** text) {
  for (const Known& known : kResults)
    if (known.result == error) *text = known.name;
  return CUDA_SUCCESS;
}

FUSEBLOCK_EXPORT cuGetErrorString(CUresult error, const char** text) {
  for (const Known& known : kResults)
    if (known.result == error) *text = known.words;
  if (error == refused && !refusal.empty()) *text = refusal.c_str();
  return CUDA_SUCCESS;
}

FUSEBLOCK_EXPORT cuDeviceGetCount(int* count) {
  *count = 1;
  return CUDA_SUCCESS;
}

FUSEBLOCK_EXPORT cuDeviceGet(CUdevice* device, int ordinal) {
  if (ordinal != 0) return refuse(kInvalidValue, "there is one GPU");
  *device = 0;
  return CUDA_SUCCESS;
}

FUSEBLOCK_EXPORT cuDeviceGetName(char* name, int length, CUdevice /*device*/) {
  std::strncpy(name, "NVIDIA H200, emulated on the CPU", static_cast<std::size_t>(length));
  return CUDA_SUCCESS;
}

FUSEBLOCK_EXPORT cuDeviceGetAttribute(int* value, CUdevice_attribute attribute, CUdevice /*device*/) {
  switch (attribute) {
    case CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT: *value = multiprocessors(); break;
    case CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE: *value = 50 * kKiB * kKiB; break;
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR: *value = 9; break;
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR: *value = 0; break;
    case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR: *value = kSharedMultiprocessor; break;
    case CU_DEVICE_ATTRIBUTE_COOPERATIVE_LAUNCH: *value = 1; break;
    case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN: *value = kSharedBlock; break;
    case CU_DEVICE_ATTRIBUTE_CLUSTER_LAUNCH: *value = 1; break;
    default:
      return refuse(kInvalidValue,
                    "the emulator has no attribute " + std::to_string(attribute) + " of devices");
  }
  return CUDA_SUCCESS;
}

FUSEBLOCK_EXPORT cuDeviceTotalMem_v2(std::size_t* bytes, CUdevice /*device*/) {
  *bytes =
      static_cast<std::size_t>(sysconf(_SC_PHYS_PAGES)) * static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  return CUDA_SUCCESS;
}

FUSEBLOCK_EXPORT cuDevicePrimaryCtxRetain(CUcontext* context, CUdevice /*device*/) {
  *context = &the_context;
  return CUDA_SUCCESS;
}

FUSEBLOCK_EXPORT cuCtxGetCurrent(CUcontext* context) {
  *context = current_context;
  return CUDA_SUCCESS;
}

FUSEBLOCK_EXPORT cuCtxSetCurrent(CUcontext context) {
  current_context = context;
  return CUDA_SUCCESS;
}

FUSEBLOCK_EXPORT cuCtxGetDevice(CUdevice* device) {
  *device = 0;
  return CUDA_SUCCESS;
}

// Whether kernels of a real GPU are loaded, too, whose launches do nothing: FUSEBLOCK_EMULATED_IDLE.
static bool is_idle() {
  // NOLINTNEXTLINE(concurrency-mt-unsafe): nothing here sets variables
  static const bool kIdle = std::getenv("FUSEBLOCK_EMULATED_IDLE") != nullptr;
  return kIdle;
}

// A shared object of x86 or another processor that says itself how long it is: up to the end of its section headers.
FUSEBLOCK_EXPORT cuModuleLoadData(CUmodule* module, const void* image) {
  if (const CUresult result = outside_of_captures("cuModuleLoadData"); result != CUDA_SUCCESS) return result;
  constexpr char kMagic[] = {0x7f, 'E', 'L', 'F', 2};
  const auto* bytes = static_cast<const char*>(image);
  if (std::memcmp(bytes, kMagic, sizeof(kMagic)) != 0) return refuse(kInvalidImage, "not a shared object");
  constexpr std::uint16_t kNvidia = 190;
  std::uint16_t machine = 0;
  std::memcpy(&machine, bytes + 18, sizeof(machine));
  if (machine == kNvidia && is_idle()) {
    *module = new CUmod_st;
    return CUDA_SUCCESS;
  }
  std::uint64_t sections = 0;
  std::uint16_t section_bytes = 0;
  std::uint16_t section_count = 0;
  std::memcpy(&sections, bytes + 40, sizeof(sections));
  std::memcpy(&section_bytes, bytes + 58, sizeof(section_bytes));
  std::memcpy(&section_count, bytes + 60, sizeof(section_count));
  const std::size_t size = sections + std::size_t{section_bytes} * section_count;

  std::string file = std::filesystem::temp_directory_path() / "fuseblock-emulated-XXXXXX";
  const int descriptor = mkstemp(file.data());
  if (descriptor < 0) return refuse(kInvalidImage, "no file can be made in the folder of temporary files");
  std::size_t written = 0;
  while (written < size) {
    const ssize_t count = write(descriptor, bytes + written, size - written);
    if (count <= 0) break;
    written += static_cast<std::size_t>(count);
  }
  close(descriptor);
  void* library = written == size ? dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL) : nullptr;
  const char* words = library == nullptr ? dlerror() : nullptr;  // NOLINT(concurrency-mt-unsafe)
  const std::string why = words == nullptr ? "cannot be written to " + file : words;
  unlink(file.c_str());
  if (library == nullptr) return refuse(kInvalidImage, why);
  auto* runtime =
      static_cast<const fuseblock_emulated::Runtime**>(dlsym(library, "fuseblock_emulated_runtime"));
  if (runtime == nullptr) return refuse(kInvalidImage, "a shared object that is no kernel of the emulator");
  *runtime = &fuseblock_emulated::runtime();
  *module = new CUmod_st;
  (*module)->library = library;
  return CUDA_SUCCESS;
}

FUSEBLOCK_EXPORT cuModuleUnload(CUmodule module) {
  if (module->library != nullptr) dlclose(module->library);
  delete module;
  return CUDA_SUCCESS;
}

FUSEBLOCK_EXPORT cuModuleGetFunction(CUfunction* function, CUmodule module, const char* name) {
  std::unique_ptr<CUfunc_st>& known = module->functions[name];
  if (!known && module->library == nullptr) {
    known = std::make_unique<CUfunc_st>();
    known->code.name = name;
  } else if (!known) {
    void* call = dlsym(module->library, symbol("call", name).c_str());
    const void* bounds = dlsym(module->library, symbol("bounds", name).c_str());
    void* thread = dlsym(module->library, "fuseblock_emulated_thread");
    const void* text = dlsym(module->library, "fuseblock_emulated_text");
    const void* bytes = dlsym(module->library, "fuseblock_emulated_static_bytes");
    if (call == nullptr || bounds == nullptr || thread == nullptr || text == nullptr || bytes == nullptr)
      return refuse(kNotFound, std::string("the module has no kernel ") + name);
    auto found = std::make_unique<CUfunc_st>();
    found->code.name = name;
    found->code.text = static_cast<const char*>(text);
    found->code.call = reinterpret_cast<void (*)(void**)>(call);
    found->code.current = static_cast<const fuseblock_emulated::Thread**>(thread);
    found->code.static_bytes = *static_cast<const unsigned int*>(bytes);
    found->max_threads = *static_cast<const int*>(bounds);
    known = std::move(found);
  }
  *function = known.get();
  return CUDA_SUCCESS;
}

FUSEBLOCK_EXPORT cuFuncSetAttribute(CUfunction function, CUfunction_attribute attribute, int value) {
  if (attribute == CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES) {
    if (value < 0 || value + static_cast<int>(function->code.static_bytes) > kSharedBlock)
      return refuse(kInvalidValue, std::to_string(value) + " bytes of dynamic shared memory");
    function->dynamic_bytes = value;
    return CUDA_SUCCESS;
  }
  if (attribute == CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED) return CUDA_SUCCESS;
  return refuse(kInvalidValue, "the emulator sets no attribute " + std::to_string(attribute) + " of kernels");
}

FUSEBLOCK_EXPORT cuFuncGetAttribute(int* value, CUfunction_attribute attribute, CUfunction function) {
  switch (attribute) {
    case CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK: *value = function->max_threads; break;
    case CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES: *value = static_cast<int>(function->code.static_bytes); break;
    case CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES: *value = 0; break;
    case CU_FUNC_ATTRIBUTE_NUM_REGS: *value = 32; break;
    case CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES: *value = function->dynamic_bytes; break;
    default:
      return refuse(kInvalidValue,
                    "the emulator has no attribute " + std::to_string(attribute) + " of kernels");
  }
  return CUDA_SUCCESS;
}

FUSEBLOCK_EXPORT cuLaunchKernelEx(const CUlaunchConfig* config, CUfunction function, void** parameters,
                                  void** /*extra*/) {
  static std::mutex mutex;
  const std::scoped_lock lock(mutex);
  const fuseblock_emulated::LaunchShape shape = shape_of(*config);
  if (const std::string words = refusal_of(*function, shape); !words.empty())
    return refuse(kInvalidValue, words);
  const auto threads = static_cast<int>(product(shape.block));
  const int fit = blocks_on_multiprocessor(*function, threads, shape.dynamic_bytes) * multiprocessors();
  if (shape.cooperative && product(shape.grid) > static_cast<std::uint64_t>(fit))
    return refuse(kTooLarge, std::to_string(product(shape.grid)) + " blocks, " + std::to_string(fit) +
                                 " run at the same time");
  const fuseblock_emulated::Admission admission = fuseblock_emulated::admit(config->hStream);
  if (admission.result != CUDA_SUCCESS) return refuse(admission.result, admission.words);
  if (!admission.runs || function->code.call == nullptr) return CUDA_SUCCESS;
  std::string wrong = run_grid(function->code, shape, parameters);
  if (const std::string words = fuseblock_emulated::broken_guards(); wrong.empty() && !words.empty())
    wrong = "the kernel " + function->code.name + ": " + words;
  return wrong.empty() ? CUDA_SUCCESS : refuse(kLaunchFailed, wrong);
}

FUSEBLOCK_EXPORT cuOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, CUfunction function, int threads,
                                                             std::size_t shared_bytes) {
  *blocks = blocks_on_multiprocessor(*function, threads, shared_bytes);
  return CUDA_SUCCESS;
}

FUSEBLOCK_EXPORT cuOccupancyMaxActiveClusters(int* clusters, CUfunction function,
                                              const CUlaunchConfig* config) {
  const fuseblock_emulated::LaunchShape shape = shape_of(*config);
  const int blocks =
      blocks_on_multiprocessor(*function, static_cast<int>(product(shape.block)), shape.dynamic_bytes);
  *clusters = blocks * multiprocessors() / static_cast<int>(product(shape.cluster));
  return CUDA_SUCCESS;
}

FUSEBLOCK_EXPORT cuMemAlloc_v2(CUdeviceptr* pointer, std::size_t bytes) {
  if (bytes == 0) return refuse(kInvalidValue, "no bytes");
  if (const CUresult result = outside_of_captures("cuMemAlloc"); result != CUDA_SUCCESS) return result;
  void* memory = fuseblock_emulated::allocate(bytes);
  if (memory == nullptr) return refuse(CUDA_ERROR_OUT_OF_MEMORY, std::to_string(bytes) + " bytes");
  *pointer = reinterpret_cast<CUdeviceptr>(memory);
  return CUDA_SUCCESS;
}

FUSEBLOCK_EXPORT cuMemFree_v2(CUdeviceptr pointer) {
  if (pointer == 0) return CUDA_SUCCESS;
  if (const CUresult result = outside_of_captures("cuMemFree"); result != CUDA_SUCCESS) return result;
  if (!fuseblock_emulated::release(pointer_of(pointer)))
    return refuse(kInvalidValue, "an address that cuMemAlloc did not give");
  if (const std::string words = fuseblock_emulated::broken_guards(); !words.empty())
    return refuse(kLaunchFailed, words);
  return CUDA_SUCCESS;
}

// Does what `work` says at once, or makes it a node of the graph that the stream is captured into.
template <class Work>
static CUresult in_stream(CUstream stream, const Work& work) {
  const fuseblock_emulated::Admission admission = fuseblock_emulated::admit(stream);
  if (admission.result != CUDA_SUCCESS) return refuse(admission.result, admission.words);
  return admission.runs ? work() : CUDA_SUCCESS;
}

static CUresult copy(void* to, const void* from, std::size_t bytes) {
  for (const void* place : {static_cast<const void*>(to), from})
    if (const std::string words = fuseblock_emulated::outside(place, bytes); !words.empty())
      return refuse(kInvalidValue, words);
  std::memmove(to, from, bytes);
  return CUDA_SUCCESS;
}

FUSEBLOCK_EXPORT cuMemcpyHtoD_v2(CUdeviceptr to, const void* from, std::size_t bytes) {
  const CUresult result = outside_of_captures("cuMemcpyHtoD");
  return result == CUDA_SUCCESS ? copy(pointer_of(to), from, bytes) : result;
}
FUSEBLOCK_EXPORT cuMemcpyDtoH_v2(void* to, CUdeviceptr from, std::size_t bytes) {
  const CUresult result = outside_of_captures("cuMemcpyDtoH");
  return result == CUDA_SUCCESS ? copy(to, pointer_of(from), bytes) : result;
}
FUSEBLOCK_EXPORT cuMemcpyHtoDAsync_v2(CUdeviceptr to, const void* from, std::size_t bytes, CUstream stream) {
  return in_stream(stream, [&] { return copy(pointer_of(to), from, bytes); });
}
FUSEBLOCK_EXPORT cuMemcpyDtoHAsync_v2(void* to, CUdeviceptr from, std::size_t bytes, CUstream stream) {
  return in_stream(stream, [&] { return copy(to, pointer_of(from), bytes); });
}
FUSEBLOCK_EXPORT cuMemcpyDtoDAsync_v2(CUdeviceptr to, CUdeviceptr from, std::size_t bytes, CUstream stream) {
  return in_stream(stream, [&] { return copy(pointer_of(to), pointer_of(from), bytes); });
}
// Memsets that were asked for, for tests.
namespace {
std::atomic<unsigned int> memsets = 0;
}  // namespace
extern "C" __attribute__((visibility("default"))) unsigned int fuseblock_emulated_memsets() {
  return memsets.load();
}

FUSEBLOCK_EXPORT cuMemsetD8Async(CUdeviceptr to, unsigned char value, std::size_t bytes, CUstream stream) {
  ++memsets;
  return in_stream(stream, [&] {
    void* memory = pointer_of(to);
    if (const std::string words = fuseblock_emulated::outside(memory, bytes); !words.empty())
      return refuse(kInvalidValue, words);
    std::memset(memory, value, bytes);
    return CUDA_SUCCESS;
  });
}

FUSEBLOCK_EXPORT cuStreamCreate(CUstream* stream, unsigned int flags) {
  *stream = new CUstream_st;
  (*stream)->blocking = (flags & CU_STREAM_NON_BLOCKING) == 0;
  return CUDA_SUCCESS;
}
FUSEBLOCK_EXPORT cuStreamDestroy_v2(CUstream stream) {
  delete stream;
  return CUDA_SUCCESS;
}
FUSEBLOCK_EXPORT cuStreamSynchronize(CUstream stream) { return fuseblock_emulated::admit_waiting(stream); }
FUSEBLOCK_EXPORT cuStreamIsCapturing(CUstream stream, CUstreamCaptureStatus* status) {
  return fuseblock_emulated::capture_status(stream, *status);
}
// In the global mode, whatever is asked for.
FUSEBLOCK_EXPORT cuStreamBeginCapture_v2(CUstream stream, int /*mode*/) {
  return fuseblock_emulated::begin_capture(stream);
}
// A graph is the number of its nodes, which nobody runs.
FUSEBLOCK_EXPORT cuStreamEndCapture(CUstream stream, std::uintptr_t* graph) {
  unsigned int nodes = 0;
  const CUresult result = fuseblock_emulated::end_capture(stream, nodes);
  *graph = nodes;
  return result;
}

FUSEBLOCK_EXPORT cuEventCreate(CUevent* event, unsigned int /*flags*/) {
  *event = new CUevent_st;
  return CUDA_SUCCESS;
}
FUSEBLOCK_EXPORT cuEventDestroy_v2(CUevent event) {
  delete event;
  return CUDA_SUCCESS;
}
FUSEBLOCK_EXPORT cuEventRecord(CUevent event, CUstream /*stream*/) {
  event->time = std::chrono::steady_clock::now();
  return CUDA_SUCCESS;
}
FUSEBLOCK_EXPORT cuEventSynchronize(CUevent /*event*/) { return CUDA_SUCCESS; }
FUSEBLOCK_EXPORT cuEventElapsedTime(float* milliseconds, CUevent start, CUevent end) {
  *milliseconds = std::chrono::duration<float, std::milli>(end->time - start->time).count();
  return CUDA_SUCCESS;
}
// NOLINTEND(readability-identifier-naming)
