#include "block/text.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>

namespace fuseblock {
namespace {

constexpr std::size_t kExcerptWidth = 100;
constexpr std::size_t kQuotedWidth = 60;

std::string escaped(char byte) {
  if (byte >= 0x20 && byte < 0x7f) return {byte};
  constexpr std::string_view kDigits = "0123456789abcdef";
  const auto code = static_cast<unsigned char>(byte);
  return {'\\', 'x', kDigits[code >> 4], kDigits[code & 15]};
}

}  // namespace

std::string number_text(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  std::array<char, 32> buffer{};
  const auto end = std::to_chars(buffer.data(), buffer.data() + buffer.size(), value).ptr;
  return {buffer.data(), end};
}

std::string join(const std::vector<std::string>& parts, std::string_view separator) {
  std::string text;
  for (const std::string& part : parts) {
    if (!text.empty()) text += separator;
    text += part;
  }
  return text;
}

std::string printable(std::string_view text) {
  std::string result;
  const bool shortened = text.size() > kQuotedWidth;
  const std::string_view head = shortened ? text.substr(0, kQuotedWidth / 2) : text;
  for (char byte : head) result += escaped(byte);
  if (shortened) {
    result += "...";
    for (char byte : text.substr(text.size() - kQuotedWidth / 4)) result += escaped(byte);
  }
  return result;
}

std::string in_quotes(std::string_view text) { return "`" + printable(text) + "`"; }

Position position_of(std::string_view text, std::size_t offset) {
  const std::string_view before = text.substr(0, std::min(offset, text.size()));
  const auto line_start = before.rfind('\n') == std::string_view::npos ? 0 : before.rfind('\n') + 1;
  Position position;
  position.line = 1 + static_cast<int>(std::count(before.begin(), before.end(), '\n'));
  position.column = 1 + static_cast<int>(before.size() - line_start);
  return position;
}

std::string excerpt_of(std::string_view text, std::size_t offset, std::size_t length) {
  offset = std::min(offset, text.size());
  const auto previous = offset == 0 ? std::string_view::npos : text.rfind('\n', offset - 1);
  const std::size_t line_start = previous == std::string_view::npos ? 0 : previous + 1;
  const std::size_t line_end = std::min(text.find('\n', offset), text.size());
  const bool is_long = line_end - line_start > kExcerptWidth;
  const std::size_t start =
      is_long && offset - line_start > kExcerptWidth / 2 ? offset - kExcerptWidth / 2 : line_start;
  const std::size_t end = std::min(line_end, start + kExcerptWidth);

  std::string line = start > line_start ? "..." : "";
  std::string marks(line.size(), ' ');
  for (std::size_t i = start; i < end; ++i) {
    const std::string shown = escaped(text[i]);
    line += shown;
    const bool marked = i >= offset && i < offset + std::max<std::size_t>(length, 1);
    marks += std::string(shown.size(), marked ? (i == offset ? '^' : '~') : ' ');
    if (i == offset) std::fill(marks.end() - static_cast<std::ptrdiff_t>(shown.size()) + 1, marks.end(), '~');
  }
  if (offset >= end) marks += '^';
  if (end < line_end) line += "...";
  marks.erase(marks.find_last_not_of(' ') + 1);
  return "  " + line + "\n  " + marks;
}

}  // namespace fuseblock
