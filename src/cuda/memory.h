// Memory of a GPU, and copies between it and the program's.
#pragma once

#include <cstddef>
#include <span>

namespace fuseblock::cuda {

// Null where the GPU has not as much left.
std::byte* allocate(int gpu, std::size_t bytes);
void release(int gpu, std::byte* data) noexcept;
void write(int gpu, std::byte* to, std::span<const std::byte> from);
void read(int gpu, const std::byte* from, std::span<std::byte> to);
// Waits for the default stream.
void synchronize(int gpu);

}  // namespace fuseblock::cuda
