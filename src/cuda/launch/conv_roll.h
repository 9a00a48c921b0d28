// The launch of a kernel `conv_roll`: how a sweep's positions are divided into strips.
#pragma once

#include <functional>
#include <optional>

#include "cuda/emit/conv_roll_text.h"
#include "cuda/launch/conv.h"

namespace fuseblock::cuda {

// How a row of 16 bytes is filled, by channels, rows and columns, with the fewest steps of products; none
// where a row would hold elements that only some of its uses have weights for.
std::optional<std::array<int, 3>> conv_roll_pack(const ConvSum& conv, int element_bytes);

// Whether `conv_roll` takes a convolution on a GPU.
bool conv_rolls(const Gpu& gpu, const ConvWork& work);

// Whether offsets in a contiguous sample have 32 bits.
bool conv_roll_near(const ConvSum& conv);

// Bytes of shared memory that a block needs beside the stages, of a division with so many threads.
using ConvRollBytes = std::function<int(const ConvRollConstants&)>;
ConvRollConstants divide_conv_roll(const Gpu& gpu, const ConvWork& work, const ConvRollBytes& shared_bytes);
// Those worth measuring, whatever the wishes are.
std::vector<Division> conv_roll_divisions(const Gpu& gpu, const ConvWork& work,
                                          const ConvRollBytes& shared_bytes);

// What an item takes by itself, in strips.
double conv_roll_item(const ConvRollConstants& constants, const ConvSum& conv);

// Strips of a band, bands, and segments of depths.
std::array<std::int64_t, 3> conv_roll_tiles(const ConvRollConstants& constants, const ConvSum& conv);

}  // namespace fuseblock::cuda
