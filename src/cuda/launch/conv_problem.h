// What a launch over a convolution is looked up by in the table of tuned divisions.
#pragma once

#include <string>

#include "cuda/conv_sum.h"
#include "cuda/emit/conv_text.h"

namespace fuseblock::cuda {

// `conv 3x24x32x32 to 24, 128 samples, filter 3x3x3, strict, ` and what else decides: the convolution as its
// kernel sees it, with all extents. `rest` is what the kernel adds.
std::string conv_problem(const std::string& launch, const ConvSum& conv, ConvMode mode,
                         const std::string& rest);

}  // namespace fuseblock::cuda
