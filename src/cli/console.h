// What the command says and where: results on standard output, as text or as JSON; notes, progress and errors
// on standard error. Colours only where standard output is a terminal and NO_COLOR is not set.
#pragma once

#include <string>
#include <string_view>

#include <nlohmann/json_fwd.hpp>

#include "fuseblock/error.h"

namespace fuseblock::cli {

using Json = nlohmann::ordered_json;

// The three exit statuses.
inline constexpr int kSuccess = 0;
inline constexpr int kCheckFailed = 1;
inline constexpr int kBadInput = 2;

class Console {
 public:
  // Looks at the terminal and at the environment.
  Console();

  // Results are printed as JSON instead of text.
  void use_json() { json_ = true; }
  bool json() const { return json_; }

  void print(std::string_view text) const;
  // Indented by two, keys in the order they were added; numbers that are not finite are null.
  void print_json(const Json& json) const;

  std::string bold(std::string_view text) const;
  std::string dim(std::string_view text) const;
  std::string green(std::string_view text) const;
  std::string red(std::string_view text) const;

  // A line on standard error, whether or not it is a terminal.
  void warn(std::string_view text) const;
  // A line that the next one replaces, where standard error is a terminal; an empty text removes it.
  void progress(std::string_view text) const;

  // `fuseblock: message` with what else is known on standard error; with JSON also an object on standard
  // output.
  void report(std::string_view kind, const Error& error) const;

  // Writes out what is buffered. Throws UserError where standard output takes no more (a full disk).
  void finish() const;

 private:
  std::string paint(std::string_view code, std::string_view text) const;

  bool json_ = false;
  bool colour_ = false;
  bool progress_ = false;
};

}  // namespace fuseblock::cli
