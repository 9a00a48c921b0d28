// A small scanner of C++ text: it knows where comments, literals, numbers and preprocessor lines begin and end, and
// nothing else.
#include "cuda/jit/source_digest.h"

#include <algorithm>
#include <cctype>
#include <cstdint>

#include "cuda/jit/sha256.h"

namespace fuseblock::jit {
namespace {

bool is_digit(char c) { return std::isdigit(static_cast<unsigned char>(c)) != 0; }
bool is_word(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; }
bool is_one_of(char c, std::string_view set) { return set.find(c) != std::string_view::npos; }

enum class Kind : std::uint8_t { kWord, kNumber, kLiteral, kPunctuation };

class Scanner {
 public:
  explicit Scanner(std::string_view text) : text_(text) {}

  std::string run() {
    while (at_ < text_.size()) {
      if (text_[at_] == '\n') {
        end_line();
      } else if (const std::size_t blank = blank_length(); blank > 0) {
        at_ += blank;
        space_ = true;
      } else if (const std::size_t splice = splice_length(at_); splice > 0) {
        at_ += splice;
      } else {
        token();
      }
    }
    return std::move(result_);
  }

 private:
  bool starts(std::string_view what) const { return text_.substr(at_, what.size()) == what; }

  // Of a backslash and the end of a line, which join two lines.
  std::size_t splice_length(std::size_t at) const {
    const std::string_view rest = text_.substr(at);
    if (rest.starts_with("\\\n")) return 2;
    return rest.starts_with("\\\r\n") ? 3 : 0;
  }

  // Of white space within a line, or a comment.
  std::size_t blank_length() const {
    if (is_one_of(text_[at_], " \t\r\f\v")) return 1;
    if (starts("/*")) {
      const std::size_t end = text_.find("*/", at_ + 2);
      return (end == std::string_view::npos ? text_.size() : end + 2) - at_;
    }
    if (!starts("//")) return 0;
    std::size_t end = at_;
    while (end < text_.size() && text_[end] != '\n') {
      const std::size_t splice = splice_length(end);
      end += splice > 0 ? splice : 1;
    }
    return end - at_;
  }

  void end_line() {
    if (directive_) result_ += '\n';
    directive_ = false;
    line_start_ = true;
    space_ = true;
    ++at_;
  }

  void token() {
    const std::size_t begin = at_;
    const Kind kind = skip_token();
    const std::string_view token = text_.substr(begin, at_ - begin);
    if (line_start_ && token == "#") {
      if (!result_.empty() && result_.back() != '\n') result_ += '\n';
      directive_ = true;
    } else if (space_ && !result_.empty() && result_.back() != '\n' && needs_space(kind, token)) {
      result_ += ' ';
    }
    result_ += token;
    before_ = kind;
    line_start_ = false;
    space_ = false;
  }

  // Whether the token would mean something else without white space in front of it.
  bool needs_space(Kind kind, std::string_view token) const {
    if (directive_) return true;  // `#define f (x)` is not `#define f(x)`
    const char last = result_.back();
    const bool punctuation = kind == Kind::kPunctuation;
    if (before_ != Kind::kPunctuation && !punctuation) return true;
    if (before_ == Kind::kPunctuation && punctuation)
      return !is_one_of(last, "(){}[];,") && !is_one_of(token[0], "(){}[];,");
    if (before_ == Kind::kNumber) return is_one_of(token[0], "+-.");
    return kind == Kind::kNumber && last == '.';
  }

  Kind skip_token() {
    const char first = text_[at_];
    if (is_digit(first) || (first == '.' && at_ + 1 < text_.size() && is_digit(text_[at_ + 1]))) {
      skip_number();
      return Kind::kNumber;
    }
    if (is_word(first)) {
      const std::size_t begin = at_;
      while (at_ < text_.size() && is_word(text_[at_])) ++at_;
      const std::string_view word = text_.substr(begin, at_ - begin);
      const bool raw = word == "R" || word == "LR" || word == "uR" || word == "UR" || word == "u8R";
      if (!raw || at_ == text_.size() || text_[at_] != '"') return Kind::kWord;
      skip_raw_string();
      return Kind::kLiteral;
    }
    if (first == '"' || first == '\'') {
      skip_literal(first);
      return Kind::kLiteral;
    }
    ++at_;
    return Kind::kPunctuation;
  }

  // With exponents and with the ' between digits.
  void skip_number() {
    for (++at_; at_ < text_.size(); ++at_) {
      const char c = text_[at_];
      const bool sign = is_one_of(c, "+-") && is_one_of(text_[at_ - 1], "eEpP");
      const bool separator = c == '\'' && at_ + 1 < text_.size() && is_word(text_[at_ + 1]);
      if (!is_word(c) && c != '.' && !sign && !separator) return;
    }
  }

  // To the closing quote; one that is missing ends with the line.
  void skip_literal(char quote) {
    for (++at_; at_ < text_.size() && text_[at_] != '\n'; ++at_) {
      if (text_[at_] == quote) {
        ++at_;
        return;
      }
      if (text_[at_] == '\\') ++at_;
    }
    at_ = std::min(at_, text_.size());
  }

  // R"mark( ... )mark", from its first quote on.
  void skip_raw_string() {
    const std::size_t open = text_.find('(', at_);
    if (open == std::string_view::npos) {
      at_ = text_.size();
      return;
    }
    const std::string close = ")" + std::string(text_.substr(at_ + 1, open - at_ - 1)) + "\"";
    const std::size_t end = text_.find(close, open);
    at_ = end == std::string_view::npos ? text_.size() : end + close.size();
  }

  std::string_view text_;
  std::size_t at_ = 0;
  std::string result_;
  Kind before_ = Kind::kPunctuation;
  bool space_ = false;      // white space since the last token
  bool line_start_ = true;  // no token in this line yet
  bool directive_ = false;  // in a line that began with #
};

}  // namespace

std::string without_comments(std::string_view text) { return Scanner(text).run(); }

std::string source_digest(std::string_view text) { return sha256(without_comments(text)); }

}  // namespace fuseblock::jit
