// What a block read from any text must keep, checked, and the mutations that make such texts: shared by fuzz_test and by the
// libFuzzer programs in tests/fuzz. Needs no GoogleTest.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "fuseblock/typed_block.h"

namespace fuseblock::fuzz {

// The types a block is met with. Those of names that the block does not have are left aside.
struct Types {
  TensorType x;
  TypeMap others;
};

// Small types of one to five axes, for texts that come without one.
const std::vector<Types>& usual_types();

// Reads a block and takes what results as far as it goes: written and read again in each form, met with the types,
// differentiated, and the same for the backward block. A refusal is a UserError or NotSupportedError with a position and a
// printable message, and nothing takes more than two seconds. Returns what is wrong, or nothing.
std::string check(const std::function<Block()>& read, const std::vector<Types>& types);
std::string check_notation(std::string_view text, const std::vector<Types>& types);
std::string check_json(std::string_view text, const std::vector<Types>& types);

// A stream of random bits (splitmix64) that depends on nothing but its seed.
class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed) {}

  std::uint64_t bits();
  // From 0 to count - 1; count is not 0.
  std::size_t below(std::size_t count) { return static_cast<std::size_t>(bits() % count); }

 private:
  std::uint64_t state_;
};

// One to four mutations: flipped bits, strange bytes, tokens swapped, dropped, repeated, replaced or inserted, numbers
// edited, and splices with `donor`.
std::string mutate(std::string_view text, std::string_view donor, Random& random);

// The text as printable ASCII on one line, backslashes and other bytes as \xNN; and back.
std::string escaped(std::string_view text);
std::string unescaped(std::string_view text);

}  // namespace fuseblock::fuzz
