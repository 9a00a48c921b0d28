// NVRTC, opened at run time: text in, machine code (a cubin) out. No GPU is needed for it.
//
// The compiler is the first of these that opens, has all functions and is not newer than the driver (without a driver
// any will do): the loader's path; the wheels under the folder that set_compiler_folder was given (site-packages of a
// Python with torch); /usr/local/cuda/lib64. FUSEBLOCK_NVRTC, the name of a file, takes the place of all of them.
#pragma once

#include <string>
#include <vector>

#include "cuda/jit/architecture.h"
#include "cuda/jit/resources.h"

namespace fuseblock::jit {

// What the compiler is given. The text includes nothing; its kernels are extern "C".
struct KernelSource {
  std::string name;  // of the kernel, for people and for the cache
  std::string text;
  std::vector<std::string> options;  // NVRTC's; the architecture is added to them
  std::string entry;                 // the kernel's name in the text
  std::string description;  // for messages: the block and its constants; not part of what is compiled
};

struct Cubin {
  std::string identity;  // of the cache: a digest of name, options, architecture and text
  std::string name;
  std::string entry;
  std::string architecture;
  std::string compiler;  // `nvrtc 13.0`
  std::string image;     // the ELF file
  std::string log;       // the compiler's and the assembler's words
  std::vector<KernelResources> kernels;

  // Those of the entry.
  const KernelResources& resources() const;
};

// Where wheels are looked for, besides the other places. No effect once a compiler was found.
void set_compiler_folder(std::string folder);

// `nvrtc 13.0`; empty where there is no compiler.
std::string compiler_version();
// A line for each place that was looked at and what was wrong there; empty where there is a compiler.
std::string no_compiler_reason();

// The files that are tried without FUSEBLOCK_NVRTC, in order; names without a folder go by the loader's path.
std::vector<std::string> compiler_files(const std::string& wheels);

// Why a compiler of this version (13000 for 13.0) is passed over beside this driver (0: there is none); empty where it
// is not. The driver need not understand code of a compiler that is newer than itself.
std::string reason_to_pass_over(int compiler, int driver);

// Compiles, whatever the caches hold; Cubin::identity is left empty. Throws InternalError where the text does not compile
// or has no such entry: its message has the kernel's name, the architecture, the description and the log. Throws
// NotSupportedError where there is no compiler or it does not know the architecture.
Cubin compile(const KernelSource& source, const Architecture& architecture);

}  // namespace fuseblock::jit
