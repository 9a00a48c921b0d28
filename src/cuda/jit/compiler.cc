#include "cuda/jit/compiler.h"

#include <dlfcn.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <mutex>
#include <optional>

#include "cuda/jit/cuda_types.h"
#include "cuda/jit/driver.h"
#include "fuseblock/error.h"

namespace fuseblock::jit {
namespace {

// The functions of NVRTC that are used, and which NVRTC they are of.
struct Nvrtc {
  // NOLINTBEGIN(readability-identifier-naming): the names are NVIDIA's
  const char* (*nvrtcGetErrorString)(nvrtcResult result);
  nvrtcResult (*nvrtcVersion)(int* major, int* minor);
  nvrtcResult (*nvrtcGetNumSupportedArchs)(int* count);
  nvrtcResult (*nvrtcGetSupportedArchs)(int* architectures);
  nvrtcResult (*nvrtcCreateProgram)(nvrtcProgram* program, const char* text, const char* name, int headers,
                                    const char* const* header_texts, const char* const* header_names);
  nvrtcResult (*nvrtcDestroyProgram)(nvrtcProgram* program);
  nvrtcResult (*nvrtcCompileProgram)(nvrtcProgram program, int count, const char* const* options);
  nvrtcResult (*nvrtcGetCUBINSize)(nvrtcProgram program, std::size_t* bytes);
  nvrtcResult (*nvrtcGetCUBIN)(nvrtcProgram program, char* cubin);
  nvrtcResult (*nvrtcGetProgramLogSize)(nvrtcProgram program, std::size_t* bytes);
  nvrtcResult (*nvrtcGetProgramLog)(nvrtcProgram program, char* log);
  // NOLINTEND(readability-identifier-naming)
  int major = 0;
  int minor = 0;

  std::string version() const { return "nvrtc " + std::to_string(major) + "." + std::to_string(minor); }
};

std::string find_functions(void* library, Nvrtc& functions) {
  std::string missing;
  const auto find = [&]<class Function>(Function*& function, const char* symbol) {
    function = reinterpret_cast<Function*>(dlsym(library, symbol));
    if (function == nullptr && missing.empty()) missing = symbol;
  };
  find(functions.nvrtcGetErrorString, "nvrtcGetErrorString");
  find(functions.nvrtcVersion, "nvrtcVersion");
  find(functions.nvrtcGetNumSupportedArchs, "nvrtcGetNumSupportedArchs");
  find(functions.nvrtcGetSupportedArchs, "nvrtcGetSupportedArchs");
  find(functions.nvrtcCreateProgram, "nvrtcCreateProgram");
  find(functions.nvrtcDestroyProgram, "nvrtcDestroyProgram");
  find(functions.nvrtcCompileProgram, "nvrtcCompileProgram");
  find(functions.nvrtcGetCUBINSize, "nvrtcGetCUBINSize");
  find(functions.nvrtcGetCUBIN, "nvrtcGetCUBIN");
  find(functions.nvrtcGetProgramLogSize, "nvrtcGetProgramLogSize");
  find(functions.nvrtcGetProgramLog, "nvrtcGetProgramLog");
  return missing;
}

// The compiler in a file; where there is none to be used, `reason` says why.
std::optional<Nvrtc> open_compiler(const std::string& file, std::string& reason) {
  void* library = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    const char* words = dlerror();  // NOLINT(concurrency-mt-unsafe): glibc keeps one for each thread
    reason = words == nullptr ? file + ": cannot be opened" : words;
    return std::nullopt;
  }
  Nvrtc functions = {};
  if (const std::string missing = find_functions(library, functions); !missing.empty())
    reason = file + ": has no " + missing;
  else if (functions.nvrtcVersion(&functions.major, &functions.minor) != NVRTC_SUCCESS)
    reason = file + ": does not tell its version";
  else if (const std::string newer =
               reason_to_pass_over(1000 * functions.major + 10 * functions.minor, driver_version());
           !newer.empty())
    reason = file + ": " + newer;
  if (reason.empty()) return functions;
  dlclose(library);
  return std::nullopt;
}

// The compiler of this process, looked for once, and again where the folder of wheels comes later.
class Finder {
 public:
  void set_folder(std::string folder) {
    const std::scoped_lock lock(mutex_);
    folder_ = std::move(folder);
    if (!found_) looked_ = false;
  }

