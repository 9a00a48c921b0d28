#include "plan/amounts.h"

#include <array>
#include <cstdio>

namespace fuseblock {

std::string amount(double value) {
  constexpr std::array<const char*, 6> kPrefixes = {"", " k", " M", " G", " T", " P"};
  std::size_t prefix = 0;
  while (value >= 999.5 && prefix + 1 < kPrefixes.size()) {
    value /= 1000;
    ++prefix;
  }
  std::array<char, 32> digits{};
  std::snprintf(digits.data(), digits.size(), value < 10 && prefix > 0 ? "%.1f" : "%.0f", value);
  return std::string(digits.data()) + kPrefixes[prefix];
}

std::string amount(double value, const std::string& unit) {
  const std::string text = amount(value);
  return text + (text.find(' ') == std::string::npos ? " " : "") + unit;
}

std::string time_text(double seconds) {
  constexpr std::array<const char*, 4> kUnits = {" ns", " us", " ms", " s"};
  double value = seconds * 1e9;
  std::size_t unit = 0;
  while (value >= 999.5 && unit + 1 < kUnits.size()) {
    value /= 1000;
    ++unit;
  }
  std::array<char, 32> digits{};
  std::snprintf(digits.data(), digits.size(),
                value >= 99.95   ? "%.0f"
                : value >= 9.995 ? "%.1f"
                                 : "%.2f",
                value);
  return std::string(digits.data()) + kUnits[unit];
}

}  // namespace fuseblock
