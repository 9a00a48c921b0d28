#include "cuda/tune_memory.h"

#include <algorithm>
#include <cstring>
#include <random>
#include <utility>

#include "plan/slot_memory.h"

namespace fuseblock::cuda {
namespace {

jit::CUdeviceptr address_of(const std::byte* data) { return reinterpret_cast<jit::CUdeviceptr>(data); }

// Uniform numbers around 0, the same ones again and again.
void fill(const jit::Driver& driver, std::byte* data, const TensorType& type, unsigned int seed) {
  constexpr std::int64_t kPeriod = 65521;  // a prime
  const std::int64_t count = std::min(type.element_count(), kPeriod);
  const std::size_t size = static_cast<std::size_t>(byte_size(type.dtype));
  std::vector<std::byte> numbers(static_cast<std::size_t>(count) * size);
  std::minstd_rand generator(seed);
  for (std::int64_t i = 0; i < count; ++i)
    store_element(numbers.data(), type.dtype, i, static_cast<double>(generator()) / 2147483647.0 - 0.5);
  const auto bytes = static_cast<std::size_t>(type.byte_count());
  jit::check(driver.cuMemcpyHtoD(address_of(data), numbers.data(), numbers.size()), "cuMemcpyHtoD");
  for (std::size_t filled = numbers.size(); filled < bytes;) {
    const std::size_t more = std::min(filled, bytes - filled);
    jit::check(driver.cuMemcpyDtoDAsync(address_of(data + filled), address_of(data), more, nullptr),
               "cuMemcpyDtoDAsync");
    filled += more;
  }
}

class Event {
 public:
  explicit Event(const jit::Driver& driver) : driver_(driver) {
    jit::check(driver.cuEventCreate(&event_, jit::CU_EVENT_DEFAULT), "cuEventCreate");
  }
  ~Event() { driver_.cuEventDestroy(event_); }
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;
  void record() const { jit::check(driver_.cuEventRecord(event_, nullptr), "cuEventRecord"); }
  double seconds_to(const Event& end) const {
    float milliseconds = 0;
    jit::check(driver_.cuEventSynchronize(end.event_), "cuEventSynchronize");
    jit::check(driver_.cuEventElapsedTime(&milliseconds, event_, end.event_), "cuEventElapsedTime");
    return static_cast<double>(milliseconds) / 1e3;
  }

