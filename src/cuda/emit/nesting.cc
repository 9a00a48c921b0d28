#include "cuda/emit/nesting.h"

#include <cctype>
#include <map>
#include <string_view>

namespace fuseblock::cuda {
namespace {

constexpr std::size_t kMostLetters = 72;  // of a value that stands inside another

// A comparison as a number, and the test of a number.
constexpr std::string_view kTruth = " ? 1 : 0";
constexpr std::string_view kTested = " != 0 ?";

// How tightly the outermost operators of an expression bind.
enum class Binding { kOther, kSum, kProduct, kTight };

// What stands outside of brackets, and where.
template <class Visit>
void for_outer(std::string_view text, const Visit& visit) {
  int depth = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == ')' || text[i] == ']') --depth;
    if (depth == 0) visit(i);
    if (text[i] == '(' || text[i] == '[') ++depth;
  }
}

Binding binding(std::string_view value) {
  Binding result = value.starts_with('-') ? Binding::kOther : Binding::kTight;
  for_outer(value, [&](std::size_t i) {
    if (value[i] != ' ' || i + 2 >= value.size()) return;
    const char letter = value[i + 1];
    const bool operates = value[i + 2] == ' ';
    Binding own = Binding::kTight;
    if (operates && (letter == '*' || letter == '/')) own = Binding::kProduct;
    if (operates && (letter == '+' || letter == '-')) own = Binding::kSum;
    if (letter == '?' || letter == '<' || letter == '>' || letter == '=' || letter == '!')
      own = Binding::kOther;
    if (own < result) result = own;
  });
  return result;
}

bool is_word(char letter) { return std::isalnum(static_cast<unsigned char>(letter)) != 0 || letter == '_'; }

struct Word {
  std::size_t begin, end;
  bool outer;  // outside of brackets
};

// The words of an expression that may be names of values: not those of members or functions.
std::vector<Word> words_of(std::string_view value) {
  std::vector<bool> outer(value.size() + 1, false);
  for_outer(value, [&](std::size_t i) { outer[i] = true; });
  std::vector<Word> result;
  for (std::size_t i = 0; i < value.size();) {
    std::size_t end = i;
    while (end < value.size() && is_word(value[end])) ++end;
    if (end == i) {
      ++i;
      continue;
    }
    const bool member = i > 0 && (value[i - 1] == '.' || value[i - 1] == '>' || value[i - 1] == ':');
    const bool called = end < value.size() && (value[end] == '(' || value[end] == '.' || value[end] == ':');
    if (!member && !called) result.push_back({i, end, outer[i]});
    i = end;
  }
  return result;
}

// Whether an expression may stand there without brackets of its own.
bool stands_bare(std::string_view value, const Word& place, Binding inner) {
  if (inner == Binding::kTight) return true;
  if (!place.outer) {
    // All of an argument.
    const bool begins = value[place.begin - 1] == '(' || (place.begin > 1 && value[place.begin - 2] == ',');
    return begins && (value[place.end] == ')' || value[place.end] == ',');
  }
  const Binding own = binding(value);
  if (own == Binding::kTight) return true;
  if (own == Binding::kOther || inner == Binding::kOther) return false;
  return inner > own || (inner == own && place.begin == 0);
}

std::string with_nested(const std::string& value, const std::map<std::string, std::string>& known) {
  std::string result;
  std::size_t done = 0;
  for (const Word& word : words_of(value)) {
    const auto found = known.find(value.substr(word.begin, word.end - word.begin));
    if (found == known.end()) continue;
    const std::string& inner = found->second;
    result += value.substr(done, word.begin - done);
    done = word.end;
    if (inner.ends_with(kTruth) && value.compare(word.end, kTested.size(), kTested) == 0) {
      // A comparison decides by itself.
      result += inner.substr(0, inner.size() - kTruth.size());
      done += kTested.size() - 2;
      continue;
    }
    const bool bare = stands_bare(value, word, binding(inner));
    result += (bare ? "" : "(") + inner + (bare ? "" : ")");
  }
  return result + value.substr(done);
}

}  // namespace

std::vector<Statement> nested(const std::vector<Statement>& statements, std::vector<std::string>& results) {
  std::map<std::string, int> uses;
  for (const Statement& each : statements)
    for (const Word& word : words_of(each.value))
      uses[each.value.substr(word.begin, word.end - word.begin)] += each.nests ? 1 : 2;
  for (const std::string& result : results) ++uses[result];
  std::map<std::string, std::string> inside;  // values by their names
  std::vector<Statement> kept;
  for (const Statement& each : statements) {
    const std::string value = with_nested(each.value, inside);
    if (uses[each.name] == 0) continue;
    if (each.nests && uses[each.name] == 1 && value.size() <= kMostLetters)
      inside[each.name] = value;
    else
      kept.push_back({each.name, value, each.nests});
  }
  for (std::string& result : results)
    if (const auto found = inside.find(result); found != inside.end()) result = found->second;
  return kept;
}

}  // namespace fuseblock::cuda
