// A kernel `rows` made ready: with a ring where tensors are dense, and for any views where a run brings others.
#include <algorithm>
#include <mutex>

#include "cuda/jit/cache.h"
#include "cuda/launch/kernel.h"
#include "cuda/launch/rows.h"

namespace fuseblock::cuda {
namespace {

std::size_t at(int i) { return static_cast<std::size_t>(i); }

class RowsLaunch : public KernelLaunch {
 public:
  RowsLaunch(const Schedule& schedule, const KernelCut& cut, const Gpu& gpu)
      : schedule_(schedule), cut_(cut), gpu_(gpu), domain_(first_sweep().domain) {
    find_dense();
    strided_ = make_variant({.threads = 256, .blocks = 4, .vector = 1, .ring = 0});
    std::int64_t smallest = 8;
    for (const Border& border : dense_) smallest = std::min(smallest, byte_size(border.dtype));
    const int vector = dense_.empty() || !by_type_dense_ ? 0 : rows_vector(cut, domain_, smallest);
    if (vector > 0) {
      RowsConstants constants = {
          .threads = 256, .blocks = 2, .vector = vector, .pieces = inputs_ == 1 ? 2 : 1, .ring = 1};
      const RowsText trial = rows_text(schedule, cut, constants);
      constants.ring = rows_ring(gpu, constants, std::max(trial.ring_vector_bytes, 1), trial.shared_bytes);
      if (constants.ring > 1 && trial.ring_inputs > 0) {
        dense_variant_ = make_variant(constants);
        vector_bytes_ = static_cast<std::size_t>(vector);
      }
    }
  }

  std::vector<jit::KernelSource> sources() const override {
    return {dense_variant_ ? dense_variant_->source : strided_->source};
  }

  void reserve(WorkspaceLayout& /*layout*/, WorkspaceLayout& counters) override {
    bool tail = false;
    for (Variant* variant : {strided_.get(), dense_variant_.get()}) {
      if (variant == nullptr) continue;
      const RowsDivision& division = variant->division;
      if (variant->text.tail) tail = true;
      list_offsets_.resize(variant->text.list_numbers.size());
      list_bytes_.resize(variant->text.list_numbers.size());
      if (division.team == 1) continue;
      for (std::size_t i = 0; i < list_bytes_.size(); ++i)
        // Two lists in turn; a word and its tag are eight bytes.
        list_bytes_[i] = std::max(
            list_bytes_[i],
            2 * at(division.teams) * (static_cast<std::size_t>(cut_.unit_channels) + at(division.team)) *
                at(variant->text.list_numbers[i]) * 8 * (stored_type() == DType::kF64 ? 2 : 1));
    }
    finished_ = counters.reserve(tail ? 4 : 0);
    for (std::size_t i = 0; i < list_bytes_.size(); ++i) list_offsets_[i] = counters.reserve(list_bytes_[i]);
  }

  void load(const Gpu& /*gpu*/) override { loaded(dense_variant_ ? *dense_variant_ : *strided_); }

  void launch(const RunContext& run, std::byte* counters) const override {
    if (domain_[0] * domain_[1] * domain_[2] * domain_[3] * domain_[4] == 0) return;
    const Variant& variant = dense_variant_ && fits(*run.views) ? *dense_variant_ : *strided_;
    const jit::Kernel& kernel = loaded(variant);
    const RowsDivision& division = variant.division;
    Parameters parameters(variant.text.kernel);
    parameters.add_tensors(variant.text.kernel, *run.views);
    for (const std::string& name : variant.text.kernel.scalars) {
      if (name == "units")
        parameters.add(division.units);
      else if (name == "positions")
        parameters.add(domain_[2] * domain_[3] * domain_[4]);
      else if (name == "height")
        parameters.add(domain_[3]);
      else if (name == "width")
        parameters.add(domain_[4]);
      else if (name == "team")
        parameters.add(division.team);
      else if (name == "steps")
        parameters.add(division.steps);
      else if (name == "kept")
        parameters.add(division.kept);
      else if (name == "finished")
        parameters.add(counters + finished_);
      else
        parameters.add(counters + list_offsets_[at(std::stoi(name.substr(std::string("team_list").size())))]);
    }
    jit::Launch launch;
    launch.function = kernel.function;
    launch.grid = {static_cast<unsigned int>(division.team * division.teams), 1, 1};
    launch.block = {static_cast<unsigned int>(variant.constants.threads), 1, 1};
    launch.dynamic_shared_bytes = static_cast<unsigned int>(variant.dynamic_bytes);
    launch.cooperative = division.team > 1;
    launch.stream = run.stream;
    launch.parameters = parameters.pointers();
    launch.name = "rows";
    jit::launch(*run.driver, launch);
  }

