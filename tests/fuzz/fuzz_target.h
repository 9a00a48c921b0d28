// What the libFuzzer programs share: a finding ends the program, and half of the mutations are those of fuzz_test, which know
// what a token is and begin with the reference blocks.
#pragma once

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "fuzz_support.h"

extern "C" std::size_t LLVMFuzzerMutate(std::uint8_t* data, std::size_t size, std::size_t max_size);

namespace fuseblock::fuzz {

inline std::string_view text_of(const std::uint8_t* data, std::size_t size) {
  return {reinterpret_cast<const char*>(data), size};
}

// Prints what is wrong and the text on one line, and aborts; nothing where nothing is wrong.
inline void require_nothing_wrong(const std::string& trouble, std::string_view text) {
  if (trouble.empty()) return;
  std::fprintf(stderr, "%s\n  the text: '%s'\n", trouble.c_str(), escaped(text).c_str());
  std::abort();
}

// `seeds` are texts to begin with and to splice with.
inline std::size_t mutate_buffer(std::uint8_t* data, std::size_t size, std::size_t max_size, unsigned seed,
                                 const std::vector<std::string>& seeds) {
  Random random(seed);
  if (size > 0 && random.below(2) == 0) return LLVMFuzzerMutate(data, size, max_size);
  const std::string text = mutate(text_of(data, size), seeds[random.below(seeds.size())], random);
  const std::size_t new_size = std::min(text.size(), max_size);
  std::memcpy(data, text.data(), new_size);
  return new_size;
}

}  // namespace fuseblock::fuzz
