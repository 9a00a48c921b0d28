// The fuseblock command: reads the command line, runs the subcommand, turns what is thrown into a message and
// a status.
#include <cstdlib>
#include <exception>
#include <new>
#include <string_view>

#include "command_line.h"
#include "console.h"

namespace {

using namespace fuseblock;
using namespace fuseblock::cli;

// Before the command line is read: errors in it are JSON as well.
bool asks_for_json(int argument_count, char** arguments) {
  for (int i = 1; i < argument_count; ++i)
    if (std::string_view(arguments[i]) == "--json") return true;
  return false;
}

int run(int argument_count, char** arguments, Console& console) {
  try {
    const int status = read_command_line(argument_count, arguments, console)();
    console.finish();
    return status;
  } catch (const UsageError& error) {
    console.report("usage", error);
  } catch (const UserError& error) {
    console.report("user", error);
  } catch (const NotSupportedError& error) {
    console.report("not_supported", error);
  } catch (const Error& error) {
    console.report("internal",
                   Error(std::string("internal error: ") + error.what(), error.position(), error.excerpt()));
  } catch (const std::bad_alloc&) {
    console.report("memory", Error("not enough memory for this"));
  } catch (const std::exception& error) {
    console.report("internal", Error(std::string("internal error: ") + error.what()));
  }
  return kBadInput;
}

}  // namespace

int main(int argument_count, char** arguments) {
  Console console;
  if (asks_for_json(argument_count, arguments)) console.use_json();
  return run(argument_count, arguments, console);
}
