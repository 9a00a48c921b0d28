#include "cuda/memory.h"

#include <algorithm>

#include "cuda/jit/driver.h"

namespace fuseblock::cuda {
namespace {

constexpr std::size_t kLeastBytes = 256;

jit::CUdeviceptr address_of(const std::byte* data) { return reinterpret_cast<jit::CUdeviceptr>(data); }

}  // namespace

std::byte* allocate(int gpu, std::size_t bytes) {
  const jit::ContextScope context(gpu);
  jit::CUdeviceptr pointer = 0;
  const jit::CUresult result = jit::require_driver().cuMemAlloc(&pointer, std::max(bytes, kLeastBytes));
  if (result == jit::CUDA_ERROR_OUT_OF_MEMORY) return nullptr;
  jit::check(result, "cuMemAlloc");
  // NOLINTNEXTLINE(performance-no-int-to-ptr): the driver's pointers are numbers
  return reinterpret_cast<std::byte*>(pointer);
}

void release(int gpu, std::byte* data) noexcept {
  if (data == nullptr) return;
  const jit::ContextScope context(gpu);
  jit::require_driver().cuMemFree(address_of(data));
}

void write(int gpu, std::byte* to, std::span<const std::byte> from) {
  const jit::ContextScope context(gpu);
  jit::check(jit::require_driver().cuMemcpyHtoD(address_of(to), from.data(), from.size()), "cuMemcpyHtoD");
}

void read(int gpu, const std::byte* from, std::span<std::byte> to) {
  const jit::ContextScope context(gpu);
  jit::check(jit::require_driver().cuMemcpyDtoH(to.data(), address_of(from), to.size()), "cuMemcpyDtoH");
}

void synchronize(int gpu) {
  const jit::ContextScope context(gpu);
  jit::check(jit::require_driver().cuStreamSynchronize(nullptr), "cuStreamSynchronize");
}

}  // namespace fuseblock::cuda
