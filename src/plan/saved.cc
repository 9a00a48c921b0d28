#include "plan/saved.h"

#include <algorithm>
#include <set>

#include "plan/engine.h"
#include "plan/equal_parts.h"
#include "plan/host.h"
#include "plan/vertex_cut.h"

namespace fuseblock {
namespace {

std::size_t at(int i) { return static_cast<std::size_t>(i); }

// By part: how many different values it has along the channels, where those of a group are equal.
std::vector<std::int64_t> find_groups(const Graph& graph) {
  std::vector<std::int64_t> groups;
  for (const Part& part : graph.parts) {
    const std::int64_t channels = part.extents[1];
    std::int64_t found = channels;
    if (part.kind == PartKind::kMerge && part.axes.contains(Axis::kC) && part.groups > 1) {
      found = part.groups;
    } else if (part.kind == PartKind::kMerge || part.kind == PartKind::kComponent) {
      found = groups[at(part.operands[0])];
    } else if (part.kind == PartKind::kPointwise) {
      std::set<std::int64_t> of_operands;
      for (int operand : part.operands)
        if (varies(graph[operand], Axis::kC)) of_operands.insert(groups[at(operand)]);
      if (of_operands.size() == 1) found = *of_operands.begin();
    }
    groups.push_back(found);
  }
  return groups;
}

// Chooses what is saved and makes the two sides of it.
class TrainingSplit {
 public:
  TrainingSplit(Lowered forward, Lowered backward, DType arithmetic, const DeviceDescription& device,
                const PlanOptions& options)
      : forward_(std::move(forward)),
        backward_(std::move(backward)),
        arithmetic_(arithmetic),
        device_(device),
        cost_(device, forward_.block),
        options_(options),
        reuse_(options.reuse),
        twin_(find_equal_parts(backward_.block, backward_.graph, forward_.block, forward_.graph)),
        statistic_(find_statistics(backward_.graph)),
        groups_(find_groups(backward_.graph)),
        users_(backward_.graph.parts.size()),
        saved_(backward_.graph.parts.size(), false) {
    for (int part = 0; part < count(); ++part)
      for (int operand : graph()[part].operands) users_[at(operand)].push_back(part);
  }

  std::pair<Schedule, Schedule> run() {
    std::vector<int> chosen = choose_reductions();
    choose_convolutions(sides(chosen).second);
    decisions_.clear();
    chosen = choose_reductions();  // saved convolutions may have made some of them needless
    for (int part = 0; part < count(); ++part)
      if (saved_[at(part)]) chosen.push_back(part);
    std::sort(chosen.begin(), chosen.end(), [&](int a, int b) { return twin_[at(a)] < twin_[at(b)]; });
    const auto [forward, backward] = sides(chosen);
    std::pair<Schedule, Schedule> result = {make_schedule(forward, device_, reuse_),
                                            make_schedule(backward, device_, reuse_)};
    decisions_.insert(decisions_.begin(), convolution_decisions_.begin(), convolution_decisions_.end());
    for (Schedule* schedule : {&result.first, &result.second})
      schedule->decisions.insert(schedule->decisions.end(), decisions_.begin(), decisions_.end());
    return result;
  }

 private:
  // The backward graph, in which everything is chosen.
  const Graph& graph() const { return backward_.graph; }
  int count() const { return static_cast<int>(graph().parts.size()); }
  // Whether forward computes it too. What depends on the outputs' gradients never has a twin.
  bool is_shared(int part) const { return twin_[at(part)] >= 0; }
  bool is_forward_output(int part) const {
    const std::vector<int>& outputs = forward_.graph.outputs;
    return std::find(outputs.begin(), outputs.end(), twin_[at(part)]) != outputs.end();
  }
  bool is_convolution(int part) const {
    return graph()[part].kind == PartKind::kConv || graph()[part].kind == PartKind::kHost;
  }
  bool is_over_channels(int part) const {
    return graph()[part].kind == PartKind::kReduce && !statistic_[at(part)];
  }

