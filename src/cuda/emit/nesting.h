// Statements of which each names a value, as fewer of them with expressions inside each other.
#pragma once

#include <string>
#include <vector>

namespace fuseblock::cuda {

struct Statement {
  std::string name;  // `t5`
  std::string
      value;  // one operation on names, constants and expressions without operators; or more, where it nests nowhere
  bool nests;  // whether its value may stand where its name is taken, and those of others in it
};

// The statements whose values are taken more than once, or whose expressions would become long. In `results`, names of
// statements, or other expressions, each taken once, become what stands for them. The operations and their order stay.
std::vector<Statement> nested(const std::vector<Statement>& statements, std::vector<std::string>& results);

}  // namespace fuseblock::cuda
