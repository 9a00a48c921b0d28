// A kernel's text as C++ that cuda_language.h stands before.
#pragma once

#include <string>
#include <vector>

namespace fuseblock_emulated {

struct Translation {
  std::string text;                  // lines are those of the kernel's text
  std::vector<std::string> kernels;  // names
};

// Throws std::runtime_error where the text has something that is not known, with its line.
Translation cpp_of_cuda(const std::string& text);

}  // namespace fuseblock_emulated
