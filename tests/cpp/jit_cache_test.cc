// The caches of compiled kernels: what is found where, what is rebuilt, who may write, how much is kept, and many
// processes and threads at once. Compilation is a function that counts, so that no compiler is needed.
#include "cuda/jit/cache.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <thread>

#include "cuda/jit/cubin_file.h"
#include "fuseblock/error.h"
#include "jit_kernels.h"

namespace fuseblock::jit {
namespace {

namespace fs = std::filesystem;

std::string contents(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

void overwrite(const fs::path& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary | std::ios::trunc) << bytes;
}

class KernelCacheTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string path = (fs::temp_directory_path() / "fuseblock_cache_XXXXXX").string();
    base_ = mkdtemp(path.data());
    settings_.folder = base_ / "cache" / "kernels";
    settings_.compiler_version = [this] { return compiler_; };
    settings_.compile = [this](const KernelSource& source, const Architecture& target) {
      ++compilations_;
      Cubin cubin;
      cubin.name = source.name;
      cubin.entry = source.entry;
      cubin.architecture = target.name;
      cubin.compiler = compiler_;
      cubin.image = std::string("\177ELF\0image of ", 14) + source.text + std::string(image_bytes_, '\0');
      cubin.log = "a log\nof two lines";
      cubin.kernels = {{source.entry, 40, 1024, 8, 4, 12}, {"another", 1, 2, 3, 4, 5}};
      return cubin;
    };
  }
  void TearDown() override { fs::remove_all(base_); }

  // A process of its own has an empty memory.
  FoundCubin find(const KernelSource& source = scale_kernel(), const char* target = "sm_90a") const {
    return KernelCache(settings_).find(source, architecture(target));
  }
  KernelOrigin origin(const KernelSource& source = scale_kernel(), const char* target = "sm_90a") const {
    return find(source, target).origin;
  }

  // The only file of the folder.
  fs::path file() const {
    std::vector<fs::path> files;
    for (const auto& entry : fs::directory_iterator(settings_.folder)) files.push_back(entry.path());
    EXPECT_EQ(files.size(), 1U);
    return files.at(0);
  }

  fs::path base_;
  CacheSettings settings_;
  std::string compiler_ = "nvrtc 13.0";
  std::size_t image_bytes_ = 0;
  std::atomic<int> compilations_ = 0;
};

TEST_F(KernelCacheTest, IsCompiledOnceThenFoundInMemoryAndOnDisk) {
  KernelCache cache(settings_);
  const FoundCubin first = cache.find(scale_kernel(), architecture("sm_90a"));
  const FoundCubin second = cache.find(scale_kernel(), architecture("sm_90a"));
  EXPECT_EQ(first.origin, KernelOrigin::kCompiled);
  EXPECT_EQ(second.origin, KernelOrigin::kMemory);
  EXPECT_EQ(first.cubin, second.cubin);
  const FoundCubin third = find();
  EXPECT_EQ(third.origin, KernelOrigin::kDisk);
  EXPECT_EQ(compilations_, 1);

  EXPECT_EQ(third.cubin->identity, first.cubin->identity);
  EXPECT_EQ(third.cubin->image, first.cubin->image);
  EXPECT_EQ(third.cubin->log, first.cubin->log);
  EXPECT_EQ(third.cubin->kernels, first.cubin->kernels);
  EXPECT_EQ(third.cubin->resources().registers, 40);
}

