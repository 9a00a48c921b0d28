#include "tensor_files.h"

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "npy.h"

namespace fuseblock::cli {
namespace {

namespace fs = std::filesystem;

// Names of values are words and dots; any other name would leave the folder.
fs::path tensor_path(const std::string& folder, const std::string& name) {
  if (name.empty() || name.front() == '.' || name.find('/') != std::string::npos)
    throw UserError("`" + name + "` cannot be the name of a file");
  return fs::path(folder) / (name + ".npy");
}

std::string read_file(const fs::path& path) {
  std::error_code error;
  const auto size = fs::file_size(path, error);
  if (error) throw UserError(path.string() + ": " + error.message());
  require_memory(static_cast<double>(size), path.string());
  std::string bytes(size, '\0');
  std::ifstream file(path, std::ios::binary);
  if (!file.read(bytes.data(), static_cast<std::streamsize>(bytes.size())))
    throw UserError(path.string() + ": cannot be read");
  return bytes;
}

void write_file(const fs::path& path, const std::string& bytes) {
  errno = 0;
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  file.close();
  if (!file)
    throw UserError(path.string() + ": cannot be written" +
                    (errno != 0 ? std::string(": ") + std::strerror(errno) : ""));
}

void make_folder(const std::string& folder) {
  std::error_code error;
  fs::create_directories(folder, error);
  if (error) throw UserError("--save " + folder + ": " + error.message());
}

}  // namespace

void save_tensors(const std::string& folder, const TensorMap& tensors) {
  make_folder(folder);
  for (const auto& [name, tensor] : tensors) write_file(tensor_path(folder, name), write_npy(tensor));
}

void save_block(const std::string& folder, const Block& block) {
  make_folder(folder);
  write_file(fs::path(folder) / "block.json", block.to_json() + "\n");
}

TensorMap load_tensors(const std::string& folder, const std::vector<NamedType>& wanted) {
  require_memory(total_bytes(wanted), "the tensors of " + folder);
  TensorMap tensors;
  for (const NamedType& named : wanted) {
    const fs::path path = tensor_path(folder, named.name);
    Tensor tensor(named.type);
    const std::string bytes = read_file(path);
    try {
      read_npy(bytes, tensor);
    } catch (const UserError& error) {
      throw UserError(path.string() + ": " + error.what());
    }
    tensors.emplace(named.name, std::move(tensor));
  }
  return tensors;
}

}  // namespace fuseblock::cli
