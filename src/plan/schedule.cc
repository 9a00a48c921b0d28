// Cuts a lowered block into sweeps.
//
// Every part gets a level: the number of the round of sweeps in which it can be computed. A statistic is
// complete one level after the sweep that takes it, and so is a stored value; everything pointwise is
// computed wherever it is needed. A sweep gathers all that is wanted of one domain at one level, fed by at
// most one convolution.
#include "plan/schedule.h"

#include <algorithm>
#include <tuple>

#include "plan/host.h"
#include "plan/program_builder.h"

namespace fuseblock {
namespace {

constexpr AxisSet kChannelAxis = {Axis::kC};

class Scheduler {
 public:
  Scheduler(const Lowered& lowered, const DeviceDescription& device, Reuse reuse)
      : cost_(device, lowered.block),
        reuse_(reuse),
        schedule_{lowered.block, lowered.graph, {}, {}, {}},
        facts_(graph().parts.size()) {
    schedule_.inputs = lowered.block.arguments();
    schedule_.outputs = lowered.block.outputs();
    schedule_.saved = lowered.saved;
    schedule_.reads_saved = lowered.reads_saved;
    std::vector<NamedType>& border = lowered.reads_saved ? schedule_.inputs : schedule_.outputs;
    for (const SavedValue& value : lowered.saved) border.push_back({value.name, value.type});
  }

  Schedule run() {
    const std::vector<bool> statistics = find_statistics(graph());
    for (int part = 0; part < count(); ++part) fact(part).statistic = statistics[at(part)];
    for (int part = 0; part < count(); ++part) learn(part);
    decide_windows();
    make_slots();
    emit();
    return std::move(schedule_);
  }

 private:
  // What is known of a part.
  struct Fact {
    bool statistic = false;  // lives as doubles, worked out between sweeps
    bool leaf = false;       // lives somewhere before the sweep that reads it
    int level = 0;           // leaf: the first level that may read it; else the level that can compute it
    int source = -1;         // the convolution its program starts from
    bool stored = false;     // written by the sweep that computes it, for later ones
  };

  // A reason to visit a value: to store it, to take a statistic or to contract it.
  struct Target {
    SinkKind kind;
    int value;  // the part that is visited
    int part;   // the part that is made
    int level;
  };

  static std::size_t at(int i) { return static_cast<std::size_t>(i); }
  const Graph& graph() const { return schedule_.graph; }
  int count() const { return static_cast<int>(graph().parts.size()); }
  Fact& fact(int part) { return facts_[at(part)]; }

  // First part: levels.

  void learn(int number) {
    const Part& part = graph()[number];
    switch (part.kind) {
      case PartKind::kArgument: fact(number).leaf = true; return;
      case PartKind::kPointwise: learn_pointwise(number); return;
      case PartKind::kConv: learn_conv(number); return;
      case PartKind::kContract: learn_contract(number); return;
      case PartKind::kHost:
      case PartKind::kPool: learn_pool(number); return;
      case PartKind::kReduce: learn_reduce(number); return;
      case PartKind::kMerge:
      case PartKind::kComponent:
      case PartKind::kRegroup:
        fact(number).leaf = true;
        fact(number).level = fact(part.operands[0]).level;
        return;
    }
  }

  void learn_pointwise(int number) {
    const Part& part = graph()[number];
    Fact& own = fact(number);
    own.leaf = own.statistic;
    for (int operand : part.operands) {
      const int other = fact(operand).source;
      // A convolution can feed the elements of its own extents only; what is broadcast from it is stored.
      const bool feeds = other >= 0 && graph()[operand].extents == part.extents;
      own.level = std::max(own.level, other >= 0 && !feeds ? whole_level(operand) : fact(operand).level);
      if (feeds && other != own.source) join_sources(own, other);
    }
  }

  // A program starts from one convolution at most: the earlier of two is stored.
  void join_sources(Fact& own, int other) {
    if (own.source < 0) {
      own.source = other;
      return;
    }
    const bool other_is_later = fact(other).level >= fact(own.source).level;
    const int earlier = other_is_later ? own.source : other;
    own.source = other_is_later ? other : own.source;
    store(earlier);
    own.level = std::max(own.level, fact(earlier).level + 1);
  }

