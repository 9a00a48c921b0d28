// fuseblock tune: the divisions of convolution kernels timed on a GPU, the fastest kept in a table.
#include <algorithm>
#include <array>
#include <cmath>
#include <fstream>
#include <sstream>

#include <nlohmann/json.hpp>

#include "commands.h"
#include "fuseblock/tune.h"
#include "table.h"

namespace fuseblock::cli {
namespace {

std::string trimmed(const std::string& text) {
  constexpr const char* kBlanks = " \t\r";
  const std::size_t first = text.find_first_not_of(kBlanks);
  return first == std::string::npos ? "" : text.substr(first, text.find_last_not_of(kBlanks) - first + 1);
}

std::string mode_of(const TuneCase& which) {
  const DType dtype = which.block.arguments().front().type.dtype;
  if (dtype != DType::kF32) return std::string(to_string(dtype));
  return which.precision == Precision::kTf32 ? "tf32" : "strict";
}

void add_case(std::vector<TuneCase>& cases, const std::string& name, const BlockOptions& options) {
  const BlockRequest request = read_request(options);
  cases.push_back({name, TypedBlock::infer(request.block, request.input, request.others), request.precision});
  cases.back().name += " " + mode_of(cases.back());
}

// A line `name: BLOCK @ TYPE WORDS`, the words being modes, strict and tf32; strict where there is none.
void read_line(std::vector<TuneCase>& cases, const std::string& line, const std::string& device) {
  const std::size_t colon = line.find(": ");
  const std::size_t at = line.rfind(" @ ");
  if (colon == std::string::npos || at == std::string::npos || at < colon)
    throw UserError("expected `name: BLOCK @ TYPE`, got `" + line.substr(0, 80) + "`");
  BlockOptions options;
  options.block = trimmed(line.substr(colon + 2, at - colon - 2));
  options.device = device;
  std::istringstream words(line.substr(at + 3));
  std::string word;
  words >> word;
  options.inputs = {word};
  bool any = false;
  for (; words >> options.precision; any = true) add_case(cases, trimmed(line.substr(0, colon)), options);
  if (any) return;
  options.precision = "strict";
  add_case(cases, trimmed(line.substr(0, colon)), options);
}

std::vector<TuneCase> read_cases(const TuneCommandOptions& options) {
  std::vector<TuneCase> cases;
  if (!options.block.block.empty()) {
    BlockOptions block = options.block;
    block.device = options.device;
    add_case(cases, options.block.block, block);
  }
  if (options.cases.empty()) return cases;
  std::ifstream file(options.cases);
  if (!file) throw UserError("--cases: cannot read " + options.cases);
  int number = 0;
  for (std::string line; std::getline(file, line);) {
    ++number;
    line = trimmed(line);
    if (line.empty() || line.starts_with('#')) continue;
    try {
      read_line(cases, line, options.device);
    } catch (const UserError& error) {
      throw UserError(options.cases + ", line " + std::to_string(number) + ": " + error.what());
    }
  }
  return cases;
}

struct Summary {
  double mean = 1;  // geometric, of how often the fastest time the cost model's division takes
  double worst = 1;
};

Summary summary_of(const std::vector<TunedPlan>& plans) {
  Summary result;
  double logarithms = 0;
  for (const TunedPlan& plan : plans) {
    const double ratio = plan.seconds_by_cost_model / plan.seconds;
    logarithms += std::log(ratio);
    result.worst = std::max(result.worst, ratio);
  }
  if (!plans.empty()) result.mean = std::exp(logarithms / static_cast<double>(plans.size()));
  return result;
}

Json to_json(const std::vector<TunedPlan>& plans, const Summary& summary, const std::string& device) {
  Json json;
  json["device"] = device;
  json["geometric_mean"] = summary.mean;
  json["worst"] = summary.worst;
  json["rows"] = Json::array();
  for (const TunedPlan& plan : plans) {
    Json row;
    row["case"] = plan.name;
    row["tuned_ms"] = plan.seconds * 1e3;
    row["by_cost_model_ms"] = plan.seconds_by_cost_model * 1e3;
    row["ratio"] = plan.seconds_by_cost_model / plan.seconds;
    row["launches"] = Json::array();
    for (const TunedLaunch& launch : plan.launches)
      row["launches"].push_back({{"gpu", launch.gpu},
                                 {"multiprocessors", launch.multiprocessors},
                                 {"kernel", launch.kernel},
                                 {"problem", launch.problem},
                                 {"division", launch.division},
                                 {"tuned_ms", launch.seconds * 1e3},
                                 {"by_cost_model_ms", launch.seconds_by_cost_model * 1e3},
                                 {"timed", launch.timed},
                                 {"refused", launch.refused}});
    json["rows"].push_back(std::move(row));
  }
  return json;
}

std::string factor_text(double factor) {
  std::ostringstream text;
  text.precision(3);
  text << factor;
  return text.str();
}

void print(const std::vector<TunedPlan>& plans, const Summary& summary, const Console& console) {
  Table table({{"case"}, {"by cost model", true}, {"tuned", true}, {"times", true}, {"divisions"}});
  for (const TunedPlan& plan : plans) {
    std::string divisions;
    for (const TunedLaunch& launch : plan.launches)
      divisions += (divisions.empty() ? "" : "; ") + launch.kernel + " " +
                   (launch.division.empty() ? "by the cost model" : launch.division) + " of " +
                   std::to_string(launch.timed);
    table.add({plan.name, time_text(plan.seconds_by_cost_model), time_text(plan.seconds),
               factor_text(plan.seconds_by_cost_model / plan.seconds), divisions});
  }
  console.print(table.text(console) + "\nthe cost model's divisions take " + factor_text(summary.mean) +
                " times as long as the fastest (geometric mean), " + factor_text(summary.worst) +
                " times at worst\n");
  for (const TunedPlan& plan : plans)
    for (const TunedLaunch& launch : plan.launches)
      for (const std::string& refused : launch.refused) console.warn(plan.name + ": " + refused);
}

}  // namespace

int run_tune(const TuneCommandOptions& options, const Console& console) {
  if (options.block.block.empty() == options.cases.empty())
    throw UserError("tune: expected either a block or --cases FILE");
  if (options.device.starts_with("cuda") &&
      std::ranges::none_of(Device::available(),
                           [&](const Device& each) { return each.name() == options.device; }))
    throw NotSupportedError("tune: divisions are timed on a GPU, and there is no `" + options.device +
                            "` on this machine");
  const Device device = Device::by_name(options.device);
  device.require_runs();
  const std::vector<TuneCase> cases = read_cases(options);
  TuneOptions how;
  how.divisions = options.divisions;
  how.repeat = options.repeat;
  how.seconds = options.seconds;
  how.progress = [&](const std::string& text) { console.progress(text); };
  const std::vector<TunedPlan> plans = tune(cases, device, how);
  console.progress("");
  const Summary summary = summary_of(plans);
  std::size_t entries = 0;
  if (!options.out.empty()) entries = write_tuned(plans, options.out);
  if (console.json()) {
    console.print_json(to_json(plans, summary, device.description().model));
  } else {
    print(plans, summary, console);
    if (!options.out.empty())
      console.print(options.out + " has " + count_text(entries, "division") + " now\n");
  }
  return options.within > 0 && summary.worst > options.within ? kCheckFailed : kSuccess;
}

}  // namespace fuseblock::cli
