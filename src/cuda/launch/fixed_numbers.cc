#include "cuda/launch/fixed_numbers.h"

#include <algorithm>
#include <charconv>

#include "fuseblock/error.h"

namespace fuseblock::cuda {
namespace {

// a=, b= and c=
std::string listed(std::span<const std::string_view> names) {
  std::string text;
  for (std::size_t i = 0; i < names.size(); ++i) {
    if (i > 0) text += i + 1 < names.size() ? ", " : " and ";
    text += std::string(names[i]) + "=";
  }
  return text;
}

}  // namespace

std::vector<FixedNumber> fixed_numbers(const std::string& variable, std::string_view text,
                                       std::span<const std::string_view> names,
                                       std::string_view signed_name) {
  std::vector<FixedNumber> found;
  while (!text.empty()) {
    const std::string_view word = text.substr(0, text.find(','));
    text.remove_prefix(std::min(text.size(), word.size() + 1));
    const std::string_view name = word.substr(0, word.find('='));
    const std::string_view value = word.substr(std::min(word.size(), name.size() + 1));
    const auto place = std::find(names.begin(), names.end(), name);
    int number = 0;
    const auto parsed = std::from_chars(value.data(), value.data() + value.size(), number);
    if (place == names.end() || parsed.ec != std::errc() || parsed.ptr != value.data() + value.size() ||
        (number < 0 && name != signed_name))
      throw UserError(variable + ": `" + std::string(word.substr(0, 40)) + "` is none of " + listed(names) +
                      " with a number");
    found.push_back({static_cast<std::size_t>(place - names.begin()), number});
  }
  return found;
}

void check_threads(const std::string& variable, int threads) {
  constexpr int kWarp = 32, kMost = 1024;
  if (threads < kWarp || threads > kMost || threads % kWarp != 0)
    throw UserError(variable + ": threads=: expected a multiple of " + std::to_string(kWarp) + " up to " +
                    std::to_string(kMost) + ", got " + std::to_string(threads));
}

}  // namespace fuseblock::cuda
