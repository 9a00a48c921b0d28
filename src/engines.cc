// The engines of this build: the only file that knows all of them.
#include "cpu/engine.h"
#include "plan/engine.h"
#include "reference/reference.h"

namespace fuseblock {
namespace {

class ReferenceExecutable : public Executable {
 public:
  explicit ReferenceExecutable(const TypedBlock& block)
      : block_(block), workspace_bytes_(reference::workspace_bytes(block)) {}

  std::size_t workspace_bytes() const override { return workspace_bytes_; }
  void run(const Arguments& arguments, std::span<std::byte> workspace) const override {
    reference::run(block_, arguments, workspace);
  }

 private:
  TypedBlock block_;
  std::size_t workspace_bytes_;
};

}  // namespace

const std::vector<Engine>& engines() {
  static const std::vector<Engine> kEngines = {
      {"cpu", "sweeps over tiles, f32 arithmetic (f64 where an input is), SIMD, all cores", cpu::prepare,
       cpu::prepare_training},
      {"reference", "double precision, one operation after the other, one thread",
       [](const TypedBlock& block, const PlanOptions&) -> std::unique_ptr<Executable> {
         return std::make_unique<ReferenceExecutable>(block);
       },
       nullptr},
  };
  return kEngines;
}

}  // namespace fuseblock