TEST_F(KernelCacheTest, TheKeyIsAllThatACubinDependsOn) {
  find();
  KernelSource other = scale_kernel();
  other.name = "renamed";
  EXPECT_EQ(origin(other), KernelOrigin::kCompiled);
  other = scale_kernel();
  other.options.emplace_back("--use_fast_math");
  EXPECT_EQ(origin(other), KernelOrigin::kCompiled);
  other = scale_kernel();
  other.entry = "another";
  EXPECT_EQ(origin(other), KernelOrigin::kCompiled);
  EXPECT_EQ(origin(scale_kernel(4)), KernelOrigin::kCompiled);
  EXPECT_EQ(origin(scale_kernel(), "sm_80"), KernelOrigin::kCompiled);
  compiler_ = "nvrtc 13.1";
  EXPECT_EQ(origin(), KernelOrigin::kCompiled);
  compiler_ = "nvrtc 13.0";

  other = scale_kernel();
  other.text = "// a comment\n" + other.text + "\n\n";
  other.description = "said otherwise";
  EXPECT_EQ(origin(other), KernelOrigin::kDisk);
}

TEST_F(KernelCacheTest, OptionsDoNotRunIntoEachOther) {
  KernelSource one = scale_kernel();
  KernelSource two = scale_kernel();
  one.options = {"-a", "-b"};
  two.options = {"-a-b"};
  EXPECT_NE(identity_of(one, architecture("sm_80")), identity_of(two, architecture("sm_80")));
}

TEST_F(KernelCacheTest, ADamagedFileIsRebuilt) {
  find();
  const std::string whole = contents(file());
  ASSERT_GT(whole.size(), 300U);
  for (std::size_t at = 0; at < whole.size(); at += 7) {
    std::string damaged = whole;
    damaged[at] = static_cast<char>(damaged[at] ^ 1);
    overwrite(file(), damaged);
    ASSERT_EQ(origin(), KernelOrigin::kCompiled) << "byte " << at;
    ASSERT_EQ(contents(file()), whole) << "byte " << at;
  }
  EXPECT_EQ(origin(), KernelOrigin::kDisk);
}

TEST_F(KernelCacheTest, ATruncatedOrLongerFileIsRebuilt) {
  find();
  const std::string whole = contents(file());
  for (std::size_t length = 0; length < whole.size(); length += 11) {
    overwrite(file(), whole.substr(0, length));
    ASSERT_EQ(origin(), KernelOrigin::kCompiled) << length << " bytes";
  }
  overwrite(file(), whole + "x");
  EXPECT_EQ(origin(), KernelOrigin::kCompiled);
  EXPECT_EQ(contents(file()), whole);
}

TEST_F(KernelCacheTest, AForeignFileIsRebuilt) {
  find();
  const fs::path path = file();
  const std::string own = contents(path);
  // Whole files, but of another kernel or of another compiler.
  Cubin other = *find().cubin;
  other.identity = identity_of(scale_kernel(4), architecture("sm_90a"));
  overwrite(path, to_file(other));
  EXPECT_EQ(origin(), KernelOrigin::kCompiled);
  other = *find().cubin;
  other.compiler = "nvrtc 12.4";
  overwrite(path, to_file(other));
  EXPECT_EQ(origin(), KernelOrigin::kCompiled);
  for (const char* text : {"", "\177ELF something", "fuseblock kernel 2 "}) {
    overwrite(path, text);
    EXPECT_EQ(origin(), KernelOrigin::kCompiled) << text;
  }
  // A link to a file that would do.
  fs::rename(path, base_ / "elsewhere");
  fs::create_symlink(base_ / "elsewhere", path);
  EXPECT_EQ(origin(), KernelOrigin::kCompiled);
  EXPECT_FALSE(fs::is_symlink(path));
  EXPECT_EQ(contents(path), own);
}

TEST_F(KernelCacheTest, AFileThatOthersMayWriteToIsRebuilt) {
  find();
  fs::permissions(file(), fs::perms::others_write, fs::perm_options::add);
  EXPECT_EQ(origin(), KernelOrigin::kCompiled);
  EXPECT_EQ(origin(), KernelOrigin::kDisk);
}

TEST_F(KernelCacheTest, TheFolderIsPrivate) {
  find();
  struct stat state = {};
  ASSERT_EQ(stat(settings_.folder.c_str(), &state), 0);
  EXPECT_EQ(state.st_mode & 0777U, 0700U);
  ASSERT_EQ(stat(file().c_str(), &state), 0);
  EXPECT_EQ(state.st_mode & 0777U, 0600U);
}