  // The first level whose sweeps find a part that lives somewhere.
  int first_read(int part) { return fact(part).leaf ? fact(part).level : fact(part).level + 1; }

  // The first level at which a value can be read while an input is staged. One that needs a convolution
  // itself is stored.
  int staging_level(int part) {
    if (fact(part).leaf) return fact(part).level;
    if (fact(part).source < 0) return fact(part).level;
    store(part);
    return fact(part).level + 1;
  }

  // Whether an input is computed while it is staged. Kernels by tensor cores read it from memory.
  bool stages_programs() const { return cost_.device().tf32_rate == 0; }

  // The first level at which a value can be read as a whole.
  int whole_level(int part) {
    if (fact(part).leaf) return fact(part).level;
    store(part);
    return fact(part).level + 1;
  }

  void learn_conv(int number) {
    const Part& part = graph()[number];
    Fact& own = fact(number);
    own.source = number;
    own.level = stages_programs() ? staging_level(part.operands[0]) : whole_level(part.operands[0]);
    for (std::size_t i = 1; i < part.operands.size(); ++i)
      own.level = std::max(own.level, whole_level(part.operands[i]));
  }

  void learn_contract(int number) {
    const Part& part = graph()[number];
    const int value = part.operands[0];
    const int level = std::max(fact(value).level, staging_level(part.operands[1]));
    fact(number).leaf = true;
    fact(number).level = level + 1;
    targets_.push_back({SinkKind::kContract, value, number, level});
  }

  // A step of its own, as a host call is too: its operands whole.
  void learn_pool(int number) {
    Fact& own = fact(number);
    for (int operand : graph()[number].operands) own.level = std::max(own.level, whole_level(operand));
    pools_.emplace_back(number, own.level);
    own.leaf = true;
    own.level += 1;
  }

  void learn_reduce(int number) {
    const Part& part = graph()[number];
    const int value = part.operands[0];
    Fact& own = fact(number);
    own.leaf = true;
    if (fact(value).statistic) {
      own.level = fact(value).level;
      return;
    }
    own.level = fact(value).level + 1;
    targets_.push_back({SinkKind::kStatistic, value, number, fact(value).level});
  }

  // Has the part written whole by the sweep that computes it.
  void store(int part) {
    if (fact(part).stored) return;
    fact(part).stored = true;
    targets_.push_back({SinkKind::kStore, part, part, fact(part).level});
  }

  // Second part: outputs, and convolutions that are needed again after their own level.

  // The output that is also where a part lives: for a convolution one that is saved for backward, for a host call any
  // that has its type; -1 for none. Later sweeps may read it.
  int home_output(int part) const {
    const Part& which = graph()[part];
    if (which.kind != PartKind::kConv && which.kind != PartKind::kHost) return -1;
    const bool host = which.kind == PartKind::kHost;
    for (std::size_t i = host ? 0 : schedule_.block.block().outputs().size(); i < graph().outputs.size(); ++i)
      if (graph().outputs[i] == part && (!host || schedule_.outputs[i].type.dtype == host_type(part).dtype))
        return static_cast<int>(i);
    return -1;
  }

  const TensorType& host_type(int part) const {
    const Block& block = schedule_.block.block();
    return schedule_.block.type(block.nodes()[at(graph()[part].node)].result);
  }

  void decide_windows() {
    for (std::size_t i = 0; i < graph().outputs.size(); ++i) {
      const int part = graph().outputs[i];
      if (home_output(part) == static_cast<int>(i)) {
        if (graph()[part].kind == PartKind::kConv) store(part);
        continue;
      }
      const bool listed = std::any_of(targets_.begin(), targets_.end(), [&](const Target& target) {
        return target.kind == SinkKind::kStore && target.part == part;
      });
      if (!fact(part).statistic && !listed)
        targets_.push_back({SinkKind::kStore, part, part, fact(part).level});
    }
    for (int part = 0; part < count(); ++part) {
      if (graph()[part].kind != PartKind::kConv || home_output(part) >= 0) continue;
      std::vector<int> levels;
      for (const Target& target : targets_) {
        if (fact(target.value).source != part || target.level <= fact(part).level) continue;
        if (std::find(levels.begin(), levels.end(), target.level) == levels.end())
          levels.push_back(target.level);
      }
      if (!levels.empty()) decide(part, static_cast<int>(levels.size()));
    }
  }

