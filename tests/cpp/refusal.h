// What an action was refused with: the part of an error that tests look at.
#pragma once

#include <ostream>
#include <string>

#include "fuseblock/error.h"

namespace fuseblock {

struct Refusal {
  std::string message;
  int line = 0;
  int column = 0;
  std::string pointer;
  std::string excerpt;

  // Whether the message has the text in it.
  bool says(const std::string& text) const { return message.find(text) != std::string::npos; }
};

inline std::ostream& operator<<(std::ostream& stream, const Refusal& refusal) {
  return stream << "`" << refusal.message << "` at line " << refusal.line << ", column " << refusal.column
                << ", pointer `" << refusal.pointer << "`";
}

// The UserError or NotSupportedError that the action throws; an empty one where it throws nothing. Our own bugs and all
// other exceptions go through to the test.
template <class Action>
Refusal refusal(Action action) {
  try {
    action();
  } catch (const InternalError&) {
    throw;
  } catch (const Error& error) {
    return {error.what(), error.position().line, error.position().column, error.position().pointer,
            error.excerpt()};
  }
  return {};
}

}  // namespace fuseblock
