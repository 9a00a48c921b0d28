#include "cuda/jit/compile_processes.h"

#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <exception>
#include <new>
#include <thread>

#include "cuda/jit/cache.h"
#include "fuseblock/error.h"

namespace fuseblock::jit {
namespace {

// Memory that forks share: which source is next, and by source whether it is compiled.
class Shared {
 public:
  explicit Shared(std::size_t count)
      : bytes_(sizeof(std::atomic<std::size_t>) * (2 + count)),
        memory_(::mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0)) {
    if (memory_ == MAP_FAILED) throw UserError("there is not enough memory for the processes that compile");
    numbers_ = new (memory_) std::atomic<std::size_t>[2 + count];
    for (std::size_t i = 0; i < 2 + count; ++i) numbers_[i] = 0;
  }
  ~Shared() { ::munmap(memory_, bytes_); }
  Shared(const Shared&) = delete;
  Shared& operator=(const Shared&) = delete;

  std::size_t take() { return numbers_[0]++; }
  std::size_t compiled() const { return numbers_[1]; }
  void set_compiled(std::size_t source) {
    numbers_[2 + source] = 1;
    ++numbers_[1];
  }
  bool is_compiled(std::size_t source) const { return numbers_[2 + source] != 0; }

 private:
  std::size_t bytes_;
  void* memory_;
  std::atomic<std::size_t>* numbers_ = nullptr;
};

// What a process does until it ends.
void compile_some(const std::vector<KernelSource>& sources, const Architecture& architecture,
                  const CompileProcesses& how, Shared& shared) {
  for (std::size_t i = shared.take(); i < sources.size(); i = shared.take()) {
    if (how.wanted && !how.wanted(i)) continue;
    try {
      kernel_cache().find(sources[i], architecture);
      shared.set_compiled(i);
    } catch (const Error&) {  // NOLINT(bugprone-empty-catch): whoever needs it compiles it again and is told
    }
  }
}

}  // namespace

std::vector<bool> compile_in_processes(const std::vector<KernelSource>& sources,
                                       const Architecture& architecture, const CompileProcesses& how) {
  std::vector<bool> result(sources.size(), false);
  // Found here, so that the forks need not look for it.
  if (compiler_version().empty() || !kernel_cache().state().refusal.empty()) return result;
  Shared shared(sources.size());
  const pid_t parent = ::getpid();
  std::vector<pid_t> processes;
  const std::size_t count = std::min(static_cast<std::size_t>(std::max(how.count, 1)), sources.size());
  for (std::size_t i = 0; i < count; ++i) {
    const pid_t process = ::fork();
    if (process < 0) break;
    if (process > 0) {
      processes.push_back(process);
      continue;
    }
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    try {
      if (::getppid() == parent) compile_some(sources, architecture, how, shared);
    } catch (const std::exception&) {
      ::_exit(1);
    }
    ::_exit(0);
  }
  while (!processes.empty()) {
    if (how.progress) how.progress(shared.compiled());
    std::erase_if(processes, [](pid_t process) { return ::waitpid(process, nullptr, WNOHANG) != 0; });
    if (!processes.empty()) std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  for (std::size_t i = 0; i < sources.size(); ++i) result[i] = shared.is_compiled(i);
  return result;
}

}  // namespace fuseblock::jit
