// The structs of a sweep's statistics in the text of a kernel `rows`.
#pragma once

#include <string>
#include <vector>

#include "cuda/emit/text.h"

namespace fuseblock::cuda {

struct TakenStatistic {
  std::string name;  // of the field
  std::string type;  // `Moments<real>`
  int result;        // of the program, by its number, that it is taken of
};

// `SumsN`, which is merged, and `RunningN`, which a thread adds elements to; N is the sweep's number. `of_unit`: one for a
// whole unit, in place of one for each of its channels. `results`: how many the program has.
void write_sums_structs(Text& text, const std::string& sweep, bool of_unit,
                        const std::vector<TakenStatistic>& taken, int results);

// Functions of the first sweep's statistics, those that are called so: of a warp's lanes, and while they are taken.
void write_sums_of_warp(Text& text, const std::vector<std::string>& names);

}  // namespace fuseblock::cuda
