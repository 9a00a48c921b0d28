#include "cuda/launch/conv_problem.h"

namespace fuseblock::cuda {
namespace {

std::string text_of(const Spatial& extents) {
  return std::to_string(extents[0]) + "x" + std::to_string(extents[1]) + "x" + std::to_string(extents[2]);
}

}  // namespace

std::string conv_problem(const std::string& launch, const ConvSum& conv, ConvMode mode,
                         const std::string& rest) {
  const ConvGeometry& geometry = conv.geometry;
  std::string text = launch + " " + std::to_string(conv.in_channels) + "x" + text_of(conv.in) + " to " +
                     std::to_string(conv.channels) + "x" + text_of(conv.out) + ", " +
                     std::to_string(geometry.batch) + " samples, filter " + text_of(geometry.filter);
  if (geometry.stride != Spatial{1, 1, 1}) text += ", stride " + text_of(geometry.stride);
  if (geometry.pad != Spatial{0, 0, 0}) text += ", pad " + text_of(geometry.pad);
  if (geometry.dilation != Spatial{1, 1, 1}) text += ", dilation " + text_of(geometry.dilation);
  if (geometry.groups != 1) text += ", " + std::to_string(geometry.groups) + " groups";
  if (!conv.gathers) text += ", flipped";
  return text + ", " + conv_mode_name(mode) + (rest.empty() ? "" : ", " + rest);
}

}  // namespace fuseblock::cuda
