// What the environment variable FUSEBLOCK_CONV asks of the division of kernels over convolutions, for measurements: the
// planner chooses among divisions that have these numbers.
#pragma once

#include <array>
#include <optional>
#include <string>

namespace fuseblock::cuda {

struct ConvWishes {
  std::optional<int> threads;
  std::optional<int> blocks;  // a multiprocessor
  std::optional<int> rows;    // products of 16 positions that a warp has at once
  std::optional<int> stages;
  std::optional<int> promote;
  std::optional<int> down;
  std::optional<int> roll;     // 0: `conv` where `conv_roll` would take it
  std::optional<int> fold;     // rows of the image are depths
  std::optional<int> deep;     // 0: `conv_wide` where `conv_deep` would take it
  std::optional<int> columns;  // positions of a product of `conv_deep`
  std::optional<std::array<int, 3>> tile;

  // `threads=256,blocks=2,rows=4,stages=1,promote=4,down=0,roll=0,fold=1,deep=0,columns=128,tile=1x8x30`,
  // each where it is wished. A UserError names what it is not.
  static ConvWishes parse(const std::string& text);
  static ConvWishes of_environment();
};

}  // namespace fuseblock::cuda
