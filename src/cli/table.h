// Text tables with aligned columns, and numbers as a person reads them.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "console.h"

namespace fuseblock::cli {

class Table {
 public:
  struct Column {
    std::string title;
    bool right = false;  // numbers
  };

  // Without titles there is no header line.
  explicit Table(std::vector<Column> columns) : columns_(std::move(columns)) {}

  // As many cells as columns.
  void add(std::vector<std::string> cells) { rows_.push_back(std::move(cells)); }

  // Two spaces between columns, `indent` in front of each line, no blanks at the ends of lines.
  std::string text(const Console& console, int indent = 0) const;

 private:
  std::vector<Column> columns_;
  std::vector<std::vector<std::string>> rows_;
};

std::string number_text(double value, int significant_digits = 6);
// `1.18 M`: three digits and the prefix of a thousand.
std::string amount_text(double value);
// `12.3 us`, `4.56 ms`, `1.23 s`.
std::string time_text(double seconds);
// `512 B`, `1.5 MB`, in powers of ten.
std::string bytes_text(double bytes);
// `3 files`, `1 file`.
std::string count_text(std::size_t count, std::string_view noun);
std::string join(const std::vector<std::string>& words, std::string_view separator);

}  // namespace fuseblock::cli
