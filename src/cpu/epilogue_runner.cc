#include "cpu/epilogue_runner.h"

#include "cpu/prologue_runner.h"

namespace fuseblock::cpu {
namespace {

std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }

}  // namespace

template <class T>
EpilogueRunner<T>::EpilogueRunner(const Schedule& schedule, const Epilogue& epilogue,
                                  const PositionExtents& extents)
    : epilogue_(&epilogue), extents_(extents) {
  for (int slot : epilogue.inputs) varies_.push_back(slot_varies(schedule, slot));
  std::vector<int> taken;
  for (const Sink& sink : epilogue.sinks) taken.push_back(sink.step);
  program_ = RowProgram<T>(epilogue.steps, varies_, taken);
}

template <class T>
std::size_t EpilogueRunner<T>::scratch_elements() const {
  const std::size_t count = epilogue_->inputs.size();
  return operand_elements<T>(count) + program_.scratch_elements() + count * at(kChunkPitch + 1);
}

template <class T>
void EpilogueRunner<T>::run(SlotViews views, std::int64_t n, Range positions,
                            const std::function<const T*(int)>& own, T* scratch) const {
  const std::span<TileOperand<T>> inputs =
      list_at<TileOperand<T>>(bytes_at(scratch), epilogue_->inputs.size());
  scratch += operand_elements<T>(inputs.size());
  T* buffers = scratch + program_.scratch_elements();
  T* uniforms = buffers + epilogue_->inputs.size() * at(kChunkPitch);
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const int slot = epilogue_->inputs[i];
    const SlotView& view = views[at(slot)];
    if (const T* component = own(slot)) {
      inputs[i] = {component, false};
    } else if (varies_[i]) {
      inputs[i] = {load_positions(view, extents_, n, 0, positions.begin, positions.size(),
                                  buffers + i * at(kChunkPitch)),
                   false};
    } else {
      uniforms[i] = load_uniform<T>(view, n, 0);
      inputs[i] = {uniforms + i, true};
    }
  }
  program_.run(inputs, at(positions.size()), scratch);
  for (std::size_t i = 0; i < epilogue_->sinks.size(); ++i)
    store_positions(views[at(epilogue_->sinks[i].slots[0])], extents_, n, 0, positions.begin,
                    positions.size(), program_.result(i, inputs, scratch));
}

template class EpilogueRunner<float>;
template class EpilogueRunner<double>;

}  // namespace fuseblock::cpu
