#include "cuda/jit/cache.h"

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>

#include "cuda/jit/cubin_file.h"
#include "cuda/jit/sha256.h"
#include "cuda/jit/source_digest.h"
#include "fuseblock/error.h"
#include "plan/cache_folder.h"

namespace fuseblock::jit {
namespace {

constexpr std::string_view kEnding = ".cubin";
constexpr std::string_view kLockEnding = ".lock";
constexpr std::string_view kPartEnding = ".part";
// A process that waits longer for another one's compilation, which takes seconds, compiles for itself.
constexpr std::chrono::seconds kPatience(120);
// What is half-written for longer than this was left by a process that ended.
constexpr std::int64_t kPartAge = 3600LL * 1'000'000'000;

bool is_cubin(const PrivateFolder::File& file) { return file.name.ends_with(kEnding); }

std::string disk_name(const std::string& identity, const std::string& compiler) {
  return sha256(identity + "\n" + compiler).append(kEnding);
}

std::optional<Cubin> read_carried(const std::string& folder, const std::string& identity) {
  const std::filesystem::path path = std::filesystem::path(folder) / (identity + std::string(kEnding));
  std::ifstream file(path, std::ios::binary);
  if (!file) return std::nullopt;
  const std::string bytes((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  std::optional<Cubin> cubin = from_file(bytes);
  if (!cubin || cubin->identity != identity) return std::nullopt;
  return cubin;
}

std::optional<Cubin> read_disk(const PrivateFolder& folder, const std::string& name,
                               const std::string& identity, const std::string& compiler) {
  const std::optional<std::string> bytes = folder.read(name);
  if (!bytes) return std::nullopt;
  std::optional<Cubin> cubin = from_file(*bytes);
  if (!cubin || cubin->identity != identity || cubin->compiler != compiler) return std::nullopt;
  folder.touch(name);
  return cubin;
}

// Removes what was used least recently until the rest keeps the bound, but not `newest`.
void keep_bound(const PrivateFolder& folder, std::uint64_t bound, const std::string& newest) {
  std::vector<PrivateFolder::File> files = folder.files();
  std::ranges::sort(files, std::greater(), &PrivateFolder::File::used);
  std::uint64_t total = 0;
  for (const PrivateFolder::File& file : files) {
    const bool left_over = file.name.ends_with(kPartEnding) && files.front().used - file.used > kPartAge;
    if (is_cubin(file)) total += file.bytes;
    if (left_over || (is_cubin(file) && total > bound && file.name != newest)) folder.remove(file.name);
  }
}

std::uint64_t bound_from(const char* text, std::uint64_t otherwise) {
  if (text == nullptr || *text == '\0') return otherwise;
  const std::string_view digits(text);
  std::uint64_t bytes = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), bytes);
  if (error != std::errc() || end != digits.data() + digits.size())
    throw UserError("FUSEBLOCK_CACHE_BYTES: expected a number of bytes, got `" +
                    std::string(digits.substr(0, 40)) + "`");
  return bytes;
}

CacheSettings settings_of_environment() {
  CacheSettings settings;
  if (const std::optional<std::string> folder = cache_folder())
    settings.folder = std::filesystem::path(*folder) / "kernels";
  // NOLINTBEGIN(concurrency-mt-unsafe): nothing here sets variables
  if (const char* carried = std::getenv("FUSEBLOCK_CUBINS")) settings.carried = carried;
  settings.bound = bound_from(std::getenv("FUSEBLOCK_CACHE_BYTES"), settings.bound);
  // NOLINTEND(concurrency-mt-unsafe)
  return settings;
}

}  // namespace

std::string identity_of(const KernelSource& source, const Architecture& architecture) {
  std::string text = source.name + "\n" + source.entry + "\n" + architecture.name + "\n";
  for (const std::string& option : source.options) text += option + "\n";
  return sha256(text + source_digest(source.text));
}

FoundCubin KernelCache::find(const KernelSource& source, const Architecture& architecture) {
  const std::string identity = identity_of(source, architecture);
  std::shared_ptr<Entry> entry;
  {
    const std::scoped_lock lock(mutex_);
    std::shared_ptr<Entry>& place = entries_[identity];
    if (!place) place = std::make_shared<Entry>();
    entry = place;
  }
  const std::scoped_lock lock(entry->mutex);
  if (entry->cubin) return {entry->cubin, KernelOrigin::kMemory};
  FoundCubin found = look(source, architecture, identity);
  entry->cubin = found.cubin;
  return found;
}

FoundCubin KernelCache::look(const KernelSource& source, const Architecture& architecture,
                             const std::string& identity) const {
  const auto shared = [](Cubin cubin) { return std::make_shared<const Cubin>(std::move(cubin)); };
  if (!settings_.carried.empty())
    if (std::optional<Cubin> cubin = read_carried(settings_.carried, identity))
      return {shared(*std::move(cubin)), KernelOrigin::kCarried};

  const std::string compiler = settings_.compiler_version();
  std::optional<PrivateFolder> folder;
  if (!settings_.folder.empty() && !compiler.empty()) folder.emplace(settings_.folder);
  const std::string name = disk_name(identity, compiler);
  std::optional<FolderLock> lock;
  if (folder && folder->usable()) {
    if (std::optional<Cubin> cubin = read_disk(*folder, name, identity, compiler))
      return {shared(*std::move(cubin)), KernelOrigin::kDisk};
    lock.emplace(*folder, name + std::string(kLockEnding), kPatience);
    // The holder before may have written it.
    if (std::optional<Cubin> cubin = read_disk(*folder, name, identity, compiler))
      return {shared(*std::move(cubin)), KernelOrigin::kDisk};
  }
  Cubin cubin = settings_.compile(source, architecture);
  cubin.identity = identity;
  if (folder && folder->usable() && folder->write(name, to_file(cubin)))
    keep_bound(*folder, settings_.bound, name);
  return {shared(std::move(cubin)), KernelOrigin::kCompiled};
}

KernelCacheState KernelCache::state() const {
  KernelCacheState state;
  state.folder = settings_.folder;
  state.bound = settings_.bound;
  if (settings_.folder.empty()) {
    state.refusal = "none of FUSEBLOCK_CACHE_DIR, XDG_CACHE_HOME and HOME is set";
    return state;
  }
  const PrivateFolder folder(settings_.folder, PrivateFolder::Missing::kLeave);
  state.refusal = folder.refusal();
  if (!folder.usable()) return state;
  std::vector<PrivateFolder::File> files = folder.files();
  std::ranges::sort(files, std::greater(), &PrivateFolder::File::used);
  for (const PrivateFolder::File& file : files) {
    if (!is_cubin(file)) continue;
    CachedKernel kernel;
    kernel.file = file.name;
    kernel.bytes = file.bytes;
    kernel.used = file.used / 1'000'000'000;
    const std::optional<std::string> bytes = folder.read(file.name);
    const std::optional<Cubin> cubin = bytes ? from_file(*bytes) : std::nullopt;
    kernel.damaged = !cubin || disk_name(cubin->identity, cubin->compiler) != file.name;
    if (!kernel.damaged) {
      kernel.name = cubin->name;
      kernel.architecture = cubin->architecture;
      kernel.compiler = cubin->compiler;
    }
    state.bytes += file.bytes;
    state.kernels.push_back(std::move(kernel));
  }
  return state;
}

std::size_t KernelCache::clear() const {
  if (settings_.folder.empty()) return 0;
  const PrivateFolder folder(settings_.folder, PrivateFolder::Missing::kLeave);
  if (!folder.refusal().empty()) throw UserError(folder.refusal());
  std::size_t kernels = 0;
  if (!folder.usable()) return kernels;
  for (const PrivateFolder::File& file : folder.files()) {
    if (is_cubin(file)) ++kernels;
    // A lock may be held; without it two processes would compile the same, and its holder removes it.
    if (is_cubin(file) || file.name.ends_with(kPartEnding)) folder.remove(file.name);
  }
  return kernels;
}

KernelCache& kernel_cache() {
  // Never destroyed: modules that were loaded from its cubins may still run while the process ends.
  static KernelCache* const kCache = new KernelCache(settings_of_environment());
  return *kCache;
}

std::string carry(const Cubin& cubin, const std::string& folder) {
  return write_whole(std::filesystem::path(folder) / (cubin.identity + std::string(kEnding)), to_file(cubin));
}

}  // namespace fuseblock::jit

namespace fuseblock {

std::string_view to_string(KernelOrigin origin) {
  switch (origin) {
    case KernelOrigin::kCompiled: return "compiled";
    case KernelOrigin::kMemory: return "memory";
    case KernelOrigin::kDisk: return "disk";
    case KernelOrigin::kCarried: return "carried";
  }
  return "";
}

KernelCacheState kernel_cache_state() { return jit::kernel_cache().state(); }

std::size_t clear_kernel_cache() { return jit::kernel_cache().clear(); }

}  // namespace fuseblock
