#include "fuseblock/fresh_memory.h"

#include <cstdint>
#include <cstdlib>
#include <cstring>

#if defined(__linux__)
#include <sys/mman.h>
#endif

namespace fuseblock {
namespace {

// Below this the call and the pages around the whole large ones cost what is spared.
constexpr std::size_t kLeastBytes = std::size_t{4} << 20;
// Of x86-64, and of Arm with small pages of 4 KiB; where large ones are larger, only such as fit are made.
constexpr std::uintptr_t kLargePage = std::uintptr_t{2} << 20;

bool is_wanted() {
  static const bool kWanted = [] {
    const char* value =
        std::getenv("FUSEBLOCK_HUGE_PAGES");  // NOLINT(concurrency-mt-unsafe): nothing here sets variables
    return value == nullptr || std::strcmp(value, "0") != 0;
  }();
  return kWanted;
}

}  // namespace

void advise_fresh_memory(void* data, std::size_t bytes) noexcept {
  if (data == nullptr || bytes < kLeastBytes || !is_wanted()) return;
#if defined(__linux__)
  const auto first = reinterpret_cast<std::uintptr_t>(data);
  const std::uintptr_t begin = (first + kLargePage - 1) / kLargePage * kLargePage;
  const std::uintptr_t end = (first + bytes) / kLargePage * kLargePage;
  if (begin >= end) return;
  // A system without large pages refuses, and small ones serve as well.
  (void)madvise(static_cast<std::byte*>(data) + (begin - first), end - begin, MADV_HUGEPAGE);
#endif
}

}  // namespace fuseblock
