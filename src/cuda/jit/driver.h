// The CUDA driver, opened at run time: a table of its functions, its devices and their contexts.
//
//   if (const jit::Driver* driver = jit::driver()) ...      // null where there is no GPU; jit::no_driver_reason() says why
#pragma once

#include <cstddef>
#include <string>

#include "cuda/jit/cuda_types.h"

namespace fuseblock::jit {

// Functions of libcuda.so.1 under their documented names, all of them there. The newest form of a function that has
// several (cuMemAlloc is cuMemAlloc_v2).
struct Driver {
  // NOLINTBEGIN(readability-identifier-naming): the names are NVIDIA's
  CUresult (*cuInit)(unsigned int flags);
  CUresult (*cuDriverGetVersion)(int* version);
  CUresult (*cuGetErrorName)(CUresult error, const char** text);
  CUresult (*cuGetErrorString)(CUresult error, const char** text);

  CUresult (*cuDeviceGetCount)(int* count);
  CUresult (*cuDeviceGet)(CUdevice* device, int ordinal);
  CUresult (*cuDeviceGetName)(char* name, int length, CUdevice device);
  CUresult (*cuDeviceGetAttribute)(int* value, CUdevice_attribute attribute, CUdevice device);
  CUresult (*cuDeviceTotalMem)(std::size_t* bytes, CUdevice device);
  CUresult (*cuDevicePrimaryCtxRetain)(CUcontext* context, CUdevice device);
  CUresult (*cuCtxGetCurrent)(CUcontext* context);
  CUresult (*cuCtxSetCurrent)(CUcontext context);
  CUresult (*cuCtxGetDevice)(CUdevice* device);

  CUresult (*cuModuleLoadData)(CUmodule* module, const void* image);
  CUresult (*cuModuleUnload)(CUmodule module);
  CUresult (*cuModuleGetFunction)(CUfunction* function, CUmodule module, const char* name);
  CUresult (*cuFuncSetAttribute)(CUfunction function, CUfunction_attribute attribute, int value);
  CUresult (*cuFuncGetAttribute)(int* value, CUfunction_attribute attribute, CUfunction function);
  CUresult (*cuLaunchKernelEx)(const CUlaunchConfig* config, CUfunction function, void** parameters,
                               void** extra);
  CUresult (*cuOccupancyMaxActiveBlocksPerMultiprocessor)(int* blocks, CUfunction function, int threads,
                                                          std::size_t shared_bytes);
  CUresult (*cuOccupancyMaxActiveClusters)(int* clusters, CUfunction function, const CUlaunchConfig* config);

  CUresult (*cuMemAlloc)(CUdeviceptr* pointer, std::size_t bytes);
  CUresult (*cuMemFree)(CUdeviceptr pointer);
  CUresult (*cuMemcpyHtoD)(CUdeviceptr to, const void* from, std::size_t bytes);
  CUresult (*cuMemcpyDtoH)(void* to, CUdeviceptr from, std::size_t bytes);
  CUresult (*cuMemcpyHtoDAsync)(CUdeviceptr to, const void* from, std::size_t bytes, CUstream stream);
  CUresult (*cuMemcpyDtoHAsync)(void* to, CUdeviceptr from, std::size_t bytes, CUstream stream);
  CUresult (*cuMemcpyDtoDAsync)(CUdeviceptr to, CUdeviceptr from, std::size_t bytes, CUstream stream);
  CUresult (*cuMemsetD8Async)(CUdeviceptr to, unsigned char value, std::size_t bytes, CUstream stream);

  CUresult (*cuStreamCreate)(CUstream* stream, unsigned int flags);
  CUresult (*cuStreamDestroy)(CUstream stream);
  CUresult (*cuStreamSynchronize)(CUstream stream);
  CUresult (*cuStreamIsCapturing)(CUstream stream, CUstreamCaptureStatus* status);
  CUresult (*cuEventCreate)(CUevent* event, unsigned int flags);
  CUresult (*cuEventDestroy)(CUevent event);
  CUresult (*cuEventRecord)(CUevent event, CUstream stream);
  CUresult (*cuEventSynchronize)(CUevent event);
  CUresult (*cuEventElapsedTime)(float* milliseconds, CUevent start, CUevent end);
  // NOLINTEND(readability-identifier-naming)
};

// The driver of this machine, opened and initialised once in the life of the process; null where there is none, where
// it is too old or where it sees no GPU.
const Driver* driver();
// Why driver() is null; empty where it is not.
const std::string& no_driver_reason();
// Throws NotSupportedError with that reason.
const Driver& require_driver();

// What the driver says of itself: 13000 for CUDA 13.0; 0 where there is no driver.
int driver_version();

// Throws where the driver refused, with its own name and words for it: UserError where memory is not enough or a graph
// is captured, InternalError else. `what` is the function, or the function and what it was called for.
[[noreturn]] void throw_driver_error(CUresult result, const char* what);
inline void check(CUresult result, const char* what) {
  if (result != CUDA_SUCCESS) throw_driver_error(result, what);
}

// What the driver says of one GPU.
struct DeviceFacts {
  std::string model;
  int compute_major = 0;
  int compute_minor = 0;
  int multiprocessors = 0;
  int shared_bytes_multiprocessor = 0;
  int shared_bytes_block = 0;  // the most that a block may ask for
  std::size_t memory_bytes = 0;
  std::size_t l2_bytes = 0;
  bool cooperative_launch = false;
  bool cluster_launch = false;
};

// 0 where there is no driver.
int device_count();
// Throws UserError where there is no GPU of that number.
DeviceFacts device_facts(int ordinal);

// The primary context of a GPU, which PyTorch and the CUDA runtime use too. Kept for the life of the process.
CUcontext primary_context(int ordinal);

// Makes the primary context of a GPU current in this thread, and at its end what was current before.
class ContextScope {
 public:
  explicit ContextScope(int ordinal);
  ~ContextScope();
  ContextScope(const ContextScope&) = delete;
  ContextScope& operator=(const ContextScope&) = delete;

 private:
  CUcontext before_ = nullptr;
  bool changed_ = false;
};

}  // namespace fuseblock::jit
