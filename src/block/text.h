// Small pieces of text: numbers that read back as themselves, printable excerpts, joined lists.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "fuseblock/error.h"

namespace fuseblock {

// The shortest text that reads back as the same double; `inf`, `-inf`, `nan` for the values without digits.
std::string number_text(double value);
std::string join(const std::vector<std::string>& parts, std::string_view separator);
// Bytes that are not printable ASCII become \xNN, so that messages are safe to show whatever the input was;
// long texts are shortened in the middle.
std::string printable(std::string_view text);
std::string in_quotes(std::string_view text);

// Line and column of a byte offset, and the line with a caret below it (a window of it where the line is
// long).
Position position_of(std::string_view text, std::size_t offset);
std::string excerpt_of(std::string_view text, std::size_t offset, std::size_t length);

}  // namespace fuseblock