  double bytes(int part) const {
    const Part& which = graph()[part];
    if (which.kind == PartKind::kHost) return static_cast<double>(type_of(part, 0).byte_count());
    const double channels = static_cast<double>(std::max<std::int64_t>(which.extents[1], 1));
    return which.elements() / channels * static_cast<double>(groups_[at(part)]) *
           static_cast<double>(byte_size(arithmetic_));
  }

  // First part: reductions.

  // Whether a part can be saved in place of the reductions behind it.
  bool can_save(int part) const {
    const Part& which = graph()[part];
    if (!is_shared(part) || is_compared(part) || is_of_exponentials(part)) return false;
    if (which.kind != PartKind::kComponent && which.kind != PartKind::kPointwise &&
        which.kind != PartKind::kContract)
      return false;
    return statistic_[at(part)] || (which.extents[1] == 1 && reuse_ != Reuse::kRecompute);
  }

  // Whether elements are looked for that equal the part: these and the part must be computed from the same numbers, and
  // statistics that are saved are rounded.
  bool is_compared(int part) const {
    const auto& users = users_[at(part)];
    return std::any_of(users.begin(), users.end(), [&](int user) {
      const Part& which = graph()[user];
      if (which.kind != PartKind::kPointwise) return false;
      const auto operand =
          std::find(which.operands.begin(), which.operands.end(), part) - which.operands.begin();
      const std::span<const Formula::Step> steps = which.formula.steps();
      const auto is_operand = [&](std::int32_t step) {
        return steps[at(step)].primitive == Primitive::kInput && steps[at(step)].input == operand;
      };
      return std::any_of(steps.begin(), steps.end(), [&](const Formula::Step& step) {
        return step.primitive == Primitive::kEqual && (is_operand(step.a) || is_operand(step.b));
      });
    });
  }

  // Whether a part is of sums of exponentials of a value that backward would compute a little differently: a difference in
  // the last place of a large exponent is one in many places of the exponential, and softmax as PyTorch has it has no such
  // error. A logsumexp has: PyTorch, too, takes exp(x - logsumexp) of a rounded logsumexp, so that it may be saved.
  bool is_of_exponentials(int part) const {
    const Part& which = graph()[part];
    if (!device_.contracts || which.kind != PartKind::kComponent) return false;
    int reduction = which.operands[0];
    if (graph()[reduction].statistic != Statistic::kExpSum) return false;
    while (graph()[reduction].kind == PartKind::kMerge) reduction = graph()[reduction].operands[0];
    return graph()[graph()[reduction].operands[0]].kind == PartKind::kPointwise;
  }

  // Whether a part that is not shared reads it, or it is a result.
  bool is_end(int part) const {
    const auto& users = users_[at(part)];
    return std::any_of(users.begin(), users.end(), [&](int user) { return !is_shared(user); }) ||
           std::find(graph().outputs.begin(), graph().outputs.end(), part) != graph().outputs.end();
  }

  // A reduction over a large value, which costs a pass.
  bool is_pass(int part) const {
    const Part& which = graph()[part];
    if (which.kind == PartKind::kContract) return true;
    return which.kind == PartKind::kReduce && !statistic_[at(which.operands[0])];
  }

  std::vector<int> choose_reductions() {
    std::vector<bool> unavoidable(at(count()),
                                  false);  // an end needs it, and nothing in between can be saved
    for (int part = count() - 1; part >= 0; --part) {
      if (!is_shared(part) || can_save(part)) continue;
      bool open = is_end(part);
      for (int user : users_[at(part)]) open = open || (unavoidable[at(user)] && !saved_[at(user)]);
      unavoidable[at(part)] = open;
    }
    VertexCut cut(count());
    for (int part = 0; part < count(); ++part) {
      if (!is_shared(part)) continue;
      // At least 1, so that an empty value is not saved for nothing.
      if (can_save(part)) cut.set_weight(part, std::max(bytes(part), 1.0));
      if (is_end(part)) cut.add_end(part);
      for (int user : users_[at(part)])
        if (is_shared(user) && !saved_[at(user)]) cut.add_edge(part, user);
      if (is_pass(part) && !unavoidable[at(part)] && (!is_over_channels(part) || is_worth_saving(part)))
        cut.add_start(part);
    }
    return cut.solve();
  }

