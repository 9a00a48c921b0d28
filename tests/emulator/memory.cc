#include "memory.h"

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>

namespace fuseblock_emulated {
namespace {

constexpr std::size_t kGuard = 512;
constexpr std::size_t kAlign = 512;  // as the driver's
constexpr int kPoison = 0xff;

struct Pieces {
  std::mutex mutex;
  std::map<const char*, std::size_t> bytes;  // by where they begin
};

Pieces& pieces() {
  static auto* const kPieces = new Pieces;
  return *kPieces;
}

bool whole(const char* begin, std::size_t bytes) {
  return std::all_of(begin, begin + bytes, [](char c) { return static_cast<unsigned char>(c) == kPoison; });
}

std::string broken_around(const char* begin, std::size_t bytes) {
  if (!whole(begin - kGuard, kGuard))
    return "written before a piece of memory of " + std::to_string(bytes) + " bytes";
  if (!whole(begin + bytes, kGuard))
    return "written behind a piece of memory of " + std::to_string(bytes) + " bytes";
  return "";
}

std::string& broken_and_gone() {
  static std::string words;
  return words;
}

}  // namespace

void* allocate(std::size_t bytes) {
  const std::size_t all = (bytes + 2 * kGuard + kAlign - 1) / kAlign * kAlign;
  auto* memory = static_cast<char*>(std::aligned_alloc(kAlign, all));
  if (memory == nullptr) return nullptr;
  std::memset(memory, kPoison, all);
  const std::scoped_lock lock(pieces().mutex);
  pieces().bytes[memory + kGuard] = bytes;
  return memory + kGuard;
}

bool release(void* pointer) {
  const std::scoped_lock lock(pieces().mutex);
  const auto found = pieces().bytes.find(static_cast<const char*>(pointer));
  if (found == pieces().bytes.end()) return false;
  if (const std::string words = broken_around(found->first, found->second); !words.empty())
    broken_and_gone() = words;
  pieces().bytes.erase(found);
  std::free(static_cast<char*>(pointer) - kGuard);
  return true;
}

std::string broken_guards() {
  const std::scoped_lock lock(pieces().mutex);
  std::string words = broken_and_gone();
  broken_and_gone().clear();
  for (const auto& [begin, bytes] : pieces().bytes)
    if (words.empty()) words = broken_around(begin, bytes);
  return words;
}

std::string outside(const void* pointer, std::size_t bytes) {
  const auto* place = static_cast<const char*>(pointer);
  const std::scoped_lock lock(pieces().mutex);
  auto found = pieces().bytes.upper_bound(place);
  if (found == pieces().bytes.begin()) return "";
  --found;
  const auto before = static_cast<std::size_t>(place - found->first);
  if (before > found->second + kGuard || before + bytes <= found->second) return "";
  return std::to_string(bytes) + " bytes reach out of a piece of memory of " + std::to_string(found->second) +
         " bytes";
}

}  // namespace fuseblock_emulated
