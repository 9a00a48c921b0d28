// What the environment variable FUSEBLOCK_CONV asks of the division of kernels `conv`, for measurements: the planner chooses
// among divisions that have these numbers.
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
  std::optional<std::array<int, 3>> tile;

  // `threads=256,blocks=2,rows=4,stages=1,promote=4,down=0,tile=1x8x30`, each where it is wished. A UserError names what it
  // is not.
  static ConvWishes parse(const std::string& text);
  static ConvWishes of_environment();
};

}  // namespace fuseblock::cuda
