#include "kept_memory.h"

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <cstdlib>
#include <cstring>

#include "fuseblock/fresh_memory.h"

#if defined(__linux__)
#include <sys/mman.h>
#endif

namespace fuseblock::torch_binding {
namespace {

constexpr std::size_t kMebibyte = std::size_t{1} << 20;
// Smaller memory stays with malloc, which keeps it by itself.
constexpr std::size_t kLeastBytes = 4 * kMebibyte;
constexpr std::size_t kLargePage = 2 * kMebibyte;
constexpr std::size_t kUsualLimit = 256 * kMebibyte;

std::size_t whole_pages(std::size_t bytes) { return (bytes + kLargePage - 1) / kLargePage * kLargePage; }

std::size_t limit_from_environment() {
  const char* text = std::getenv("FUSEBLOCK_KEPT_MEMORY");  // NOLINT(concurrency-mt-unsafe): nothing sets it
  if (text == nullptr) return kUsualLimit;
  std::size_t mebibytes = 0;
  const char* end = text + std::strlen(text);
  const auto [rest, failure] = std::from_chars(text, end, mebibytes);
  if (failure != std::errc() || rest != end) return kUsualLimit;
  return std::min(mebibytes, SIZE_MAX / kMebibyte) * kMebibyte;
}

#if defined(__linux__)

// Whole large pages: more is mapped than is asked for, and what lies around them is given back at once.
void* map_pages(std::size_t bytes) {
  const std::size_t mapped = bytes + kLargePage;
  void* whole = mmap(nullptr, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (whole == MAP_FAILED) return nullptr;
  auto* first = static_cast<std::byte*>(whole);
  const std::size_t before = (kLargePage - reinterpret_cast<std::uintptr_t>(first) % kLargePage) % kLargePage;
  if (before > 0) (void)munmap(first, before);
  (void)munmap(first + before + bytes, kLargePage - before);
  return first + before;
}

void release_pages(void* data, std::size_t bytes) { (void)munmap(data, bytes); }

// The pages stay where they are until the system is short of memory; a write makes them ours again.
void offer_pages(void* data, std::size_t bytes) { (void)madvise(data, bytes, MADV_FREE); }

#else

void* map_pages(std::size_t) { return nullptr; }
void release_pages(void*, std::size_t) {}
void offer_pages(void*, std::size_t) {}

#endif

}  // namespace

void* KeptMemory::take(std::size_t bytes) noexcept {
  if (bytes < kLeastBytes || bytes > limit_) return nullptr;
  const std::size_t size = whole_pages(bytes);
  if (const std::unique_lock lock(mutex_, std::try_to_lock); lock) {
    const auto found =
        std::find_if(pieces_.begin(), pieces_.end(), [&](const Piece& piece) { return piece.bytes == size; });
    if (found != pieces_.end()) {
      void* data = found->data;
      kept_ -= size;
      pieces_.erase(found);
      return data;
    }
  }
  void* data = map_pages(size);
  advise_fresh_memory(data, bytes);
  return data;
}

void KeptMemory::give_back(void* data, std::size_t bytes) noexcept {
  const std::size_t size = whole_pages(bytes);
  const std::unique_lock lock(mutex_, std::try_to_lock);
  if (!lock || size > limit_) {
    release_pages(data, size);
    return;
  }
  offer_pages(data, size);
  try {
    pieces_.push_front({data, size});
  } catch (...) {
    release_pages(data, size);
    return;
  }
  kept_ += size;
  while (kept_ > limit_) {
    kept_ -= pieces_.back().bytes;
    release_pages(pieces_.back().data, pieces_.back().bytes);
    pieces_.pop_back();
  }
}

KeptMemory& kept_memory() {
  // Never destroyed: tensors may go while the program ends.
  static auto* const kMemory = new KeptMemory(limit_from_environment());  // NOLINT(*-owning-memory)
  return *kMemory;
}

}  // namespace fuseblock::torch_binding