  void decide(int part, int later) {
    const Part& conv = graph()[part];
    Decision decision = decide_reuse(cost_,
                                     {conv.name, conv.elements(), schedule_.block.operation_count(conv.node),
                                      graph()[conv.operands[0]].elements() * cost_.element_bytes(), later},
                                     reuse_);
    if (fact(part).stored) decision.take("store", "another sweep needs it whole");
    if (decision.chosen == "store") store(part);
    schedule_.decisions.push_back(std::move(decision));
  }

  // Third part: slots.

  int add_slot(SlotKind kind, int number, int part, int component) {
    schedule_.slots.push_back({kind, number, part, component, graph()[part].extents});
    return static_cast<int>(schedule_.slots.size()) - 1;
  }

  void make_slots() {
    slot_of_.assign(at(count()), -1);
    const std::vector<Value> arguments = schedule_.block.block().arguments();
    for (int part = 0; part < count(); ++part) {
      const Part& which = graph()[part];
      if (which.kind == PartKind::kArgument) {
        // Saved values come behind the block's arguments.
        const auto place = std::find(arguments.begin(), arguments.end(), which.value) - arguments.begin();
        const int number = static_cast<int>(place) + std::max(which.saved, 0);
        slot_of_[at(part)] = add_slot(SlotKind::kArgument, number, part, 0);
      } else if (fact(part).statistic) {
        const int components = has_components(which) ? component_count(which.statistic) : 1;
        for (int i = 0; i < components; ++i) {
          const int slot = add_slot(SlotKind::kStatistic, -1, part, i);
          if (i == 0) slot_of_[at(part)] = slot;
        }
      } else if (which.kind == PartKind::kReduce) {
        for (int i = 0; i < component_count(which.statistic); ++i) {
          const int slot = add_slot(SlotKind::kStored, -1, part, i);
          if (i == 0) slot_of_[at(part)] = slot;
        }
      } else if (which.kind == PartKind::kComponent) {
        slot_of_[at(part)] = slot_of_[at(which.operands[0])] + which.component;
      } else if (which.kind == PartKind::kPool || which.kind == PartKind::kHost || fact(part).stored) {
        if (home_output(part) < 0) slot_of_[at(part)] = add_slot(SlotKind::kStored, -1, part, 0);
      }
    }
    for (std::size_t i = 0; i < graph().outputs.size(); ++i) {
      output_slots_.push_back(add_slot(SlotKind::kOutput, static_cast<int>(i), graph().outputs[i], 0));
      if (home_output(graph().outputs[i]) == static_cast<int>(i))
        slot_of_[at(graph().outputs[i])] = output_slots_.back();
    }
    for (int part = 0; part < count(); ++part) {
      if (graph()[part].kind == PartKind::kHost) suit_host(part);
      if (graph()[part].kind == PartKind::kConv && !stages_programs()) suit_convolution(part);
    }
  }

  // The result of a program that is stored to be convolved has the type that the block gives it, as the weights have.
  void suit_convolution(int part) {
    const int operand = graph()[part].operands[0];
    const Node& node = schedule_.block.block().nodes()[at(graph()[part].node)];
    const TensorType& type = schedule_.block.type(node.operand(0));
    Slot& which = schedule_.slots[at(slot_of_[at(operand)])];
    if (graph()[operand].kind == PartKind::kPointwise && which.kind == SlotKind::kStored &&
        which.extents == type.canonical())
      which.dtype = type.dtype;
  }

  // What a host call writes, and what is stored for it, has the type and the layout that the block gives it.
  void suit_host(int part) {
    const Node& node = schedule_.block.block().nodes()[at(graph()[part].node)];
    const DType dtype = host_type(part).dtype;
    auto suit = [&](int slot, const TensorType& type) {
      Slot& which = schedule_.slots[at(slot)];
      if (which.kind != SlotKind::kStored || which.extents != type.canonical()) return;
      which.dtype = dtype;
      which.layout = type.layout;
    };
    suit(slot_of_[at(part)], host_type(part));
    for (std::size_t i = 0; i < graph()[part].operands.size(); ++i)
      suit(slot_of_[at(graph()[part].operands[i])], schedule_.block.type(node.operand(static_cast<int>(i))));
  }

