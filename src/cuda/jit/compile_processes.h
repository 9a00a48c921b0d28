// Many kernels compiled at once: NVRTC compiles one text at a time in a process, so this starts some.
#pragma once

#include <cstddef>
#include <functional>
#include <vector>

#include "cuda/jit/compiler.h"

namespace fuseblock::jit {

struct CompileProcesses {
  int count = 1;
  // Asked in those processes before each source: false leaves it out. Null: all.
  std::function<bool(std::size_t source)> wanted = nullptr;
  // Told in this process from time to time; may be null.
  std::function<void(std::size_t compiled)> progress = nullptr;
};

// Compiles the sources in that order into the cache on disk and gives which are there then; kernel_cache().find finds
// those without compiling. One that does not compile is left out, and so are all where nothing is kept on disk. The
// processes are forks of this one that use the compiler alone, and end with it.
std::vector<bool> compile_in_processes(const std::vector<KernelSource>& sources,
                                       const Architecture& architecture, const CompileProcesses& how);

}  // namespace fuseblock::jit
