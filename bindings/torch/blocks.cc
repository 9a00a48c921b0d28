#include "blocks.h"

#include <algorithm>
#include <deque>
#include <map>
#include <utility>

#include "convolutions.h"
#include "fuseblock/error.h"
#include "streams.h"
#include "threads.h"

namespace fuseblock::torch_binding {
namespace {

constexpr std::size_t kMostPlans = 128;  // of one block
constexpr std::size_t kMostArguments = 61;
// Below so many arithmetic operations waking a second thread takes longer than the work that it could take over.
constexpr double kOperationsForThreads = 5e5;

constexpr std::size_t kHeads = 2;  // numbers before those of the arguments
constexpr int kRankShift = 8;
constexpr int kLayoutShift = 16;
constexpr std::int64_t kByte = 0xff;

std::int64_t head(DType dtype, std::size_t rank, Layout layout) {
  return static_cast<std::int64_t>(dtype) | static_cast<std::int64_t>(rank) << kRankShift |
         static_cast<std::int64_t>(layout) << kLayoutShift;
}

std::size_t index_of(const std::vector<std::string>& names, const std::string& name) {
  return static_cast<std::size_t>(std::find(names.begin(), names.end(), name) - names.begin());
}

double operation_count(const TypedBlock& block) {
  double sum = 0;
  for (std::size_t i = 0; i < block.block().nodes().size(); ++i)
    sum += block.operation_count(static_cast<int>(i));
  return sum;
}

constexpr std::size_t kAlignment = 64;

std::size_t aligned(std::size_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

MadeTensor made(const TensorType& type) { return {type, type.strides(), 0}; }

// What a plan of the CPU depends on; the threads that drive a GPU do not matter.
int threads_for(const ArgumentTypes& types) { return types.place() == kCpu ? thread_count() : 0; }

Device device_at(Place place) {
  if (place == kCpu) return Device::by_name("cpu");
  const std::string name = place == 0 ? "cuda" : "cuda:" + std::to_string(place);
  for (const Device& device : Device::available())
    if (device.name() == name) return device;
  throw NotSupportedError("fuseblock finds no CUDA driver here that shows it GPU " + std::to_string(place));
}

bool is_strided(const Tensor& tensor) {
  static const std::int32_t kStrided = aoti_torch_layout_strided();
  std::int32_t layout = 0;
  TORCH_ERROR_CODE_CHECK(aoti_torch_get_layout(tensor.get(), &layout));
  return layout == kStrided;
}

}  // namespace

std::optional<ArgumentTypes> ArgumentTypes::of(std::span<const Tensor> arguments, std::int64_t wanted) {
  ArgumentTypes result;
  std::vector<std::int64_t>& numbers = result.numbers_;
  const std::optional<Place> place = arguments.empty() ? kCpu : find_place(arguments[0]);
  if (!place) return std::nullopt;
  std::size_t size = kHeads;
  for (const Tensor& tensor : arguments) size += 1 + static_cast<std::size_t>(tensor.dim());
  numbers.reserve(size);
  numbers.push_back(wanted);
  numbers.push_back(*place);
  for (const Tensor& tensor : arguments) {
    const std::optional<DType> dtype = find_dtype(tensor);
    if (!dtype || find_place(tensor) != place || !is_strided(tensor)) return std::nullopt;
    const auto extents = tensor.sizes();
    const auto strides = tensor.strides();
    const Layout layout = layout_of({extents.data(), extents.size()}, {strides.data(), strides.size()});
    numbers.push_back(head(*dtype, extents.size(), layout));
    numbers.insert(numbers.end(), extents.begin(), extents.end());
  }
  return result;
}

ArgumentTypes::ArgumentTypes(std::span<const std::int64_t> numbers)
    : numbers_(numbers.begin(), numbers.end()) {
  std::size_t i = kHeads;
  while (i < numbers_.size()) i += 1 + static_cast<std::size_t>((numbers_[i] >> kRankShift) & kByte);
  if (i != numbers_.size()) throw UserError("types: expected the last tensor that `forward` gave");
}

std::vector<TensorType> ArgumentTypes::types() const {
  std::vector<TensorType> result;
  for (std::size_t i = kHeads; i < numbers_.size();) {
    const std::int64_t head = numbers_[i++];
    const auto rank = static_cast<std::size_t>((head >> kRankShift) & kByte);
    TensorType type;
    type.dtype = static_cast<DType>(head & kByte);
    type.layout = static_cast<Layout>((head >> kLayoutShift) & kByte);
    type.extents.assign(numbers_.begin() + static_cast<std::ptrdiff_t>(i),
                        numbers_.begin() + static_cast<std::ptrdiff_t>(i + rank));
    i += rank;
    result.push_back(std::move(type));
  }
  return result;
}

std::int64_t Prepared::needed() const {
  std::int64_t mask = 0;
  for (const BackwardInput& input : backward_inputs)
    if (input.kind == BackwardInput::Kind::kArgument) mask |= std::int64_t{1} << input.index;
  return mask;
}

RegisteredBlock::RegisteredBlock(Block block, bool keep_convolutions)
    : block_(std::move(block)), keep_convolutions_(keep_convolutions) {
  for (const Value value : block_.arguments()) names_.push_back(block_.value(value).name);
  if (names_.size() > kMostArguments)
    throw NotSupportedError("a block of " + std::to_string(names_.size()) + " arguments; at most " +
                            std::to_string(kMostArguments) + " are supported");
}

std::shared_ptr<const Prepared> RegisteredBlock::find(const ArgumentTypes& types) {
  const std::lock_guard lock(mutex_);
  const Entry* entry = lookup(types, threads_for(types));
  return entry == nullptr ? nullptr : entry->plans;
}

bool RegisteredBlock::is_known(const ArgumentTypes& types) {
  const std::lock_guard lock(mutex_);
  return lookup(types, threads_for(types)) != nullptr;
}

std::optional<Refusal> RegisteredBlock::prepare(const ArgumentTypes& types, const std::string& refusal) {
  const std::lock_guard lock(mutex_);
  const int threads = threads_for(types);
  Entry* entry = lookup(types, threads);
  if (entry == nullptr) {
    Entry made{types, threads, nullptr, {false, refusal}};
    if (refusal.empty()) {
      try {
        made.plans = std::make_shared<const Prepared>(make(types, threads));
      } catch (const UserError& error) {
        made.refusal = {true, error.report()};
      } catch (const NotSupportedError& error) {
        made.refusal = {false, error.what()};
      }
    }
    if (entries_.size() >= kMostPlans) {
      const Entry& oldest = entries_.back();
      const auto [begin, end] = places_.equal_range(oldest.types.numbers());
      places_.erase(std::find_if(begin, end, [&](const auto& place) { return &*place.second == &oldest; }));
      entries_.pop_back();
    }
    entries_.push_front(std::move(made));
    places_.emplace(entries_.front().types.numbers(), entries_.begin());
    entry = &entries_.front();
  }
  if (!refusal.empty()) {
    entry->plans = nullptr;
    entry->refusal = {false, refusal};
  }
  if (entry->plans) return std::nullopt;
  return entry->refusal;
}

TypedBlock RegisteredBlock::typed(const ArgumentTypes& types) const {
  std::vector<TensorType> given = types.types();
  if (given.size() != names_.size()) {
    std::string names;
    for (const std::string& name : names_) names += (names.empty() ? "" : ", ") + name;
    throw UserError("expected " + std::to_string(names_.size()) + " tensors (" + names + "), got " +
                    std::to_string(given.size()));
  }
  if (given[0].rank() < 2 || given[0].rank() > kAxisCount)
    throw UserError("x: expected a tensor of 2 to 5 dimensions, got " + extents_text(given[0]));
  TypeMap others;
  for (std::size_t i = 1; i < given.size(); ++i) others[names_[i]] = given[i];
  return TypedBlock::infer(block_, TensorType::make(given[0].dtype, given[0].extents, given[0].layout),
                           others);
}

std::vector<std::string> RegisteredBlock::wanted_names(std::int64_t wanted) const {
  std::vector<std::string> result;
  for (std::size_t i = 0; i < names_.size(); ++i)
    if ((wanted >> i) & 1) result.push_back(names_[i]);
  return result;
}

RegisteredBlock::Entry* RegisteredBlock::lookup(const ArgumentTypes& types, int threads) {
  if (entries_.empty()) return nullptr;
  if (entries_.front().threads == threads && entries_.front().types == types) return &entries_.front();
  const auto [begin, end] = places_.equal_range(types.numbers());
  for (auto place = begin; place != end; ++place) {
    if (place->second->threads != threads) continue;
    entries_.splice(entries_.begin(), entries_, place->second);
    return &entries_.front();
  }
  return nullptr;
}

Prepared RegisteredBlock::make(const ArgumentTypes& types, int threads) const {
  const TypedBlock typed_block = typed(types);
  const Place place = types.place();
  // No plan is any use where PyTorch does not tell its stream.
  static_cast<void>(current_stream(place));
  const Device device = device_at(place);
  PlanOptions options;
  if (place == kCpu)
    options.workers = torch_workers(operation_count(typed_block) < kOperationsForThreads ? 1 : threads);
  options.precision = types.tf32_allowed() ? Precision::kTf32 : Precision::kStrict;
  options.keep_convolutions = keep_convolutions_;
  // On the CPU only those that are kept: the engine's own are weighed against none.
  if (keep_convolutions_ || place != kCpu)
    options.host = torch_convolutions(place, device.description(), types.tf32_allowed());
  const std::vector<std::string> wanted = wanted_names(types.wanted());
  const bool alone = types.backward_alone();
  Prepared result = [&]() -> Prepared {
    if (types.wanted() == 0 || alone)
      return {.place = place, .forward = Plan::make(typed_block, device, options), .backward = {}};
    TrainingPlans both = Plan::make_training(typed_block, wanted, device, options);
    return {.place = place, .forward = both.forward, .backward = both.backward};
  }();
  if (alone)
    result.backward = result.forward.backward(wanted);
  else if (result.backward)
    result.saved_bytes = aligned((1 + types.numbers().size()) * sizeof(std::int64_t));
  result.forward_bytes = result.forward.workspace_bytes();
  for (const NamedType& output : typed_block.outputs()) result.outputs.push_back(made(output.type));
  std::size_t& bytes = place == kCpu ? result.saved_bytes : result.device_bytes;
  for (const NamedType& value : result.forward.saved()) {
    result.saved.push_back(made(value.type));
    result.saved.back().offset = bytes;
    bytes += aligned(static_cast<std::size_t>(value.type.byte_count()));
  }
  if (result.backward) add_backward(result);
  return result;
}

void RegisteredBlock::add_backward(Prepared& plans) const {
  using Kind = BackwardInput::Kind;
  plans.backward_bytes = plans.backward->workspace_bytes();
  for (const NamedType& gradient : plans.backward->outputs()) plans.gradients.push_back(made(gradient.type));
  std::vector<std::string> gradients;
  std::vector<std::string> saved;
  for (const NamedType& output : plans.forward.block().outputs()) gradients.push_back("d_" + output.name);
  for (const NamedType& value : plans.forward.saved()) saved.push_back(value.name);
  for (const auto& [name, type] : plans.backward->inputs()) {
    if (const std::size_t argument = index_of(names_, name); argument < names_.size())
      plans.backward_inputs.push_back({Kind::kArgument, argument});
    else if (const std::size_t output = index_of(gradients, name); output < gradients.size())
      plans.backward_inputs.push_back({Kind::kGradient, output});
    else if (const std::size_t value = index_of(saved, name); value < saved.size())
      plans.backward_inputs.push_back({Kind::kSaved, value});
    else
      throw InternalError("the backward plan has an input of unknown origin: " + name);
  }
}

std::size_t RegisteredBlock::Hash::operator()(std::span<const std::int64_t> numbers) const {
  std::size_t hash = numbers.size();
  for (const std::int64_t number : numbers)
    hash = (hash ^ static_cast<std::size_t>(number)) * 0x9e3779b97f4a7c15U + (hash >> 29U);
  return hash;
}

bool RegisteredBlock::Equal::operator()(std::span<const std::int64_t> a,
                                        std::span<const std::int64_t> b) const {
  return std::equal(a.begin(), a.end(), b.begin(), b.end());
}

namespace {

// All blocks, in the order of their handles; addresses never change.
struct Registry {
  std::mutex mutex;
  std::deque<RegisteredBlock> blocks;
  std::map<std::pair<std::string, bool>, std::int64_t> handles;
};

Registry& registry() {
  static Registry instance;
  return instance;
}

}  // namespace

std::int64_t register_block(const std::string& notation, bool keep_convolutions) {
  Registry& all = registry();
  const std::lock_guard lock(all.mutex);
  const auto known = all.handles.find({notation, keep_convolutions});
  if (known != all.handles.end()) return known->second;
  const bool json = notation.starts_with('{');
  all.blocks.emplace_back(json ? Block::from_json(notation) : Block::parse(notation), keep_convolutions);
  const auto handle = static_cast<std::int64_t>(all.blocks.size()) - 1;
  all.handles.emplace(std::pair(notation, keep_convolutions), handle);
  return handle;
}

RegisteredBlock& registered_block(std::int64_t handle) {
  Registry& all = registry();
  const std::lock_guard lock(all.mutex);
  if (handle < 0 || handle >= static_cast<std::int64_t>(all.blocks.size()))
    throw UserError("block: expected the handle of a block, got " + std::to_string(handle));
  return all.blocks[static_cast<std::size_t>(handle)];
}

}  // namespace fuseblock::torch_binding