  static bool has_components(const Part& part) {
    return part.kind == PartKind::kReduce || part.kind == PartKind::kMerge;
  }

  // Fourth part: sweeps.

  void emit() {
    int last = -1;
    for (const Target& target : targets_) last = std::max(last, target.level);
    for (const auto& [part, level] : pools_) last = std::max(last, level);
    for (int part = 0; part < count(); ++part)
      if (fact(part).statistic) last = std::max(last, fact(part).level - 1);
    emit_finalise(-1);
    for (int level = 0; level <= last; ++level) {
      emit_sweeps(level);
      for (const auto& [part, pool_level] : pools_)
        if (pool_level == level) emit_pool(part);
      emit_finalise(level);
    }
  }

  // Statistics that are complete after a level, and outputs that are such.
  void emit_finalise(int level) {
    ScheduleStep step;
    step.kind = StepKind::kFinalise;
    for (int part = 0; part < count(); ++part) {
      const Part& which = graph()[part];
      if (!fact(part).statistic || fact(part).level != level + 1) continue;
      const bool taken_by_sweep = (which.kind == PartKind::kReduce && !fact(which.operands[0]).statistic) ||
                                  which.kind == PartKind::kContract;
      if (!taken_by_sweep) step.parts.push_back(part);
    }
    for (std::size_t i = 0; i < graph().outputs.size(); ++i) {
      const int part = graph().outputs[i];
      if (fact(part).statistic && fact(part).level == level + 1) step.operands.push_back(output_slots_[i]);
    }
    if (!step.parts.empty() || !step.operands.empty()) schedule_.steps.push_back(std::move(step));
  }

  void emit_pool(int part) {
    ScheduleStep step;
    step.kind = graph()[part].kind == PartKind::kHost ? StepKind::kHostCall : StepKind::kPool;
    step.parts = {part};
    for (int operand : graph()[part].operands) step.operands.push_back(slot_of_[at(operand)]);
    step.result = slot_of_[at(part)];
    schedule_.steps.push_back(std::move(step));
  }

  void emit_sweeps(int level) {
    // One sweep for each domain and source; in the order in which they were first wanted.
    std::vector<std::pair<std::tuple<Extents, int>, std::vector<Target>>> groups;
    for (const Target& target : targets_) {
      if (target.level != level) continue;
      const std::tuple<Extents, int> key = {graph()[target.value].extents, source_at(target.value, level)};
      auto group =
          std::find_if(groups.begin(), groups.end(), [&](const auto& entry) { return entry.first == key; });
      if (group == groups.end()) group = groups.insert(groups.end(), {key, {}});
      group->second.push_back(target);
    }
    // What needs no convolution goes along with one of the same domain.
    for (auto group = groups.begin(); group != groups.end();) {
      const auto& [domain, source] = group->first;
      auto other =
          source >= 0 ? groups.end() : std::find_if(groups.begin(), groups.end(), [&](const auto& entry) {
            return std::get<0>(entry.first) == domain && std::get<1>(entry.first) >= 0;
          });
      if (other == groups.end()) {
        ++group;
        continue;
      }
      other->second.insert(other->second.end(), group->second.begin(), group->second.end());
      group = groups.erase(group);
    }
    for (const auto& [key, targets] : groups) emit_sweep(level, std::get<0>(key), std::get<1>(key), targets);
  }

  // The convolution that a sweep at this level computes for the value; -1 if it is read from memory or not
  // needed.
  int source_at(int value, int level) {
    const int source = fact(value).source;
    if (source < 0) return -1;
    return fact(source).stored && fact(source).level < level ? -1 : source;
  }

