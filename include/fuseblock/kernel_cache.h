// The compiled kernels that are kept on disk between processes; docs/environment.md says where and how many.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace fuseblock {

// Where a compiled kernel came from: compiled now, by this process before, from the disk, or from the folder that
// FUSEBLOCK_CUBINS names.
enum class KernelOrigin : std::uint8_t { kCompiled, kMemory, kDisk, kCarried };
// `compiled`, `memory`, `disk`, `carried`.
std::string_view to_string(KernelOrigin origin);

struct CachedKernel {
  std::string file;  // without the folder
  std::string name;
  std::string architecture;
  std::string compiler;
  std::uint64_t bytes = 0;
  std::int64_t used = 0;  // seconds since 1970
  bool damaged = false;   // to be replaced when it is needed; name, architecture and compiler are empty
};

struct KernelCacheState {
  std::string folder;   // empty where no variable says one
  std::string refusal;  // why nothing is kept there; empty where it is
  std::uint64_t bytes = 0;
  std::uint64_t bound = 0;            // bytes
  std::vector<CachedKernel> kernels;  // the last used first
};

// Reads the folder and creates nothing.
KernelCacheState kernel_cache_state();

// Removes all kernels and what was left half-written. Returns how many kernels there were. Throws UserError where the
// folder is refused.
std::size_t clear_kernel_cache();

}  // namespace fuseblock