TEST_F(KernelCacheTest, AFolderThatOthersMayWriteToIsRefused) {
  find();
  fs::permissions(settings_.folder, fs::perms::group_write, fs::perm_options::add);
  KernelCache cache(settings_);
  EXPECT_EQ(cache.find(scale_kernel(), architecture("sm_90a")).origin, KernelOrigin::kCompiled);
  EXPECT_EQ(cache.find(scale_kernel(), architecture("sm_90a")).origin, KernelOrigin::kMemory);
  EXPECT_EQ(origin(), KernelOrigin::kCompiled);
  EXPECT_EQ(cache.state().refusal,
            settings_.folder + ": other users may write to it, who could change what runs here (chmod go-w)");
  EXPECT_TRUE(cache.state().kernels.empty());
  EXPECT_THROW(cache.clear(), UserError);
  fs::permissions(settings_.folder, fs::perms::group_write, fs::perm_options::remove);
  EXPECT_EQ(origin(), KernelOrigin::kDisk);
}

TEST_F(KernelCacheTest, AFolderOfAnotherUserIsRefused) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can give a folder away";
  find();
  ASSERT_EQ(chown(settings_.folder.c_str(), 12345, 12345), 0);
  EXPECT_EQ(origin(), KernelOrigin::kCompiled);
  EXPECT_EQ(KernelCache(settings_).state().refusal,
            settings_.folder + ": belongs to another user, who could change what runs here");
}

TEST_F(KernelCacheTest, ALinkInPlaceOfTheFolderIsRefused) {
  fs::create_directories(base_ / "real");
  fs::create_directories(base_ / "cache");
  fs::create_directory_symlink(base_ / "real", settings_.folder);
  EXPECT_EQ(origin(), KernelOrigin::kCompiled);
  EXPECT_NE(KernelCache(settings_).state().refusal, "");
  EXPECT_TRUE(fs::is_empty(base_ / "real"));
}

TEST_F(KernelCacheTest, WithoutAFolderMemoryRemains) {
  for (const char* folder : {"", "/dev/null/kernels"}) {
    settings_.folder = folder;
    KernelCache cache(settings_);
    EXPECT_EQ(cache.find(scale_kernel(), architecture("sm_90a")).origin, KernelOrigin::kCompiled);
    EXPECT_EQ(cache.find(scale_kernel(), architecture("sm_90a")).origin, KernelOrigin::kMemory);
    EXPECT_NE(cache.state().refusal, "");
  }
}

TEST_F(KernelCacheTest, TheLeastRecentlyUsedAreRemoved) {
  image_bytes_ = 10'000;
  settings_.bound = 35'000;
  const auto at = [&](int factor, int seconds) {  // as if used at that time
    const std::string name = KernelCache(settings_).state().kernels.at(0).file;
    struct timespec times[2] = {{seconds, 0}, {seconds, 0}};
    ASSERT_EQ(utimensat(AT_FDCWD, (settings_.folder + "/" + name).c_str(), times, 0), 0) << factor;
  };
  for (int factor = 0; factor < 3; ++factor) {
    EXPECT_EQ(origin(scale_kernel(factor)), KernelOrigin::kCompiled);
    at(factor, 1000 + factor);
  }
  EXPECT_EQ(origin(scale_kernel(0)), KernelOrigin::kDisk);      // used now: the oldest is 1
  EXPECT_EQ(origin(scale_kernel(3)), KernelOrigin::kCompiled);  // a fourth does not fit
  const KernelCacheState state = KernelCache(settings_).state();
  EXPECT_EQ(state.kernels.size(), 3U);
  EXPECT_LE(state.bytes, settings_.bound);
  EXPECT_EQ(state.bound, settings_.bound);
  EXPECT_EQ(origin(scale_kernel(0)), KernelOrigin::kDisk);
  EXPECT_EQ(origin(scale_kernel(2)), KernelOrigin::kDisk);
  EXPECT_EQ(origin(scale_kernel(3)), KernelOrigin::kDisk);
  EXPECT_EQ(origin(scale_kernel(1)), KernelOrigin::kCompiled);
}

