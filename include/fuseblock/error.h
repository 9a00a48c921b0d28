// What fuseblock throws. Three kinds of trouble, three types:
//   UserError          the caller's mistake: bad notation, extents that do not fit, a missing tensor;
//   NotSupportedError  a sensible request that this build or this engine cannot serve;
//   InternalError      a broken promise inside fuseblock: please report it.
// The first two name the stage, the argument or tensor, what was expected and what came:
//   group_norm(7): 24 channels do not divide into 7 groups
#pragma once

#include <stdexcept>
#include <string>

namespace fuseblock {

// Where in a text the trouble is. Lines and columns count from 1, columns in bytes; 0 means "no text at
// hand".
struct Position {
  int line = 0;
  int column = 0;
  // For JSON: the place inside the document, such as `/statements/3/args/k`; empty for notation.
  std::string pointer;

  bool known() const { return line > 0 || !pointer.empty(); }
};

class Error : public std::runtime_error {
 public:
  explicit Error(const std::string& message) : std::runtime_error(message) {}
  Error(const std::string& message, Position position, std::string excerpt)
      : std::runtime_error(message), position_(std::move(position)), excerpt_(std::move(excerpt)) {}

  // Where the trouble is in the text the block was made from.
  const Position& position() const { return position_; }

  // The line of the text with a caret below the place, two lines; empty where there is no text.
  const std::string& excerpt() const { return excerpt_; }

  // The message, and where there is a text its position and excerpt on lines of their own.
  std::string report() const;

 private:
  Position position_;
  std::string excerpt_;
};

class UserError : public Error {
 public:
  using Error::Error;
};

class NotSupportedError : public Error {
 public:
  using Error::Error;
};

class InternalError : public Error {
 public:
  using Error::Error;
};

}  // namespace fuseblock
