// Folders of tensors: one `<name>.npy` each, and the block as `block.json`.
#pragma once

#include <string>
#include <vector>

#include "fuseblock/block.h"
#include "tensors.h"

namespace fuseblock::cli {

// Makes the folder where there is none and replaces files of the same names. Throws UserError with the path.
void save_tensors(const std::string& folder, const TensorMap& tensors);
void save_block(const std::string& folder, const Block& block);

// Reads a tensor of each name and type. Throws UserError with the path where a file is missing, damaged or of
// another shape.
TensorMap load_tensors(const std::string& folder, const std::vector<NamedType>& wanted);

}  // namespace fuseblock::cli