TEST_F(KernelCacheTest, AKernelLargerThanTheBoundIsKeptAlone) {
  image_bytes_ = 10'000;
  settings_.bound = 5'000;
  find(scale_kernel(1));
  find(scale_kernel(2));
  EXPECT_EQ(KernelCache(settings_).state().kernels.size(), 1U);
  EXPECT_EQ(origin(scale_kernel(2)), KernelOrigin::kDisk);
}

TEST_F(KernelCacheTest, StateAndClear) {
  KernelCache cache(settings_);
  EXPECT_TRUE(cache.state().kernels.empty());
  EXPECT_EQ(cache.state().refusal, "");
  EXPECT_FALSE(fs::exists(settings_.folder));  // looking creates nothing
  EXPECT_EQ(cache.clear(), 0U);
  cache.find(scale_kernel(1), architecture("sm_90a"));
  cache.find(scale_kernel(2), architecture("sm_80"));
  overwrite(fs::path(settings_.folder) / "half.cubin.1.part", "half");
  overwrite(fs::path(settings_.folder) / "damaged.cubin", "damaged");

  const KernelCacheState state = cache.state();
  EXPECT_EQ(state.folder, settings_.folder);
  ASSERT_EQ(state.kernels.size(), 3U);
  std::uint64_t bytes = 0;
  int damaged = 0;
  for (const CachedKernel& kernel : state.kernels) {
    bytes += kernel.bytes;
    EXPECT_GT(kernel.used, 1'600'000'000);
    damaged += kernel.damaged ? 1 : 0;
    EXPECT_EQ(kernel.name, kernel.damaged ? "" : "scale");
    EXPECT_EQ(kernel.compiler, kernel.damaged ? "" : "nvrtc 13.0");
  }
  EXPECT_EQ(damaged, 1);
  EXPECT_EQ(state.bytes, bytes);
  EXPECT_EQ(cache.clear(), 3U);
  EXPECT_TRUE(fs::is_empty(settings_.folder));
  EXPECT_EQ(origin(scale_kernel(1)), KernelOrigin::kCompiled);
}

TEST_F(KernelCacheTest, ACarriedFolderIsSearchedFirstAndNeedsNoCompiler) {
  const std::string carried = base_ / "carried";
  const FoundCubin built = find();
  const std::string path = carry(*built.cubin, carried);
  EXPECT_EQ(fs::path(path).parent_path(), carried);
  settings_.carried = carried;
  EXPECT_EQ(origin(), KernelOrigin::kCarried);
  compiler_ = "";  // none here
  settings_.folder = "";
  EXPECT_EQ(origin(), KernelOrigin::kCarried);
  EXPECT_EQ(find().cubin->compiler, "nvrtc 13.0");
  EXPECT_EQ(compilations_, 1);
  EXPECT_EQ(origin(scale_kernel(4)), KernelOrigin::kCompiled);

  const std::string whole = contents(path);
  overwrite(path, whole.substr(0, whole.size() - 1));
  EXPECT_EQ(origin(), KernelOrigin::kCompiled);
  EXPECT_EQ(contents(path).size(), whole.size() - 1);  // only read
}

TEST_F(KernelCacheTest, AFailureIsNotKept) {
  bool fails = true;
  const auto compile_well = settings_.compile;
  settings_.compile = [&](const KernelSource& source, const Architecture& target) {
    if (fails) throw InternalError("it does not compile");
    return compile_well(source, target);
  };
  KernelCache cache(settings_);
  EXPECT_THROW(cache.find(scale_kernel(), architecture("sm_90a")), InternalError);
  EXPECT_THROW(cache.find(scale_kernel(), architecture("sm_90a")), InternalError);
  EXPECT_TRUE(fs::is_empty(settings_.folder));  // no lock is left
  fails = false;
  EXPECT_EQ(cache.find(scale_kernel(), architecture("sm_90a")).origin, KernelOrigin::kCompiled);
}

TEST_F(KernelCacheTest, ManyThreadsCompileOnce) {
  const auto compile_well = settings_.compile;
  settings_.compile = [&](const KernelSource& source, const Architecture& target) {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    return compile_well(source, target);
  };
  for (const std::string& folder : {settings_.folder, std::string()}) {  // on disk too, and in memory alone
    settings_.folder = folder;
    compilations_ = 0;
    KernelCache cache(settings_);
    std::vector<std::thread> threads;
    for (int i = 0; i < 8; ++i)
      threads.emplace_back([&, i] { cache.find(scale_kernel(i % 2), architecture("sm_90a")); });
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(compilations_, 2);
  }
}

// Runs `child` in a process of its own, which ends with its result.
template <class Child>
pid_t start(const Child& child) {
  const pid_t process = fork();
  if (process == 0) _exit(child());
  return process;
}

TEST_F(KernelCacheTest, ManyProcessesCompileOnce) {
  const auto compile_well = settings_.compile;
  settings_.compile = [&](const KernelSource& source, const Architecture& target) {
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
    return compile_well(source, target);
  };
  std::vector<pid_t> processes;
  for (int i = 0; i < 6; ++i)
    processes.push_back(start([&] { return origin() == KernelOrigin::kCompiled ? 1 : 0; }));
  int compiled = 0;
  for (const pid_t process : processes) {
    int status = 0;
    ASSERT_EQ(waitpid(process, &status, 0), process);
    ASSERT_TRUE(WIFEXITED(status));
    compiled += WEXITSTATUS(status);
  }
  EXPECT_EQ(compiled, 1);
  EXPECT_EQ(contents(file()), to_file(*find().cubin));  // one file, and no lock
}

TEST_F(KernelCacheTest, AProcessThatDiesHoldingTheLockBlocksNobody) {
  settings_.compile = [&](const KernelSource&, const Architecture&) -> Cubin { _exit(7); };
  const CacheSettings deadly = settings_;
  const pid_t process = start([&] {
    KernelCache(deadly).find(scale_kernel(), architecture("sm_90a"));
    return 0;
  });
  int status = 0;
  ASSERT_EQ(waitpid(process, &status, 0), process);
  ASSERT_TRUE(WIFEXITED(status));
  ASSERT_EQ(WEXITSTATUS(status), 7);
  ASSERT_TRUE(file().string().ends_with(".lock"));

  settings_.compile = [](const KernelSource& source, const Architecture&) {
    Cubin cubin;
    cubin.compiler = "nvrtc 13.0";
    cubin.image = source.text;
    return cubin;
  };
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_EQ(origin(), KernelOrigin::kCompiled);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(20));
  EXPECT_EQ(origin(), KernelOrigin::kDisk);
  EXPECT_TRUE(file().string().ends_with(".cubin"));
}

TEST_F(KernelCacheTest, TheCompilersOwnCubinsSurviveTheDisk) {
  FUSEBLOCK_NEEDS_COMPILER();
  settings_.compile = compile;
  settings_.compiler_version = compiler_version;
  const FoundCubin built = find();
  const FoundCubin found = find();
  EXPECT_EQ(built.origin, KernelOrigin::kCompiled);
  EXPECT_EQ(found.origin, KernelOrigin::kDisk);
  EXPECT_EQ(built.cubin->image, found.cubin->image);
  EXPECT_EQ(built.cubin->resources(), found.cubin->resources());
}

}  // namespace
}  // namespace fuseblock::jit
