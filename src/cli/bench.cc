// fuseblock bench: how long a block takes, median and spread.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <memory>
#include <optional>
#include <thread>

#include <nlohmann/json.hpp>

#include "commands.h"
#include "data.h"
#include "execution.h"
#include "table.h"

namespace fuseblock::cli {
namespace {

constexpr int kFewestRepeats = 3;
constexpr int kMostRepeats = 100000;

// Times of single runs in seconds, sorted.
std::vector<double> measure(const std::vector<Execution*>& executions, const BenchOptions& options,
                            const Console& console) {
  using Clock = std::chrono::steady_clock;
  auto seconds_since = [](Clock::time_point begin) {
    return std::chrono::duration<double>(Clock::now() - begin).count();
  };
  auto run_all = [&] {
    for (Execution* execution : executions) execution->run();
  };
  console.progress("warming up");
  run_all();
  std::vector<double> times;
  const Clock::time_point begin = Clock::now();
  auto enough = [&](int count) {
    if (options.repeat > 0) return count >= options.repeat;
    return count >= kMostRepeats || (count >= kFewestRepeats && seconds_since(begin) >= options.seconds);
  };
  for (int count = 0; !enough(count); ++count) {
    if (count % 1024 == 0 || times.back() > 0.1) console.progress("run " + std::to_string(count + 1));
    const Clock::time_point start = Clock::now();
    run_all();
    times.push_back(seconds_since(start));
  }
  console.progress("");
  std::sort(times.begin(), times.end());
  return times;
}

// Of sorted numbers, interpolated.
double percentile(const std::vector<double>& sorted, double share) {
  const double place = share * static_cast<double>(sorted.size() - 1);
  const auto below = static_cast<std::size_t>(place);
  const std::size_t above = std::min(below + 1, sorted.size() - 1);
  return std::lerp(sorted[below], sorted[above], place - static_cast<double>(below));
}

}  // namespace

int run_bench(const BenchOptions& options, const Console& console) {
  require_consistent(options.gradient);
  const BlockRequest request = read_runnable_request(options.block);
  const PlanOptions how = {.threads = options.threads, .fuse = !options.unfused};
  std::optional<TrainingPlans> pair;
  if (options.gradient.backward) pair = request.training(options.gradient.wanted, how);
  const Plan plan = pair ? pair->forward : request.plan(how);
  const TensorMap arguments = generate_arguments(plan.block(), options.seed);
  TensorMap output_gradients;
  announce_duration(plan, 1, console);

  Execution forward(plan, {&arguments});
  std::unique_ptr<Execution> backward;
  double operations = operation_count(plan.block());
  double peak_bytes = forward.bytes();
  if (pair) {
    output_gradients = generate_output_gradients(plan.block(), options.seed);
    backward = std::make_unique<Execution>(
        pair->backward, std::vector<const TensorMap*>{&output_gradients, &arguments}, forward);
    operations += operation_count(pair->backward.block());
    // What is saved has no gradients; one workspace serves both plans in turn.
    peak_bytes = total_bytes(plan.inputs()) + total_bytes(plan.outputs()) +
                 total_bytes(plan.block().outputs()) + total_bytes(pair->backward.outputs()) +
                 static_cast<double>(std::max(plan.workspace_bytes(), pair->backward.workspace_bytes()));
  }
  std::vector<Execution*> executions = {&forward};
  if (backward) executions.push_back(backward.get());
  const std::vector<double> times = measure(executions, options, console);

  const double median = percentile(times, 0.5);
  const double low = percentile(times, 0.1);
  const double high = percentile(times, 0.9);
  const std::string direction = options.gradient.backward ? "forward+backward" : "forward";
  const bool one_thread = plan.device().name() == "reference";
  const int cores = static_cast<int>(std::max(1U, std::thread::hardware_concurrency()));
  const int threads = one_thread ? 1 : (options.threads > 0 ? options.threads : cores);
  if (one_thread && options.threads > 1) console.warn("--threads: the reference engine uses one thread");
  if (console.json()) {
    Json json;
    json["block"] = request.block.to_string();
    json["input"] = to_string(request.input);
    json["engine"] = plan.device().name();
    json["direction"] = direction;
    json["fused"] = !options.unfused;
    json["threads"] = threads;
    json["median_ms"] = median * 1e3;
    json["p10_ms"] = low * 1e3;
    json["p90_ms"] = high * 1e3;
    json["repeats"] = times.size();
    json["peak_bytes"] = static_cast<std::int64_t>(peak_bytes);
    json["operations"] = operations;
    json["operations_per_second"] = operations / median;
    console.print_json(json);
    return kSuccess;
  }
  Table table({{""}, {""}});
  table.add({"median", time_text(median)});
  table.add({"p10 to p90", time_text(low) + " to " + time_text(high)});
  table.add({"repeats", std::to_string(times.size())});
  table.add({"peak memory", bytes_text(peak_bytes)});
  table.add({"operations", amount_text(operations) + ", " + amount_text(operations / median) + "/s"});
  console.print(console.bold(request.block.to_string()) + "\non " + to_string(request.input) + ", engine " +
                plan.device().name() + (options.unfused ? ", unfused, " : ", ") + direction + ", " +
                count_text(static_cast<std::size_t>(threads), "thread") + "\n\n" + table.text(console));
  return kSuccess;
}

}  // namespace fuseblock::cli
