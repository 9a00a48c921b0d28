#include "console.h"

#include <unistd.h>

#include <cstdlib>
#include <iostream>

#include <nlohmann/json.hpp>

namespace fuseblock::cli {
namespace {

bool set(const char* variable) {
  const char* value = std::getenv(variable);
  return value != nullptr && *value != '\0';
}

bool dumb_terminal() {
  const char* terminal = std::getenv("TERM");
  return terminal == nullptr || std::string_view(terminal) == "dumb";
}

Json text_or_null(const std::string& text) { return text.empty() ? Json() : Json(text); }
Json number_or_null(int number) { return number > 0 ? Json(number) : Json(); }

}  // namespace

Console::Console()
    : colour_(isatty(STDOUT_FILENO) != 0 && !set("NO_COLOR") && !dumb_terminal()),
      progress_(isatty(STDERR_FILENO) != 0 && !dumb_terminal()) {}

void Console::print(std::string_view text) const { std::cout << text; }

void Console::print_json(const Json& json) const {
  std::cout << json.dump(2, ' ', false, Json::error_handler_t::replace) << '\n';
}

std::string Console::paint(std::string_view code, std::string_view text) const {
  if (!colour_) return std::string(text);
  return "\033[" + std::string(code) + "m" + std::string(text) + "\033[0m";
}

std::string Console::bold(std::string_view text) const { return paint("1", text); }
std::string Console::dim(std::string_view text) const { return paint("2", text); }
std::string Console::green(std::string_view text) const { return paint("32", text); }
std::string Console::red(std::string_view text) const { return paint("31", text); }

void Console::warn(std::string_view text) const {
  progress("");
  std::cerr << "fuseblock: " << text << '\n';
}

void Console::progress(std::string_view text) const {
  if (progress_) std::cerr << "\r\033[K" << text << std::flush;
}

void Console::report(std::string_view kind, const Error& error) const {
  progress("");
  std::cerr << "fuseblock: " << error.report();
  if (!error.report().ends_with('\n')) std::cerr << '\n';
  if (!json_) return;
  const Position& position = error.position();
  Json body;
  body["kind"] = kind;
  body["message"] = error.what();
  body["line"] = number_or_null(position.line);
  body["column"] = number_or_null(position.column);
  body["pointer"] = text_or_null(position.pointer);
  body["excerpt"] = text_or_null(error.excerpt());
  print_json(Json{{"error", body}});
}

void Console::finish() const {
  if (!std::cout.flush()) throw UserError("standard output cannot be written");
}

}  // namespace fuseblock::cli
