// The folder for what is worth keeping between processes: FUSEBLOCK_CACHE_DIR, else fuseblock/ in XDG_CACHE_HOME, else
// in ~/.cache.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

namespace fuseblock {

// Nothing where none of the variables says one.
std::optional<std::string> cache_folder();

// The contents of a file of the folder; nothing where it cannot be read or has more than a MiB.
std::optional<std::string> read_cached(std::string_view name);

// Writes a file of the folder, by write_whole. Returns its path.
// Throws UserError where that fails.
std::string write_cached(std::string_view name, std::string_view contents);

// Writes a file beside its place and renames it, so that others see all of it or nothing; makes its folder where need be.
// Returns its name. Throws UserError where it cannot be written.
std::string write_whole(const std::filesystem::path& path, std::string_view contents);

}  // namespace fuseblock
