#include "table.h"

#include <algorithm>
#include <array>
#include <cstdio>

namespace fuseblock::cli {
namespace {

std::string fixed(double value, int decimals) {
  std::array<char, 400> buffer{};  // the largest double has 309 digits
  std::snprintf(buffer.data(), buffer.size(), "%.*f", decimals, value);
  return buffer.data();
}

// Three significant digits and the unit that keeps the number between 1 and 1000.
std::string scaled(double value, double base, const std::vector<std::string>& units) {
  std::size_t unit = 0;
  double shown = value / base;
  while (shown >= 999.5 && unit + 1 < units.size()) {
    shown /= 1000;
    ++unit;
  }
  const int decimals = shown >= 99.95 ? 0 : (shown >= 9.995 ? 1 : 2);
  return fixed(shown, decimals) + " " + units[unit];
}

}  // namespace

std::string Table::text(const Console& console, int indent) const {
  std::vector<std::size_t> widths;
  bool titled = false;
  for (const Column& column : columns_) {
    widths.push_back(column.title.size());
    titled = titled || !column.title.empty();
  }
  for (const auto& row : rows_)
    for (std::size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());

  auto line = [&](const std::vector<std::string>& cells) {
    std::string text(static_cast<std::size_t>(indent), ' ');
    for (std::size_t i = 0; i < cells.size(); ++i) {
      const std::string blanks(widths[i] - cells[i].size(), ' ');
      text += (i == 0 ? "" : "  ") + (columns_[i].right ? blanks + cells[i] : cells[i] + blanks);
    }
    text.erase(text.find_last_not_of(' ') + 1);
    return text;
  };

  std::string result;
  if (titled) {
    std::vector<std::string> titles;
    for (const Column& column : columns_) titles.push_back(column.title);
    result += console.bold(line(titles)) + "\n";
  }
  for (const auto& row : rows_) result += line(row) + "\n";
  return result;
}

std::string number_text(double value, int significant_digits) {
  std::array<char, 64> buffer{};
  std::snprintf(buffer.data(), buffer.size(), "%.*g", significant_digits, value);
  return buffer.data();
}

std::string amount_text(double value) {
  if (value < 1000) return fixed(value, 0);
  return scaled(value, 1e3, {"k", "M", "G", "T", "P"});
}

std::string time_text(double seconds) { return scaled(seconds, 1e-6, {"us", "ms", "s"}); }

std::string bytes_text(double bytes) {
  if (bytes < 1000) return fixed(bytes, 0) + " B";
  return scaled(bytes, 1e3, {"kB", "MB", "GB", "TB", "PB", "EB"});
}

std::string count_text(std::size_t count, std::string_view noun) {
  return std::to_string(count) + " " + std::string(noun) + (count == 1 ? "" : "s");
}

std::string join(const std::vector<std::string>& words, std::string_view separator) {
  std::string text;
  for (const std::string& word : words) {
    if (!text.empty()) text += separator;
    text += word;
  }
  return text;
}

}  // namespace fuseblock::cli
