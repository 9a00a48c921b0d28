#include "fuzz_support.h"

#include <algorithm>
#include <array>
#include <ctime>
#include <exception>
#include <optional>

namespace fuseblock::fuzz {
namespace {

constexpr double kLongest = 2;  // seconds of processor time

bool is_printable(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) { return (c >= 0x20 && c < 0x7f) || c == '\n'; });
}

// An error about the given types themselves belongs to no stage, so it has no place in the text.
bool concerns_given_types(const Error& error) {
  const std::string message = error.what();
  return message.starts_with("x: ") || message.starts_with("a type is given for ");
}

std::string trouble_with(const Error& error) {
  const Position& position = error.position();
  const std::string message = error.what();
  if (message.empty() || !is_printable(error.report()))
    return "an unprintable refusal: " + escaped(error.report());
  if (!position.known()) return "a refusal without a position: " + message;
  if (position.line > 0 && position.column < 1) return "a refusal with a line but no column: " + message;
  const bool has_caret =
      error.excerpt().find('\n') != std::string::npos && error.excerpt().find('^') != std::string::npos;
  if (position.pointer.empty() && !has_caret) return "a refusal without a caret: " + message;
  return "";
}

// Runs an action that may refuse: nothing wrong with that if the refusal is a good one. Anything else that is thrown is wrong.
template <class Action>
std::string guarded(const std::string& what, bool may_lack_position, Action action) {
  try {
    return action();
  } catch (const InternalError& error) {
    return what + ": internal error: " + error.what();
  } catch (const Error& error) {
    if (may_lack_position && concerns_given_types(error) && is_printable(error.report())) return "";
    const std::string trouble = trouble_with(error);
    return trouble.empty() ? "" : what + ": " + trouble;
  } catch (const std::exception& error) {
    return what + ": a foreign exception: " + error.what();
  }
}

// Runs an action that must not refuse.
template <class Action>
std::string required(const std::string& what, Action action) {
  try {
    return action() ? "" : what + ": not the same block";
  } catch (const std::exception& error) {
    return what + ": refused: " + error.what();
  }
}

std::string check_round_trips(const Block& block) {
  std::string trouble =
      required("to_string and back", [&] { return Block::parse(block.to_string()) == block; });
  if (trouble.empty())
    trouble =
        required("to_statements and back", [&] { return Block::parse(block.to_statements()) == block; });
  if (trouble.empty())
    trouble = required("to_json and back", [&] { return Block::from_json(block.to_json()) == block; });
  return trouble.empty() ? "" : trouble + " (" + block.to_statements() + ")";
}

TypeMap types_of(const Block& block, const TypeMap& types) {
  TypeMap result;
  for (const auto& [name, type] : types) {
    const auto value = block.find(name);
    if (value && value->id > 0 && block.value(*value).kind != ValueKind::kResult) result.emplace(name, type);
  }
  return result;
}

std::string check_types(const Block& block, const Types& types) {
  return guarded("types " + to_string(types.x), true, [&]() -> std::string {
    const TypedBlock typed = TypedBlock::infer(block, types.x, types_of(block, types.others));
    for (int node = 0; node < static_cast<int>(block.nodes().size()); ++node)
      if (typed.operation_count(node) < 0 || typed.byte_count(node) < 0) return "a negative count";
    return guarded("backward", false, [&] { return check_round_trips(typed.backward().block()); });
  });
}

std::string check_block(const Block& block, const std::vector<Types>& types) {
  std::string trouble = check_round_trips(block);
  for (const Types& each : types)
    if (trouble.empty()) trouble = check_types(block, each);
  return trouble;
}

}  // namespace

const std::vector<Types>& usual_types() {
  static const std::vector<Types> kTypes = {{TensorType::parse("f32[2,4]"), {}},
                                            {TensorType::parse("bf16[2,4,6]"), {}},
                                            {TensorType::parse("f32[2,4,6,6]:cl"), {}},
                                            {TensorType::parse("f64[1,4,3,5,5]"), {}}};
  return kTypes;
}

std::string check(const std::function<Block()>& read, const std::vector<Types>& types) {
  const std::clock_t start = std::clock();
  const std::string trouble =
      guarded("reading", false, [&]() -> std::string { return check_block(read(), types); });
  const double seconds = static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC;
  if (trouble.empty() && seconds > kLongest) return "took " + std::to_string(seconds) + " s";
  return trouble;
}

std::string check_notation(std::string_view text, const std::vector<Types>& types) {
  return check([&] { return Block::parse(text); }, types);
}

std::string check_json(std::string_view text, const std::vector<Types>& types) {
  return check([&] { return Block::from_json(text); }, types);
}

std::uint64_t Random::bits() {
  state_ += 0x9e3779b97f4a7c15ULL;
  std::uint64_t bits = state_;
  bits = (bits ^ (bits >> 30)) * 0xbf58476d1ce4e5b9ULL;
  bits = (bits ^ (bits >> 27)) * 0x94d049bb133111ebULL;
  return bits ^ (bits >> 31);
}

namespace {

using Tokens = std::vector<std::string>;

bool is_word(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '.';
}

// Words and single other bytes: rough, but it cuts notation and JSON where their tokens end.
Tokens split(std::string_view text) {
  Tokens tokens;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const bool continues = i > 0 && is_word(text[i]) && is_word(text[i - 1]);
    if (!continues) tokens.emplace_back();
    tokens.back() += text[i];
  }
  return tokens;
}

std::string joined(const Tokens& tokens) {
  std::string text;
  for (const std::string& token : tokens) text += token;
  return text;
}

