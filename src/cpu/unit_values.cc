#include "cpu/unit_values.h"

#include <algorithm>
#include <bit>
#include <cstdint>
#include <map>
#include <optional>
#include <tuple>

namespace fuseblock::cpu {
namespace {

std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }

bool is_costly(Primitive primitive) {
  switch (primitive) {
    case Primitive::kExp:
    case Primitive::kExpm1:
    case Primitive::kLog:
    case Primitive::kLog1pExp:
    case Primitive::kTanh:
    case Primitive::kErf:
    case Primitive::kSigmoid: return true;
    default: return false;
  }
}

// Steps of several sweeps by what they compute of which slots: equal numbers, equal values.
class Numbering {
 public:
  // The numbers of a sweep's steps.
  std::vector<int> number(const Sweep& sweep) {
    std::vector<int> result;
    for (const Formula::Step& step : sweep.steps) {
      const auto of = [&](std::int32_t i) { return i < 0 ? -1 : result[at(i)]; };
      const int slot = step.primitive == Primitive::kInput ? sweep.inputs[at(step.input)] : -1;
      const Key key = {step.primitive, of(step.a), of(step.b),
                       of(step.c),     slot,       std::bit_cast<std::uint64_t>(step.constant)};
      result.push_back(numbers_.emplace(key, static_cast<int>(numbers_.size())).first->second);
    }
    return result;
  }

 private:
  using Key = std::tuple<Primitive, int, int, int, int, std::uint64_t>;
  std::map<Key, int> numbers_;
};

// By step: whether it takes more than to read it, at every position and channel of the sweep.
std::vector<bool> costly_steps(const Schedule& schedule, const Sweep& sweep) {
  std::vector<bool> costly;
  std::vector<bool> whole;
  for (const Formula::Step& step : sweep.steps) {
    bool is_whole = step.primitive == Primitive::kInput &&
                    schedule.slots[at(sweep.inputs[at(step.input)])].extents == sweep.domain;
    bool takes_long = false;
    for (const std::int32_t operand : {step.a, step.b, step.c}) {
      if (operand < 0) continue;
      is_whole = is_whole || whole[at(operand)];
      takes_long = takes_long || costly[at(operand)];
    }
    whole.push_back(is_whole);
    costly.push_back(is_whole && (takes_long || is_costly(step.primitive)));
  }
  return costly;
}

// The sweep with step `loaded` read from a slot, without the steps and inputs that only it took.
Sweep with_loaded(const Sweep& sweep, std::int32_t loaded, int slot) {
  Sweep result = sweep;
  result.inputs.push_back(slot);
  Formula::Step input;
  input.primitive = Primitive::kInput;
  input.input = static_cast<std::int32_t>(sweep.inputs.size());
  result.steps[at(loaded)] = input;
  prune(result);
  return result;
}

// The last steps of two sweeps that are one value, and a costly one.
struct Shared {
  std::int32_t first = 0;   // in the earlier sweep
  std::int32_t second = 0;  // in the later one
};

std::optional<Shared> find_shared(const Schedule& schedule, const Sweep& first, const Sweep& second) {
  Numbering numbering;
  const std::vector<int> one = numbering.number(first);
  const std::vector<int> other = numbering.number(second);
  const std::vector<bool> costly = costly_steps(schedule, second);
  for (std::size_t i = other.size(); i-- > 0;) {
    if (!costly[i]) continue;
    const auto found = std::find(one.begin(), one.end(), other[i]);
    if (found != one.end())
      return Shared{static_cast<std::int32_t>(found - one.begin()), static_cast<std::int32_t>(i)};
  }
  return std::nullopt;
}

}  // namespace

std::vector<UnitValue> share_unit_values(Schedule& schedule, std::size_t element_bytes) {
  std::vector<UnitValue> values;
  for (std::size_t number = 0; number < schedule.kept.size(); ++number) {
    Kept& kept = schedule.kept[number];
    const Extents domain = schedule.steps[at(kept.first)].sweep.domain;
    const std::size_t bytes = at(kept.channels * domain[2] * domain[3] * domain[4]) * element_bytes;
    for (int i = kept.first; i < kept.last; ++i) {
      for (int j = i + 1; j <= kept.last; ++j) {
        if (schedule.steps[at(i)].kind != StepKind::kSweep || schedule.steps[at(j)].kind != StepKind::kSweep)
          continue;
        Sweep& first = schedule.steps[at(i)].sweep;
        Sweep& second = schedule.steps[at(j)].sweep;
        const std::optional<Shared> shared = find_shared(schedule, first, second);
        if (!shared) continue;
        Slot slot;
        slot.kind = SlotKind::kTile;
        slot.extents = domain;
        const int place = static_cast<int>(schedule.slots.size());
        schedule.slots.push_back(slot);
        // In front of the sinks that take the same value: these read it where it was stored.
        Sink store;
        store.step = shared->first;
        store.slots = {place};
        first.sinks.insert(first.sinks.begin(), store);
        second = with_loaded(second, shared->second, place);
        values.push_back({place, bytes});
        kept.value_bytes += static_cast<double>(bytes);
      }
    }
  }
  return values;
}

}  // namespace fuseblock::cpu
