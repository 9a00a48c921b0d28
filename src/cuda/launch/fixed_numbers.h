// What an environment variable fixes of a kernel's division, for measuring (docs/environment.md): words such as
// `team=4`, separated by commas.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace fuseblock::cuda {

struct FixedNumber {
  std::size_t name;  // its place in `names`
  int number;
};

// The words of `text`. Numbers are 0 or more but for that of `signed_name`. Throws UserError that names the variable, the
// word it does not know and those that it does.
std::vector<FixedNumber> fixed_numbers(const std::string& variable, std::string_view text,
                                       std::span<const std::string_view> names,
                                       std::string_view signed_name = {});

// Refuses threads of a block that are no whole warps, or more than a block has. Throws UserError that names the variable.
void check_threads(const std::string& variable, int threads);

}  // namespace fuseblock::cuda
