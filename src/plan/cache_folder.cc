#include "plan/cache_folder.h"

#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <random>
#include <sstream>

#include "fuseblock/error.h"

namespace fuseblock {
namespace {

constexpr std::uintmax_t kLargestFile = 1 << 20;

std::string variable(const char* name) {
  const char* value = std::getenv(name);  // NOLINT(concurrency-mt-unsafe): nothing here sets variables
  return value == nullptr ? "" : value;
}

}  // namespace

std::optional<std::string> cache_folder() {
  namespace fs = std::filesystem;
  if (const std::string own = variable("FUSEBLOCK_CACHE_DIR"); !own.empty()) return own;
  if (const std::string all = variable("XDG_CACHE_HOME"); !all.empty()) return fs::path(all) / "fuseblock";
  if (const std::string home = variable("HOME"); !home.empty())
    return fs::path(home) / ".cache" / "fuseblock";
  return std::nullopt;
}

std::optional<std::string> read_cached(std::string_view name) {
  const std::optional<std::string> folder = cache_folder();
  if (!folder) return std::nullopt;
  const std::filesystem::path path = std::filesystem::path(*folder) / name;
  std::error_code error;
  if (!std::filesystem::is_regular_file(path, error)) return std::nullopt;
  const std::uintmax_t size = std::filesystem::file_size(path, error);
  if (error || size > kLargestFile) return std::nullopt;
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  if (!file || !text) return std::nullopt;
  return text.str();
}

std::string write_whole(const std::filesystem::path& path, std::string_view contents) {
  const std::filesystem::path beside = path.string() + "." + std::to_string(std::random_device()()) + ".part";
  std::error_code error;
  std::filesystem::create_directories(path.parent_path(), error);
  std::ofstream file(beside, std::ios::binary);
  file << contents;
  file.close();
  if (file) std::filesystem::rename(beside, path, error);
  if (!file || error) {
    std::error_code ignored;
    std::filesystem::remove(beside, ignored);
    throw UserError(path.string() + ": the file cannot be written");
  }
  return path;
}

std::string write_cached(std::string_view name, std::string_view contents) {
  const std::optional<std::string> folder = cache_folder();
  if (!folder)
    throw UserError("there is no folder to write " + std::string(name) +
                    " to: none of FUSEBLOCK_CACHE_DIR, XDG_CACHE_HOME and HOME is set");
  return write_whole(std::filesystem::path(*folder) / name, contents);
}

}  // namespace fuseblock
