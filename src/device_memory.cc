#include "fuseblock/device_memory.h"

#include <algorithm>
#include <new>
#include <string>
#include <utility>

#include "cuda/engine.h"
#include "cuda/memory.h"
#include "fuseblock/error.h"

namespace fuseblock {
namespace {

constexpr std::align_val_t kAlignment{64};

// Of a GPU of this machine; -1 for other devices.
int gpu_number(const Device& device) {
  if (!device.runs()) return -1;
  for (int gpu = 0; gpu < cuda::gpu_count(); ++gpu)
    if (cuda::gpu_name(gpu) == device.name()) return gpu;
  return -1;
}

std::byte* allocate(std::size_t bytes) {
  return static_cast<std::byte*>(::operator new(std::max<std::size_t>(bytes, 1), kAlignment, std::nothrow));
}

}  // namespace

bool has_own_memory(const Device& device) { return gpu_number(device) >= 0; }

DeviceMemory::DeviceMemory(const Device& device, std::size_t bytes)
    : gpu_(gpu_number(device)),
      data_(gpu_ >= 0 ? cuda::allocate(gpu_, bytes) : allocate(bytes)),
      size_(bytes) {
  if (data_ == nullptr)
    throw UserError(device.name() + ": there is not enough memory for " + std::to_string(bytes) + " bytes");
}

DeviceMemory::~DeviceMemory() {
  if (gpu_ >= 0)
    cuda::release(gpu_, data_);
  else
    ::operator delete(data_, kAlignment);
}

DeviceMemory::DeviceMemory(DeviceMemory&& other) noexcept
    : gpu_(other.gpu_), data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}

void DeviceMemory::write(std::span<const std::byte> from) {
  if (from.size() > size_) throw InternalError("more bytes than the memory has");
  if (gpu_ >= 0)
    cuda::write(gpu_, data_, from);
  else
    std::ranges::copy(from, data_);
}

void DeviceMemory::read(std::span<std::byte> to) const {
  if (to.size() > size_) throw InternalError("more bytes than the memory has");
  if (gpu_ >= 0)
    cuda::read(gpu_, data_, to);
  else
    std::copy_n(data_, to.size(), to.data());
}

void synchronize(const Device& device) {
  if (const int gpu = gpu_number(device); gpu >= 0) cuda::synchronize(gpu);
}

}  // namespace fuseblock
