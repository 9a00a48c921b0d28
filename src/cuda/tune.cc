// Tuning (include/fuseblock/tune.h). For every launch that has a choice: the cheapest division of each shape by the cost
// model, timed beside the cost model's own; then more tiles of the shape that was fastest. All cases are compiled together, on
// all cores, the likeliest divisions first, so that little time still gives each case some.
#include "fuseblock/tune.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <map>
#include <optional>
#include <set>
#include <thread>

#include "cuda/arrange.h"
#include "cuda/engine.h"
#include "cuda/jit/cache.h"
#include "cuda/jit/compile_processes.h"
#include "cuda/launch/conv_wishes.h"
#include "cuda/tune_memory.h"
#include "cuda/tuned.h"
#include "plan/cache_folder.h"

namespace fuseblock {
namespace cuda {
namespace {

using Clock = std::chrono::steady_clock;

// A division whose cost is more than so often that of the cheapest is not timed.
constexpr double kDearest = 4;
// A division is taken where it needs at most so much of the cost model's time: less is noise.
constexpr double kGain = 0.985;

double median(std::vector<double> times) {
  std::ranges::sort(times);
  return times.empty() ? 0 : (times[(times.size() - 1) / 2] + times[times.size() / 2]) / 2;
}

// A launch with one division.
struct Trial {
  Division division;  // its text is empty for the cost model's own
  std::unique_ptr<KernelLaunch> launch;
  bool compiled = false;
  std::string refused = {};  // why the GPU does not run it
  std::vector<double> times = {};

  bool runs() const { return compiled && refused.empty(); }
};

// What two launches with the same code and the same grid have in common.
std::string signature(const KernelLaunch& launch) {
  std::string text;
  for (const PlannedKernel& kernel : launch.planned()) {
    text += kernel.digest + " " + std::to_string(kernel.blocks) + " " + std::to_string(kernel.threads) + " " +
            std::to_string(kernel.shared_bytes);
    for (const auto& [name, number] : kernel.numbers) text += " " + name + std::to_string(number);
  }
  return text;
}

// Launches of a case: alternatives to each other. The first is the cost model's own.
struct Choice {
  std::string problem;
  std::vector<Division> divisions;
  std::vector<Trial> trials;
  std::set<std::string> signatures;

  // The fastest that runs.
  std::size_t best() const {
    std::size_t result = 0;
    for (std::size_t i = 1; i < trials.size(); ++i)
      if (trials[i].runs() && !trials[i].times.empty() &&
          median(trials[i].times) < median(trials[result].times) * (result == 0 ? kGain : 1))
        result = i;
    return result;
  }
};

class CaseTuner {
 public:
  CaseTuner(const TuneCase& which, const Device& device, const TuneOptions& options)
      : case_(which),
        options_(options),
        gpu_(gpu_of(device.description())),
        schedule_(
            arranged(make_schedule(which.block, device.description(), {.precision = which.precision}))) {
    gpu_.tuned = nullptr;
    cuts_ = cut_into_kernels(schedule_);
    for (const KernelCut& cut : cuts_) {
      Choice choice;
      auto launch = make_launch(schedule_, cut, gpu_, nullptr);
      choice.problem = launch->problem();
      if (!choice.problem.empty()) choice.divisions = launch->divisions();
      choice.signatures.insert(signature(*launch));
      choice.trials.push_back({{launch->planned().back().name, "", "", 0}, std::move(launch)});
      choices_.push_back(std::move(choice));
    }
    for (std::size_t i = 0; i < choices_.size(); ++i) add_shapes(i);
  }

  const std::string& name() const { return case_.name; }

  // Those that are not compiled, by their places in the order of their launches' divisions.
  std::multimap<std::size_t, Trial*> to_compile() {
    std::multimap<std::size_t, Trial*> result;
    for (Choice& choice : choices_)
      for (std::size_t i = 0; i < choice.trials.size(); ++i)
        if (!choice.trials[i].compiled) result.emplace(i, &choice.trials[i]);
    return result;
  }

