// Formulas as text: reading infix expressions. (Writing them is Formula::to_string.)
//
//   expression := sum [ ( < | <= | > | >= | == ) sum ]
//   sum        := product { ( + | - ) product }
//   product    := factor { ( * | / ) factor }
//   factor     := - factor | number | inf | nan | name | call | ( expression )
//   call       := primitive ( expression, ... )  |  pointwise operation ( expression, ..., argument=value, ... )
#pragma once

#include <functional>
#include <string_view>

#include "block/formula_builder.h"
#include "block/lexer.h"
#include "fuseblock/operations.h"

namespace fuseblock {

struct ExpressionContext {
  // The step that a name stands for; fails through the lexer for a name it does not know.
  std::function<FormulaBuilder::Id(const Token&)> name;
  // A pointwise operation of the catalogue, or null.
  std::function<const Operation*(std::string_view)> operation;
};

// Reads one expression and leaves the lexer behind it. Throws UserError with its position.
FormulaBuilder::Id read_expression(Lexer& lexer, FormulaBuilder& builder, const ExpressionContext& context);

// A number with an optional sign, `inf` or `nan`; fails with `expected <what>`.
double read_number(Lexer& lexer, std::string_view what);

// The primitive that is called by this word (not the infix ones); null if there is none.
const PrimitiveInfo* find_function(std::string_view word);

}  // namespace fuseblock
