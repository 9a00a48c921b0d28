#include "engine_agreement.h"

#include <algorithm>
#include <cmath>
#include <sstream>

#include "fuzz_support.h"
#include "placed_tensor.h"

namespace fuseblock::random_blocks {
namespace {

using cases::PlacedMap;
using cases::TensorMap;

constexpr double kLargest = 1e6;

struct Bound {
  double tolerance;
  // Relative change of the arguments that shows whether a block is well-conditioned.
  double nudge;
  bool pooled;
};

Bound bound_for(DType dtype) {
  return dtype == DType::kF64 ? Bound{1e-10, 0x1p-44, false} : Bound{1e-4, 0x1p-18, true};
}

double largest(const Tensor& tensor) {
  double result = 0;
  for (double value : tensor.to_doubles())
    result = std::isfinite(value) ? std::max(result, std::fabs(value)) : HUGE_VAL;
  return result;
}

// The first element that is further away than the bound; empty where there is none.
std::string difference(const std::string& name, const Tensor& expected, const Tensor& got, double bound) {
  for (std::int64_t i = 0; i < expected.type().element_count(); ++i) {
    if (std::fabs(expected.get(i) - got.get(i)) <= bound) continue;
    std::ostringstream text;
    text.precision(17);
    text << name << " " << to_string(expected.type()) << " at " << i << ": expected " << expected.get(i)
         << ", got " << got.get(i);
    return text.str();
  }
  return "";
}

// In f32 the largest value of all results counts: a gradient that is 0 by cancellation has the error of what
// cancels.
std::string first_difference(const TensorMap& expected, const TensorMap& got, const Bound& bound,
                             double part = 1) {
  double pooled = 0;
  for (const auto& [name, tensor] : expected) pooled = std::max(pooled, largest(tensor));
  for (const auto& [name, tensor] : expected) {
    const auto found = got.find(name);
    if (found == got.end()) return name + " is missing";
    const double size = bound.pooled ? pooled : largest(tensor);
    std::string text = difference(name, tensor, found->second, part * bound.tolerance * (1 + size));
    if (!text.empty()) return text;
  }
  return "";
}

void merge(TensorMap& into, TensorMap&& from) {
  for (auto& [name, tensor] : from) into.insert_or_assign(name, std::move(tensor));
}

TensorMap exact_results(const TypedBlock& block, const TensorMap& arguments) {
  const Plan forward = Plan::make(block, Device::reference());
  TensorMap results = cases::run(forward, arguments);
  if (!block.differentiable().empty()) merge(results, cases::run(forward.backward(), arguments));
  return results;
}

TensorMap engine_results(const TypedBlock& block, const PlacedMap& arguments, const PlanOptions& options,
                         const cases::PlacedRun& how) {
  const Plan forward = Plan::make(block, Device::by_name("cpu"), options);
  TensorMap results = cases::run_placed(forward, arguments, how);
  if (!block.differentiable().empty()) merge(results, cases::run_placed(forward.backward(), arguments, how));
  return results;
}

// The same by a pair of plans for training: backward takes what forward saved.
TensorMap training_results(const TypedBlock& block, PlacedMap arguments, const PlanOptions& options,
                           const cases::PlacedRun& how) {
  const TrainingPlans both = Plan::make(block, Device::by_name("cpu"), options).for_training();
  TensorMap results = cases::run_placed(both.forward, arguments, how);
  std::uint64_t seed = how.seed;
  for (const NamedType& saved : both.forward.saved())
    arguments.emplace(saved.name, cases::PlacedTensor(results.at(saved.name), how.output_oddities, ++seed));
  merge(results, cases::run_placed(both.backward, arguments, how));
  return results;
}

// Whether small changes of the arguments move the exact results by more than a quarter of the bound.
bool is_ill_conditioned(const TypedBlock& block, const TensorMap& arguments, const TensorMap& expected,
                        const Bound& bound) {
  constexpr std::uint64_t kTrials = 6;
  for (std::uint64_t trial = 0; trial < kTrials; ++trial) {
    fuzz::Random random(trial);
    TensorMap nudged;
    for (const auto& [name, tensor] : arguments) {
      Tensor& changed = nudged.emplace(name, Tensor(tensor.type())).first->second;
      for (std::int64_t i = 0; i < tensor.type().element_count(); ++i) {
        const double part = static_cast<double>(random.below(2001)) / 1000 - 1;
        changed.set(i, tensor.get(i) * (1 + bound.nudge * part));
      }
    }
    if (!first_difference(expected, exact_results(block, nudged), bound, 0.25).empty()) return true;
  }
  return false;
}

bool has_convolution(const Block& block) {
  return std::any_of(block.nodes().begin(), block.nodes().end(),
                     [](const Node& node) { return node.operation->code == OpCode::kConvolution; });
}

std::string name_of(Reuse reuse) {
  return reuse == Reuse::kByCost ? "by cost" : (reuse == Reuse::kStore ? "stored" : "recomputed");
}

std::string different_bits(const TypedBlock& block, const PlacedMap& arguments) {
  const TensorMap one = engine_results(block, arguments, {.threads = 1}, {});
  for (int threads : {2, 3}) {
    const TensorMap more = engine_results(block, arguments, {.threads = threads}, {});
    for (const auto& [name, tensor] : one)
      if (!cases::same_bits(tensor, more.at(name)))
        return name + " has other bits on " + std::to_string(threads) + " threads than on one";
  }
  return "";
}

std::string engine_difference(const RandomBlock& block, const TypedBlock& typed, const PlacedMap& arguments,
                              const TensorMap& expected, const Bound& bound, const Tamper& tamper) {
  cases::PlacedRun how;
  how.output_oddities = block.oddities & cases::kAnyOutput;
  how.seed = block.seed;
  how.poison = {std::byte{0xff}};
  for (Reuse reuse : {Reuse::kByCost, Reuse::kStore, Reuse::kRecompute}) {
    if (reuse != Reuse::kByCost && !has_convolution(typed.block())) break;
    TensorMap got = engine_results(typed, arguments, {.reuse = reuse}, how);
    if (tamper) tamper(block, got);
    const std::string text = first_difference(expected, got, bound);
    if (!text.empty()) return text + " (convolutions " + name_of(reuse) + ")";
    if (block.seed % 2 == 0 || typed.differentiable().empty()) continue;
    const std::string other =
        first_difference(expected, training_results(typed, arguments, {.reuse = reuse}, how), bound);
    if (!other.empty()) return other + " (a pair for training, convolutions " + name_of(reuse) + ")";
  }
  return block.seed % 4 == 0 ? different_bits(typed, arguments) : "";
}

}  // namespace

Agreement compare_engines(const RandomBlock& block, const Tamper& tamper) {
  const TypedBlock typed = block.typed();
  TensorMap drawn = cases::random_arguments(typed, block.seed);
  merge(drawn, cases::random_output_gradients(typed, block.seed + 1));
  PlacedMap placed;
  TensorMap arguments;
  std::uint64_t seed = block.seed;
  for (const auto& [name, tensor] : drawn) {
    const cases::PlacedTensor& view =
        placed.emplace(name, cases::PlacedTensor(tensor, block.oddities, ++seed)).first->second;
    arguments[name] = view.dense();
  }
  const Bound bound = bound_for(block.x.dtype);
  const TensorMap expected = exact_results(typed, arguments);
  for (const auto& [name, tensor] : expected)
    if (largest(tensor) > kLargest) return {Verdict::kIllConditioned, name + " is too large"};
  std::string found;
  try {
    found = engine_difference(block, typed, placed, expected, bound, tamper);
  } catch (const Error& error) {
    return {Verdict::kDiffers, error.what()};
  }
  if (found.empty()) return {};
  if (is_ill_conditioned(typed, arguments, expected, bound)) return {Verdict::kIllConditioned, found};
  return {Verdict::kDiffers, found};
}

}  // namespace fuseblock::random_blocks
