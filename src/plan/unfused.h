// A block run one operation after the other on an engine, each result written to memory: what fusing is compared with.
#pragma once

#include <memory>

#include "plan/engine.h"

namespace fuseblock {

// Each node becomes a block of its own. Results have the types that the block gives them, so that bf16 is rounded after
// every operation. The workspace holds the results that are still needed, and what the engine needs for one operation.
std::unique_ptr<Executable> prepare_unfused(const Engine& engine, const TypedBlock& block,
                                            const PlanOptions& options);

}  // namespace fuseblock
