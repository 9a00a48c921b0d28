// Memory of large tensors on the CPU, kept for the next one of its size when a tensor goes.
//
// The first touch of fresh memory, which the system clears, takes longer than a norm does: 33 MB of results 4 of 7
// milliseconds on two cores. Where a virtual machine gives free memory back to its host, it takes ten times as long.
// PyTorch's allocator gives large memory back whenever a tensor goes.
//
// What is kept is at the system's disposal: it may take the pages at any time, and does so before it takes others. Where
// somebody else takes or gives memory at the same moment, nobody waits: fresh memory is taken, or memory is released.
#pragma once

#include <cstddef>
#include <list>
#include <mutex>

namespace fuseblock::torch_binding {

class KeptMemory {
 public:
  // Keeps at most `limit` bytes that nobody uses; those given back first go first.
  explicit KeptMemory(std::size_t limit) : limit_(limit) {}
  KeptMemory(const KeptMemory&) = delete;
  KeptMemory& operator=(const KeptMemory&) = delete;

  // Memory for a tensor, at the beginning of a large page, with whatever it held before. Nothing below 4 MiB, where the
  // limit is too small to keep it, and where there is no memory.
  void* take(std::size_t bytes) noexcept;
  // Ends the use of what take(bytes) gave.
  void give_back(void* data, std::size_t bytes) noexcept;

 private:
  struct Piece {
    void* data;
    std::size_t bytes;
  };

  std::size_t limit_;
  std::mutex mutex_;
  std::list<Piece> pieces_;  // the one given back last is the first
  std::size_t kept_ = 0;     // bytes of all of them
};

// The process's; its limit is FUSEBLOCK_KEPT_MEMORY in MiB, 256 unless set. It outlives every tensor.
KeptMemory& kept_memory();

}  // namespace fuseblock::torch_binding
