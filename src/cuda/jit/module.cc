#include "cuda/jit/module.h"

#include <map>
#include <memory>
#include <mutex>
#include <utility>

#include "fuseblock/error.h"

namespace fuseblock::jit {
namespace {

struct Loaded {
  std::string name;
  Kernel kernel;
  KernelLimits limits;  // the widest that were asked for
};

// The kernels of this process by context and cubin. Never destroyed: the driver may be gone before a destructor runs.
struct Registry {
  std::mutex mutex;
  std::map<std::pair<CUcontext, std::string>, std::unique_ptr<Loaded>> kernels;
};

Registry& registry() {
  static Registry* const kRegistry = new Registry;
  return *kRegistry;
}

void check_kernel(CUresult result, const char* what, const std::string& name) {
  if (result != CUDA_SUCCESS) throw_driver_error(result, (std::string(what) + " (" + name + ")").c_str());
}

std::unique_ptr<Loaded> load(const Driver& driver, const Cubin& cubin) {
  auto loaded = std::make_unique<Loaded>();
  loaded->name = cubin.name;
  Kernel& kernel = loaded->kernel;
  kernel.name = loaded->name.c_str();
  CUmodule module = nullptr;
  check_kernel(driver.cuModuleLoadData(&module, cubin.image.data()), "cuModuleLoadData", cubin.name);
  check_kernel(driver.cuModuleGetFunction(&kernel.function, module, cubin.entry.c_str()),
               "cuModuleGetFunction", cubin.name);
  // Asking for attributes also brings the code to the GPU, which the driver would else do at the first launch.
  const auto attribute = [&](CUfunction_attribute which) {
    int value = 0;
    check_kernel(driver.cuFuncGetAttribute(&value, which, kernel.function), "cuFuncGetAttribute", cubin.name);
    return value;
  };
  kernel.registers = attribute(CU_FUNC_ATTRIBUTE_NUM_REGS);
  kernel.shared_bytes = attribute(CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES);
  kernel.local_bytes = attribute(CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES);
  kernel.max_threads = attribute(CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK);
  return loaded;
}

void widen(const Driver& driver, Loaded& loaded, const KernelLimits& limits) {
  const auto set = [&](CUfunction_attribute which, int value) {
    check_kernel(driver.cuFuncSetAttribute(loaded.kernel.function, which, value), "cuFuncSetAttribute",
                 loaded.name);
  };
  if (limits.dynamic_shared_bytes > loaded.limits.dynamic_shared_bytes) {
    set(CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, limits.dynamic_shared_bytes);
    loaded.limits.dynamic_shared_bytes = limits.dynamic_shared_bytes;
  }
  if (limits.nonportable_clusters && !loaded.limits.nonportable_clusters) {
    set(CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED, 1);
    loaded.limits.nonportable_clusters = true;
  }
}

// A launch in the driver's words. It points into itself, so it stays where it is made.
struct Config {
  explicit Config(const Launch& launch) {
    if (launch.cooperative) {
      CUlaunchAttribute& attribute = attributes[config.numAttrs++];
      attribute.id = CU_LAUNCH_ATTRIBUTE_COOPERATIVE;
      attribute.value.cooperative = 1;
    }
    if (launch.cluster != kNoCluster) {
      CUlaunchAttribute& attribute = attributes[config.numAttrs++];
      attribute.id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION;
      attribute.value.clusterDim = {launch.cluster[0], launch.cluster[1], launch.cluster[2]};
    }
    if (launch.overlaps) {
      CUlaunchAttribute& attribute = attributes[config.numAttrs++];
      attribute.id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION;
      attribute.value.programmaticStreamSerializationAllowed = 1;
    }
    config.gridDimX = launch.grid[0];
    config.gridDimY = launch.grid[1];
    config.gridDimZ = launch.grid[2];
    config.blockDimX = launch.block[0];
    config.blockDimY = launch.block[1];
    config.blockDimZ = launch.block[2];
    config.sharedMemBytes = launch.dynamic_shared_bytes;
    config.hStream = launch.stream;
    config.attrs = attributes.data();
  }
  Config(const Config&) = delete;
  Config& operator=(const Config&) = delete;

  static constexpr std::array<unsigned int, 3> kNoCluster = {1, 1, 1};
  std::array<CUlaunchAttribute, 3> attributes = {};
  CUlaunchConfig config = {};
};

}  // namespace

Kernel load_kernel(const Cubin& cubin, const KernelLimits& limits) {
  const Driver& driver = require_driver();
  CUcontext context = nullptr;
  check(driver.cuCtxGetCurrent(&context), "cuCtxGetCurrent");
  if (context == nullptr)
    throw InternalError("the kernel " + cubin.name + ": no CUDA context is current to load it");
  Registry& all = registry();
  const std::scoped_lock lock(all.mutex);
  std::unique_ptr<Loaded>& loaded = all.kernels[{context, cubin.identity}];
  if (!loaded) loaded = load(driver, cubin);
  widen(driver, *loaded, limits);
  return loaded->kernel;
}

void launch(const Driver& driver, const Launch& launch) {
  const Config config(launch);
  const CUresult result =
      driver.cuLaunchKernelEx(&config.config, launch.function, launch.parameters, nullptr);
  if (result != CUDA_SUCCESS) check_kernel(result, "cuLaunchKernelEx", launch.name);
}

int blocks_per_multiprocessor(const Driver& driver, const Launch& launch) {
  int blocks = 0;
  const int threads = static_cast<int>(launch.block[0] * launch.block[1] * launch.block[2]);
  check_kernel(driver.cuOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, launch.function, threads,
                                                                  launch.dynamic_shared_bytes),
               "cuOccupancyMaxActiveBlocksPerMultiprocessor", launch.name);
  return blocks;
}

int active_clusters(const Driver& driver, const Launch& launch) {
  const Config config(launch);
  int clusters = 0;
  check_kernel(driver.cuOccupancyMaxActiveClusters(&clusters, launch.function, &config.config),
               "cuOccupancyMaxActiveClusters", launch.name);
  return clusters;
}

bool is_capturing(const Driver& driver, CUstream stream) {
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  const CUresult result = driver.cuStreamIsCapturing(stream, &status);
  // The default stream, asked about while another one is captured.
  if (result == CUDA_ERROR_STREAM_CAPTURE_IMPLICIT) return true;
  check(result, "cuStreamIsCapturing");
  return status != CU_STREAM_CAPTURE_STATUS_NONE;
}

}  // namespace fuseblock::jit
