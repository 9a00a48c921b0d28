// What a kernel takes of a multiprocessor, as the assembler reports it.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace fuseblock::jit {

struct KernelResources {
  std::string entry;
  int registers = 0;          // a thread
  int shared_bytes = 0;       // static, a block
  int local_bytes = 0;        // a thread's stack, spilled registers and called functions included
  int spill_store_bytes = 0;  // written to the stack by a thread for want of registers
  int spill_load_bytes = 0;

  bool operator==(const KernelResources&) const = default;
};

// From the log of a compilation with --ptxas-options=-v, in the log's order. Lines of other kinds are passed over.
std::vector<KernelResources> resources_in_log(std::string_view log);

}  // namespace fuseblock::jit