  // Whether saving the result of a reduction over channels takes less time than repeating its pass.
  bool is_worth_saving(int part) {
    double moved = 0;
    double operations = 0;
    std::vector<int> needed = {graph()[part].operands[0]};
    std::vector<bool> seen(at(count()), false);
    for (std::size_t i = 0; i < needed.size(); ++i) {
      const Part& which = graph()[needed[i]];
      if (seen[at(needed[i])] || statistic_[at(needed[i])]) continue;
      seen[at(needed[i])] = true;
      const bool is_saved = saved_[at(needed[i])];
      if (which.kind == PartKind::kArgument || is_saved) moved += bytes(needed[i]);
      if (is_saved) continue;
      if (which.kind == PartKind::kConv || which.kind == PartKind::kHost)
        operations += 2 * conv_geometry(backward_.block, which.node).multiply_adds();
      needed.insert(needed.end(), which.operands.begin(), which.operands.end());
    }
    const double kept = bytes(part) * component_count(graph()[part].statistic);
    return decide("reduction over c of " + value_name(twin_[at(part)]),
                  2 * kept / cost_.bandwidth(kept) + cost_.touch_seconds(kept),
                  moved / device_.memory_bandwidth + operations / cost_.convolution_rate(), decisions_);
  }

  bool decide(const std::string& value, double save_seconds, double recompute_seconds,
              std::vector<Decision>& decisions) const {
    Decision decision;
    decision.value = value;
    decision.alternatives = {{"save", save_seconds, "written by forward, read by backward"},
                             {"recompute", recompute_seconds, "computed again by backward"}};
    decision.take(save_seconds < recompute_seconds ? "save" : "recompute", "the smallest estimate");
    if (reuse_ == Reuse::kStore) decision.take("save", "asked for");
    if (reuse_ == Reuse::kRecompute) decision.take("recompute", "asked for");
    decisions.push_back(std::move(decision));
    return decisions.back().chosen == "save";
  }

  // Second part: convolutions.

  // Decides about the convolutions that backward computes again where only reductions are saved.
  void choose_convolutions(const Lowered& backward) {
    const Schedule schedule = make_schedule(backward, device_, Reuse::kRecompute);
    for (int part = 0; part < count(); ++part) {
      const Part& which = graph()[part];
      if (!is_convolution(part) || !is_shared(part) || is_forward_output(part)) continue;
      const auto uses =
          std::count_if(schedule.steps.begin(), schedule.steps.end(), [&](const ScheduleStep& step) {
            if (step.kind == StepKind::kHostCall) return schedule.graph[step.parts[0]].node == which.node;
            return step.kind == StepKind::kSweep && step.sweep.source >= 0 &&
                   schedule.graph[step.sweep.source].node == which.node;
          });
      if (uses > 0) saved_[at(part)] = is_worth_saving_convolution(part, static_cast<double>(uses));
    }
  }

  // Saved, it is written once by forward and read by each pass of backward; else backward computes it for each, or
  // once and keeps it. A host call writes its result in any case.
  bool is_worth_saving_convolution(int part, double uses) {
    const double moving = bytes(part) / cost_.bandwidth(bytes(part));
    const double first_touch = cost_.touch_seconds(bytes(part));
    const double operations = 2 * conv_geometry(backward_.block, graph()[part].node).multiply_adds();
    const std::string name = value_name(twin_[at(part)]) + " for backward";
    if (graph()[part].kind == PartKind::kHost) {
      const HostFunctions& host = *options_.host;
      const double rate = host.rate ? host.rate(host_convolution(backward_.block, graph()[part].node))
                                    : host.operations_per_second;
      const double computing =
          operations / (rate > 0 ? rate : cost_.convolution_rate()) + options_.host->call_seconds;
      return decide(name, moving, computing + 2 * moving + first_touch, convolution_decisions_);
    }
    const std::optional<OwnConvolution> own = own_convolution(backward_, part, device_, options_.precision);
    const double computing = operations / (own ? own->operations_per_second : cost_.convolution_rate());
    return decide(name, (1 + uses) * moving + first_touch,
                  std::min(uses * computing, computing + uses * moving + first_touch),
                  convolution_decisions_);
  }

