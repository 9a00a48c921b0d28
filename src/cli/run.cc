// fuseblock run: a block on generated or loaded data, and what comes out.
#include <set>

#include <nlohmann/json.hpp>

#include "commands.h"
#include "data.h"
#include "execution.h"
#include "table.h"
#include "tensor_files.h"

namespace fuseblock::cli {
namespace {

// All tensors of a run, by what they are.
struct Tensors {
  TensorMap arguments;
  TensorMap outputs;
  TensorMap output_gradients;  // d_* of the outputs, coming in
  TensorMap gradients;         // d_* of the arguments, going out
};

Tensors compute(const Plan& plan, const RunOptions& options, const Console& console) {
  const TypedBlock& block = plan.block();
  const bool load = !options.load.empty();
  Tensors tensors;
  tensors.arguments =
      load ? load_tensors(options.load, block.arguments()) : generate_arguments(block, options.seed);
  announce_duration(plan, 1, console);
  tensors.outputs = outputs_of(plan, {&tensors.arguments});
  if (options.gradient.backward) {
    const Plan backward = plan.backward(options.gradient.wanted);
    tensors.output_gradients = load ? load_tensors(options.load, output_gradients(block))
                                    : generate_output_gradients(block, options.seed);
    announce_duration(backward, 1, console);
    tensors.gradients = outputs_of(backward, {&tensors.output_gradients, &tensors.arguments});
  }
  console.progress("");
  return tensors;
}

// The names in the plan's order, with their statistics.
Json statistics_json(const std::vector<NamedType>& order, const TensorMap& tensors) {
  Json list = Json::array();
  for (const NamedType& named : order) {
    const Statistics found = statistics(tensors.find(named.name)->second);
    Json json;
    json["name"] = named.name;
    json["type"] = to_string(named.type);
    json["digest"] = digest_text(found.digest);
    json["mean"] = found.mean;
    json["std"] = found.std;
    json["min"] = found.min;
    json["max"] = found.max;
    json["nan"] = found.nan_count;
    json["inf"] = found.inf_count;
    list.push_back(std::move(json));
  }
  return list;
}

std::string statistics_text(const std::string& title, const std::vector<NamedType>& order,
                            const TensorMap& tensors, const Console& console) {
  Table table({{title},
               {"type"},
               {"digest"},
               {"mean", true},
               {"std", true},
               {"min", true},
               {"max", true},
               {"NaN", true},
               {"Inf", true}});
  for (const NamedType& named : order) {
    const Statistics found = statistics(tensors.find(named.name)->second);
    table.add({named.name, to_string(named.type), digest_text(found.digest), number_text(found.mean),
               number_text(found.std), number_text(found.min), number_text(found.max),
               std::to_string(found.nan_count), std::to_string(found.inf_count)});
  }
  return "\n" + table.text(console);
}

std::size_t save(const std::string& folder, const Block& block, const Tensors& tensors) {
  std::set<std::string> names;
  for (const TensorMap* group :
       {&tensors.arguments, &tensors.outputs, &tensors.output_gradients, &tensors.gradients}) {
    for (const auto& [name, tensor] : *group)
      if (!names.insert(name).second) throw UserError("--save: two tensors of the block are named " + name);
    save_tensors(folder, *group);
  }
  save_block(folder, block);
  return names.size() + 1;
}

}  // namespace

int run_run(const RunOptions& options, const Console& console) {
  require_consistent(options.gradient);
  const BlockRequest request = read_runnable_request(options.block);
  const Plan plan = request.plan({.fuse = !options.unfused});
  const Tensors tensors = compute(plan, options, console);
  std::vector<NamedType> gradient_order;
  if (options.gradient.backward) gradient_order = plan.backward(options.gradient.wanted).outputs();
  const std::size_t files = options.save.empty() ? 0 : save(options.save, request.block, tensors);

  if (console.json()) {
    Json json;
    json["block"] = request.block.to_string();
    json["input"] = to_string(request.input);
    json["engine"] = plan.device().name();
    json["fused"] = !options.unfused;
    json["seed"] = options.load.empty() ? Json(options.seed) : Json();
    json["loaded"] = options.load.empty() ? Json() : Json(options.load);
    json["saved"] = options.save.empty() ? Json() : Json(options.save);
    json["arguments"] = statistics_json(plan.block().arguments(), tensors.arguments);
    json["outputs"] = statistics_json(plan.outputs(), tensors.outputs);
    if (options.gradient.backward) {
      json["output_gradients"] = statistics_json(output_gradients(plan.block()), tensors.output_gradients);
      json["gradients"] = statistics_json(gradient_order, tensors.gradients);
    }
    console.print_json(json);
    return kSuccess;
  }
  const std::string data =
      options.load.empty() ? "seed " + std::to_string(options.seed) : "data from " + options.load;
  console.print(console.bold(request.block.to_string()) + "\non " + to_string(request.input) + ", engine " +
                plan.device().name() + (options.unfused ? ", unfused, " : ", ") + data + "\n");
  console.print(statistics_text("output", plan.outputs(), tensors.outputs, console));
  if (options.gradient.backward)
    console.print(statistics_text("gradient", gradient_order, tensors.gradients, console));
  if (files > 0) console.print("\nsaved " + count_text(files, "file") + " in " + options.save + "\n");
  return kSuccess;
}

}  // namespace fuseblock::cli
