// The functions of NVRTC that src/cuda/jit/compiler.cc opens: a kernel's text becomes C++ (translate.h) and, by the compiler
// that built this library, a shared object, whose bytes are the cubin.
#include <dlfcn.h>
#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include "cuda/jit/cuda_types.h"
#include "translate.h"

using namespace fuseblock::
    jit;  // NOLINT(google-build-using-namespace): this file stands in for their library

namespace fuseblock::jit {

// NOLINTNEXTLINE(bugprone-reserved-identifier,readability-identifier-naming): the name is NVIDIA's
struct _nvrtcProgram {
  std::string text;
  std::string name;
  std::string log;
  std::string image;
};

}  // namespace fuseblock::jit

namespace fuseblock_emulated {
namespace {

constexpr int kMajor = 99;
constexpr int kMinors = 10'000;

std::string file_bytes(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

// Whether products and sums become one instruction with one rounding, as NVIDIA's compiler makes them.
bool contracts() {
  // NOLINTNEXTLINE(concurrency-mt-unsafe): nothing here sets variables
  const char* text = std::getenv("FUSEBLOCK_EMULATED_CONTRACT");
  return text != nullptr && std::strcmp(text, "1") == 0;
}

// The compiler's options for rounding. Its first level of optimisation does not contract.
std::vector<std::string> rounding_options() {
  if (!contracts()) return {"-O1", "-ffp-contract=off"};
#if defined(__x86_64__)
  return {"-O2", "-ffp-contract=fast", "-mfma"};
#else
  return {"-O2", "-ffp-contract=fast"};
#endif
}

// The part of the version that tells one emulator from another, so that the cache keeps their kernels apart.
int minor_version() {
  static const int kMinor = [] {
    std::string all = std::string(contracts() ? "contracted" : "") +
                      file_bytes(std::filesystem::path(FUSEBLOCK_EMULATOR_DIR) / "cuda_language.h") +
                      file_bytes(std::filesystem::path(FUSEBLOCK_EMULATOR_DIR) / "matrix.h") +
                      file_bytes(std::filesystem::path(FUSEBLOCK_EMULATOR_DIR) / "arrivals.h") +
                      file_bytes(std::filesystem::path(FUSEBLOCK_EMULATOR_DIR) / "runtime.h");
    Dl_info info = {};
    if (dladdr(&kMajor, &info) != 0 && info.dli_fname != nullptr) all += file_bytes(info.dli_fname);
    std::uint32_t digest = 2166136261U;
    for (const char c : all) digest = (digest ^ static_cast<unsigned char>(c)) * 16777619U;
    return static_cast<int>(digest % kMinors);
  }();
  return kMinor;
}

// A folder that is gone with it.
class Scratch {
 public:
  Scratch() {
    std::string form = std::filesystem::temp_directory_path() / "fuseblock-emulated-XXXXXX";
    if (mkdtemp(form.data()) != nullptr) path_ = form;
  }
  ~Scratch() {
    std::error_code error;
    if (!path_.empty()) std::filesystem::remove_all(path_, error);
  }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

// The status of a program whose words go to a file.
int run_program(const std::vector<std::string>& words, const std::filesystem::path& log) {
  std::vector<char*> arguments;
  for (const std::string& word : words) arguments.push_back(const_cast<char*>(word.c_str()));
  arguments.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, 1, log.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
  posix_spawn_file_actions_adddup2(&actions, 1, 2);
  pid_t child = 0;
  const int failed = posix_spawnp(&child, arguments[0], &actions, nullptr, arguments.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  if (failed != 0) return -1;
  int status = 0;
  while (waitpid(child, &status, 0) < 0)
    if (errno != EINTR) return -1;
  return status;
}

// What ptxas would say, with the numbers that there are here.
std::string assembler_words(const std::vector<std::string>& kernels, unsigned int shared_bytes) {
  std::string words;
  for (const std::string& kernel : kernels)
    words += "ptxas info    : Compiling entry function '" + kernel +
             "' for 'emulated'\nptxas info    : Function properties for " + kernel +
             "\n    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads\n" +
             "ptxas info    : Used 32 registers, used 1 barriers, " + std::to_string(shared_bytes) +
             " bytes smem\n";
  return words;
}

nvrtcResult compile(_nvrtcProgram& program) {
  const Translation translation = cpp_of_cuda(program.text);
  const Scratch scratch;
  const std::filesystem::path source = scratch.path() / "kernel.cc";
  const std::filesystem::path object = scratch.path() / "kernel.so";
  const std::filesystem::path log = scratch.path() / "log";
  std::ofstream(source) << "#include \"" FUSEBLOCK_EMULATOR_DIR "/cuda_language.h\"\n"
                        << "#line 1 \"" << program.name << "\"\n"
                        << translation.text
                        << "\nextern \"C\" __attribute__((visibility(\"default\"))) const char "
                           "fuseblock_emulated_text[] = R\"fuseblock("
                        << program.text << ")fuseblock\";\n";
  const std::filesystem::path compiled = scratch.path() / "kernel.o";
  std::vector<std::string> words = {FUSEBLOCK_EMULATOR_COMPILER,
                                    "-x",
                                    "c++",
                                    "-std=c++17",
                                    "-w",
                                    "-fPIC",
                                    "-c",
                                    "-fvisibility=hidden",
                                    "-fno-strict-aliasing",
                                    "-fno-exceptions",
                                    "-fno-rtti",
                                    "-fsanitize=alignment,bounds",
                                    "-o",
                                    compiled.string(),
                                    source.string()};
  for (std::string& option : rounding_options()) words.push_back(std::move(option));
  int status = run_program(words, log);
  // Without -fsanitize, whose functions are those of cuda_language.h.
  if (status == 0)
    status = run_program(
        {FUSEBLOCK_EMULATOR_COMPILER, "-shared", "-o", object.string(), compiled.string(), "-lm"}, log);
  program.log = file_bytes(log);
  program.image = file_bytes(object);
  if (status != 0 || program.image.empty()) {
    if (program.log.empty()) program.log = std::string(FUSEBLOCK_EMULATOR_COMPILER) + " cannot be run";
    return NVRTC_ERROR_COMPILATION;
  }
  unsigned int shared_bytes = 0;
  if (void* library = dlopen(object.c_str(), RTLD_NOW | RTLD_LOCAL)) {
    if (const void* bytes = dlsym(library, "fuseblock_emulated_static_bytes"))
      std::memcpy(&shared_bytes, bytes, sizeof(shared_bytes));
    dlclose(library);
  } else {
    program.log += dlerror();  // NOLINT(concurrency-mt-unsafe): glibc keeps one for each thread
    return NVRTC_ERROR_COMPILATION;
  }
  program.log += assembler_words(translation.kernels, shared_bytes);
  return NVRTC_SUCCESS;
}

}  // namespace
}  // namespace fuseblock_emulated

#define FUSEBLOCK_EXPORT extern "C" __attribute__((visibility("default")))

// NOLINTBEGIN(readability-identifier-naming): the names are NVIDIA's
FUSEBLOCK_EXPORT const char* nvrtcGetErrorString(nvrtcResult result);
FUSEBLOCK_EXPORT nvrtcResult nvrtcVersion(int* major, int* minor);
FUSEBLOCK_EXPORT nvrtcResult nvrtcGetNumSupportedArchs(int* count);
FUSEBLOCK_EXPORT nvrtcResult nvrtcGetSupportedArchs(int* architectures);
FUSEBLOCK_EXPORT nvrtcResult nvrtcCreateProgram(nvrtcProgram* program, const char* text, const char* name,
                                                int headers, const char* const* header_texts,
                                                const char* const* header_names);
FUSEBLOCK_EXPORT nvrtcResult nvrtcDestroyProgram(nvrtcProgram* program);
FUSEBLOCK_EXPORT nvrtcResult nvrtcCompileProgram(nvrtcProgram program, int count, const char* const* options);
FUSEBLOCK_EXPORT nvrtcResult nvrtcGetCUBINSize(nvrtcProgram program, std::size_t* bytes);
FUSEBLOCK_EXPORT nvrtcResult nvrtcGetCUBIN(nvrtcProgram program, char* cubin);
FUSEBLOCK_EXPORT nvrtcResult nvrtcGetProgramLogSize(nvrtcProgram program, std::size_t* bytes);
FUSEBLOCK_EXPORT nvrtcResult nvrtcGetProgramLog(nvrtcProgram program, char* log);

const char* nvrtcGetErrorString(nvrtcResult result) {
  switch (result) {
    case NVRTC_SUCCESS: return "NVRTC_SUCCESS";
    case NVRTC_ERROR_INVALID_OPTION: return "NVRTC_ERROR_INVALID_OPTION";
    case NVRTC_ERROR_COMPILATION: return "NVRTC_ERROR_COMPILATION";
  }
  return "NVRTC_ERROR";
}

nvrtcResult nvrtcVersion(int* major, int* minor) {
  *major = fuseblock_emulated::kMajor;
  *minor = fuseblock_emulated::minor_version();
  return NVRTC_SUCCESS;
}

nvrtcResult nvrtcGetNumSupportedArchs(int* count) {
  *count = 5;
  return NVRTC_SUCCESS;
}

nvrtcResult nvrtcGetSupportedArchs(int* architectures) {
  constexpr std::array kKnown = {80, 89, 90, 100, 120};
  std::copy(kKnown.begin(), kKnown.end(), architectures);
  return NVRTC_SUCCESS;
}

nvrtcResult nvrtcCreateProgram(nvrtcProgram* program, const char* text, const char* name, int /*headers*/,
                               const char* const* /*header_texts*/, const char* const* /*header_names*/) {
  *program = new _nvrtcProgram{text, name, "", ""};
  return NVRTC_SUCCESS;
}

nvrtcResult nvrtcDestroyProgram(nvrtcProgram* program) {
  delete *program;
  *program = nullptr;
  return NVRTC_SUCCESS;
}

nvrtcResult nvrtcCompileProgram(nvrtcProgram program, int /*count*/, const char* const* /*options*/) {
  try {
    return fuseblock_emulated::compile(*program);
  } catch (const std::exception& error) {
    program->log = program->name + ": " + error.what();
    return NVRTC_ERROR_COMPILATION;
  }
}

nvrtcResult nvrtcGetCUBINSize(nvrtcProgram program, std::size_t* bytes) {
  *bytes = program->image.size();
  return NVRTC_SUCCESS;
}

nvrtcResult nvrtcGetCUBIN(nvrtcProgram program, char* cubin) {
  std::memcpy(cubin, program->image.data(), program->image.size());
  return NVRTC_SUCCESS;
}

nvrtcResult nvrtcGetProgramLogSize(nvrtcProgram program, std::size_t* bytes) {
  *bytes = program->log.size() + 1;
  return NVRTC_SUCCESS;
}

nvrtcResult nvrtcGetProgramLog(nvrtcProgram program, char* log) {
  std::memcpy(log, program->log.c_str(), program->log.size() + 1);
  return NVRTC_SUCCESS;
}
// NOLINTEND(readability-identifier-naming)