constexpr std::array<std::string_view, 24> kNumbers = {"0",
                                                       "1",
                                                       "2",
                                                       "3",
                                                       "7",
                                                       "-1",
                                                       "-0",
                                                       "0.5",
                                                       "1e-5",
                                                       "1e5",
                                                       "64",
                                                       "1e308",
                                                       "1e999",
                                                       "1e-999",
                                                       "inf",
                                                       "nan",
                                                       "-nan",
                                                       "2147483647",
                                                       "2147483648",
                                                       "4294967296",
                                                       "9223372036854775807",
                                                       "9223372036854775808",
                                                       "99999999999999999999",
                                                       "0x10"};

constexpr std::array<std::string_view, 30> kWords = {
    "|",       ";",       ",",        "(",    ")",
    "=",       "==",      "-",        "*",    "/",
    " as y",   "return ", "return y", "x",    "y",
    "c",       "h,w",     "none",     "true", "keepdim",
    "weight=", "bias=",   "select(",  "relu", "conv2d.weight",
    "#",       "\n",      "[",        "]",    "\""};

constexpr std::array<std::string_view, 8> kStrangeBytes = {
    std::string_view("\0", 1), "\xff", "\xc3\x28", "\xf0\x9f\x98\x80", "\x80", "\x7f", "\x1b[31m", "\r\n"};

// The name of an operation or of one of its arguments.
std::string catalogue_word(Random& random) {
  static const std::vector<const Operation*> kOperations = operations();
  const Operation& operation = *kOperations[random.below(kOperations.size())];
  const std::size_t word = random.below(operation.arguments.size() + 2);
  if (word >= operation.arguments.size()) return operation.name;
  return operation.arguments[word].name + "=";
}

std::string new_token(Random& random) {
  switch (random.below(4)) {
    case 0: return std::string(kNumbers[random.below(kNumbers.size())]);
    case 1: return catalogue_word(random);
    default: return std::string(kWords[random.below(kWords.size())]);
  }
}

std::optional<std::size_t> some_number(const Tokens& tokens, Random& random) {
  std::vector<std::size_t> places;
  for (std::size_t i = 0; i < tokens.size(); ++i)
    if (tokens[i][0] >= '0' && tokens[i][0] <= '9') places.push_back(i);
  if (places.empty()) return std::nullopt;
  return places[random.below(places.size())];
}

std::string mutate_bytes(std::string text, Random& random) {
  const std::size_t at = random.below(text.size());
  switch (random.below(3)) {
    case 0: text[at] = static_cast<char>(text[at] ^ (1 << random.below(8))); break;
    case 1: text.insert(at, kStrangeBytes[random.below(kStrangeBytes.size())]); break;
    default: text.erase(at, 1 + random.below(4)); break;
  }
  return text;
}

std::string mutate_tokens(std::string_view text, std::string_view donor, Random& random) {
  Tokens tokens = split(text);
  const std::size_t at = random.below(tokens.size());
  const auto place = tokens.begin() + static_cast<std::ptrdiff_t>(at);
  switch (random.below(8)) {
    case 0: std::swap(tokens[at], tokens[random.below(tokens.size())]); break;
    case 1: tokens.erase(place); break;
    case 2: tokens.insert(place, tokens[random.below(tokens.size())]); break;
    case 3: tokens[at] = new_token(random); break;
    case 4: tokens.insert(place, new_token(random)); break;
    case 5:
      if (const auto number = some_number(tokens, random))
        tokens[*number] = kNumbers[random.below(kNumbers.size())];
      break;
    case 6: {  // the head of this text, the tail of another
      const Tokens other = split(donor);
      if (other.empty()) break;
      tokens.resize(at);
      tokens.insert(tokens.end(), other.begin() + static_cast<std::ptrdiff_t>(random.below(other.size())),
                    other.end());
      break;
    }
    default: {  // a stretch of tokens, several times
      const std::size_t end = std::min(tokens.size(), at + 1 + random.below(8));
      const Tokens stretch(place, tokens.begin() + static_cast<std::ptrdiff_t>(end));
      for (std::size_t i = 1 + random.below(5); i > 0; --i)
        tokens.insert(tokens.begin() + static_cast<std::ptrdiff_t>(end), stretch.begin(), stretch.end());
    }
  }
  return joined(tokens);
}

}  // namespace

std::string mutate(std::string_view text, std::string_view donor, Random& random) {
  std::string result(text.empty() ? donor : text);
  // Few changes more often than many: texts that still read go further.
  const std::size_t most = 1 + random.below(4);
  for (std::size_t count = 1 + random.below(most); count > 0 && !result.empty(); --count)
    result =
        random.below(4) == 0 ? mutate_bytes(std::move(result), random) : mutate_tokens(result, donor, random);
  return result;
}

namespace {

constexpr std::string_view kDigits = "0123456789abcdef";

}  // namespace

std::string escaped(std::string_view text) {
  std::string result;
  for (char c : text) {
    const auto code = static_cast<unsigned char>(c);
    if (c >= 0x20 && c < 0x7f && c != '\\' && c != '\'')
      result += c;
    else
      result += {'\\', 'x', kDigits[code / 16], kDigits[code % 16]};
  }
  return result;
}

std::string unescaped(std::string_view text) {
  std::string result;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '\\' || i + 3 >= text.size()) {
      result += text[i];
      continue;
    }
    result += static_cast<char>(kDigits.find(text[i + 2]) * 16 + kDigits.find(text[i + 3]));
    i += 3;
  }
  return result;
}

}  // namespace fuseblock::fuzz
