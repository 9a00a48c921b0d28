// The lines that count, with anything between them:
//
//   ptxas info    : Compiling entry function 'norm' for 'sm_90a'
//   ptxas info    : Function properties for norm
//   ptxas         .     256 bytes stack frame, 8 bytes spill stores, 8 bytes spill loads
//   ptxas info    : Used 30 registers, used 1 barriers, 256 bytes cumulative stack size, 1024 bytes smem
#include "cuda/jit/resources.h"

#include <algorithm>
#include <cctype>
#include <charconv>

namespace fuseblock::jit {
namespace {

// The number in front of ` unit` in a line; 0 where there is none.
int number_before(std::string_view line, std::string_view unit) {
  const std::size_t end = line.find(unit);
  if (end == std::string_view::npos) return 0;
  std::size_t begin = end;
  while (begin > 0 && std::isdigit(static_cast<unsigned char>(line[begin - 1])) != 0) --begin;
  int number = 0;
  std::from_chars(line.data() + begin, line.data() + end, number);
  return number;
}

// What follows `words` up to `end` (or to the end of the line); nothing where the line has no such words.
std::string_view text_after(std::string_view line, std::string_view words, char end) {
  const std::size_t found = line.find(words);
  if (found == std::string_view::npos) return {};
  line.remove_prefix(found + words.size());
  return line.substr(0, line.find(end));
}

}  // namespace

std::vector<KernelResources> resources_in_log(std::string_view log) {
  std::vector<KernelResources> kernels;
  std::string_view function;  // whose properties are listed; not always a kernel
  while (!log.empty()) {
    const std::string_view line = log.substr(0, log.find('\n'));
    log.remove_prefix(std::min(line.size() + 1, log.size()));
    if (const std::string_view entry = text_after(line, "Compiling entry function '", '\''); !entry.empty()) {
      kernels.push_back({});
      kernels.back().entry = entry;
    } else if (const std::string_view name = text_after(line, "Function properties for ", ' ');
               !name.empty()) {
      function = name;
    } else if (!kernels.empty()) {
      KernelResources& kernel = kernels.back();
      if (line.find(" bytes stack frame") != std::string_view::npos && function == kernel.entry) {
        kernel.local_bytes = std::max(kernel.local_bytes, number_before(line, " bytes stack frame"));
        kernel.spill_store_bytes = number_before(line, " bytes spill stores");
        kernel.spill_load_bytes = number_before(line, " bytes spill loads");
      } else if (line.find("Used ") != std::string_view::npos) {
        kernel.registers = number_before(line, " registers");
        kernel.shared_bytes = number_before(line, " bytes smem");
        kernel.local_bytes =
            std::max(kernel.local_bytes, number_before(line, " bytes cumulative stack size"));
      }
    }
  }
  return kernels;
}

}  // namespace fuseblock::jit