  // Third part: names, types, the two sides.

  // The name of a part of the forward graph, or of what it is made of.
  std::string value_name(int part) const {
    const Graph& forward = forward_.graph;
    while (forward[part].name.empty() && !forward[part].operands.empty()) part = forward[part].operands[0];
    return forward[part].name;
  }

  // The value whose reduction a part of the forward graph comes from.
  std::string reduced_name(int part) const {
    const Graph& forward = forward_.graph;
    while (forward[part].kind != PartKind::kReduce && forward[part].kind != PartKind::kContract &&
           !forward[part].operands.empty())
      part = forward[part].operands[0];
    return forward[part].operands.empty() ? forward[part].name : value_name(forward[part].operands[0]);
  }

  std::string plain_name(int number) const {
    const Part& part = forward_.graph[number];
    if (!part.role.empty()) return part.role;
    if (!part.name.empty()) return part.name;
    std::string what = "value";
    if (part.kind == PartKind::kComponent) {
      switch (forward_.graph[part.operands[0]].statistic) {
        case Statistic::kSum: what = "sum"; break;
        case Statistic::kMax: what = "max"; break;
        case Statistic::kMin: what = "min"; break;
        case Statistic::kMoments: what = part.component == 0 ? "mean" : "squares"; break;
        case Statistic::kExpSum: what = part.component == 0 ? "max" : "sum_exp"; break;
      }
    }
    return reduced_name(number) + "." + what;
  }

  TensorType type_of(int part, std::int64_t channels) const {
    const Part& which = graph()[part];
    if (which.node >= 0) {
      const Node& node = backward_.block.block().nodes()[at(which.node)];
      TensorType type = backward_.block.type(node.result);
      if (which.kind == PartKind::kHost) return type;
      type.dtype = arithmetic_;
      type.layout = Layout::kContiguous;
      return type;
    }
    TensorType type;
    type.dtype = arithmetic_;
    type.axes = {Axis::kN, Axis::kC};
    bool over_positions = false;
    for (Axis axis : kSpatialAxes.list()) over_positions = over_positions || varies(which, axis);
    const AxisSet input_axes = forward_.block.type(Value{0}).axes;
    for (Axis axis : kSpatialAxes.list())
      if (varies(which, axis) || (over_positions && input_axes.contains(axis))) type.axes.insert(axis);
    for (Axis axis : type.axes.list())
      type.extents.push_back(axis == Axis::kC ? channels : which.extents[at(index(axis))]);
    return type;
  }

  SavedValue describe(int part, std::set<std::string>& taken) const {
    SavedValue value;
    const std::string name = "saved." + plain_name(twin_[at(part)]);
    value.name = name;
    for (int number = 2; !taken.insert(value.name).second; ++number)
      value.name = name + std::to_string(number);
    value.type = type_of(part, groups_[at(part)]);
    value.reason = is_convolution(part) ? "spares computing " + value_name(twin_[at(part)]) + " again"
                                        : "spares a pass over " + reduced_name(twin_[at(part)]);
    return value;
  }

  // The blocks that write and read the chosen parts.
  std::pair<Lowered, Lowered> sides(const std::vector<int>& chosen) const {
    std::pair<Lowered, Lowered> result = {forward_, backward_};
    std::set<std::string> taken;
    for (const TypedBlock* block : {&forward_.block, &backward_.block})
      for (const ValueInfo& info : block->block().values()) taken.insert(info.name);
    std::vector<SavedValue> saved;
    for (int part : chosen) saved.push_back(describe(part, taken));
    result.first.saved = saved;
    result.second.saved = std::move(saved);
    write_saved(chosen, result.first);
    read_saved(chosen, result.second);
    return result;
  }

