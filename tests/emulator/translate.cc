// What is rewritten, and nothing else:
//
//   asm volatile("..." : ... : ...)       statements of C++, see ptx.h
//   extern __shared__ T name[];           a pointer to the block's dynamic memory
//   __shared__ T name[N];                 a reference into the block's static memory
//   while (...) {}                        a loop that lets other threads run
//   __global__ void __launch_bounds__(threads, blocks) name(...)
//                                         as it stands; behind the text follow its bounds and a function that calls it
#include "translate.h"

#include <algorithm>
#include <cctype>
#include <stdexcept>
#include <string_view>

#include "ptx.h"

namespace fuseblock_emulated {
namespace {

bool is_word(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; }

class Reader {
 public:
  explicit Reader(const std::string& text) : text_(text) {}

  Translation run() {
    while (at_ < text_.size()) {
      if (skip_other()) continue;
      const std::string word = next_word();
      if (word == "asm" || word == "__asm__")
        statement();
      else if (word == "extern")
        dynamic_shared();
      else if (word == "__shared__")
        static_shared();
      else if (word == "__global__")
        kernel();
      else if (word == "while")
        loop();
      else
        out_ += word;
    }
    for (const Kernel& kernel : kernels_) end(kernel);
    Translation result;
    result.text = std::move(out_);
    for (const Kernel& kernel : kernels_) result.kernels.push_back(kernel.name);
    return result;
  }

 private:
  struct Kernel {
    std::string name;
    std::string bounds;  // the arguments of __launch_bounds__
  };

  [[noreturn]] void fail(const std::string& what) const {
    const auto line = 1 + std::count(text_.begin(), text_.begin() + static_cast<std::ptrdiff_t>(at_), '\n');
    throw std::runtime_error("line " + std::to_string(line) + ": " + what);
  }

  // Takes a comment, a literal, or a character that begins no word.
  bool skip_other() {
    const std::size_t begin = at_;
    if (text_.compare(at_, 2, "//") == 0) {
      at_ = std::min(text_.find('\n', at_), text_.size());
    } else if (text_.compare(at_, 2, "/*") == 0) {
      const std::size_t end = text_.find("*/", at_);
      at_ = end == std::string::npos ? text_.size() : end + 2;
    } else if (text_[at_] == '"' || text_[at_] == '\'') {
      skip_literal();
    } else if (is_word(text_[at_])) {
      return false;
    } else {
      ++at_;
    }
    out_ += text_.substr(begin, at_ - begin);
    return true;
  }

  void skip_literal() {
    const char quote = text_[at_++];
    while (at_ < text_.size() && text_[at_] != quote) at_ += text_[at_] == '\\' ? 2 : 1;
    at_ = std::min(at_ + 1, text_.size());
  }

  std::string next_word() {
    const std::size_t begin = at_;
    while (at_ < text_.size() &&
           (is_word(text_[at_]) || (text_[at_] == '\'' && at_ > begin &&
                                    std::isdigit(static_cast<unsigned char>(text_[begin])) != 0)))
      ++at_;
    return text_.substr(begin, at_ - begin);
  }

  // White space goes to `skipped`, so that lines stay.
  void skip_space(std::string& skipped) {
    while (at_ < text_.size() && std::isspace(static_cast<unsigned char>(text_[at_])) != 0)
      skipped += text_[at_++];
  }

  // What stands in the brackets that begin here, with at_ behind them.
  std::string in_brackets() {
    if (at_ >= text_.size() || text_[at_] != '(') fail("expected (");
    const std::size_t begin = ++at_;
    for (int depth = 1; at_ < text_.size();) {
      if (text_[at_] == '"' || text_[at_] == '\'') {
        skip_literal();
        continue;
      }
      if (text_[at_] == '(') ++depth;
      if (text_[at_] == ')' && --depth == 0) return text_.substr(begin, at_++ - begin);
      ++at_;
    }
    fail("a bracket is not closed");
  }

  static std::string lines_of(const std::string& text) {
    return std::string(static_cast<std::size_t>(std::count(text.begin(), text.end(), '\n')), '\n');
  }

  void statement() {
    std::string space;
    skip_space(space);
    if (text_.compare(at_, 8, "volatile") == 0) at_ += 8;
    skip_space(space);
    const std::size_t begin = at_;
    const std::string inner = in_brackets();
    std::string instructions;
    std::vector<std::string> operands;
    const std::size_t after = at_;
    try {
      read_asm(inner, instructions, operands);
      out_ += "do { " + cpp_of_ptx(instructions, operands) + "} while (false)";
    } catch (const std::runtime_error& error) {
      at_ = begin;
      fail(error.what());
    }
    at_ = after;
    out_ += lines_of(space + inner);
  }

  // "instructions" : "=r"(a), ... : "r"(b), ... : "memory"
  static void read_asm(const std::string& inner, std::string& instructions,
                       std::vector<std::string>& operands) {
    int section = 0;
    for (std::size_t i = 0; i < inner.size();) {
      if (inner[i] == ':') {
        ++section;
        ++i;
      } else if (inner[i] == '"') {
        std::string literal;
        for (++i; i < inner.size() && inner[i] != '"'; ++i) {
          if (inner[i] == '\\') {
            ++i;
            literal += inner[i] == 'n' || inner[i] == 't' ? ' ' : inner[i];
          } else {
            literal += inner[i];
          }
        }
        ++i;
        if (section == 0) instructions += literal;
      } else if (inner[i] == '(') {
        int depth = 0;
        const std::size_t begin = i + 1;
        for (; i < inner.size(); ++i) {
          if (inner[i] == '(') ++depth;
          if (inner[i] == ')' && --depth == 0) break;
        }
        std::string expression = inner.substr(begin, i - begin);
        std::ranges::replace(expression, '\n', ' ');
        if (section == 1 || section == 2) operands.push_back(expression);
        ++i;
      } else {
        ++i;
      }
    }
  }

