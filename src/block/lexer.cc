#include "block/lexer.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdlib>
#include <string>

#include "block/text.h"
#include "fuseblock/error.h"

namespace fuseblock {
namespace {

bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }
bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_space(char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r'; }

constexpr std::string_view kSymbols = "|()[],=;:+-*/<>";
constexpr std::array<std::string_view, 7> kReservedWords = {"as",   "return", "true", "false",
                                                            "none", "inf",    "nan"};

// The end of a name that starts at `begin`: parts of letters, digits and underscores, joined by single dots.
std::size_t name_end(std::string_view text, std::size_t begin) {
  std::size_t end = begin;
  while (end < text.size() && (is_letter(text[end]) || is_digit(text[end]) ||
                               (text[end] == '.' && end + 1 < text.size() && is_letter(text[end + 1]))))
    ++end;
  return end;
}

// The end of digits [. digits] [e [sign] digits].
std::size_t number_end(std::string_view text, std::size_t begin) {
  auto digits = [&](std::size_t at) {
    while (at < text.size() && is_digit(text[at])) ++at;
    return at;
  };
  std::size_t end = digits(begin);
  if (end < text.size() && text[end] == '.') end = digits(end + 1);
  if (end < text.size() && (text[end] == 'e' || text[end] == 'E')) {
    const bool sign = end + 1 < text.size() && (text[end + 1] == '+' || text[end + 1] == '-');
    const std::size_t exponent = end + (sign ? 2 : 1);
    if (digits(exponent) > exponent) end = digits(exponent);
  }
  return end;
}

}  // namespace

Lexer::Lexer(std::string_view text) : text_(text) {
  current_ = scan();
  following_ = scan();
}

Token Lexer::next() {
  const Token token = current_;
  last_end_ = token.offset + token.text.size();
  current_ = following_;
  if (current_.kind != TokenKind::kEnd) following_ = scan();
  return token;
}

bool Lexer::accept(std::string_view symbol_or_word) {
  if (!at(symbol_or_word)) return false;
  next();
  return true;
}

Token Lexer::expect(std::string_view symbol, std::string_view what) {
  if (!at(symbol)) fail(current_, "expected " + std::string(what) + ", got " + describe(current_));
  return next();
}

Token Lexer::expect(TokenKind kind, std::string_view what) {
  if (current_.kind != kind) fail(current_, "expected " + std::string(what) + ", got " + describe(current_));
  return next();
}

void Lexer::fail(const Token& token, const std::string& message) const {
  fail(token.offset, token.offset + token.text.size(), message);
}

void Lexer::fail(std::size_t begin, std::size_t end, const std::string& message) const {
  throw UserError(message, position_of(text_, begin), excerpt_of(text_, begin, end - begin));
}

Token Lexer::scan() {
  while (offset_ < text_.size() && (is_space(text_[offset_]) || text_[offset_] == '#')) {
    if (text_[offset_] == '#')
      offset_ = std::min(text_.find('\n', offset_), text_.size());
    else
      ++offset_;
  }
  Token token;
  token.offset = offset_;
  if (offset_ == text_.size()) return token;
  const char first = text_[offset_];
  std::size_t end = offset_ + 1;
  if (is_letter(first)) {
    token.kind = TokenKind::kName;
    end = name_end(text_, offset_);
  } else if (is_digit(first) ||
             (first == '.' && offset_ + 1 < text_.size() && is_digit(text_[offset_ + 1]))) {
    token.kind = TokenKind::kNumber;
    end = number_end(text_, offset_);
  } else if (kSymbols.find(first) != std::string_view::npos) {
    token.kind = TokenKind::kSymbol;
    const bool doubled =
        end < text_.size() && text_[end] == '=' && (first == '<' || first == '>' || first == '=');
    if (doubled) ++end;
  } else {
    fail(offset_, offset_ + 1,
         "a character that does not belong into the notation: " + in_quotes(text_.substr(offset_, 1)));
  }
  token.text = text_.substr(offset_, end - offset_);
  offset_ = end;
  return token;
}

std::string describe(const Token& token) {
  return token.kind == TokenKind::kEnd ? "the end of the text" : in_quotes(token.text);
}

std::optional<Axis> axis_of(std::string_view word) {
  for (Axis axis : kAllAxes)
    if (word.size() == 1 && word[0] == letter(axis)) return axis;
  return std::nullopt;
}

std::optional<std::int64_t> whole_number(std::string_view text) {
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

double number_value(std::string_view text) {
  double value = 0;
  const std::errc error = std::from_chars(text.data(), text.data() + text.size(), value).ec;
  // from_chars does not say whether a number was too large or too small; strtod does.
  return error == std::errc::result_out_of_range ? std::strtod(std::string(text).c_str(), nullptr) : value;
}

bool is_reserved(std::string_view word) {
  return axis_of(word).has_value() ||
         std::find(kReservedWords.begin(), kReservedWords.end(), word) != kReservedWords.end();
}

bool is_name(std::string_view word) {
  return !word.empty() && is_letter(word[0]) && name_end(word, 0) == word.size();
}

}  // namespace fuseblock
