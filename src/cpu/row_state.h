// The statistics of one array in L1, as states that merge.
#pragma once

#include <cstddef>

#include "cpu/finalise.h"
#include "cpu/vector/tile_ops.h"

namespace fuseblock::cpu {

// The state of `count` elements; `before` is that of elements like them, if there are some.
template <class T>
State row_state(Statistic statistic, TileOperand<T> value, std::size_t count, const State& before);

extern template State row_state(Statistic, TileOperand<float>, std::size_t, const State&);
extern template State row_state(Statistic, TileOperand<double>, std::size_t, const State&);

}  // namespace fuseblock::cpu
