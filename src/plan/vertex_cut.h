// The lightest set of vertices of a directed graph that every way from a start to an end passes through.
#pragma once

#include <vector>

namespace fuseblock {

class VertexCut {
 public:
  // Vertices are numbered from 0 and cannot be chosen until they have a weight.
  explicit VertexCut(int vertices);

  void set_weight(int vertex, double weight);
  void add_edge(int from, int to);
  void add_start(int vertex);
  void add_end(int vertex);
  // The set in ascending order; of several equally light ones that nearest to the ends. There must be one: no way
  // from a start to an end may consist of vertices without a weight.
  std::vector<int> solve();

 private:
  struct Arc {
    int to;
    double capacity;
    int back;  // the arc the other way, by its place at `to`
  };

  // A vertex is an arc from its entry to its exit, as wide as its weight.
  static int entry(int vertex) { return 2 * vertex; }
  static int exit(int vertex) { return 2 * vertex + 1; }
  void connect(int from, int to, double capacity);
  // Sends as much as one way takes; false where there is none left.
  bool send();
  // By node: whether the drain can still be reached from it.
  std::vector<bool> reaches_drain() const;

  int vertices_;
  int spring_;
  int drain_;
  std::vector<std::vector<Arc>> arcs_;
};

}  // namespace fuseblock