  // Times what is compiled and was not timed, the cost model's own beside it.
  void time() {
    std::vector<KernelLaunch*> launches;
    std::vector<std::pair<std::size_t, Trial*>> timed;
    for (std::size_t i = 0; i < choices_.size(); ++i)
      for (Trial& trial : choices_[i].trials) {
        if (!trial.runs() && &trial != choices_[i].trials.data()) continue;
        launches.push_back(trial.launch.get());
        timed.emplace_back(i, &trial);
      }
    const TuneMemory memory(schedule_, gpu_, launches);
    // What the launches before one write is there for all of its alternatives.
    std::vector<PlacedLaunch> own;
    for (std::size_t i = 0; i < timed.size(); ++i)
      if (timed[i].second->division.text.empty()) own.push_back(memory.launches()[i]);
    for (const auto& [choice, trial] : timed) trial->launch->load(gpu_);
    memory.run(own);
    for (std::size_t i = 0; i < choices_.size(); ++i)
      if (choices_[i].trials.size() > 1) time_choice(i, timed, memory);
  }

  // More tiles of the fastest shapes.
  void add_tiles() {
    for (std::size_t i = 0; i < choices_.size(); ++i) {
      const Division best = choices_[i].trials[choices_[i].best()].division;
      if (best.text.empty()) continue;
      for (const Division& division : choices_[i].divisions)
        if (division.shape == best.shape && division.kernel == best.kernel) add_trial(i, division);
    }
  }

  // The fastest divisions; their results are held against those of the cost model's.
  TunedPlan result() {
    TunedPlan plan;
    plan.name = case_.name;
    plan.precision = case_.precision;
    std::vector<KernelLaunch*> own;
    std::vector<KernelLaunch*> best;
    for (const Choice& choice : choices_) {
      own.push_back(choice.trials[0].launch.get());
      best.push_back(choice.trials[choice.best()].launch.get());
    }
    std::vector<KernelLaunch*> all = own;
    for (std::size_t i = 0; i < best.size(); ++i)
      if (best[i] != own[i]) all.push_back(best[i]);
    const TuneMemory memory(schedule_, gpu_, all);
    auto placed = [&](const std::vector<KernelLaunch*>& launches) {
      std::vector<PlacedLaunch> result;
      for (KernelLaunch* launch : launches)
        result.push_back(*std::ranges::find(memory.launches(), launch, &PlacedLaunch::launch));
      return result;
    };
    memory.run(placed(own));
    const auto expected = memory.results();
    for (std::size_t i = 0; i < best.size(); ++i) {
      if (best[i] == own[i]) continue;
      std::vector<KernelLaunch*> one = own;
      one[i] = best[i];
      memory.run(placed(one));
      if (agree(expected, memory.results())) continue;
      Choice& choice = choices_[i];
      choice.trials[choice.best()].refused = "its results differ from those of the cost model's division";
      best[i] = own[i];
    }
    std::vector<double> times;
    std::vector<double> own_times;
    for (int repeat = 0; repeat < options_.repeat; ++repeat) {
      own_times.push_back(memory.time(placed(own)));
      if (best != own) times.push_back(memory.time(placed(best)));
    }
    plan.seconds_by_cost_model = median(own_times);
    plan.seconds = best == own ? plan.seconds_by_cost_model : median(times);
    // What gained less than the measurement's noise is no gain of the whole.
    if (plan.seconds > plan.seconds_by_cost_model) {
      plan.seconds = plan.seconds_by_cost_model;
      best = own;
    }
    for (std::size_t i = 0; i < choices_.size(); ++i)
      if (!choices_[i].problem.empty())
        plan.launches.push_back(launch_of(choices_[i], best[i] == own[i] ? 0 : choices_[i].best()));
    return plan;
  }

 private:
  // The cheapest division of each shape: most of them of the kernel that the cost model has, some of others.
  void add_shapes(std::size_t number) {
    std::map<std::string, std::vector<Division>> kernels;
    std::set<std::string> shapes;
    std::vector<Division> sorted = choices_[number].divisions;
    std::ranges::stable_sort(sorted, {}, &Division::cost);
    for (const Division& division : sorted)
      if (shapes.insert(division.kernel + " " + division.shape).second)
        kernels[division.kernel].push_back(division);
    const std::string own = choices_[number].trials[0].division.kernel;
    for (const auto& [kernel, divisions] : kernels) {
      const int most = kernel == own ? options_.divisions : (options_.divisions + 3) / 4;
      int added = 0;
      for (const Division& division : divisions) {
        if (added == most || division.cost > kDearest * divisions.front().cost) break;
        if (add_trial(number, division)) ++added;
      }
    }
  }

