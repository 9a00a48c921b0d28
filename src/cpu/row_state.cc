#include "cpu/row_state.h"

#include <cmath>
#include <limits>

#include "cpu/vector/reduce.h"
#include "fuseblock/error.h"

namespace fuseblock::cpu {

template <class T>
State row_state(Statistic statistic, TileOperand<T> value, std::size_t count, const State& before) {
  const auto elements = static_cast<double>(count);
  if (value.uniform) {
    const auto element = static_cast<double>(*value.data);
    switch (statistic) {
      case Statistic::kSum: return {element * elements, 0, elements};
      case Statistic::kExpSum: return {element, elements, elements};
      default: return {element, 0, elements};
    }
  }
  switch (statistic) {
    case Statistic::kSum: return {sum(value.data, count), 0, elements};
    case Statistic::kMax: return {static_cast<double>(largest(value.data, count)), 0, elements};
    case Statistic::kMin: return {static_cast<double>(smallest(value.data, count)), 0, elements};
    case Statistic::kMoments: {
      const TileMoments result =
          before.count > 0 ? moments(value.data, count, before.first) : moments(value.data, count);
      return {result.mean, result.m2, elements};
    }
    case Statistic::kExpSum: {
      const T top = largest(value.data, count);
      // Nothing but -inf counts each element as its own maximum; inf and NaN leave no sum.
      if (!std::isfinite(top))
        return {static_cast<double>(top), top < 0 ? elements : std::numeric_limits<double>::quiet_NaN(),
                elements};
      return {static_cast<double>(top), sum_exp(value.data, top, count), elements};
    }
  }
  throw InternalError("an unknown statistic");
}

template State row_state(Statistic, TileOperand<float>, std::size_t, const State&);
template State row_state(Statistic, TileOperand<double>, std::size_t, const State&);

}  // namespace fuseblock::cpu