  std::optional<Nvrtc> find(std::string* reason = nullptr) {
    const std::scoped_lock lock(mutex_);
    if (!looked_) look();
    if (reason != nullptr) *reason = found_ ? "" : reason_;
    return found_;
  }

 private:
  void look() {
    looked_ = true;
    reason_ = "there is no run-time compiler (NVRTC); looked at";
    const char* own =
        std::getenv("FUSEBLOCK_NVRTC");  // NOLINT(concurrency-mt-unsafe): nothing here sets variables
    const bool chosen = own != nullptr && *own != '\0';
    for (const std::string& file : chosen ? std::vector<std::string>{own} : compiler_files(folder_)) {
      std::string reason;
      found_ = open_compiler(file, reason);
      if (found_) return;
      reason_ += "\n  " + reason;
    }
  }

  std::mutex mutex_;
  std::string folder_;
  bool looked_ = false;
  std::optional<Nvrtc> found_;
  std::string reason_;
};

Finder& finder() {
  static Finder finder;
  return finder;
}

void check(const Nvrtc& nvrtc, nvrtcResult result, const char* what) {
  if (result != NVRTC_SUCCESS)
    throw InternalError(std::string(what) + ": " + nvrtc.nvrtcGetErrorString(result));
}

bool knows(const Nvrtc& nvrtc, const Architecture& architecture) {
  int count = 0;
  check(nvrtc, nvrtc.nvrtcGetNumSupportedArchs(&count), "nvrtcGetNumSupportedArchs");
  std::vector<int> known(static_cast<std::size_t>(count));
  check(nvrtc, nvrtc.nvrtcGetSupportedArchs(known.data()), "nvrtcGetSupportedArchs");
  return std::ranges::find(known, 10 * architecture.compute_major + architecture.compute_minor) !=
         known.end();
}

// A program of NVRTC's, destroyed at the end.
class Program {
 public:
  Program(const Nvrtc& nvrtc, const KernelSource& source) : nvrtc_(nvrtc) {
    const std::string file = source.name + ".cu";
    check(nvrtc_,
          nvrtc_.nvrtcCreateProgram(&program_, source.text.c_str(), file.c_str(), 0, nullptr, nullptr),
          "nvrtcCreateProgram");
  }
  ~Program() { nvrtc_.nvrtcDestroyProgram(&program_); }
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;

  nvrtcResult compile(const std::vector<std::string>& options) const {
    std::vector<const char*> texts;
    texts.reserve(options.size());
    for (const std::string& option : options) texts.push_back(option.c_str());
    return nvrtc_.nvrtcCompileProgram(program_, static_cast<int>(texts.size()), texts.data());
  }

  std::string log() const {
    std::size_t bytes = 0;
    check(nvrtc_, nvrtc_.nvrtcGetProgramLogSize(program_, &bytes), "nvrtcGetProgramLogSize");
    std::string text(bytes, '\0');
    check(nvrtc_, nvrtc_.nvrtcGetProgramLog(program_, text.data()), "nvrtcGetProgramLog");
    text.resize(text.find_last_not_of(std::string_view("\0\n", 2)) + 1);
    return text;
  }

  std::string cubin() const {
    std::size_t bytes = 0;
    check(nvrtc_, nvrtc_.nvrtcGetCUBINSize(program_, &bytes), "nvrtcGetCUBINSize");
    std::string image(bytes, '\0');
    check(nvrtc_, nvrtc_.nvrtcGetCUBIN(program_, image.data()), "nvrtcGetCUBIN");
    return image;
  }