  bool add_trial(std::size_t number, const Division& division) {
    Choice& choice = choices_[number];
    TunedTable table;
    table.add({gpu_.kind, gpu_.multiprocessors, division.kernel, choice.problem, division.text});
    Gpu gpu = gpu_;
    gpu.tuned = std::make_shared<const TunedTable>(std::move(table));
    auto launch = make_launch(schedule_, cuts_[number], gpu, nullptr);
    if (launch->planned().back().chosen != "tuned" || !choice.signatures.insert(signature(*launch)).second)
      return false;
    choice.trials.push_back({division, std::move(launch)});
    return true;
  }

  void time_choice(std::size_t number, const std::vector<std::pair<std::size_t, Trial*>>& timed,
                   const TuneMemory& memory) {
    std::vector<std::size_t> alternatives;
    for (std::size_t i = 0; i < timed.size(); ++i)
      if (timed[i].first == number) alternatives.push_back(i);
    for (const std::size_t i : alternatives) {
      try {
        memory.run({memory.launches()[i]});
      } catch (const Error& error) {
        if (timed[i].second->division.text.empty()) throw;
        timed[i].second->refused = error.what();
      }
    }
    // One after the other, so that what changes with time meets all of them.
    for (int repeat = 0; repeat < options_.repeat; ++repeat)
      for (const std::size_t i : alternatives)
        if (timed[i].second->refused.empty())
          timed[i].second->times.push_back(memory.time({memory.launches()[i]}));
  }

  TunedLaunch launch_of(const Choice& choice, std::size_t chosen) const {
    TunedLaunch launch;
    const Trial& trial = choice.trials[chosen];
    launch.gpu = gpu_.kind;
    launch.multiprocessors = gpu_.multiprocessors;
    launch.kernel = trial.division.kernel;
    launch.problem = choice.problem;
    launch.division = trial.division.text;
    launch.seconds = median(trial.times);
    launch.seconds_by_cost_model = median(choice.trials[0].times);
    for (const Trial& each : choice.trials) {
      if (!each.times.empty()) ++launch.timed;
      if (!each.refused.empty()) launch.refused.push_back(each.division.text + ": " + each.refused);
    }
    return launch;
  }

  // Whether results are those of the same block: other orders of sums round differently, and a wrong division is far off.
  static bool agree(const std::vector<std::vector<double>>& expected,
                    const std::vector<std::vector<double>>& got) {
    constexpr double kShare = 0.02;
    for (std::size_t i = 0; i < expected.size(); ++i) {
      double largest = 0;
      double difference = 0;
      for (std::size_t k = 0; k < expected[i].size(); ++k) {
        if (std::isnan(expected[i][k]) && std::isnan(got[i][k])) continue;
        largest = std::max(largest, std::abs(expected[i][k]));
        if (!(std::abs(expected[i][k] - got[i][k]) <= difference))
          difference = std::abs(expected[i][k] - got[i][k]);
      }
      if (!(difference <= kShare * largest)) return false;
    }
    return true;
  }

  const TuneCase& case_;
  const TuneOptions& options_;
  Gpu gpu_;
  Schedule schedule_;
  std::vector<KernelCut> cuts_;
  std::vector<Choice> choices_;  // by launch
};

class Tuner {
 public:
  Tuner(const std::vector<TuneCase>& cases, const Device& device, const TuneOptions& options)
      : options_(options), gpu_(gpu_of(device.description())) {
    for (const TuneCase& each : cases) {
      tell("dividing " + each.name);
      cases_.push_back(std::make_unique<CaseTuner>(each, device, options));
    }
  }

