// What the command line says about a block: BLOCK, --input, --small, --device, --force, --backward,
// --wanted.
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
  std::string device;              // empty: the best one
  std::vector<std::string> force;  // `store`, `recompute`, `team=4`, ...; empty: whatever is cheapest
  std::string precision = "strict";
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
  Reuse reuse;
  KernelChoices kernels;
  Precision precision;

  // With the choices that are asked for, whatever the options say about them.
  Plan plan(PlanOptions options = {}) const {
    return Plan::make(block, input, others, device, with_choices(std::move(options)));
  }
  // The same of one step of training.
  TrainingPlans training(std::vector<std::string> wanted, PlanOptions options = {}) const {
    return Plan::make_training(TypedBlock::infer(block, input, others), std::move(wanted), device,
                               with_choices(std::move(options)));
  }

 private:
  PlanOptions with_choices(PlanOptions options) const {
    options.reuse = reuse;
    options.kernels = kernels;
    options.precision = precision;
    return options;
  }
};

// What is wrong with a word of --force; empty where nothing is.
std::string problem_of_choice(const std::string& text);

// Throws UserError where something does not read, is missing or is given twice.
BlockRequest read_request(const BlockOptions& options);
// The same for what is to run: throws NotSupportedError for a device that can be planned for only.
BlockRequest read_runnable_request(const BlockOptions& options);

// Notation or JSON, without `@name` and `-`.
Block read_block(const std::string& text);

// Throws UserError for --wanted without --backward.
void require_consistent(const GradientOptions& options);

}  // namespace fuseblock::cli
