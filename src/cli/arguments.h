// What the command line says about a block: BLOCK, --input, --small, --engine, --backward, --wanted.
//
// BLOCK is notation, `@name` for a reference block, the JSON of a block (it starts with `{`), or `-` to read
// one of these from standard input.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "fuseblock/plan.h"

namespace fuseblock::cli {

struct BlockOptions {
  std::string block;
  std::vector<std::string> inputs;  // TYPE (of x) or name=TYPE
  bool small = false;
  std::string engine;  // empty: the best one
};

struct GradientOptions {
  bool backward = false;
  std::vector<std::string> wanted;  // empty: everything differentiable
};

// A block with the types it is to run on.
struct BlockRequest {
  Block block;
  TensorType input;
  TypeMap others;
  Device device;

  Plan plan(const PlanOptions& options = {}) const {
    return Plan::make(block, input, others, device, options);
  }
};

// Throws UserError where something does not read, is missing or is given twice.
BlockRequest read_request(const BlockOptions& options);

// Notation or JSON, without `@name` and `-`.
Block read_block(const std::string& text);

// Throws UserError for --wanted without --backward.
void require_consistent(const GradientOptions& options);

}  // namespace fuseblock::cli
