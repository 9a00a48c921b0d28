// A folder that only its user can write to. It is opened once and held: files are read, written and removed through
// the open folder, so that nobody can put another one in its place meanwhile.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace fuseblock::jit {

// A file descriptor that is closed at the end; -1 is none.
class Descriptor {
 public:
  explicit Descriptor(int number = -1) : number_(number) {}
  Descriptor(Descriptor&& other) noexcept : number_(other.number_) { other.number_ = -1; }
  Descriptor& operator=(Descriptor&& other) noexcept;
  ~Descriptor();

  int number() const { return number_; }
  bool good() const { return number_ >= 0; }

 private:
  int number_;
};

class PrivateFolder {
 public:
  struct File {
    std::string name;
    std::uint64_t bytes = 0;
    std::int64_t used = 0;  // nanoseconds since 1970; reading through this class counts
  };

  enum class Missing : std::uint8_t { kCreate, kLeave };

  // Opens the folder, created with its parents and mode 0700 where it is missing and that is asked for. Where it is
  // not to be used (it cannot be created, another user owns it, others may write to it), refusal() says why.
  explicit PrivateFolder(const std::string& path, Missing missing = Missing::kCreate);

  // Empty where the folder is to be used.
  const std::string& refusal() const { return refusal_; }
  // False also for one that is missing and was left so.
  bool usable() const { return folder_.good(); }

  // The contents of a regular file of this user; nothing where there is none.
  std::optional<std::string> read(const std::string& name) const;
  // Written beside and renamed. False where that fails: a full disk.
  bool write(const std::string& name, std::string_view contents) const;
  // Counts as used now.
  void touch(const std::string& name) const;
  void remove(const std::string& name) const;
  std::vector<File> files() const;

 private:
  friend class FolderLock;
  Descriptor folder_;
  std::string refusal_;
};

// A lock file of the folder, held by one holder of all processes and threads at a time: until it is destroyed or its
// process ends, however it ends. Gives up after `patience`; held() is false then. The folder outlives it.
class FolderLock {
 public:
  FolderLock(const PrivateFolder& folder, std::string name, std::chrono::milliseconds patience);
  ~FolderLock();
  FolderLock(const FolderLock&) = delete;
  FolderLock& operator=(const FolderLock&) = delete;

  bool held() const { return file_.good(); }

 private:
  const PrivateFolder& folder_;
  std::string name_;
  Descriptor file_;
};

}  // namespace fuseblock::jit