  void emit_sweep(int level, const Extents& domain, int source, const std::vector<Target>& targets) {
    ScheduleStep step;
    Sweep& sweep = step.sweep;
    sweep.domain = domain;
    sweep.level = level;
    sweep.source = source;
    if (source >= 0) {
      const Part& conv = graph()[source];
      sweep.staged.push_back(make_prologue(conv.operands[0], level));
      sweep.weight = slot_of_[at(conv.operands[1])];
      sweep.bias = conv.operands.size() > 2 ? slot_of_[at(conv.operands[2])] : -1;
    }
    ProgramBuilder program = program_at(level, source);
    for (const Target& target : targets) program.want(target.value);
    const std::vector<std::int32_t> places = program.finish(sweep.steps);
    sweep.inputs = program.inputs();
    for (std::size_t i = 0; i < targets.size(); ++i) add_sinks(targets[i], places[i], sweep.sinks, sweep);
    absorb_epilogue(sweep);
    schedule_.steps.push_back(std::move(step));
  }

  // Values of the next level that need nothing but this sweep's reductions over channels and what is known
  // already are computed where those reductions end, tile by tile.
  void absorb_epilogue(Sweep& sweep) {
    std::vector<int> own;  // the reductions' components
    for (const Sink& sink : sweep.sinks)
      if (sink.kind == SinkKind::kStatistic && graph()[sink.part].axes == kChannelAxis)
        own.push_back(sink.part);
    if (own.empty()) return;
    auto is_own = [&](int part) {
      return graph()[part].kind == PartKind::kComponent &&
             std::find(own.begin(), own.end(), graph()[part].operands[0]) != own.end();
    };
    Extents extents = sweep.domain;
    extents[1] = 1;
    std::vector<Target> absorbed;
    for (const Target& target : targets_) {
      if (target.kind != SinkKind::kStore || target.level != sweep.level + 1 ||
          graph()[target.value].extents != extents)
        continue;
      bool any_own = false;
      bool fits = source_at(target.value, target.level) < 0;
      for (int part : reads(target.value, target.level)) {
        any_own = any_own || is_own(part);
        fits = fits && (is_own(part) || first_read(part) <= sweep.level);
      }
      if (fits && any_own) absorbed.push_back(target);
    }
    if (absorbed.empty()) return;
    ProgramBuilder program = program_at(sweep.level + 1, -1);
    for (const Target& target : absorbed) program.want(target.value);
    const std::vector<std::int32_t> places = program.finish(sweep.epilogue.steps);
    sweep.epilogue.inputs = program.inputs();
    for (std::size_t i = 0; i < absorbed.size(); ++i) {
      add_sinks(absorbed[i], places[i], sweep.epilogue.sinks, sweep);
      std::erase_if(targets_, [&](const Target& target) {
        return target.kind == absorbed[i].kind && target.part == absorbed[i].part;
      });
    }
    keep_in_tile(own);
  }

  // Components of reductions that nobody else reads need no memory.
  void keep_in_tile(const std::vector<int>& reductions) {
    std::vector<bool> needed(at(count()), false);
    for (const Target& target : targets_) {
      for (int part : reads(target.value, target.level)) needed[at(part)] = true;
      if (target.kind == SinkKind::kContract)
        for (int part : reads(graph()[target.part].operands[1], target.level)) needed[at(part)] = true;
    }
    for (int part = 0; part < count(); ++part) {
      const PartKind kind = graph()[part].kind;
      if (kind != PartKind::kConv && kind != PartKind::kPool && kind != PartKind::kHost) continue;
      for (int operand : graph()[part].operands)
        for (int read : reads(operand, fact(part).level)) needed[at(read)] = true;
    }
    for (int part = 0; part < count(); ++part) {
      const Part& which = graph()[part];
      if (which.kind != PartKind::kComponent || needed[at(part)]) continue;
      if (std::find(reductions.begin(), reductions.end(), which.operands[0]) == reductions.end()) continue;
      schedule_.slots[at(slot_of_[at(part)])].kind = SlotKind::kTile;
    }
    // A component that no part takes is not needed either.
    for (int reduction : reductions)
      for (int i = 0; i < component_count(graph()[reduction].statistic); ++i) {
        const bool taken = std::any_of(graph().parts.begin(), graph().parts.end(), [&](const Part& part) {
          return part.kind == PartKind::kComponent && part.operands[0] == reduction && part.component == i;
        });
        if (!taken) schedule_.slots[at(slot_of_[at(reduction)] + i)].kind = SlotKind::kTile;
      }
  }

