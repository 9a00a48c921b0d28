// The divisions with the smallest costs.
#pragma once

#include <algorithm>
#include <cstddef>
#include <utility>
#include <vector>

namespace fuseblock::cuda {

// So many of those that are added, the cheapest first, of equals the one that came first.
template <typename Constants>
class Cheapest {
 public:
  explicit Cheapest(std::size_t most = 1) : most_(most) {}

  // Whether one of that cost would be kept.
  bool takes(double cost) const { return kept_.size() < most_ || cost < kept_.back().first; }
  void add(double cost, const Constants& constants) {
    if (!takes(cost)) return;
    const auto place = std::upper_bound(kept_.begin(), kept_.end(), cost,
                                        [](double value, const auto& each) { return value < each.first; });
    kept_.emplace(place, cost, constants);
    if (kept_.size() > most_) kept_.pop_back();
  }

  bool empty() const { return kept_.empty(); }
  const Constants& best() const { return kept_.front().second; }
  // Costs and divisions.
  const std::vector<std::pair<double, Constants>>& kept() const { return kept_; }

 private:
  std::size_t most_;
  std::vector<std::pair<double, Constants>> kept_;
};

}  // namespace fuseblock::cuda
