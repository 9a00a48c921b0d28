// The reduction of a failing block: every way to make a block a little simpler, tried in turn until none of
// them fails any more.
#include <algorithm>
#include <cstdlib>

#include "random_blocks.h"

namespace fuseblock::random_blocks {
namespace {

bool is_number(const std::string& text) {
  return !text.empty() && text.find_first_not_of("0123456789.-") == std::string::npos;
}

// Smaller whole numbers for an argument's text: `4` gives 1, 2, 3; `(3,1)` its parts; words nothing.
std::vector<std::string> smaller(const std::string& text) {
  std::vector<std::string> results;
  if (text.starts_with("(")) {
    std::string part;
    for (char c : text.substr(1)) {
      if (c == ',' || c == ')') {
        results.push_back(std::exchange(part, {}));
      } else {
        part += c;
      }
    }
    return results.size() > 1 ? results : std::vector<std::string>{};
  }
  if (!is_number(text) || text.find('.') != std::string::npos) return results;
  const long number = std::strtol(text.c_str(), nullptr, 10);
  for (long less : {1L, number / 2, number - 1})
    if (less > 0 && less < number) results.push_back(std::to_string(less));
  return results;
}

// Calls `visit` with everything that is one step simpler, the largest steps first.
template <class Visit>
class Simpler {
 public:
  Simpler(const RandomBlock& block, Visit visit) : block_(block), visit_(std::move(visit)) {}

  void all() {
    outputs();
    stages();
    views();
    extents();
    arguments();
    operands();
  }

 private:
  void outputs() {
    for (const Stage& stage : block_.stages) {
      if (block_.outputs.size() == 1 && block_.outputs[0] == stage.name) continue;
      RandomBlock less = block_;
      less.outputs = {stage.name};
      if (less.stage_count() < block_.stage_count() || block_.outputs.size() > 1) visit_(less);
    }
    for (std::size_t i = 0; block_.outputs.size() > 1 && i < block_.outputs.size(); ++i) {
      RandomBlock less = block_;
      less.outputs.erase(less.outputs.begin() + static_cast<std::ptrdiff_t>(i));
      visit_(less);
    }
  }

  // Each stage replaced by each of its operands.
  void stages() {
    for (const Stage& stage : block_.stages) {
      for (const std::string& operand : stage.operands) {
        if (is_number(operand) || block_.extra_inputs.contains(operand)) continue;
        RandomBlock less = block_;
        std::erase_if(less.stages, [&](const Stage& each) { return each.name == stage.name; });
        for (Stage& each : less.stages)
          std::replace(each.operands.begin(), each.operands.end(), stage.name, operand);
        std::replace(less.outputs.begin(), less.outputs.end(), stage.name, operand);
        visit_(less);
      }
    }
  }

  void views() {
    for (unsigned kept : {0U, 1U, 2U, 4U, 8U, 16U}) {
      if (block_.oddities == kept || (block_.oddities & kept) != kept) continue;
      RandomBlock less = block_;
      less.oddities = kept;
      visit_(less);
    }
    if (block_.x.layout == Layout::kContiguous) return;
    RandomBlock less = block_;
    less.x.layout = Layout::kContiguous;
    visit_(less);
  }

  void extents() {
    for (std::size_t i = 0; i < block_.x.extents.size(); ++i) {
      const std::int64_t extent = block_.x.extents[i];
      for (std::int64_t fewer : {std::int64_t{1}, extent / 2, extent - 1}) {
        if (fewer < 1 || fewer >= extent) continue;
        RandomBlock less = block_;
        less.x.extents[i] = fewer;
        visit_(less);
      }
    }
  }

  void arguments() {
    for (std::size_t s = 0; s < block_.stages.size(); ++s) {
      for (std::size_t a = 0; a < block_.stages[s].arguments.size(); ++a) {
        RandomBlock less = block_;
        auto& list = less.stages[s].arguments;
        list.erase(list.begin() + static_cast<std::ptrdiff_t>(a));
        visit_(less);
        for (std::string& text : smaller(block_.stages[s].arguments[a].second)) {
          less = block_;
          less.stages[s].arguments[a].second = std::move(text);
          visit_(less);
        }
      }
    }
  }

  // Extra inputs become values or numbers, values numbers; extra inputs get the extents of the value they are
  // combined with.
  void operands() {
    for (std::size_t s = 0; s < block_.stages.size(); ++s) {
      for (std::size_t o = 1; o < block_.stages[s].operands.size(); ++o) {
        const std::string& operand = block_.stages[s].operands[o];
        if (is_number(operand)) continue;
        RandomBlock less = block_;
        less.stages[s].operands[o] = "2";
        visit_(less);
      }
    }
    for (const auto& [name, extra] : block_.extra_inputs) {
      if (extra.ones.empty()) continue;
      RandomBlock less = block_;
      less.extra_inputs[name] = {};
      visit_(less);
    }
  }

  const RandomBlock& block_;
  Visit visit_;
};

bool is_valid(const RandomBlock& block) {
  try {
    block.typed();
    return true;
  } catch (const Error&) {
    return false;
  }
}

}  // namespace

RandomBlock shrink(RandomBlock block, const std::function<bool(const RandomBlock&)>& fails, int most_trials) {
  for (bool found = true; found && most_trials > 0;) {
    found = false;
    std::optional<RandomBlock> next;
    Simpler(block, [&](const RandomBlock& less) {
      if (next || most_trials <= 0 || !is_valid(less)) return;
      --most_trials;
      if (fails(less)) next = less;
    }).all();
    if (next) {
      block = std::move(*next);
      found = true;
    }
  }
  return block;
}

}  // namespace fuseblock::random_blocks
