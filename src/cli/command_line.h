// The command line: subcommands, options and help. The only file that knows CLI11 is command_line.cc.
#pragma once

#include <functional>
#include <string>

#include "console.h"
#include "fuseblock/error.h"

namespace fuseblock::cli {

// A command line that does not read: an unknown option, a missing value.
class UsageError : public UserError {
 public:
  using UserError::UserError;
};

// Reads the command line and returns what it asks for, to be called once; its result is the exit status.
// `--help` and `--version` return a command that prints. `console` must outlive it. Throws UsageError.
std::function<int()> read_command_line(int argument_count, const char* const* arguments, Console& console);

}  // namespace fuseblock::cli
