// Cubins by what they depend on: in memory, in a folder that was carried here, on disk, else compiled.
//
// A cubin's identity is a digest of the kernel's name, its options, the architecture and source_digest of its text. On
// disk a cubin is a file named by the identity and the compiler's version, in a folder private to the user. A file that
// is damaged, cut off or not what its name says is replaced, never run. Files are written beside and renamed; processes
// that need the same cubin at the same time wait for the first of them. Where all files together exceed the bound, those
// used least recently are removed.
//
// A carried folder is only read: cubins by identity alone, of whichever compiler, for machines without one. carry() writes
// them. Whoever names such a folder vouches for it.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "cuda/jit/compiler.h"
#include "cuda/jit/private_folder.h"
#include "fuseblock/kernel_cache.h"

namespace fuseblock::jit {

// A digest of all that a cubin depends on but the compiler.
std::string identity_of(const KernelSource& source, const Architecture& architecture);

struct CacheSettings {
  std::string folder;                 // empty: nothing is kept on disk
  std::string carried;                // empty: none
  std::uint64_t bound = 256'000'000;  // bytes on disk

  std::function<std::string()> compiler_version = jit::compiler_version;
  std::function<Cubin(const KernelSource&, const Architecture&)> compile = jit::compile;
};

struct FoundCubin {
  std::shared_ptr<const Cubin> cubin;
  KernelOrigin origin = KernelOrigin::kMemory;
};

class KernelCache {
 public:
  explicit KernelCache(CacheSettings settings) : settings_(std::move(settings)) {}

  // The same object for the same identity as long as the cache lives; several threads may ask at once. Throws as
  // compile() does.
  FoundCubin find(const KernelSource& source, const Architecture& architecture);

  // Reads the folder and creates nothing.
  KernelCacheState state() const;
  // Removes the files of the disk cache. Returns how many kernels there were. Throws UserError where the folder is
  // refused.
  std::size_t clear() const;

 private:
  struct Entry {
    std::mutex mutex;  // held while the cubin is looked for or compiled
    std::shared_ptr<const Cubin> cubin;
  };

  FoundCubin look(const KernelSource& source, const Architecture& architecture,
                  const std::string& identity) const;

  CacheSettings settings_;
  std::mutex mutex_;
  std::map<std::string, std::shared_ptr<Entry>> entries_;
};

// That of this process: FUSEBLOCK_CACHE_DIR and what stands for it, FUSEBLOCK_CACHE_BYTES, FUSEBLOCK_CUBINS, read once.
KernelCache& kernel_cache();

// Writes a cubin to a folder that the FUSEBLOCK_CUBINS of another machine will name. Returns the file's name. Throws
// UserError where it cannot be written.
std::string carry(const Cubin& cubin, const std::string& folder);

}  // namespace fuseblock::jit