 private:
  const jit::Driver& driver_;
  jit::CUevent event_ = nullptr;
};

}  // namespace

DeviceMemory::DeviceMemory(std::size_t bytes) {
  jit::CUdeviceptr pointer = 0;
  jit::check(jit::require_driver().cuMemAlloc(&pointer, std::max<std::size_t>(bytes, 256)), "cuMemAlloc");
  // NOLINTNEXTLINE(performance-no-int-to-ptr): the driver's pointers are numbers
  data_ = reinterpret_cast<std::byte*>(pointer);
}

DeviceMemory::~DeviceMemory() {
  if (data_ != nullptr) jit::require_driver().cuMemFree(address_of(data_));
}

DeviceMemory::DeviceMemory(DeviceMemory&& other) noexcept : data_(std::exchange(other.data_, nullptr)) {}

TuneMemory::TuneMemory(const Schedule& schedule, const Gpu& gpu, const std::vector<KernelLaunch*>& launches)
    : schedule_(schedule),
      gpu_(gpu),
      driver_(jit::require_driver()),
      // Several times L2, which keeps what was written last.
      flush_bytes_(4 * jit::device_facts(gpu.ordinal).l2_bytes) {
  const DType stored = arithmetic_type(schedule.inputs);
  WorkspaceLayout layout;
  const std::vector<std::size_t> offsets = place_slots(schedule, stored, layout);
  WorkspaceLayout counters;
  std::size_t scratch_end = layout.bytes();
  for (KernelLaunch* launch : launches) {
    PlacedLaunch placed = {launch};
    WorkspaceLayout own;
    launch->reserve(own);
    placed.counter_bytes = own.bytes();
    placed.counters = counters.reserve(own.bytes());
    WorkspaceLayout scratch = layout;
    launch->reserve_scratch(scratch);
    scratch_end = std::max(scratch_end, scratch.bytes());
    placed_.push_back(placed);
  }
  for (PlacedLaunch& placed : placed_) placed.counters += scratch_end;
  workspace_bytes_ = scratch_end + counters.bytes();

  unsigned int seed = 1;
  for (const auto& [name, type] : schedule.inputs) {
    tensors_.emplace_back(static_cast<std::size_t>(type.byte_count()));
    fill(driver_, tensors_.back().data(), type, seed++);
    arguments_.inputs.push_back({tensors_.back().data(), type.dtype, type.extents, type.strides()});
  }
  for (const auto& [name, type] : schedule.outputs) {
    tensors_.emplace_back(static_cast<std::size_t>(type.byte_count()));
    arguments_.outputs.push_back({tensors_.back().data(), type.dtype, type.extents, type.strides()});
  }
  others_.emplace_back(workspace_bytes_);
  others_.emplace_back(flush_bytes_);
  views_ = slot_views(schedule, offsets, stored, arguments_, {others_[0].data(), workspace_bytes_});
}

void TuneMemory::clear_counters(const std::vector<PlacedLaunch>& launches) const {
  for (const PlacedLaunch& placed : launches)
    if (placed.counter_bytes > 0)
      jit::check(driver_.cuMemsetD8Async(address_of(others_[0].data() + placed.counters), 0,
                                         placed.counter_bytes, nullptr),
                 "cuMemsetD8Async");
}

void TuneMemory::enqueue(const std::vector<PlacedLaunch>& launches) const {
  const RunContext context = {&driver_, nullptr, &gpu_, &views_, others_[0].data()};
  for (const PlacedLaunch& placed : launches)
    placed.launch->launch(context, others_[0].data() + placed.counters);
}

void TuneMemory::run(const std::vector<PlacedLaunch>& launches) const {
  clear_counters(launches);
  enqueue(launches);
  jit::check(driver_.cuStreamSynchronize(nullptr), "cuStreamSynchronize");
}

double TuneMemory::time(const std::vector<PlacedLaunch>& launches) const {
  const Event start(driver_);
  const Event end(driver_);
  clear_counters(launches);
  // The host is ahead while this goes on.
  jit::check(driver_.cuMemsetD8Async(address_of(others_[1].data()), 0, flush_bytes_, nullptr),
             "cuMemsetD8Async");
  start.record();
  enqueue(launches);
  end.record();
  return start.seconds_to(end);
}

std::vector<std::vector<double>> TuneMemory::results() const {
  constexpr std::int64_t kPieces = 16;
  constexpr std::int64_t kPiece = 4096;
  std::vector<std::vector<double>> results;
  for (std::size_t i = 0; i < arguments_.outputs.size(); ++i) {
    const TensorType& type = schedule_.outputs[i].type;
    const std::int64_t count = type.element_count();
    const auto size = static_cast<std::int64_t>(byte_size(type.dtype));
    std::vector<double> numbers;
    for (std::int64_t piece = 0; piece < kPieces; ++piece) {
      const std::int64_t first = count / kPieces * piece;
      const std::int64_t length = std::min(kPiece, count - first);
      std::vector<std::byte> bytes(static_cast<std::size_t>(length * size));
      const auto* data = static_cast<const std::byte*>(arguments_.outputs[i].data);
      jit::check(driver_.cuMemcpyDtoH(bytes.data(), address_of(data + first * size), bytes.size()),
                 "cuMemcpyDtoH");
      for (std::int64_t k = 0; k < length; ++k) numbers.push_back(load_element(bytes.data(), type.dtype, k));
    }
    results.push_back(std::move(numbers));
  }
  return results;
}

}  // namespace fuseblock::cuda
