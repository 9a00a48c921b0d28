// Largest flow from the starts to the ends, one shortest way after the other; the vertices that it fills part the
// two sides.
#include "plan/vertex_cut.h"

#include <algorithm>
#include <limits>

#include "fuseblock/error.h"

namespace fuseblock {
namespace {

constexpr double kUnlimited = std::numeric_limits<double>::infinity();

std::size_t at(int i) { return static_cast<std::size_t>(i); }

}  // namespace

VertexCut::VertexCut(int vertices)
    : vertices_(vertices), spring_(2 * vertices), drain_(2 * vertices + 1), arcs_(at(2 * vertices + 2)) {
  for (int vertex = 0; vertex < vertices; ++vertex) connect(entry(vertex), exit(vertex), kUnlimited);
}

void VertexCut::connect(int from, int to, double capacity) {
  arcs_[at(from)].push_back({to, capacity, static_cast<int>(arcs_[at(to)].size())});
  arcs_[at(to)].push_back({from, 0, static_cast<int>(arcs_[at(from)].size()) - 1});
}

// A vertex's own arc was connected first.
void VertexCut::set_weight(int vertex, double weight) { arcs_[at(entry(vertex))][0].capacity = weight; }
void VertexCut::add_edge(int from, int to) { connect(exit(from), entry(to), kUnlimited); }
void VertexCut::add_start(int vertex) { connect(spring_, entry(vertex), kUnlimited); }
void VertexCut::add_end(int vertex) { connect(exit(vertex), drain_, kUnlimited); }

bool VertexCut::send() {
  std::vector<int> node_before(arcs_.size(), -1);
  std::vector<int> arc_before(arcs_.size(), -1);
  std::vector<int> queue = {spring_};
  node_before[at(spring_)] = spring_;
  for (std::size_t next = 0; next < queue.size() && node_before[at(drain_)] < 0; ++next) {
    const int node = queue[next];
    for (std::size_t i = 0; i < arcs_[at(node)].size(); ++i) {
      const Arc& arc = arcs_[at(node)][i];
      if (arc.capacity <= 0 || node_before[at(arc.to)] >= 0) continue;
      node_before[at(arc.to)] = node;
      arc_before[at(arc.to)] = static_cast<int>(i);
      queue.push_back(arc.to);
    }
  }
  if (node_before[at(drain_)] < 0) return false;
  double amount = kUnlimited;
  for (int node = drain_; node != spring_; node = node_before[at(node)])
    amount = std::min(amount, arcs_[at(node_before[at(node)])][at(arc_before[at(node)])].capacity);
  if (amount == kUnlimited) throw InternalError("a way that no vertex can cut");
  for (int node = drain_; node != spring_; node = node_before[at(node)]) {
    Arc& arc = arcs_[at(node_before[at(node)])][at(arc_before[at(node)])];
    arc.capacity -= amount;
    arcs_[at(arc.to)][at(arc.back)].capacity += amount;
  }
  return true;
}

std::vector<bool> VertexCut::reaches_drain() const {
  std::vector<bool> reaches(arcs_.size(), false);
  std::vector<int> queue = {drain_};
  reaches[at(drain_)] = true;
  for (std::size_t next = 0; next < queue.size(); ++next) {
    for (const Arc& back : arcs_[at(queue[next])]) {
      const Arc& arc = arcs_[at(back.to)][at(back.back)];
      if (arc.capacity <= 0 || reaches[at(back.to)]) continue;
      reaches[at(back.to)] = true;
      queue.push_back(back.to);
    }
  }
  return reaches;
}

std::vector<int> VertexCut::solve() {
  while (send()) continue;
  const std::vector<bool> reaches = reaches_drain();
  std::vector<int> chosen;
  for (int vertex = 0; vertex < vertices_; ++vertex)
    if (reaches[at(exit(vertex))] && !reaches[at(entry(vertex))]) chosen.push_back(vertex);
  return chosen;
}

}  // namespace fuseblock
