// Memory where the plans of a device want their tensors and their workspace.
#pragma once

#include <cstddef>
#include <span>

#include "fuseblock/device.h"

namespace fuseblock {

// Whether plans of the device take tensors in memory of its own, which the program cannot touch: GPUs.
bool has_own_memory(const Device& device);

// Some of it; the program's own memory for other devices. Given back when this ends.
class DeviceMemory {
 public:
  // Throws UserError where the device has not as much left.
  DeviceMemory(const Device& device, std::size_t bytes);
  ~DeviceMemory();
  DeviceMemory(DeviceMemory&& other) noexcept;
  DeviceMemory& operator=(DeviceMemory&&) = delete;
  DeviceMemory(const DeviceMemory&) = delete;
  DeviceMemory& operator=(const DeviceMemory&) = delete;

  std::byte* data() const { return data_; }
  std::span<std::byte> bytes() const { return {data_, size_}; }
  // Copies from the program's memory and to it, at most bytes().size(); both wait until they are done.
  void write(std::span<const std::byte> from);
  void read(std::span<std::byte> to) const;

 private:
  int gpu_ = -1;  // its number; -1 for the program's own memory
  std::byte* data_ = nullptr;
  std::size_t size_ = 0;
};

// Waits until the device has done what it was asked for on its default stream. Other devices never leave anything undone.
void synchronize(const Device& device);

}  // namespace fuseblock
