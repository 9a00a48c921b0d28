// fuseblock explain: what a block computes for an input type, without running it.
#include <nlohmann/json.hpp>

#include "commands.h"

namespace fuseblock::cli {
namespace {

std::string one_a_line(const std::string& statements) {
  std::string text = "  ";
  for (std::size_t i = 0; i < statements.size(); ++i) {
    const bool ends = statements.compare(i, 2, "; ") == 0;
    text += ends ? ";\n  " : std::string(1, statements[i]);
    if (ends) ++i;
  }
  return text + "\n";
}

}  // namespace

int run_explain(const ExplainOptions& options, const Console& console) {
  require_consistent(options.gradient);
  const BlockRequest request = read_request(options.block);
  const Plan plan =
      options.gradient.backward ? request.training(options.gradient.wanted).backward : request.plan();
  if (options.dot) {
    if (console.json() || options.statements)
      throw UserError("--dot: prints a picture alone, without --json or --statements");
    console.print(plan.explain_dot());
    return kSuccess;
  }
  const bool statements = options.statements;
  if (console.json()) {
    Json json = Json::parse(plan.explain_json());
    if (statements) json["statements"] = plan.block().block().to_statements();
    console.print_json(json);
    return kSuccess;
  }
  if (statements)
    console.print(console.bold("statements") + "\n" + one_a_line(plan.block().block().to_statements()) +
                  "\n");
  console.print(plan.explain());
  return kSuccess;
}

}  // namespace fuseblock::cli