  Part regroup(int operand, Extents extents, std::int64_t channels, const std::string& name) const {
    Part part;
    part.kind = PartKind::kRegroup;
    part.operands = {operand};
    part.extents = extents;
    part.extents[1] = channels;
    part.name = name;
    return part;
  }

  void write_saved(const std::vector<int>& chosen, Lowered& forward) const {
    for (std::size_t i = 0; i < chosen.size(); ++i) {
      const int part = twin_[at(chosen[i])];
      const Extents extents = forward.graph[part].extents;
      const std::int64_t groups = groups_[at(chosen[i])];
      if (groups == extents[1]) {
        forward.graph.outputs.push_back(part);
      } else {
        forward.graph.outputs.push_back(static_cast<int>(forward.graph.parts.size()));
        forward.graph.parts.push_back(regroup(part, extents, groups, forward.saved[i].name));
      }
    }
  }

  void read_saved(const std::vector<int>& chosen, Lowered& backward) const {
    std::vector<Part> parts;
    std::vector<int> number;
    for (int part = 0; part < count(); ++part) {
      const auto place = std::find(chosen.begin(), chosen.end(), part) - chosen.begin();
      Part next = graph()[part];
      for (int& operand : next.operands) operand = number[at(operand)];
      if (place < static_cast<std::ptrdiff_t>(chosen.size())) {
        const std::string& name = backward.saved[static_cast<std::size_t>(place)].name;
        Part argument;
        argument.kind = PartKind::kArgument;
        argument.saved = static_cast<int>(place);
        argument.large = is_convolution(part);
        argument.name = name;
        argument.extents = next.extents;
        argument.extents[1] = groups_[at(part)];
        const bool grouped = argument.extents[1] != next.extents[1];
        if (grouped) {
          next = regroup(static_cast<int>(parts.size()), next.extents, next.extents[1], name);
          parts.push_back(std::move(argument));
        } else {
          next = std::move(argument);
        }
      }
      number.push_back(static_cast<int>(parts.size()));
      parts.push_back(std::move(next));
    }
    std::vector<int> outputs;
    for (int output : graph().outputs) outputs.push_back(number[at(output)]);
    backward.graph = needed_parts(parts, outputs);
  }

  Lowered forward_;
  Lowered backward_;
  DType arithmetic_;
  const DeviceDescription& device_;
  CostModel cost_;
  const PlanOptions& options_;
  Reuse reuse_;
  std::vector<int> twin_;  // by part of backward: the equal part of forward, or -1
  std::vector<bool> statistic_;
  std::vector<std::int64_t> groups_;
  std::vector<std::vector<int>> users_;
  std::vector<bool> saved_;  // convolutions
  std::vector<Decision> decisions_;
  std::vector<Decision> convolution_decisions_;
};

}  // namespace

std::pair<Schedule, Schedule> make_training_schedules(const TypedBlock& forward, const TypedBlock& backward,
                                                      DType arithmetic, const DeviceDescription& device,
                                                      const PlanOptions& options) {
  Lowered written{forward, lower(forward), {}, false};
  Lowered read{backward, lower(backward), {}, true};
  const std::vector<Decision> forward_calls = choose_host_calls(written, device, options);
  const std::vector<Decision> backward_calls = choose_host_calls(read, device, options);
  auto result = TrainingSplit(std::move(written), std::move(read), arithmetic, device, options).run();
  result.first.decisions.insert(result.first.decisions.begin(), forward_calls.begin(), forward_calls.end());
  result.second.decisions.insert(result.second.decisions.begin(), backward_calls.begin(),
                                 backward_calls.end());
  result.first.choices = result.second.choices = options.kernels;
  result.first.precision = result.second.precision = options.precision;
  return result;
}

}  // namespace fuseblock
