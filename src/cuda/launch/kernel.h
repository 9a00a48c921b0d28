// One launch of a plan: its text, its compiled form, its arguments.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "cuda/emit/kernel_writer.h"
#include "cuda/gpu.h"
#include "cuda/jit/module.h"
#include "plan/engine.h"
#include "plan/slot_memory.h"

namespace fuseblock::cuda {

// What a run hands to each of its launches.
struct RunContext {
  const jit::Driver* driver = nullptr;
  jit::CUstream stream = nullptr;
  const Gpu* gpu = nullptr;
  const std::vector<SlotView>* views = nullptr;
  std::byte* workspace = nullptr;
  bool behind_kernel = false;  // whether what was put into the stream before is a kernel of this run
};

// An argument behind the tensors: a number, an address that lies so far behind the counters, or the first of so many tags
// (launch/tags.h).
struct Scalar {
  enum class Kind : std::uint8_t { kNumber, kInCounters, kTags };
  Kind kind = Kind::kNumber;
  std::int64_t value = 0;

  static Scalar number(std::int64_t value) { return {Kind::kNumber, value}; }
  static Scalar tags(std::int64_t count) { return {Kind::kTags, count}; }
};

// Those of a kernel's text, in its order, by their names.
std::vector<Scalar> scalars_of(const EmittedKernel& kernel, const std::map<std::string, Scalar>& known);
// Addresses behind the counters by name.
std::map<std::string, Scalar> in_counters(const std::map<std::string, std::size_t>& places);

// The arguments of a launch as the device code's struct Arguments has them: eight bytes each.
class Parameters {
 public:
  // Throws NotSupportedError where a kernel takes more than the driver lets it.
  explicit Parameters(const EmittedKernel& kernel);

  void add_tensors(const EmittedKernel& kernel, const std::vector<SlotView>& views);
  void add(std::int64_t number) { words_[count_++] = static_cast<std::uint64_t>(number); }
  void add(const Scalar& scalar, const std::byte* counters);
  void add(const std::byte* address) { words_[count_++] = reinterpret_cast<std::uintptr_t>(address); }
  // As the driver takes them; valid as long as this lives.
  void** pointers() { return pointer_.data(); }

 private:
  static constexpr std::size_t kMostWords = 512;
  std::array<std::uint64_t, kMostWords> words_;
  std::size_t count_ = 0;
  std::array<void*, 1> pointer_;
};

// How many blocks of how many threads.
struct LaunchShape {
  unsigned int blocks = 1;
  unsigned int threads = 1;
  bool cooperative = false;  // all blocks wait for each other
  unsigned int cluster = 1;  // blocks
  bool overlaps = false;  // begins beside the kernel before it in the stream, and waits for its end by itself
};

// A kernel's text, compiled and loaded when it is first needed.
class LoadedKernel {
 public:
  explicit LoadedKernel(jit::KernelSource source, int dynamic_shared_bytes = 0)
      : source_(std::move(source)), dynamic_shared_bytes_(dynamic_shared_bytes) {}

  const jit::KernelSource& source() const { return source_; }
  int dynamic_shared_bytes() const { return dynamic_shared_bytes_; }
  // In the current context.
  void load(const Gpu& gpu) const;
  // Throws UserError where the kernel is not loaded yet and the stream is captured.
  void launch(const RunContext& run, const LaunchShape& shape, Parameters& parameters) const;

 private:
  jit::KernelSource source_;
  int dynamic_shared_bytes_;
  mutable std::once_flag once_;
  mutable std::atomic<bool> loaded_ = false;
  mutable jit::Kernel kernel_;
};

// A launch for a program that makes it by itself. Texts are expressions of Python over the extents n, c, d, h, w of the
// kernel's domain, `multiprocessors` of the GPU, and the values before them.
struct LaunchDescription {
  struct Named {
    std::string name;
    std::string text;
  };
  // A list of numbers for samples, channels and parts of them, whose sums over the batch are an output.
  struct BatchSum {
    std::string list;
    int output;  // slot
    std::int64_t channels, parts;
  };
  jit::KernelSource source;
  std::vector<int> tensors = {};  // slots, in the order of Arguments
  bool addresses = false;         // whether Arguments have tensors' addresses alone, without strides
  Extents domain = {1, 1, 1, 1, 1};
  std::vector<Named> values =
      {};  // worked out first; a function that one calls is in python/fuseblock/export/divide.py
  std::string blocks = "1";  // of the grid
  unsigned int threads = 1;
  int shared_bytes = 0;               // dynamic
  std::string cooperative = "False";  // whether all blocks wait for each other
  unsigned int cluster = 1;           // blocks
  // Of Arguments, behind the tensors; an empty one is the address of what is called so below.
  std::vector<Named> scalars = {};
  std::vector<Named> counters = {};          // bytes of memory that are zero when the launch begins
  std::vector<Named> scratch = {};           // and of other memory
  std::vector<BatchSum> batch_sums = {};     // left to whoever launches
  std::vector<std::string> conditions = {};  // without which the kernel's constants do not hold
};

// A way to divide a launch's work.
struct Division {
  std::string kernel;  // its name
  std::string shape;   // divisions of one shape are alike: they differ in their tiles
  std::string text;    // every number that the cost model may choose, as the table of tuned divisions has it
  double cost = 0;     // by the cost model, in a unit that divisions of one kernel share
};
// Of one shape that are worth measuring.
constexpr std::size_t kDivisionsOfShape = 4;

// Whether the tensors of a kernel are dense in a run, and those over positions aligned to vectors of 16 bytes.
bool has_dense_vectors(const Schedule& schedule, const EmittedKernel& kernel,
                       const std::vector<SlotView>& views);

class KernelLaunch {
 public:
  KernelLaunch() = default;
  KernelLaunch(const KernelLaunch&) = delete;
  KernelLaunch& operator=(const KernelLaunch&) = delete;
  virtual ~KernelLaunch() = default;

