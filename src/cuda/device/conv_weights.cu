// The kernel `conv_weights`: a convolution's weights in the order in which `conv_wide` or `conv_deep` takes
// them (device/conv_wide_cells.cuh): cells of 16 bytes, neighbouring input channels of one output channel and tap,
// rounded to tf32 in that mode and zeros where there is no such channel:
//   [block of output channels][chunk of input channels][depth, row, part of a row of the filter][part of a number]
//   [tap of the part][step of the chunk][cell of the step][output channel of the block]
// One thread a cell. With kFlipped the taps are those of the flipped filter.
//
// Before this stand the constants of that kernel, device/conv_wide_cells.cuh, Arguments, and weight_at, an
// element by output channel, input channel of the group and tap.

extern "C" __global__ void __launch_bounds__(256) conv_weights(const __grid_constant__ Arguments a) {
  constexpr long long kCells =
      (long long)kChannelBlocks * kChunks * kFilterD * kFilterH * kRowParts * kStageCells;
  for (long long i = (long long)blockIdx.x * 256 + threadIdx.x; i < kCells; i += (long long)gridDim.x * 256) {
    const int within = (int)(i % kStageCells);
    int stage = (int)(i / kStageCells);
    const int k = within % kBlockChannels;
    const int cell = within / kBlockChannels % kChunkCells;
    const int tap = within / kBlockChannels / kChunkCells;
    const int t = stage % kRowParts * kRowTaps + tap;
    stage /= kRowParts;
    const int s = stage % kFilterH;
    stage /= kFilterH;
    const int r = stage % kFilterD;
    stage /= kFilterD;
    const int chunk = stage % kChunks, block = stage / kChunks;
    Element values[kCellElements];
#pragma unroll
    for (int j = 0; j < kCellElements; ++j) {
      const int c = chunk * kChunkChannels + cell * kCellElements + j;
      values[j] = Element{};
      if (k < channels_of(block) && c < kGroupIn)
        values[j] = kFlipped != 0 ? weight_at(a, first_channel_of(block) + k, c,
                                              {kFilterD - 1 - r, kFilterH - 1 - s, kFilterW - 1 - t})
                                  : weight_at(a, first_channel_of(block) + k, c, {r, s, t});
    }
    Cell* to = reinterpret_cast<Cell*>(a.weights) + (i - within) * kParts + within;
#pragma unroll
    for (int part = 0; part < kParts; ++part) to[part * kStageCells] = packed(values, part);
  }
}
