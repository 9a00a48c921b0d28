// A plan: how a block is computed for one input type on one device, ready to run many times.
//
//   auto plan = fuseblock::Plan::make(block, "f32[128,3,24,32,32]");
//   plan.parameters();                    // conv3d.weight f32[24,3,3,3,3], conv3d.bias f32[24], ...
//   plan.run(arguments, workspace);       // views in, views out; memory from the workspace
//   auto backward = plan.backward();      // a plan again
#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "fuseblock/block.h"
#include "fuseblock/device.h"
#include "fuseblock/host.h"
#include "fuseblock/parallel.h"
#include "fuseblock/tensor.h"
#include "fuseblock/typed_block.h"

namespace fuseblock {

class Executable;

// What a plan does with a convolution's result that it needs twice, and a pair of plans for training with values that
// both of them need.
enum class Reuse : std::uint8_t {
  kByCost,     // whichever the cost model finds cheaper
  kStore,      // written to memory and read again; saved by forward for backward
  kRecompute,  // computed again
};

// Where a kernel on a GPU keeps what it has read until its last sweep.
enum class KernelResidency : std::uint8_t { kByCost, kRegisters, kShared, kMemory };

// Kernels with a short text, `plain` in place of `rows` and `plain_channels` in place of `columns`, where there are some.
enum class PlainKernels : std::uint8_t {
  kByCost,  // where they were measured to take less time
  kAlways,  // for reading and for export
  kNever,
};

// How kernels on a GPU divide their work, in place of the planner's choice. Plan::make throws UserError where the plan
// has no kernel of that name, or it cannot be divided so; the message says what it can.
struct KernelChoices {
  int team = 0;  // `rows`: thread blocks that work on one unit together; 0: by cost
  int tile = 0;  // `columns`: positions of a tile; 0: by cost
  KernelResidency residency = KernelResidency::kByCost;  // `columns`
  PlainKernels plain = PlainKernels::kByCost;

  bool operator==(const KernelChoices&) const = default;
};

// What convolutions of f32 tensors are computed in on a GPU with tensor cores. Other types have one way each.
enum class Precision : std::uint8_t {
  kStrict,  // with the error of f32 arithmetic
  kTf32,    // of operands rounded to tf32 (10 bits of mantissa), with f32 sums
};

struct PlanOptions {
  // Threads to run on; 0 means as many as the machine has cores. Results do not depend on it.
  int threads = 0;
  // The program's own threads, in place of the engine's; `threads` does not matter then.
  std::shared_ptr<const Workers> workers = nullptr;
  Reuse reuse = Reuse::kByCost;
  KernelChoices kernels = {};
  Precision precision = Precision::kStrict;
  // False: one operation a sweep, each result written to memory; for comparison.
  bool fuse = true;
  // Convolutions that the program computes itself; see host.h. The engine `reference` makes no use of it.
  std::shared_ptr<const HostFunctions> host = nullptr;
  // Every convolution and every gradient of one is a host call. Without it the cost model weighs the host's rate
  // against the engine's own. Plan::make throws UserError where there is no host, NotSupportedError where it refuses.
  bool keep_convolutions = false;
  // No convolution is a host call that the engine has a kernel for, whatever the cost model says. Gradients on a GPU are
  // the host's in any case. Plan::make throws UserError where convolutions are kept as well.
  bool own_convolutions = false;
};

// Tensors in the order of Plan::inputs() and Plan::outputs().
struct Arguments {
  std::vector<ConstTensorView> inputs;
  std::vector<TensorView> outputs;
  // On a GPU: the stream (a CUstream) that the plan is launched on; null is the default one.
  void* stream = nullptr;
};

// Memory for Plan::run, aligned as it must be. A program that runs a plan many times keeps one.
class Workspace {
 public:
  // Throws UserError where the memory cannot be had.
  explicit Workspace(std::size_t bytes);

  std::span<std::byte> bytes() { return {memory_.data(), size_}; }

