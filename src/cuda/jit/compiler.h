// NVRTC, opened at run time: text in, machine code (a cubin) out. No GPU is needed for it.
//
// The compiler is the first of these that opens, has all functions and is not newer than the driver (without a driver
// any will do): FUSEBLOCK_NVRTC (a file); the loader's path; the wheels under the folder that set_compiler_folder was
// given (site-packages of a Python with torch); /usr/local/cuda. FUSEBLOCK_NVRTC excludes the others.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "cuda/jit/architecture.h"

namespace fuseblock::jit {

// What the compiler is given. The text includes nothing; its kernels are extern "C".
struct KernelSource {
  std::string name;  // of the kernel, for people and for the cache
  std::string text;
  std::vector<std::string> options;  // NVRTC's; the architecture is added to them
  std::string entry;                 // the kernel's name in the text
  std::string description;  // for messages: the block and its constants; not part of what is compiled
};

// What one kernel takes, as the assembler reports it.
struct KernelResources {
  std::string entry;
  int registers = 0;     // a thread
  int shared_bytes = 0;  // static, a block
  int local_bytes = 0;   // a thread's stack frame in local memory, spilled registers included
  int spill_store_bytes = 0;
  int spill_load_bytes = 0;

  bool operator==(const KernelResources&) const = default;
};

// Where a cubin came from.
enum class CubinOrigin : std::uint8_t { kCompiled, kMemory, kDisk, kCarried };

struct Cubin {
  std::string key;  // a digest of all that the cubin depends on
  std::string name;
  std::string entry;
  std::string architecture;
  std::string compiler;  // `nvrtc 13.0`
  std::string image;     // the ELF file
  std::string log;       // the compiler's and the assembler's words
  std::vector<KernelResources> kernels;

  // Those of the entry. Throws InternalError where the assembler did not report it.
  const KernelResources& resources() const;
};

// Where wheels are looked for, besides the other places. Only before the first compilation does it have an effect.
void set_compiler_folder(std::string folder);

// `nvrtc 13.0`; empty where there is no compiler.
const std::string& compiler_version();
// One line for each place that was looked at and what was wrong there; empty where there is a compiler.
const std::string& no_compiler_reason();

// Compiles, whatever the caches hold; Cubin::key is left empty. Throws InternalError where the text does not compile: its
// message has the kernel's name, the description, the architecture and the log. Throws NotSupportedError where there is
// no compiler.
Cubin compile(const KernelSource& source, const Architecture& architecture);

}  // namespace fuseblock::jit