  std::vector<TunedPlan> run() {
    // The cost model's own are compiled in any case.
    compile(0.6);
    for (const auto& each : cases_) {
      tell("timing " + each->name());
      each->time();
      each->add_tiles();
    }
    compile(0.9);
    std::vector<TunedPlan> plans;
    for (const auto& each : cases_) {
      tell("timing more of " + each->name());
      each->time();
      plans.push_back(each->result());
    }
    tell("");
    return plans;
  }

 private:
  void tell(const std::string& what) const {
    if (options_.progress) options_.progress(what);
  }

  // Until that share of the time has passed; the cost model's own in any case.
  void compile(double share) {
    std::multimap<std::size_t, Trial*> ordered;
    for (const auto& each : cases_) ordered.merge(each->to_compile());
    std::vector<jit::KernelSource> sources;
    std::vector<bool> needed;
    for (const auto& [place, trial] : ordered)
      for (jit::KernelSource& source : trial->launch->sources()) {
        sources.push_back(std::move(source));
        needed.push_back(trial->division.text.empty());
      }
    auto in_time = [&] {
      const double passed = std::chrono::duration<double>(Clock::now() - begin_).count();
      return options_.seconds <= 0 || passed < share * options_.seconds;
    };
    const int cores = static_cast<int>(std::max(1U, std::thread::hardware_concurrency()));
    jit::CompileProcesses processes;
    processes.count = options_.processes > 0 ? options_.processes : cores;
    processes.wanted = [&](std::size_t i) { return needed[i] || in_time(); };
    processes.progress = [&](std::size_t done) {
      tell("compiled " + std::to_string(done) + " of " + std::to_string(sources.size()) + " kernels");
    };
    const std::vector<bool> there = jit::compile_in_processes(sources, *gpu_.architecture, processes);
    std::size_t first = 0;
    for (const auto& [place, trial] : ordered) {
      const std::size_t last = first + trial->launch->sources().size();
      const bool ready = std::all_of(there.begin() + static_cast<std::ptrdiff_t>(first),
                                     there.begin() + static_cast<std::ptrdiff_t>(last), std::identity());
      if (ready || needed[first] || in_time()) load(*trial);
      first = last;
    }
  }

  // Finds what the processes compiled, compiles what they did not.
  void load(Trial& trial) const {
    try {
      for (const jit::KernelSource& source : trial.launch->sources())
        jit::kernel_cache().find(source, *gpu_.architecture);
      trial.compiled = true;
    } catch (const Error& error) {
      if (trial.division.text.empty()) throw;
      trial.refused = error.what();
    }
  }

  const TuneOptions& options_;
  Gpu gpu_;
  Clock::time_point begin_ = Clock::now();
  std::vector<std::unique_ptr<CaseTuner>> cases_;
};

}  // namespace
}  // namespace cuda

std::vector<TunedPlan> tune(const std::vector<TuneCase>& cases, const Device& device,
                            const TuneOptions& options) {
  if (!device.name().starts_with("cuda"))
    throw NotSupportedError(device.name() + ": divisions are timed on a GPU of this machine, `cuda`");
  device.require_runs();
  if (cuda::ConvWishes::of_environment().any())
    throw UserError("tune: FUSEBLOCK_CONV asks for divisions; unset it, so that there is a choice");
  const jit::ContextScope context(cuda::gpu_of(device.description()).ordinal);
  return cuda::Tuner(cases, device, options).run();
}

std::size_t write_tuned(const std::vector<TunedPlan>& plans, const std::string& file) {
  cuda::TunedTable table;
  if (std::filesystem::exists(file)) {
    std::ifstream stream(file, std::ios::binary);
    const std::string text{std::istreambuf_iterator<char>(stream), {}};
    table = cuda::TunedTable::parse(text, file);
  }
  constexpr double kSteps = 100;  // of a microsecond
  auto us = [](double seconds) { return std::round(seconds * 1e6 * kSteps) / kSteps; };
  for (const TunedPlan& plan : plans)
    for (const TunedLaunch& launch : plan.launches)
      table.add({launch.gpu, launch.multiprocessors, launch.kernel, launch.problem, launch.division,
                 us(launch.seconds), us(launch.seconds_by_cost_model)});
  write_whole(file, table.text());
  return table.entries().size();
}

}  // namespace fuseblock
