// What a text is to the compiler: its tokens, without comments and white space.
#pragma once

#include <string>
#include <string_view>

namespace fuseblock::jit {

// The text with comments gone and with no more white space than keeps its tokens and preprocessor lines apart. String and
// character literals, raw ones too, stay as they are.
std::string without_comments(std::string_view text);

// SHA-256 of without_comments(text), 64 hexadecimal digits. Also what the record of GPU runs keeps of a kernel.
std::string source_digest(std::string_view text);

}  // namespace fuseblock::jit
