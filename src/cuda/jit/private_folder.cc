#include "cuda/jit/private_folder.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <memory>
#include <random>
#include <system_error>
#include <thread>

namespace fuseblock::jit {
namespace {

std::string words_of(int error) { return std::generic_category().message(error); }

bool others_may_write(const struct stat& state) { return (state.st_mode & (S_IWGRP | S_IWOTH)) != 0; }

}  // namespace

Descriptor& Descriptor::operator=(Descriptor&& other) noexcept {
  std::swap(number_, other.number_);
  return *this;
}

Descriptor::~Descriptor() {
  if (good()) close(number_);
}

PrivateFolder::PrivateFolder(const std::string& path, Missing missing) {
  if (missing == Missing::kCreate) {
    std::error_code ignored;  // what went wrong shows below
    std::filesystem::create_directories(std::filesystem::path(path).parent_path(), ignored);
    mkdir(path.c_str(), S_IRWXU);
  }
  Descriptor folder(open(path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  if (!folder.good()) {
    if (errno != ENOENT || missing == Missing::kCreate) refusal_ = path + ": " + words_of(errno);
    return;
  }
  struct stat state = {};
  if (fstat(folder.number(), &state) != 0)
    refusal_ = path + ": " + words_of(errno);
  else if (state.st_uid != geteuid())
    refusal_ = path + ": belongs to another user, who could change what runs here";
  else if (others_may_write(state))
    refusal_ = path + ": other users may write to it, who could change what runs here (chmod go-w)";
  else
    folder_ = std::move(folder);
}

std::optional<std::string> PrivateFolder::read(const std::string& name) const {
  const Descriptor file(
      openat(folder_.number(), name.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
  struct stat state = {};
  if (!file.good() || fstat(file.number(), &state) != 0) return std::nullopt;
  if (!S_ISREG(state.st_mode) || state.st_uid != geteuid() || others_may_write(state)) return std::nullopt;
  std::string contents(static_cast<std::size_t>(state.st_size), '\0');
  std::size_t done = 0;
  while (done < contents.size()) {
    const ssize_t count = ::read(file.number(), contents.data() + done, contents.size() - done);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) break;
    done += static_cast<std::size_t>(count);
  }
  contents.resize(done);
  return contents;
}

bool PrivateFolder::write(const std::string& name, std::string_view contents) const {
  const std::string beside = name + "." + std::to_string(std::random_device()()) + ".part";
  const int flags = O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC;
  const Descriptor file(openat(folder_.number(), beside.c_str(), flags, S_IRUSR | S_IWUSR));
  if (!file.good()) return false;
  while (!contents.empty()) {
    const ssize_t count = ::write(file.number(), contents.data(), contents.size());
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) break;
    contents.remove_prefix(static_cast<std::size_t>(count));
  }
  const bool written =
      contents.empty() && renameat(folder_.number(), beside.c_str(), folder_.number(), name.c_str()) == 0;
  if (!written) remove(beside);
  return written;
}

void PrivateFolder::touch(const std::string& name) const {
  utimensat(folder_.number(), name.c_str(), nullptr, AT_SYMLINK_NOFOLLOW);
}

void PrivateFolder::remove(const std::string& name) const { unlinkat(folder_.number(), name.c_str(), 0); }

std::vector<PrivateFolder::File> PrivateFolder::files() const {
  std::vector<File> found;
  const int copy = openat(folder_.number(), ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  const auto close_folder = [](DIR* folder) { closedir(folder); };
  const std::unique_ptr<DIR, decltype(close_folder)> folder(copy < 0 ? nullptr : fdopendir(copy),
                                                            close_folder);
  if (!folder) return found;
  // NOLINTNEXTLINE(concurrency-mt-unsafe): each thread reads through a DIR of its own
  while (const dirent* entry = readdir(folder.get())) {
    struct stat state = {};
    if (fstatat(folder_.number(), entry->d_name, &state, AT_SYMLINK_NOFOLLOW) != 0) continue;
    if (!S_ISREG(state.st_mode)) continue;
    constexpr std::int64_t kSecond = 1'000'000'000;
    found.push_back({entry->d_name, static_cast<std::uint64_t>(state.st_size),
                     state.st_mtim.tv_sec * kSecond + state.st_mtim.tv_nsec});
  }
  return found;
}

FolderLock::FolderLock(const PrivateFolder& folder, std::string name, std::chrono::milliseconds patience)
    : folder_(folder), name_(std::move(name)) {
  constexpr std::chrono::milliseconds kPause(5);
  const int folder_number = folder_.folder_.number();
  const auto end = std::chrono::steady_clock::now() + patience;
  do {
    const int flags = O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC;
    Descriptor file(openat(folder_number, name_.c_str(), flags, S_IRUSR | S_IWUSR));
    if (!file.good()) return;
    if (flock(file.number(), LOCK_EX | LOCK_NB) == 0) {
      // The holder before may have removed the file between our opening and locking it: then it locks nothing.
      struct stat ours = {};
      struct stat named = {};
      if (fstat(file.number(), &ours) == 0 &&
          fstatat(folder_number, name_.c_str(), &named, AT_SYMLINK_NOFOLLOW) == 0 &&
          ours.st_ino == named.st_ino && ours.st_dev == named.st_dev) {
        file_ = std::move(file);
        return;
      }
    } else if (errno != EWOULDBLOCK && errno != EINTR) {
      return;  // a file system without locks
    }
    std::this_thread::sleep_for(kPause);
  } while (std::chrono::steady_clock::now() < end);
}

FolderLock::~FolderLock() {
  if (held()) folder_.remove(name_);  // before the descriptor is closed, which unlocks
}

}  // namespace fuseblock::jit
