// The list of cases, tests/cases/*.cases, and data to run them on: what every engine is tested with.
//
// A line is `name: block @ type`, and where extra inputs or parameters need types of their own
// `name: block @ type, scale=f32[2,8,1,1], ...`. Empty lines and lines that begin with # say nothing. Names
// are identifiers, no two the same.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "fuseblock/plan.h"

namespace fuseblock::cases {

using TensorMap = std::map<std::string, Tensor, std::less<>>;

struct Case {
  std::string name;
  std::string block;
  std::string input;
  std::map<std::string, std::string> others;
  // `norms.cases:12`
  std::string location;

  // Meets the types. With a dtype, every input, parameter and cast is of that one.
  TypedBlock typed(std::optional<DType> dtype = {}) const;
  // The command line that checks the case on an engine: what a failing test prints.
  std::string command(const std::string& engine) const;
};

// The cases of one file, in its order. Throws UserError with file and line where a line does not read.
std::vector<Case> read_cases(const std::filesystem::path& file);
// The cases of several files. Throws UserError where two have the same name.
std::vector<Case> read_cases(const std::vector<std::filesystem::path>& files);
// Every file of tests/cases, by name.
std::vector<std::filesystem::path> case_files();

// Data for the arguments of a block, the same for the same seed. Inputs are normal with deviation 1.5, so
// that both sides of every kink occur; weights of convolutions have deviation 1 / sqrt(fan-in), weights of
// norms lie around 1, running variances are positive.
TensorMap random_arguments(const TypedBlock& block, std::uint64_t seed);
// Normal gradients `d_` + name, one for each output.
TensorMap random_output_gradients(const TypedBlock& block, std::uint64_t seed);

// Runs a plan on named tensors, those it does not take left aside, in a workspace of arbitrary contents.
TensorMap run(const Plan& plan, const TensorMap& arguments);

}  // namespace fuseblock::cases
