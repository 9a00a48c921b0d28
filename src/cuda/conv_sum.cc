#include "cuda/conv_sum.h"

#include <algorithm>
#include <utility>

#include "plan/slot_memory.h"

namespace fuseblock::cuda {

std::int64_t ConvSum::terms() const {
  return in_channels / geometry.groups * geometry.filter[0] * geometry.filter[1] * geometry.filter[2];
}

bool ConvSum::has_window() const { return gathers || geometry.stride == Spatial{1, 1, 1}; }

ConvGeometry ConvSum::window() const {
  ConvGeometry result = geometry;
  if (!gathers)
    for (std::size_t i = 0; i < 3; ++i)
      result.pad[i] = (geometry.filter[i] - 1) * geometry.dilation[i] - geometry.pad[i];
  return result;
}

bool can_fold(const ConvSum& conv) {
  return conv.in[0] == 1 && conv.out[0] == 1 && conv.geometry.filter[0] == 1 && conv.geometry.pad[0] == 0;
}

ConvSum folded(const ConvSum& conv) {
  ConvSum result = conv;
  ConvGeometry& geometry = result.geometry;
  for (Spatial* extents : {&result.in, &result.out, &geometry.in, &geometry.out, &geometry.filter,
                           &geometry.stride, &geometry.dilation, &geometry.pad})
    std::swap((*extents)[0], (*extents)[1]);
  return result;
}

ConvBox conv_box(const ConvSum& conv, int tile, int strip) {
  const ConvGeometry window = conv.window();
  auto span = [&](std::size_t i) { return (window.filter[i] - 1) * window.dilation[i] + 1; };
  const std::int64_t tile_rows = (tile + strip - 2) / strip + 1;
  const std::int64_t height = conv.out[1];
  const std::int64_t crossings = std::min(conv.out[0] - 1, (height - 1 + tile_rows - 1) / height);
  ConvBox box;
  box.strip = strip;
  box.crossings = static_cast<int>(crossings);
  box.rows = static_cast<int>((tile_rows - 1) * window.stride[1] + span(1) +
                              crossings * std::max<std::int64_t>(span(1) - window.stride[1], 0));
  box.columns = static_cast<int>((strip - 1) * window.stride[2] + span(2));
  // Eight positions of a tile lie in different banks, also where a row ends among them, and so do
  // neighbouring cells of channels.
  constexpr int kBanks = 8;  // of 16 bytes
  const auto step = static_cast<int>(strip * window.stride[2] % kBanks);
  box.pitch = box.columns + (step - box.columns % kBanks + kBanks) % kBanks;
  box.quad = (static_cast<int>(window.filter[0]) * box.rows * box.pitch + 3) / kBanks * kBanks + kBanks / 2;
  return box;
}

ConvSum conv_sum(const Schedule& schedule, int part) {
  return conv_sum(schedule.block, schedule.graph[part].node);
}

ConvSum conv_sum(const TypedBlock& block, int node) {
  ConvSum sum;
  sum.geometry = conv_geometry(block, node);
  const ConvGeometry& geometry = sum.geometry;
  const OpCode code = block.block().nodes()[static_cast<std::size_t>(node)].operation->code;
  const bool forward = code == OpCode::kConvolution;
  sum.gathers = forward != geometry.transposed;
  sum.in_channels = forward ? geometry.in_channels : geometry.out_channels;
  sum.channels = forward ? geometry.out_channels : geometry.in_channels;
  sum.in = forward ? geometry.in : geometry.out;
  sum.out = forward ? geometry.out : geometry.in;
  return sum;
}

DType element_type(const Schedule& schedule, int slot) {
  const Slot& which = schedule.slots[static_cast<std::size_t>(slot)];
  const auto number = static_cast<std::size_t>(which.number);
  switch (which.kind) {
    case SlotKind::kArgument: return schedule.inputs[number].type.dtype;
    case SlotKind::kOutput: return schedule.outputs[number].type.dtype;
    case SlotKind::kStatistic: return DType::kF64;
    default: return which.dtype.value_or(arithmetic_type(schedule.inputs));
  }
}

namespace {

// Whether tensor cores take the types: zeros as padding, an input that is loaded as it is, in f32, bf16 or
// f16.
bool has_products(const Schedule& schedule, const Sweep& sweep, const ConvSum& conv) {
  const ConvGeometry& geometry = conv.geometry;
  if (geometry.pad_mode != PadMode::kZeros || arithmetic_type(schedule.inputs) != DType::kF32) return false;
  const Prologue& input = sweep.staged[0];
  if (input.steps.size() != 1 || input.inputs.size() != 1) return false;
  const Slot& slot = schedule.slots[static_cast<std::size_t>(input.inputs[0])];
  const DType dtype = element_type(schedule, input.inputs[0]);
  const Extents whole = {geometry.batch, conv.in_channels, conv.in[0], conv.in[1], conv.in[2]};
  return slot.extents == whole && dtype != DType::kF64 && element_type(schedule, sweep.weight) == dtype &&
         std::none_of(sweep.sinks.begin(), sweep.sinks.end(),
                      [](const Sink& sink) { return sink.kind == SinkKind::kContract; });
}

// Few channels: the weights and the input of a small tile fit shared memory together.
bool is_narrow(const ConvSum& conv, DType dtype) {
  constexpr std::int64_t kMostChannels = 64;
  constexpr std::int64_t kMostTerms = 1024;
  // Of shared memory, for the weights and the input of the smallest tile; every GPU has more.
  constexpr std::int64_t kMostBytes = 72 * 1024;
  constexpr std::int64_t kRow = 16;
  const ConvGeometry& geometry = conv.geometry;
  if (!conv.gathers || geometry.groups != 1) return false;
  if (conv.channels > kMostChannels || conv.terms() > kMostTerms) return false;
  std::int64_t box = conv.in_channels * byte_size(dtype);
  for (std::size_t i = 0; i < 3; ++i)
    box *= (i == 2 ? std::min(conv.out[2], kRow) - 1 : 0) * geometry.stride[i] +
           (geometry.filter[i] - 1) * geometry.dilation[i] + 1;
  return box + conv.terms() * conv.channels * 8 <= kMostBytes;
}

// Many channels: a product's depth and columns are mostly filled, and so are its rows; the smallest tile
// fits.
bool is_wide(const ConvSum& conv, bool statistics) {
  constexpr std::int64_t kFewestPositions = 32;
  constexpr std::int64_t kFewestChannels = 8;  // of a group, on both sides
  // What is known of all channels is in shared memory, with statistics more than without.
  constexpr std::int64_t kMostChannels = 4096;
  constexpr std::int64_t kMostSummed = 512;
  constexpr int kSmallestTile = 64;
  // Positions of the smallest tile's staged input; every GPU has room for two such.
  constexpr int kMostPositions = 768;
  if (!conv.has_window()) return false;
  const ConvGeometry geometry = conv.window();
  const std::int64_t positions = conv.out[0] * conv.out[1] * conv.out[2];
  if (positions < kFewestPositions || conv.channels > (statistics ? kMostSummed : kMostChannels))
    return false;
  if (conv.in_channels / geometry.groups < kFewestChannels ||
      conv.channels / geometry.groups < kFewestChannels)
    return false;
  for (std::int64_t strips = 1; strips <= conv.out[2]; strips *= 2) {
    const auto strip = static_cast<int>((conv.out[2] + strips - 1) / strips);
    if (conv_box(conv, kSmallestTile, strip).quad <= kMostPositions) return true;
  }
  return false;
}

}  // namespace

ConvKernel conv_kernel(const Schedule& schedule, const Sweep& sweep) {
  const ConvSum conv = conv_sum(schedule, sweep.source);
  if (!has_products(schedule, sweep, conv)) return ConvKernel::kDirect;
  bool over_channels = false;
  bool over_positions = false;
  for (const Sink& sink : sweep.sinks) {
    if (sink.kind != SinkKind::kStatistic) continue;
    (schedule.graph[sink.part].axes == AxisSet{Axis::kC} ? over_channels : over_positions) = true;
  }
  return conv_kernel(conv, element_type(schedule, sweep.staged[0].inputs[0]), over_channels, over_positions);
}

ConvKernel conv_kernel(const ConvSum& conv, DType dtype, bool over_channels, bool over_positions) {
  // Of the channels of a position, from which on kWide takes what both take.
  constexpr std::int64_t kWideBytes = 64;
  const bool narrow = is_narrow(conv, dtype) && !(over_channels && over_positions);
  const bool wide = is_wide(conv, over_positions) && !over_channels;
  if (narrow && (!wide || conv.in_channels * byte_size(dtype) < kWideBytes)) return ConvKernel::kConv;
  return wide ? ConvKernel::kWide : ConvKernel::kDirect;
}

void add_window(std::vector<std::pair<std::string, std::string>>& constants, const ConvGeometry& geometry) {
  constexpr const char* kAxes = "DHW";
  for (std::size_t i = 0; i < 3; ++i) {
    const std::string axis(1, kAxes[i]);
    constants.emplace_back("kFilter" + axis, std::to_string(geometry.filter[i]));
    constants.emplace_back("kStride" + axis, std::to_string(geometry.stride[i]));
    constants.emplace_back("kPad" + axis, std::to_string(geometry.pad[i]));
    constants.emplace_back("kDilation" + axis, std::to_string(geometry.dilation[i]));
  }
}

}  // namespace fuseblock::cuda
