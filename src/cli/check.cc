// fuseblock check: an engine against the reference engine, forward and every gradient. The reference engine
// itself is run twice over differently filled memory, and its gradients are held against central differences
// (comparison.h).
#include <algorithm>

#include <nlohmann/json.hpp>

#include "commands.h"
#include "comparison.h"
#include "data.h"
#include "execution.h"
#include "table.h"

namespace fuseblock::cli {
namespace {

struct Verdict {
  std::vector<Comparison> outputs;
  std::vector<Comparison> gradients;

  bool ok() const {
    auto good = [](const Comparison& comparison) { return comparison.ok; };
    return std::all_of(outputs.begin(), outputs.end(), good) &&
           std::all_of(gradients.begin(), gradients.end(), good);
  }
};

std::vector<Comparison> compare_all(const std::vector<NamedType>& order, const TensorMap& reference,
                                    const TensorMap& result, double tolerance) {
  std::vector<Comparison> comparisons;
  for (const NamedType& named : order)
    comparisons.push_back(
        compare(named, reference.find(named.name)->second, result.find(named.name)->second, tolerance));
  return comparisons;
}

Verdict against_reference(const Plan& plan, const CheckOptions& options, const TensorMap& arguments,
                          const TensorMap& output_gradients) {
  const Plan reference = Plan::make(plan.block(), Device::reference());
  const Plan backward = plan.backward(options.wanted);
  const Plan reference_backward = reference.backward(options.wanted);
  const std::vector<const TensorMap*> all = {&output_gradients, &arguments};
  return {compare_all(plan.outputs(), outputs_of(reference, {&arguments}), outputs_of(plan, {&arguments}),
                      options.tolerance),
          compare_all(backward.outputs(), outputs_of(reference_backward, all), outputs_of(backward, all),
                      options.tolerance)};
}

std::vector<Comparison> repeat_over_poison(const Plan& plan, const TensorMap& arguments) {
  Execution first(plan, {&arguments});
  Execution second(plan, {&arguments});
  first.poison(std::byte{0xff});   // NaN in every dtype
  second.poison(std::byte{0x3c});  // numbers near 1 in f16, small ones elsewhere
  first.run();
  second.run();
  std::vector<Comparison> comparisons;
  for (const NamedType& output : plan.outputs())
    comparisons.push_back(compare_bits(output, first.outputs().find(output.name)->second,
                                       second.outputs().find(output.name)->second));
  return comparisons;
}

Json comparisons_json(const std::vector<Comparison>& comparisons) {
  Json list = Json::array();
  for (const Comparison& comparison : comparisons) {
    Json json;
    json["name"] = comparison.name;
    json["type"] = to_string(comparison.type);
    json["max_abs_error"] = comparison.max_abs_error;
    json["max_rel_error"] = comparison.max_rel_error;
    json["bound"] = comparison.bound;
    json["ok"] = comparison.ok;
    json["skipped"] = comparison.skipped;
    list.push_back(std::move(json));
  }
  return list;
}

void add_rows(Table& table, const std::string& what, const std::vector<Comparison>& comparisons) {
  for (const Comparison& comparison : comparisons) {
    const std::string verdict = comparison.skipped ? "skipped: not finite" : comparison.ok ? "ok" : "FAILED";
    auto number = [&](double value) { return comparison.skipped ? "-" : number_text(value, 3); };
    table.add({what, comparison.name, to_string(comparison.type), number(comparison.max_abs_error),
               number(comparison.max_rel_error), number(comparison.bound), verdict});
  }
}

}  // namespace

int run_check(const CheckOptions& options, const Console& console) {
  const BlockRequest request = read_runnable_request(options.block);
  const Plan plan = request.plan();
  plan.block().backward(options.wanted);  // refuses wrong names before anything long begins
  const TensorMap arguments = generate_arguments(plan.block(), options.seed);
  const TensorMap output_gradients = generate_output_gradients(plan.block(), options.seed);

  const bool itself = plan.device().name() == Device::reference().name();
  announce_duration(plan, itself ? 30 : 4, console);
  const Verdict verdict =
      itself ? Verdict{repeat_over_poison(plan, arguments),
                       compare_differences(plan.block(), arguments, output_gradients, options.wanted,
                                           options.seed, options.tolerance, console)}
             : against_reference(plan, options, arguments, output_gradients);
  console.progress("");
  const std::string method =
      itself ? "outputs by repetition bit for bit, gradients by central differences in f64"
             : "against the reference engine";
  if (console.json()) {
    Json json;
    json["ok"] = verdict.ok();
    json["block"] = request.block.to_string();
    json["input"] = to_string(request.input);
    json["engine"] = plan.device().name();
    json["seed"] = options.seed;
    json["method"] = method;
    json["outputs"] = comparisons_json(verdict.outputs);
    json["gradients"] = comparisons_json(verdict.gradients);
    console.print_json(json);
  } else {
    Table table({{""},
                 {"tensor"},
                 {"type"},
                 {"max abs error", true},
                 {"max rel error", true},
                 {"bound", true},
                 {"verdict"}});
    add_rows(table, "output", verdict.outputs);
    add_rows(table, "gradient", verdict.gradients);
    console.print(console.bold(request.block.to_string()) + "\non " + to_string(request.input) + ", engine " +
                  plan.device().name() + ", seed " + std::to_string(options.seed) + "\n" + method + "\n\n" +
                  table.text(console) + "\n" + (verdict.ok() ? console.green("ok") : console.red("FAILED")) +
                  "\n");
  }
  return verdict.ok() ? kSuccess : kCheckFailed;
}

}  // namespace fuseblock::cli
