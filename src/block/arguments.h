// Values of arguments against their specification in the catalogue.
#pragma once

#include <string>

#include "fuseblock/operations.h"

namespace fuseblock {

// Brings a value into the form the argument keeps (a number for a whole one where numbers are wanted, a
// list of one as that one) and checks kind and range. Throws UserError: `groups=0: expected a whole number from 1`.
ArgumentValue checked_argument(const ArgumentSpec& spec, ArgumentValue value);
// What the argument takes, for messages and help: `a whole number from 1`.
std::string expectation(const ArgumentSpec& spec);
// An argument as a formula sees it: a number; 0 or 1 for a flag; its place among the choices for a keyword.
double formula_constant(const ArgumentSpec& spec, const ArgumentValue& value);

}  // namespace fuseblock
