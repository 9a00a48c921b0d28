// Divisions of launches that were measured: a table by GPU and problem, which wins over the cost model.
//
// The library holds one, src/cuda/tuned.json, which `fuseblock tune` writes; FUSEBLOCK_TUNED names another file whose
// entries come first, or is `none`. A file is a JSON object: `format`, `entries`; an entry has `gpu`, `multiprocessors`,
// `kernel`, `problem`, `division`, `us` and `us_by_cost_model`.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "cuda/gpu.h"

namespace fuseblock::cuda {

struct TunedDivision {
  std::string gpu;  // Gpu::kind
  int multiprocessors = 0;
  std::string kernel;     // that it is a division of
  std::string problem;    // KernelLaunch::problem
  std::string division;   // Division::text
  double us = 0;          // as measured when it was chosen
  double us_by_cost = 0;  // and the cost model's

  bool operator==(const TunedDivision&) const = default;
};

class TunedTable {
 public:
  // Throws UserError that begins with `where` and names what is wrong.
  static TunedTable parse(std::string_view text, const std::string& where);

  // In place of the one for that GPU and problem.
  void add(TunedDivision entry);
  // Null where there is none.
  const TunedDivision* find(const Gpu& gpu, const std::string& problem) const;
  const std::vector<TunedDivision>& entries() const { return entries_; }
  // As parse() reads it: an entry a line, in a fixed order.
  std::string text() const;

 private:
  std::vector<TunedDivision> entries_;  // by GPU, multiprocessors and problem
};

// That of the library, with FUSEBLOCK_TUNED; read once in the life of a process. Throws UserError where the file that
// FUSEBLOCK_TUNED names cannot be read or is none.
std::shared_ptr<const TunedTable> tuned_table();
// The library's own, src/cuda/tuned.json.
std::string_view tuned_file();

}  // namespace fuseblock::cuda
