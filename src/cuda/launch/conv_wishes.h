// Numbers that the division of a kernel over a convolution must have: as the environment variable
// FUSEBLOCK_CONV asks for them, for measurements, or as the table of tuned divisions has them (cuda/tuned.h).
// The planner chooses among divisions that have these numbers.
#pragma once

#include <array>
#include <optional>
#include <string>

namespace fuseblock::cuda {

struct ConvWishes {
  std::optional<int> threads;
  std::optional<int> blocks;  // a multiprocessor
  std::optional<int> rows;    // products of 16 positions (`conv_roll`: 64) that a warp has at once
  std::optional<int> stages;
  std::optional<int> promote;
  std::optional<int> down;
  std::optional<int> roll;  // 0: `conv` where `conv_roll` would take it
  std::optional<int> fold;  // rows of the image are depths
  std::optional<int> deep;  // 0: `conv_wide` where `conv_deep` would take it
  // `conv_deep`: positions of a product, warpgroups with other channels, taps in a ring of weights, staged
  // chunks.
  std::optional<int> columns;
  std::optional<int> groups;
  std::optional<int> ring;
  std::optional<int> images;
  // `conv_roll`: columns of a band, depths of a segment, rounds of products in a strip.
  std::optional<int> width;
  std::optional<int> depths;
  std::optional<int> rounds;
  // 0: both factors of its products lie in shared memory; where one does not, squads of threads in a block.
  std::optional<int> taken;
  std::optional<int> squads;
  // `conv_wide`: products beside each other in a warp, warps beside each other, taps of a stage; `conv_deep`
  // too: steps of a chunk, columns of a strip.
  std::optional<int> products;
  std::optional<int> beside;
  std::optional<int> chunk;
  std::optional<int> taps;
  std::optional<int> strip;
  std::optional<std::array<int, 3>> tile;

  // `threads=256,blocks=2,rows=4,stages=1,promote=4,down=0,roll=0,fold=1,deep=0,columns=128,tile=1x8x30`,
  // each where it is wished. A UserError begins with `where` and names what it is not.
  static ConvWishes parse(const std::string& text, const std::string& where = "FUSEBLOCK_CONV");
  static ConvWishes of_environment();
  // What parse() reads, in that order.
  std::string text() const;
  bool any() const { return !text().empty(); }
};

}  // namespace fuseblock::cuda
