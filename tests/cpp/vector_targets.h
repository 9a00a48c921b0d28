// Runs code of src/cpu/vector under each instruction set that this machine has.
#pragma once

#include <cstdint>
#include <vector>

#include "cpu/vector/targets.h"
#include "hwy/targets.h"

namespace fuseblock {

// The best first.
inline std::vector<std::int64_t> vector_targets() { return hwy::SupportedAndGeneratedTargets(); }

// Whether the target multiplies and adds with one rounding: such targets give the same bits.
inline bool has_fma(std::int64_t target) { return target < HWY_SSE4; }

// While it lives, calls go to the code of one target.
class TargetScope {
 public:
  explicit TargetScope(std::int64_t target) { set(target); }
  ~TargetScope() { set(0); }
  TargetScope(const TargetScope&) = delete;
  TargetScope& operator=(const TargetScope&) = delete;

 private:
  static void set(std::int64_t targets) {
    hwy::SetSupportedTargetsForTest(targets);
    hwy::GetChosenTarget().Update(hwy::SupportedTargets());
  }
};

}  // namespace fuseblock
