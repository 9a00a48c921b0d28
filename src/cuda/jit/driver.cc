#include "cuda/jit/driver.h"

#include <dlfcn.h>

#include <array>
#include <atomic>

#include "fuseblock/error.h"

namespace fuseblock::jit {
namespace {

constexpr const char* kLibrary = "libcuda.so.1";

struct Opened {
  Driver functions = {};
  std::string reason;  // why they are not to be used
  int version = 0;
};

// `CUDA_ERROR_NO_DEVICE: no CUDA-capable device is detected`
std::string words_of(const Driver& functions, CUresult result) {
  const char* name = nullptr;
  const char* text = nullptr;
  functions.cuGetErrorName(result, &name);
  functions.cuGetErrorString(result, &text);
  const std::string known = name == nullptr ? "CUDA error " + std::to_string(result) : name;
  return text == nullptr ? known : known + ": " + text;
}

// Fills the table; the name of the first function that is missing, or nothing.
std::string find_functions(void* library, Driver& functions) {
  std::string missing;
  const auto find = [&]<class Function>(Function*& function, const char* symbol) {
    function = reinterpret_cast<Function*>(dlsym(library, symbol));
    if (function == nullptr && missing.empty()) missing = symbol;
  };
  find(functions.cuInit, "cuInit");
  find(functions.cuDriverGetVersion, "cuDriverGetVersion");
  find(functions.cuGetErrorName, "cuGetErrorName");
  find(functions.cuGetErrorString, "cuGetErrorString");
  find(functions.cuDeviceGetCount, "cuDeviceGetCount");
  find(functions.cuDeviceGet, "cuDeviceGet");
  find(functions.cuDeviceGetName, "cuDeviceGetName");
  find(functions.cuDeviceGetAttribute, "cuDeviceGetAttribute");
  find(functions.cuDeviceTotalMem, "cuDeviceTotalMem_v2");
  find(functions.cuDevicePrimaryCtxRetain, "cuDevicePrimaryCtxRetain");
  find(functions.cuCtxGetCurrent, "cuCtxGetCurrent");
  find(functions.cuCtxSetCurrent, "cuCtxSetCurrent");
  find(functions.cuCtxGetDevice, "cuCtxGetDevice");
  find(functions.cuModuleLoadData, "cuModuleLoadData");
  find(functions.cuModuleUnload, "cuModuleUnload");
  find(functions.cuModuleGetFunction, "cuModuleGetFunction");
  find(functions.cuFuncSetAttribute, "cuFuncSetAttribute");
  find(functions.cuFuncGetAttribute, "cuFuncGetAttribute");
  find(functions.cuLaunchKernelEx, "cuLaunchKernelEx");
  find(functions.cuOccupancyMaxActiveBlocksPerMultiprocessor, "cuOccupancyMaxActiveBlocksPerMultiprocessor");
  find(functions.cuOccupancyMaxActiveClusters, "cuOccupancyMaxActiveClusters");
  find(functions.cuMemAlloc, "cuMemAlloc_v2");
  find(functions.cuMemFree, "cuMemFree_v2");
  find(functions.cuMemcpyHtoD, "cuMemcpyHtoD_v2");
  find(functions.cuMemcpyDtoH, "cuMemcpyDtoH_v2");
  find(functions.cuMemcpyHtoDAsync, "cuMemcpyHtoDAsync_v2");
  find(functions.cuMemcpyDtoHAsync, "cuMemcpyDtoHAsync_v2");
  find(functions.cuMemcpyDtoDAsync, "cuMemcpyDtoDAsync_v2");
  find(functions.cuMemsetD8Async, "cuMemsetD8Async");
  find(functions.cuStreamCreate, "cuStreamCreate");
  find(functions.cuStreamDestroy, "cuStreamDestroy_v2");
  find(functions.cuStreamSynchronize, "cuStreamSynchronize");
  find(functions.cuStreamIsCapturing, "cuStreamIsCapturing");
  find(functions.cuEventCreate, "cuEventCreate");
  find(functions.cuEventDestroy, "cuEventDestroy_v2");
  find(functions.cuEventRecord, "cuEventRecord");
  find(functions.cuEventSynchronize, "cuEventSynchronize");
  find(functions.cuEventElapsedTime, "cuEventElapsedTime");
  return missing;
}

Opened open() {
  Opened opened;
  void* library = dlopen(kLibrary, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    const char* words = dlerror();  // NOLINT(concurrency-mt-unsafe): glibc keeps one for each thread
    opened.reason = std::string("there is no CUDA driver: ") + (words == nullptr ? kLibrary : words);
    return opened;
  }
  Driver& functions = opened.functions;
  if (const std::string missing = find_functions(library, functions); !missing.empty()) {
    opened.reason = std::string("the CUDA driver is too old: ") + kLibrary + " has no " + missing;
    return opened;
  }
  if (const CUresult result = functions.cuInit(0); result != CUDA_SUCCESS) {
    opened.reason = "the CUDA driver does not start: cuInit: " + words_of(functions, result);
    return opened;
  }
  int count = 0;
  if (functions.cuDeviceGetCount(&count) != CUDA_SUCCESS || count == 0) {
    opened.reason = "the CUDA driver sees no GPU";
    return opened;
  }
  functions.cuDriverGetVersion(&opened.version);
  return opened;
}

const Opened& opened() {
  static const Opened kOpened = open();
  return kOpened;
}

CUdevice device_of(const Driver& functions, int ordinal) {
  const int count = device_count();
  if (ordinal < 0 || ordinal >= count)
    throw UserError("there is no GPU " + std::to_string(ordinal) + "; there are " + std::to_string(count));
  CUdevice device = 0;
  check(functions.cuDeviceGet(&device, ordinal), "cuDeviceGet");
  return device;
}

int attribute_of(const Driver& functions, CUdevice device, CUdevice_attribute attribute) {
  int value = 0;
  check(functions.cuDeviceGetAttribute(&value, attribute, device), "cuDeviceGetAttribute");
  return value;
}

}  // namespace

const Driver* driver() { return opened().reason.empty() ? &opened().functions : nullptr; }

const std::string& no_driver_reason() { return opened().reason; }

const Driver& require_driver() {
  const Driver* functions = driver();
  if (functions == nullptr) throw NotSupportedError(no_driver_reason());
  return *functions;
}

int driver_version() { return opened().version; }

void throw_driver_error(CUresult result, const char* what) {
  const std::string message = std::string(what) + ": " + words_of(opened().functions, result);
  if (result == CUDA_ERROR_OUT_OF_MEMORY) throw UserError(message);
  if (result == CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED || result == CUDA_ERROR_STREAM_CAPTURE_IMPLICIT)
    throw UserError(message + "; this cannot be done while a CUDA graph is captured");
  throw InternalError(message);
}

int device_count() {
  int count = 0;
  if (const Driver* functions = driver()) check(functions->cuDeviceGetCount(&count), "cuDeviceGetCount");
  return count;
}

DeviceFacts device_facts(int ordinal) {
  const Driver& functions = require_driver();
  const CUdevice device = device_of(functions, ordinal);
  const auto attribute = [&](CUdevice_attribute which) { return attribute_of(functions, device, which); };
  DeviceFacts facts;
  std::array<char, 256> model = {};
  check(functions.cuDeviceGetName(model.data(), static_cast<int>(model.size()) - 1, device),
        "cuDeviceGetName");
  facts.model = model.data();
  facts.compute_major = attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR);
  facts.compute_minor = attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);
  facts.multiprocessors = attribute(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT);
  facts.shared_bytes_multiprocessor = attribute(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR);
  facts.shared_bytes_block = attribute(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN);
  facts.l2_bytes = static_cast<std::size_t>(attribute(CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE));
  facts.cooperative_launch = attribute(CU_DEVICE_ATTRIBUTE_COOPERATIVE_LAUNCH) != 0;
  facts.cluster_launch = attribute(CU_DEVICE_ATTRIBUTE_CLUSTER_LAUNCH) != 0;
  check(functions.cuDeviceTotalMem(&facts.memory_bytes, device), "cuDeviceTotalMem");
  return facts;
}

CUcontext primary_context(int ordinal) {
  constexpr int kMostDevices = 64;
  static std::array<std::atomic<CUcontext>, kMostDevices> contexts = {};
  const bool kept = ordinal >= 0 && ordinal < kMostDevices;
  if (kept)
    if (CUcontext context = contexts[ordinal].load(std::memory_order_acquire)) return context;
  const Driver& functions = require_driver();
  CUcontext context = nullptr;
  // Threads that come here at once retain it several times, which does no harm: it is never released.
  check(functions.cuDevicePrimaryCtxRetain(&context, device_of(functions, ordinal)),
        "cuDevicePrimaryCtxRetain");
  if (kept) contexts[ordinal].store(context, std::memory_order_release);
  return context;
}

ContextScope::ContextScope(int ordinal) {
  const Driver& functions = require_driver();
  CUcontext wanted = primary_context(ordinal);
  check(functions.cuCtxGetCurrent(&before_), "cuCtxGetCurrent");
  if (before_ == wanted) return;
  check(functions.cuCtxSetCurrent(wanted), "cuCtxSetCurrent");
  changed_ = true;
}

ContextScope::~ContextScope() {
  if (changed_) driver()->cuCtxSetCurrent(before_);
}

}  // namespace fuseblock::jit