 private:
  struct Variant {
    RowsConstants constants;
    RowsText text;
    jit::KernelSource source;
    RowsDivision division;
    int dynamic_bytes = 0;
    mutable std::once_flag once;
    mutable jit::Kernel kernel;
  };
  // A tensor over the whole domain that the kernel reads or writes.
  struct Border {
    int slot;
    DType dtype;
  };

  const Sweep& first_sweep() const {
    for (int i = cut_.first; i <= cut_.last; ++i)
      if (schedule_.steps[at(i)].kind == StepKind::kSweep) return schedule_.steps[at(i)].sweep;
    throw InternalError("a kernel of sweeps without a sweep");
  }

  std::unique_ptr<Variant> make_variant(const RowsConstants& constants) const {
    auto variant = std::make_unique<Variant>();
    variant->constants = constants;
    variant->division = divide_rows(gpu_, cut_, domain_, constants);
    variant->constants.again = constants.ring == 0 || variant->division.kept < variant->division.steps;
    variant->text = rows_text(schedule_, cut_, variant->constants);
    variant->source = source_of(variant->text.kernel, schedule_);
    variant->dynamic_bytes =
        variant->text.shared_bytes + constants.ring * variant->text.ring_vector_bytes * constants.threads;
    return variant;
  }

  const jit::Kernel& loaded(const Variant& variant) const {
    std::call_once(variant.once, [&] {
      variant.kernel = jit::load_kernel(*jit::kernel_cache().find(variant.source, *gpu_.architecture).cubin,
                                        {.dynamic_shared_bytes = variant.dynamic_bytes});
    });
    return variant.kernel;
  }

  // The tensors that must be dense, and whether their types say that they are.
  void find_dense() {
    auto add = [&](int slot, bool read) {
      const Slot& which = schedule_.slots[at(slot)];
      const bool known =
          std::any_of(dense_.begin(), dense_.end(), [&](const Border& b) { return b.slot == slot; });
      if (which.kind == SlotKind::kStatistic || which.extents != domain_ || known) return;
      inputs_ += read ? 1 : 0;
      const TensorType* type = which.kind == SlotKind::kArgument ? &schedule_.inputs[at(which.number)].type
                               : which.kind == SlotKind::kOutput ? &schedule_.outputs[at(which.number)].type
                                                                 : nullptr;
      if (type != nullptr && type->layout != Layout::kContiguous) by_type_dense_ = false;
      dense_.push_back({slot, type != nullptr ? type->dtype : which.dtype.value_or(stored_type())});
    };
    for (int i = cut_.first; i <= cut_.last; ++i) {
      const Sweep& sweep = schedule_.steps[at(i)].sweep;
      for (int slot : sweep.inputs) add(slot, true);
      for (const Sink& sink : sweep.sinks)
        if (sink.kind == SinkKind::kStore) add(sink.slots[0], false);
    }
  }

  DType stored_type() const {
    return std::any_of(schedule_.inputs.begin(), schedule_.inputs.end(),
                       [](const NamedType& input) { return input.type.dtype == DType::kF64; })
               ? DType::kF64
               : DType::kF32;
  }

  // Whether this run's tensors are dense and aligned to their vectors.
  bool fits(const std::vector<SlotView>& views) const {
    const Extents strides = dense_strides(domain_);
    return std::all_of(dense_.begin(), dense_.end(), [&](const Border& border) {
      const SlotView& view = views[at(border.slot)];
      const std::size_t bytes =
          std::min<std::size_t>(16, vector_bytes_ * static_cast<std::size_t>(byte_size(border.dtype)));
      return view.strides == strides && reinterpret_cast<std::uintptr_t>(view.data) % bytes == 0;
    });
  }

  const Schedule& schedule_;
  KernelCut cut_;
  Gpu gpu_;
  Extents domain_;
  std::vector<Border> dense_;
  bool by_type_dense_ = true;
  int inputs_ = 0;                // of these, those that are read
  std::size_t vector_bytes_ = 1;  // elements of a vector
  std::unique_ptr<Variant> strided_;
  std::unique_ptr<Variant> dense_variant_;
  std::size_t finished_ = 0;
  std::vector<std::size_t> list_bytes_;
  std::vector<std::size_t> list_offsets_;
};

}  // namespace

std::unique_ptr<KernelLaunch> make_rows_launch(const Schedule& schedule, const KernelCut& cut,
                                               const Gpu& gpu) {
  return std::make_unique<RowsLaunch>(schedule, cut, gpu);
}

}  // namespace fuseblock::cuda
