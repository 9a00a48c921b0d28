// Cubins by what they depend on: in memory, on disk, in a folder that was carried here, else compiled.
//
// The key of a cubin is a digest of the kernel's name, its options, the architecture, the compiler's version and
// source_digest of its text. On disk a cubin is a file of the folder `kernels` of the cache folder, private to the user.
// A file that is damaged, cut off or not what its name says is replaced, never run. Files are written beside and
// renamed; processes that need the same cubin at the same time wait for the first of them. The files that were used
// least recently are removed where all of them together exceed the bound.
//
// A carried folder (FUSEBLOCK_CUBINS) is only read: cubins of any compiler, written there by carry(), for machines
// without a compiler.
#pragma once

#include <cstddef>
#include <cstdint>
#include <ctime>
#include <memory>
#include <string>
#include <vector>

#include "cuda/jit/compiler.h"

namespace fuseblock::jit {

// A cubin for the source. The same object for the same key, for the life of the process. Throws as compile() does.
std::shared_ptr<const Cubin> cubin_for(const KernelSource& source, const Architecture& architecture);

// The same, and where it came from.
struct FoundCubin {
  std::shared_ptr<const Cubin> cubin;
  CubinOrigin origin = CubinOrigin::kMemory;
};
FoundCubin find_or_compile(const KernelSource& source, const Architecture& architecture);

// Writes a cubin of this source, compiled where need be, to a folder that another machine's FUSEBLOCK_CUBINS will name.
// Returns the file's name. Throws UserError where it cannot be written.
std::string carry(const KernelSource& source, const Architecture& architecture, const std::string& folder);

}  // namespace fuseblock::jit
