#include "streams.h"

#include <dlfcn.h>
#include <torch/headeronly/util/shim_utils.h>

#include "fuseblock/error.h"

namespace fuseblock::torch_binding {
namespace {

using CurrentStream = AOTITorchError (*)(std::int32_t device_index, void** stream);

CurrentStream find_current_stream() {
  constexpr const char* kSymbol = "aoti_torch_get_current_cuda_stream";
  void* found = dlsym(RTLD_DEFAULT, kSymbol);
  // Python loads PyTorch's libraries without making their symbols known to others; this one is there or it is not.
  if (found == nullptr)
    if (void* library = dlopen("libtorch_cuda.so", RTLD_LAZY | RTLD_NOLOAD)) found = dlsym(library, kSymbol);
  return reinterpret_cast<CurrentStream>(found);  // NOLINT(*-reinterpret-cast): what dlsym gives
}

}  // namespace

void* current_stream(Place place) {
  if (place == kCpu) return nullptr;
  static const CurrentStream kFunction = find_current_stream();
  if (kFunction == nullptr)
    throw NotSupportedError("this PyTorch has no streams of CUDA devices that fuseblock could use");
  void* stream = nullptr;
  TORCH_ERROR_CODE_CHECK(kFunction(static_cast<std::int32_t>(place), &stream));
  return stream;
}

}  // namespace fuseblock::torch_binding