  // What is compiled before the first run.
  virtual std::vector<jit::KernelSource> sources() const = 0;
  // What it launches where tensors are as their types say; names and digests of the sources unless it knows more.
  virtual std::vector<PlannedKernel> planned() const;
  // What its division is looked up by in the table of tuned ones (cuda/tuned.h); empty where it has one alone.
  virtual std::string problem() const;
  // The divisions that are worth measuring; none where there is one alone.
  virtual std::vector<Division> divisions() const;
  // Takes its places in the part of the workspace that is zero when a run begins, if a launch needs that.
  virtual void reserve(WorkspaceLayout& counters);
  // Whether what it has reserved there must be zero when a run over these views begins. `replayed`: the launch is captured, and
  // words of an earlier replay bear the same tags as its own (launch/tags.h).
  virtual bool needs_zeros(const std::vector<SlotView>& views, bool replayed) const;
  // Takes other places in the workspace.
  virtual void reserve_scratch(WorkspaceLayout& layout);
  // Compiles and loads in the current context.
  virtual void load(const Gpu& gpu) = 0;
  // The launch that dense tensors get, and only they; its kernel takes any extents that fulfil its conditions. `like` is
  // the same launch for other extents, whose constants are taken; null: its own. Throws NotSupportedError for a kernel
  // that has no description.
  virtual LaunchDescription describe(const KernelLaunch* like) const;
  // The launch that is described in the place of this one: another, where this one's kernel is made for its extents.
  virtual const KernelLaunch& described() const { return *this; }
  // Whether it puts a kernel of its own into the stream last.
  virtual bool is_kernel() const { return true; }
  // `counters` is where those of all kernels begin.
  virtual void launch(const RunContext& run, std::byte* counters) const = 0;
};

// What plans say of every kernel: its steps, its digest, and the bytes of the tensors that it reads and writes.
PlannedKernel planned_kernel(const Schedule& schedule, const KernelCut& cut, const EmittedKernel& kernel);
// `1 tile`, `8 tiles`.
std::string counted(std::int64_t count, const std::string& what);
// Bytes of the values over positions that the kernel's sweeps behind the first read again.
double bytes_read_again(const Schedule& schedule, const KernelCut& cut);

jit::KernelSource source_of(const EmittedKernel& kernel, const Schedule& schedule);

// Statistics out of statistics, by one block.
std::unique_ptr<KernelLaunch> make_finalise_launch(const Schedule& schedule, const KernelCut& cut);
// Sweeps with reductions over channels, tile by tile.
std::unique_ptr<KernelLaunch> make_columns_launch(const Schedule& schedule, const KernelCut& cut,
                                                  const Gpu& gpu);
// The same by a kernel with a short text; null where there is none for these steps, or the schedule's choices are others.
std::unique_ptr<KernelLaunch> make_plain_channels_launch(const Schedule& schedule, const KernelCut& cut,
                                                         const Gpu& gpu);
// A sweep over a convolution; see launch/conv.h.
std::unique_ptr<KernelLaunch> make_conv_launch(const Schedule& schedule, const KernelCut& cut,
                                               const Gpu& gpu);
// The same with many channels; see launch/conv_wide.h.
std::unique_ptr<KernelLaunch> make_conv_wide_launch(const Schedule& schedule, const KernelCut& cut,
                                                    const Gpu& gpu);
// A convolution that is stored, by plain arithmetic.
std::unique_ptr<KernelLaunch> make_conv_direct_launch(const Schedule& schedule, const KernelCut& cut);
// A pool or its adjoint.
std::unique_ptr<KernelLaunch> make_pool_launch(const Schedule& schedule, const KernelCut& cut);
// A convolution by the embedder's function, on views of the GPU's memory.
std::unique_ptr<KernelLaunch> make_host_call(const Schedule& schedule, const KernelCut& cut,
                                             std::shared_ptr<const HostFunctions> host);
// Sweeps unit by unit; see launch/rows.h.
std::unique_ptr<KernelLaunch> make_rows_launch(const Schedule& schedule, const KernelCut& cut,
                                               const Gpu& gpu);
// The same of units that fit into registers; null where they do not, or `rows` is faster.
std::unique_ptr<KernelLaunch> make_rows_registers_launch(const Schedule& schedule, const KernelCut& cut,
                                                         const Gpu& gpu);
// The same by a kernel with a short text; null where there is none for these steps, or the schedule's choices are others.
std::unique_ptr<KernelLaunch> make_plain_launch(const Schedule& schedule, const KernelCut& cut,
                                                const Gpu& gpu);
// Sweeps unit by unit over channels_last tensors; see launch/slices.h. That of `rows` where no slice fits.
std::unique_ptr<KernelLaunch> make_slices_launch(const Schedule& schedule, const KernelCut& cut,
                                                 const Gpu& gpu);

}  // namespace fuseblock::cuda