  void dynamic_shared() {
    const std::size_t begin = at_;
    std::string space;
    skip_space(space);
    if (next_word() != "__shared__") {
      at_ = begin;
      out_ += "extern";
      return;
    }
    Declared declared = declaration();
    if (!declared.array || declared.extent != "[]") fail("extern __shared__ without []");
    out_ += declared.type + "* const " + declared.name + " = reinterpret_cast<" + declared.type +
            "*>(fuseblock_emulated_thread->dynamic_shared)" + declared.lines;
  }

  void static_shared() {
    Declared declared = declaration();
    const std::string type = "fuseblock_type_of_" + declared.name;
    const std::string place = "fuseblock_place_of_" + declared.name;
    out_ += "struct " + place + " {}; typedef " + declared.type + " " + type + declared.extent + "; " + type +
            "& " + declared.name + " = fuseblock_emulated::static_shared<" + type + ", " + place + ">()" +
            declared.lines;
  }

  struct Declared {
    std::string type, name, extent, lines;
    bool array = false;
  };

  // `T name[N]` up to its semicolon, which stays.
  Declared declaration() {
    const std::size_t end = text_.find(';', at_);
    if (end == std::string::npos) fail("a declaration without end");
    std::string whole = text_.substr(at_, end - at_);
    Declared declared;
    declared.lines = lines_of(whole);
    const std::size_t align = whole.find("__align__");
    std::string attribute;
    if (align != std::string::npos) {
      const std::size_t close = whole.find(')', align);
      attribute = whole.substr(align, close + 1 - align) + " ";
      whole.erase(align, close + 1 - align);
    }
    const std::size_t bracket = whole.find('[');
    if (bracket != std::string::npos) {
      declared.array = true;
      declared.extent = whole.substr(bracket);
      whole.resize(bracket);
    }
    while (!whole.empty() && !is_word(whole.back())) whole.pop_back();
    std::size_t begin = whole.size();
    while (begin > 0 && is_word(whole[begin - 1])) --begin;
    declared.name = whole.substr(begin);
    declared.type = whole.substr(0, begin);
    if (declared.name.empty() || declared.type.find_first_not_of(" \n\t") == std::string::npos ||
        declared.extent.find(',') != std::string::npos || declared.extent.find('=') != std::string::npos)
      fail("a declaration of shared memory that is not `__shared__ T name;` or `__shared__ T name[N];`");
    std::ranges::replace(declared.type, '\n', ' ');
    std::erase(declared.extent, '\n');
    at_ = end;
    return declared;
  }

  // Up to the bracket behind the kernel's name.
  void kernel() {
    out_ += "__global__";
    Kernel found;
    std::string before;
    while (at_ < text_.size() && text_[at_] != '(') {
      if (!is_word(text_[at_])) {
        out_ += text_[at_++];
        continue;
      }
      const std::string word = next_word();
      if (word == "__launch_bounds__" || word == "__cluster_dims__") {
        std::string space;
        skip_space(space);
        const std::string inner = in_brackets();
        if (word == "__launch_bounds__") found.bounds = inner;
        out_ += lines_of(space + inner);
        continue;
      }
      out_ += word;
      before = word;
    }
    found.name = before;
    kernels_.push_back(found);
  }

  void loop() {
    out_ += "while";
    std::string space;
    skip_space(space);
    out_ += space;
    if (at_ >= text_.size() || text_[at_] != '(') return;
    const std::size_t begin = at_;
    in_brackets();
    std::size_t behind = at_;
    while (behind < text_.size() && std::isspace(static_cast<unsigned char>(text_[behind])) != 0) ++behind;
    const std::size_t open = behind++;
    while (behind < text_.size() && std::isspace(static_cast<unsigned char>(text_[behind])) != 0) ++behind;
    const bool empty =
        open < text_.size() && behind < text_.size() && text_[open] == '{' && text_[behind] == '}';
    if (!empty) {
      at_ = begin;
      return;
    }
    out_ += text_.substr(begin, open - begin) + "{ fuseblock_emulated_runtime->yield(__LINE__); }" +
            lines_of(text_.substr(open, behind - open));
    at_ = behind + 1;
  }

  void end(const Kernel& kernel) {
    const std::string visible = "__attribute__((visibility(\"default\"))) ";
    out_ += "\nextern \"C\" " + visible + "void fuseblock_emulated_call_" + kernel.name +
            "(void** parameters) { fuseblock_emulated::call(" + kernel.name + ", parameters); }\n";
    out_ += "extern \"C\" " + visible + "const int fuseblock_emulated_bounds_" + kernel.name + "[3] = {" +
            (kernel.bounds.empty() ? "1024" : kernel.bounds) + "};\n";
  }

  const std::string& text_;
  std::size_t at_ = 0;
  std::string out_;
  std::vector<Kernel> kernels_;
};

}  // namespace

Translation cpp_of_cuda(const std::string& text) { return Reader(text).run(); }

}  // namespace fuseblock_emulated