 private:
  Tensor memory_;
  std::size_t size_;
};

struct TrainingPlans;

class Plan {
 public:
  // Everything that can be wrong with the block and the types is found here. Throws UserError or
  // NotSupportedError.
  static Plan make(const Block& block, const TensorType& input, const TypeMap& others = {},
                   const Device& device = Device::best(), const PlanOptions& options = {});
  static Plan make(const Block& block, std::string_view input, const TypeMap& others = {},
                   const Device& device = Device::best(), const PlanOptions& options = {});
  static Plan make(const TypedBlock& block, const Device& device = Device::best(),
                   const PlanOptions& options = {});

  const TypedBlock& block() const;
  const Device& device() const;
  const PlanOptions& options() const;
  // x, extra inputs, parameters; in the backward plan of a pair also what forward saved.
  std::vector<NamedType> inputs() const;
  std::vector<NamedType> parameters() const;
  // The block's outputs; in the forward plan of a pair also what it saves.
  std::vector<NamedType> outputs() const;
  // What forward saves for backward: the last of outputs() in the forward plan of a pair, the last of inputs() in its
  // backward plan, in the same order under the same names. Empty in any other plan.
  std::vector<NamedType> saved() const;
  std::size_t workspace_bytes() const;

  // Puts named tensors into the plan's order. Throws UserError for names that are missing or not the plan's.
  Arguments bind(const std::map<std::string, ConstTensorView, std::less<>>& inputs,
                 const std::map<std::string, TensorView, std::less<>>& outputs) const;
  // Computes the outputs. The workspace (see Workspace) has at least workspace_bytes() bytes, aligned to 64; its contents do
  // not matter before and mean nothing after. On the CPU a run takes no other memory, apart from the descriptions of
  // tensors that a host's functions are given; on other devices short lists, which do not grow with the data. Outputs
  // must not overlap inputs or each other. The same plan may run on
  // several threads at once, each with its own workspace. Throws UserError where a tensor is not what the
  // plan was made for or an output begins where another tensor does, NotSupportedError where the device can be
  // planned for only.
  void run(const Arguments& arguments, std::span<std::byte> workspace) const;

  // The plan of the gradients; see TypedBlock::backward.
  Plan backward(std::vector<std::string> wanted = {}) const;

  // The plans of one step of training. Forward also writes values that backward would else compute again: statistics
  // of its large values, such as mean and rstd of a norm, and what options().reuse or the cost model add. Backward
  // takes these behind the inputs that the plan of backward() has. docs/training.md says what is saved and why. The
  // engine `reference` saves nothing, nor does a plan without fusing. Throws as backward() does.
  TrainingPlans for_training(std::vector<std::string> wanted = {}) const;
  // The same from a block, without a plan of forward alone, whose kernels a GPU's compiler would have to compile.
  static TrainingPlans make_training(const TypedBlock& block, std::vector<std::string> wanted,
                                     const Device& device = Device::best(), const PlanOptions& options = {});

  // What runs, for a person: values and their types, parameters, operations and bytes, and on a device that has them
  // the sweeps, each with what it moves and how long it takes by the device's description, and every choice with its
  // alternatives.
  std::string explain() const;
  // The same as a JSON object: block, engine, device, values, outputs, parameters, operations, bytes, sweeps, decisions.
  std::string explain_json() const;
  // The plan's launches on a GPU, for a program that makes them by itself: a JSON object with the kernels' texts, what each
  // launch hands over and how its work is divided, as C++ expressions of the extents. Throws NotSupportedError where the
  // device is not a GPU or a kernel cannot be described so. The second form has the kernels' constants that `like`
  // decided on, a plan of the same block for other extents.
  std::string launches_json() const;
  std::string launches_json(const Plan& like) const;
  // The same as a picture, for Graphviz.
  std::string explain_dot() const;

 private:
  struct Body;
  explicit Plan(std::shared_ptr<const Body> body) : body_(std::move(body)) {}
  static Plan of(const TypedBlock& block, const Device& device, const PlanOptions& options,
                 std::unique_ptr<Executable> executable);
  std::shared_ptr<const Body> body_;
};

struct TrainingPlans {
  Plan forward;
  Plan backward;
};

}  // namespace fuseblock
