#include "cuda/launch/tags.h"

#include <atomic>
#include <cstdlib>
#include <random>
#include <string_view>

namespace fuseblock::cuda {
namespace {

// Copies of the library begin far from each other: at a random number of 62 bits above the half of all.
std::uint64_t first_tag() {
  std::random_device random;
  const std::uint64_t high = random();
  const std::uint64_t low = random();
  return std::uint64_t{1} << 63 | ((high << 32 ^ low) >> 2);
}

}  // namespace

std::uint64_t take_tags(std::int64_t count) {
  static std::atomic<std::uint64_t> next = first_tag();
  return next.fetch_add(static_cast<std::uint64_t>(count), std::memory_order_relaxed);
}

bool clears_tagged() {
  static const bool kClears = [] {
    const char* value = std::getenv("FUSEBLOCK_CLEARED");
    return value != nullptr && std::string_view(value) == "1";
  }();
  return kClears;
}

}  // namespace fuseblock::cuda
