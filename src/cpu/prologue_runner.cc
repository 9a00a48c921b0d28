#include "cpu/prologue_runner.h"

#include <algorithm>
#include <span>
#include <type_traits>

#include "cpu/conv/sum_kernel.h"
#include "cpu/vector/convert.h"

namespace fuseblock::cpu {
namespace {

constexpr std::int64_t kCacheLine = 64;  // bytes

std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }

// Channels lie too far apart for the processor to see what comes: it is told one channel ahead.
template <class T>
void prefetch_row(const T* row, std::int64_t bytes) {
  constexpr auto kStep = kCacheLine / static_cast<std::int64_t>(sizeof(T));
  for (std::int64_t byte = 0; byte < bytes; byte += kCacheLine, row += kStep) __builtin_prefetch(row);
}

}  // namespace

bool slot_varies(const Schedule& schedule, int slot) {
  const Extents& extents = schedule.slots[at(slot)].extents;
  return extents[2] != 1 || extents[3] != 1 || extents[4] != 1;
}

template <class T>
PrologueRunner<T>::PrologueRunner(const Schedule& schedule, const Prologue& prologue) : prologue_(&prologue) {
  const Extents& extents = schedule.graph[prologue.part].extents;
  channels_ = extents[1];
  extents_ = {extents[2], extents[3], extents[4]};
  for (int slot : prologue.inputs) varies_.push_back(slot_varies(schedule, slot));
  plain_ = prologue.steps.size() == 1 && varies_.size() == 1 && (varies_[0] || extents_.count() == 1);
  program_ = RowProgram<T>(prologue.steps, varies_, {static_cast<int>(prologue.steps.size()) - 1});
}

template <class T>
std::size_t PrologueRunner<T>::scratch_elements() const {
  const std::size_t count = prologue_->inputs.size();
  return operand_elements<T>(count) + program_.scratch_elements() + count * at(kChunkPitch + 1);
}

template <class T>
void PrologueRunner<T>::load_row(SlotViews views, std::int64_t n, std::int64_t c, std::int64_t d,
                                 std::int64_t h, T* row, T* scratch) const {
  if (plain_) {
    const SlotView& view = views[at(prologue_->inputs[0])];
    const std::int64_t size = byte_size(view.dtype);
    const std::int64_t offset =
        n * view.strides[0] + c * view.strides[1] + d * view.strides[2] + h * view.strides[3];
    const std::byte* from = view.data + offset * size;
    if (c + 1 < channels_ && view.strides[4] == 1)
      prefetch_row(from + view.strides[1] * size, extents_.w * size);
    load_elements(from, view.dtype, view.strides[4], row, at(extents_.w));
    return;
  }
  load_run(views, n, c, (d * extents_.h + h) * extents_.w, extents_.w, row, scratch);
}

template <class T>
void PrologueRunner<T>::load_run(SlotViews views, std::int64_t n, std::int64_t c, std::int64_t start,
                                 std::int64_t count, T* to, T* scratch) const {
  if (plain_) {
    const T* from = load_positions(views[at(prologue_->inputs[0])], extents_, n, c, start, count, to);
    if (from != to) std::copy_n(from, count, to);
    return;
  }
  const std::size_t operands = prologue_->inputs.size();
  const std::span<TileOperand<T>> inputs = list_at<TileOperand<T>>(bytes_at(scratch), operands);
  scratch += operand_elements<T>(operands);
  T* buffers = scratch + program_.scratch_elements();
  T* uniforms = buffers + operands * at(kChunkPitch);
  for (std::int64_t done = 0; done < count; done += kChunk) {
    const std::int64_t run = std::min(kChunk, count - done);
    for (std::size_t i = 0; i < operands; ++i) {
      const SlotView& view = views[at(prologue_->inputs[i])];
      if (varies_[i]) {
        inputs[i] = {load_positions(view, extents_, n, c, start + done, run, buffers + i * at(kChunkPitch)),
                     false};
      } else {
        uniforms[i] = load_uniform<T>(view, n, c);
        inputs[i] = {uniforms + i, true};
      }
    }
    program_.run(inputs, at(run), scratch);
    const TileOperand<T> result = program_.result(0, inputs, scratch);
    if (result.uniform)
      std::fill_n(to + done, run, *result.data);
    else
      std::copy_n(result.data, run, to + done);
  }
}

template <class T>
void PrologueRunner<T>::load_rows(SlotViews views, std::int64_t n, std::int64_t c, std::int64_t d,
                                  std::int64_t h, std::int64_t count, T* rows, std::int64_t pitch,
                                  T* scratch) const {
  constexpr DType kOwnType = std::is_same_v<T, float> ? DType::kF32 : DType::kF64;
  const SlotView* const plain = plain_ ? &views[at(prologue_->inputs[0])] : nullptr;
  if (plain == nullptr || plain->dtype != kOwnType || plain->strides[4] != 1) {
    // Rows without anything between them are one run of positions.
    if (pitch == extents_.w && (!plain_ || extents_.w == 1))
      return load_run(views, n, c, (d * extents_.h + h) * extents_.w, count * extents_.w, rows, scratch);
    for (std::int64_t i = 0; i < count; ++i) load_row(views, n, c, d, h + i, rows + i * pitch, scratch);
    return;
  }
  const SlotView& view = *plain;
  const std::int64_t offset =
      n * view.strides[0] + c * view.strides[1] + d * view.strides[2] + h * view.strides[3];
  const T* const from = elements_at<T>(view.data) + offset;
  const std::int64_t bytes = extents_.w * static_cast<std::int64_t>(sizeof(T));
  for (std::int64_t i = 0; i < count && c + 1 < channels_; ++i)
    prefetch_row(from + view.strides[1] + i * view.strides[3], bytes);
  sum_kernel<T>().copy(from, view.strides[3], count, extents_.w, rows, pitch);
}

template class PrologueRunner<float>;
template class PrologueRunner<double>;

}  // namespace fuseblock::cpu
