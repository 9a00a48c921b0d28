// Splits notation, formulas and types into tokens. White space and comments (`#` to the end of the line)
// separate tokens.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "fuseblock/type.h"

namespace fuseblock {

enum class TokenKind : std::uint8_t {
  kName,    // letters, digits, underscores and dots: `conv2d`, `conv2d.weight`
  kNumber,  // without a sign
  kSymbol,  // | ( ) [ ] , = ; : + - * / < <= > >= ==
  kEnd,
};

struct Token {
  TokenKind kind = TokenKind::kEnd;
  std::string_view text;
  std::size_t offset = 0;
};

class Lexer {
 public:
  // The text must outlive the lexer and its tokens.
  explicit Lexer(std::string_view text);

  // The next token, which stays the next one.
  const Token& peek() const { return current_; }
  // The token after that.
  const Token& peek_second() const { return following_; }
  Token next();
  bool at(std::string_view symbol_or_word) const {
    return current_.kind != TokenKind::kEnd && current_.text == symbol_or_word;
  }
  // Takes the symbol or word if it is next.
  bool accept(std::string_view symbol_or_word);
  // Takes it or fails: `expected <what>, got ...`.
  Token expect(std::string_view symbol, std::string_view what);
  Token expect(TokenKind kind, std::string_view what);
  // The place just behind the last token taken.
  std::size_t last_end() const { return last_end_; }

  // Throws UserError at the place of the token, or over a stretch of the text.
  [[noreturn]] void fail(const Token& token, const std::string& message) const;
  [[noreturn]] void fail(std::size_t begin, std::size_t end, const std::string& message) const;
  std::string_view text() const { return text_; }

 private:
  Token scan();

  std::string_view text_;
  std::size_t offset_ = 0;
  std::size_t last_end_ = 0;
  Token current_;
  Token following_;
};

// `got ...` for a message: the token in quotes, or the end of the text.
std::string describe(const Token& token);
// The axis of a one-letter word.
std::optional<Axis> axis_of(std::string_view word);
// A whole number below 2^63.
std::optional<std::int64_t> whole_number(std::string_view text);
// A number, also outside the range of double (as infinity or zero).
double number_value(std::string_view text);
// Words that cannot name a value: axis letters and the words of the notation.
bool is_reserved(std::string_view word);
// Whether a word has the form of a name.
bool is_name(std::string_view word);

}  // namespace fuseblock
