// Descriptions of devices: the table of GPUs, and descriptions as JSON.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "fuseblock/device.h"

namespace fuseblock {

std::span<const DeviceDescription> gpu_descriptions();

// A figure of a description with its name in JSON.
struct DescriptionFigure {
  const char* key;
  double DeviceDescription::* value;
};
std::span<const DescriptionFigure> description_figures();

// What to_json made. Nothing where the text is no such object, or a figure is missing, negative or beyond belief.
std::optional<DeviceDescription> description_from_json(std::string_view text);

// `measured`, `from the table of devices`, ...
std::string origin_text(DescriptionOrigin origin);

}  // namespace fuseblock
