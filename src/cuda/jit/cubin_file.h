// A cubin as the bytes of a file: a first line with the length and the SHA-256 of what follows, then the fields, each
// behind its own length.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "cuda/jit/compiler.h"

namespace fuseblock::jit {

std::string to_file(const Cubin& cubin);

// Nothing where a single byte is missing, changed or too many.
std::optional<Cubin> from_file(std::string_view bytes);

}  // namespace fuseblock::jit