 private:
  const Nvrtc& nvrtc_;
  nvrtcProgram program_ = nullptr;
};

// The message of a compilation that failed: everything that is needed to see why.
std::string failure(const KernelSource& source, const std::vector<std::string>& options, const Nvrtc& nvrtc,
                    const std::string& what, const std::string& log) {
  std::string message = "the kernel " + source.name + " " + what + " (" + nvrtc.version();
  for (const std::string& option : options) message += " " + option;
  message += ")";
  if (!source.description.empty()) message += "\n" + source.description;
  return log.empty() ? message : message + "\n" + log;
}

}  // namespace

const KernelResources& Cubin::resources() const {
  for (const KernelResources& kernel : kernels)
    if (kernel.entry == entry) return kernel;
  throw InternalError("the kernel " + name + ": nothing is known of its entry " + entry);
}

void set_compiler_folder(std::string folder) { finder().set_folder(std::move(folder)); }

std::string compiler_version() {
  const std::optional<Nvrtc> nvrtc = finder().find();
  return nvrtc ? nvrtc->version() : "";
}

std::string no_compiler_reason() {
  std::string reason;
  finder().find(&reason);
  return reason;
}

std::vector<std::string> compiler_files(const std::string& wheels) {
  std::vector<std::string> files = {"libnvrtc.so.13", "libnvrtc.so.12"};
  if (!wheels.empty()) {
    const std::filesystem::path folder(wheels);
    files.push_back(folder / "nvidia/cu13/lib/libnvrtc.so.13");
    files.push_back(folder / "nvidia/cuda_nvrtc/lib/libnvrtc.so.12");
  }
  files.emplace_back("/usr/local/cuda/lib64/libnvrtc.so.13");
  files.emplace_back("/usr/local/cuda/lib64/libnvrtc.so.12");
  return files;
}

std::string reason_to_pass_over(int compiler, int driver) {
  if (driver == 0 || compiler <= driver) return "";
  const auto text = [](int version) {
    return std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
  };
  return "its version " + text(compiler) + " is newer than the driver's, " + text(driver);
}

Cubin compile(const KernelSource& source, const Architecture& architecture) {
  std::string reason;
  const std::optional<Nvrtc> nvrtc = finder().find(&reason);
  if (!nvrtc) throw NotSupportedError("the kernel " + source.name + " cannot be compiled: " + reason);
  if (!knows(*nvrtc, architecture))
    throw NotSupportedError("the kernel " + source.name + " cannot be compiled: " + nvrtc->version() +
                            " does not know " + architecture.name);

  std::vector<std::string> options = source.options;
  options.push_back(std::string("--gpu-architecture=") + architecture.name);
  options.emplace_back("--ptxas-options=-v");
  // NVRTC's own cache would leave out what the assembler says; a compiler without one does not know the option.
  options.emplace_back("--no-cache");
  std::optional<Program> program(std::in_place, *nvrtc, source);
  nvrtcResult result = program->compile(options);
  if (result == NVRTC_ERROR_INVALID_OPTION) {
    options.pop_back();
    program.emplace(*nvrtc, source);
    result = program->compile(options);
  }
  if (result != NVRTC_SUCCESS)
    throw InternalError(failure(source, options, *nvrtc,
                                std::string("does not compile: ") + nvrtc->nvrtcGetErrorString(result),
                                program->log()));

  Cubin cubin;
  cubin.name = source.name;
  cubin.entry = source.entry;
  cubin.architecture = architecture.name;
  cubin.compiler = nvrtc->version();
  cubin.image = program->cubin();
  cubin.log = program->log();
  cubin.kernels = resources_in_log(cubin.log);
  if (std::ranges::find(cubin.kernels, source.entry, &KernelResources::entry) == cubin.kernels.end())
    throw InternalError(
        failure(source, options, *nvrtc, "has no entry `" + source.entry + "` in its text", cubin.log));
  return cubin;
}

}  // namespace fuseblock::jit