  // The parts that a program for a value reads at a level.
  std::vector<int> reads(int value, int level) {
    const int source = source_at(value, level);
    return parts_read(graph(), value, [&](int part) { return is_read(part, level, source); });
  }

  // A program at a level; `source` is the convolution computed there, if any.
  ProgramBuilder program_at(int level, int source) {
    return {graph(), [this, level, source](int part) { return is_read(part, level, source); },
            [this, source](int part) {
              const int slot = part == source ? -1 : slot_of_[at(part)];
              if (slot < 0 && part != source)
                throw InternalError("a part is read that lives nowhere: " + graph()[part].name);
              return slot;
            }};
  }

  // Whether a program at a level reads the part (from a slot or from the source) rather than computing it.
  bool is_read(int part, int level, int source) {
    if (part == source || fact(part).leaf) return true;
    if (graph()[part].kind == PartKind::kConv) return true;
    return fact(part).stored && fact(part).level < level;
  }

  Prologue make_prologue(int part, int level) {
    Prologue prologue;
    prologue.part = part;
    ProgramBuilder program = program_at(level, -1);
    program.want(part);
    program.finish(prologue.steps);
    prologue.inputs = program.inputs();
    return prologue;
  }

  void add_sinks(const Target& target, std::int32_t step, std::vector<Sink>& sinks, Sweep& sweep) {
    Sink sink;
    sink.kind = target.kind;
    sink.step = step;
    sink.part = target.part;
    if (target.kind == SinkKind::kStatistic) {
      for (int i = 0; i < component_count(graph()[target.part].statistic); ++i)
        sink.slots.push_back(slot_of_[at(target.part)] + i);
    } else if (target.kind == SinkKind::kContract) {
      const int other = graph()[target.part].operands[1];
      sink.slots = {slot_of_[at(target.part)]};
      sink.operand = find_staged(other, sweep);
    } else {
      // A value may be stored for later and be an output (or several) as well.
      if (fact(target.part).stored) {
        sink.slots = {slot_of_[at(target.part)]};
        sinks.push_back(sink);
      }
      for (std::size_t i = 0; i < graph().outputs.size(); ++i) {
        if (graph().outputs[i] != target.part || output_slots_[i] == slot_of_[at(target.part)]) continue;
        sink.slots = {output_slots_[i]};
        sinks.push_back(sink);
      }
      return;
    }
    sinks.push_back(std::move(sink));
  }

  int find_staged(int part, Sweep& sweep) {
    for (std::size_t i = 0; i < sweep.staged.size(); ++i)
      if (sweep.staged[i].part == part) return static_cast<int>(i);
    sweep.staged.push_back(make_prologue(part, sweep.level));
    return static_cast<int>(sweep.staged.size()) - 1;
  }

  CostModel cost_;
  Reuse reuse_;
  Schedule schedule_;
  std::vector<Fact> facts_;
  std::vector<Target> targets_;
  std::vector<std::pair<int, int>> pools_;  // part, level
  std::vector<int> slot_of_;                // by part
  std::vector<int> output_slots_;
};

}  // namespace

Schedule make_schedule(const TypedBlock& block, const DeviceDescription& device, const PlanOptions& options) {
  Lowered lowered{block, lower(block), {}, false};
  const std::vector<Decision> decisions = choose_host_calls(lowered, device, options);
  Schedule schedule = make_schedule(lowered, device, options.reuse);
  schedule.decisions.insert(schedule.decisions.begin(), decisions.begin(), decisions.end());
  schedule.choices = options.kernels;
  schedule.precision = options.precision;
  return schedule;
}

Schedule make_schedule(const TypedBlock& block, const DeviceDescription& device, Reuse reuse) {
  return make_schedule(block, device, PlanOptions{.reuse = reuse});
}

Schedule make_schedule(const Lowered& lowered, const DeviceDescription& device, Reuse reuse) {
  return Scheduler(lowered, device, reuse).run();
}

double Slot::elements() const {
  double count = 1;
  for (std::int64_t extent : extents) count *= static_cast<double>(extent);
  return count;
}

}  // namespace fuseblock
