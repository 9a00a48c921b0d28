// The C API over Plan: every function catches what Plan throws and keeps the message for its thread.
#include "fuseblock/c_api.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <mutex>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include "fuseblock/fuseblock.h"

namespace {

// What a plan tells of one tensor, as text and arrays that live as long as the plan.
struct TensorRecord {
  std::string name;
  std::string type;
  fuseblock::TensorType tensor_type;
  std::vector<std::int64_t> strides;
};

std::vector<TensorRecord> records_of(const std::vector<fuseblock::NamedType>& tensors) {
  std::vector<TensorRecord> records;
  records.reserve(tensors.size());
  for (const auto& [name, type] : tensors)
    records.push_back({name, fuseblock::to_string(type), type, type.strides()});
  return records;
}

// Text that is made when it is first asked for.
class LazyText {
 public:
  template <class Make>
  const char* get(Make make) const {
    std::call_once(once_, [&] { text_ = make(); });
    return text_.c_str();
  }

 private:
  mutable std::once_flag once_;
  mutable std::string text_;
};

}  // namespace

struct FuseblockPlan {
  explicit FuseblockPlan(fuseblock::Plan made)
      : plan(std::move(made)), inputs(records_of(plan.inputs())), outputs(records_of(plan.outputs())) {}

  fuseblock::Plan plan;
  std::vector<TensorRecord> inputs;
  std::vector<TensorRecord> outputs;
  LazyText explain;
  LazyText explain_json;
  std::string launches_json;
};

namespace {

using fuseblock::UserError;

static_assert(static_cast<int>(fuseblock::DType::kF64) == kFuseblockF64 &&
              static_cast<int>(fuseblock::DType::kF32) == kFuseblockF32 &&
              static_cast<int>(fuseblock::DType::kBF16) == kFuseblockBF16 &&
              static_cast<int>(fuseblock::DType::kF16) == kFuseblockF16);
static_assert(static_cast<int>(fuseblock::Precision::kStrict) == kFuseblockPrecisionStrict &&
              static_cast<int>(fuseblock::Precision::kTf32) == kFuseblockPrecisionTf32);
static_assert(static_cast<int>(fuseblock::Reuse::kByCost) == kFuseblockReuseByCost &&
              static_cast<int>(fuseblock::Reuse::kStore) == kFuseblockReuseStore &&
              static_cast<int>(fuseblock::Reuse::kRecompute) == kFuseblockReuseRecompute);

std::string& last_error() {
  thread_local std::string message;
  return message;
}

FuseblockStatus failed(FuseblockStatus status, const std::string& message) noexcept {
  try {
    last_error() = message;
  } catch (...) {
    last_error().clear();
  }
  return status;
}

// Runs `body`; what it throws becomes a status and a message.
template <class Body>
FuseblockStatus guarded(Body body) noexcept {
  try {
    body();
    return kFuseblockOk;
  } catch (const UserError& error) {
    return failed(kFuseblockUserError, error.report());
  } catch (const fuseblock::NotSupportedError& error) {
    return failed(kFuseblockNotSupported, error.report());
  } catch (const fuseblock::InternalError& error) {
    return failed(kFuseblockInternalError, error.report());
  } catch (const std::bad_alloc&) {
    return failed(kFuseblockMemoryError, "out of memory");
  } catch (const std::exception& error) {
    return failed(kFuseblockInternalError, error.what());
  } catch (...) {
    return failed(kFuseblockInternalError, "an exception of unknown type");
  }
}

template <class T>
T& required(T* pointer, const char* name) {
  if (pointer == nullptr) throw UserError(std::string(name) + ": expected a pointer, got NULL");
  return *pointer;
}

// The caller's struct as this library knows it: what a caller built against an older header does not have is zero.
template <class T>
T read_struct(const T& given, const char* name) {
  if (given.struct_size < sizeof(std::size_t))
    throw UserError(std::string(name) + ".struct_size: expected sizeof the struct, got " +
                    std::to_string(given.struct_size));
  T known{};
  std::memcpy(&known, &given, std::min(given.struct_size, sizeof(T)));
  known.struct_size = given.struct_size;
  return known;
}

// A caller built against a newer header may ask for nothing that this library does not know.
template <class T>
void require_no_more(const T& given, const char* name) {
  // NOLINTNEXTLINE(cppcoreguidelines-pro-type-reinterpret-cast): bytes of the caller's struct behind the known ones
  const auto* bytes = reinterpret_cast<const unsigned char*>(&given);
  for (std::size_t i = sizeof(T); i < given.struct_size; ++i)
    if (bytes[i] != 0)
      throw fuseblock::NotSupportedError(std::string(name) + ": an option is set that fuseblock " +
                                         fuseblock::kVersion + " does not have");
}

fuseblock::PlanOptions read_options(const FuseblockPlanOptions* options) {
  fuseblock::PlanOptions result;
  if (options == nullptr) return result;
  const auto given = read_struct(*options, "options");
  require_no_more(*options, "options");
  if (given.reuse < kFuseblockReuseByCost || given.reuse > kFuseblockReuseRecompute)
    throw UserError("options.reuse: expected 0 to 2, got " + std::to_string(given.reuse));
  result.threads = given.threads;
  result.reuse = static_cast<fuseblock::Reuse>(given.reuse);
  result.fuse = given.unfused == 0;
  if (given.precision != kFuseblockPrecisionStrict && given.precision != kFuseblockPrecisionTf32)
    throw UserError("options.precision: expected 0 or 1, got " + std::to_string(given.precision));
  result.precision = static_cast<fuseblock::Precision>(given.precision);
  if (given.plain < kFuseblockPlainByCost || given.plain > kFuseblockPlainNever)
    throw UserError("options.plain: expected 0 to 2, got " + std::to_string(given.plain));
  result.kernels.plain = static_cast<fuseblock::PlainKernels>(given.plain);
  return result;
}

fuseblock::Block read_block(const std::string& text) {
  const std::size_t first = text.find_first_not_of(" \t\r\n");
  return first != std::string::npos && text[first] == '{' ? fuseblock::Block::from_json(text)
                                                          : fuseblock::Block::parse(text);
}

std::vector<std::string> read_names(const char* const* names, std::size_t count) {
  std::vector<std::string> result;
  for (std::size_t i = 0; i < count; ++i)
    result.emplace_back(&required(required(names + i, "wanted"), "wanted"));
  return result;
}

void describe(const std::vector<TensorRecord>& records, std::size_t index, FuseblockTensorInfo* info) {
  const auto given = read_struct(required(info, "info"), "info");
  if (index >= records.size())
    throw UserError("index: expected less than " + std::to_string(records.size()) + ", got " +
                    std::to_string(index));
  const TensorRecord& record = records[index];
  const FuseblockTensorInfo result = {
      given.struct_size,         record.name.c_str(),
      record.type.c_str(),       static_cast<FuseblockDType>(record.tensor_type.dtype),
      record.tensor_type.rank(), record.tensor_type.extents.data(),
      record.strides.data()};
  std::memcpy(info, &result, std::min(given.struct_size, sizeof(result)));
}

template <class View>
std::vector<View> read_tensors(const std::vector<TensorRecord>& records, const FuseblockTensor* tensors,
                               std::size_t count, const char* what) {
  if (count != records.size())
    throw UserError("expected " + std::to_string(records.size()) + " " + what + ", got " +
                    std::to_string(count));
  std::vector<View> views;
  views.reserve(count);
  for (std::size_t i = 0; i < count; ++i) {
    const FuseblockTensor& tensor = required(tensors + i, what);
    const std::string& name = records[i].name;
    if (tensor.dtype < kFuseblockF64 || tensor.dtype > kFuseblockF16)
      throw UserError(name + ".dtype: expected 0 to 3, got " + std::to_string(tensor.dtype));
    if (tensor.rank != records[i].tensor_type.rank())
      throw UserError(name + ".rank: expected " + std::to_string(records[i].tensor_type.rank()) + ", got " +
                      std::to_string(tensor.rank));
    if (tensor.rank > 0 && (tensor.extents == nullptr || tensor.strides == nullptr))
      throw UserError(name + ": extents and strides must not be NULL");
    views.push_back({tensor.data, static_cast<fuseblock::DType>(tensor.dtype),
                     std::vector<std::int64_t>(tensor.extents, tensor.extents + tensor.rank),
                     std::vector<std::int64_t>(tensor.strides, tensor.strides + tensor.rank)});
  }
  return views;
}

}  // namespace

int32_t fuseblock_c_api_version(void) { return FUSEBLOCK_C_API_VERSION; }

const char* fuseblock_version(void) { return fuseblock::kVersion; }

const char* fuseblock_last_error(void) { return last_error().c_str(); }

FuseblockStatus fuseblock_set_compiler_folder(const char* folder) {
  return guarded([&] { fuseblock::set_compiler_folder(&required(folder, "folder")); });
}

void fuseblock_advise_fresh_memory(void* data, size_t bytes) { fuseblock::advise_fresh_memory(data, bytes); }

FuseblockStatus fuseblock_plan_make(const char* notation, const char* input_type,
                                    const FuseblockNamedType* others, size_t other_count, const char* device,
                                    const FuseblockPlanOptions* options, FuseblockPlan** plan) {
  return guarded([&] {
    FuseblockPlan*& result = required(plan, "plan");
    const fuseblock::Block block = read_block(&required(notation, "notation"));
    const fuseblock::TensorType input = fuseblock::TensorType::parse(&required(input_type, "input_type"));
    fuseblock::TypeMap types;
    for (std::size_t i = 0; i < other_count; ++i) {
      const FuseblockNamedType& other = required(others + i, "others");
      const std::string name = &required(other.name, "others.name");
      if (!types.emplace(name, fuseblock::TensorType::parse(&required(other.type, "others.type"))).second)
        throw UserError("others: the type of `" + name + "` is given twice");
    }
    const auto engine = device == nullptr ? fuseblock::Device::best() : fuseblock::Device::by_name(device);
    result = new FuseblockPlan(fuseblock::Plan::make(block, input, types, engine, read_options(options)));
  });
}

FuseblockStatus fuseblock_plan_backward(const FuseblockPlan* plan, const char* const* wanted,
                                        size_t wanted_count, FuseblockPlan** backward) {
  return guarded([&] {
    FuseblockPlan*& result = required(backward, "backward");
    result = new FuseblockPlan(required(plan, "plan").plan.backward(read_names(wanted, wanted_count)));
  });
}

FuseblockStatus fuseblock_plan_for_training(const FuseblockPlan* plan, const char* const* wanted,
                                            size_t wanted_count, FuseblockPlan** forward,
                                            FuseblockPlan** backward) {
  return guarded([&] {
    const fuseblock::Plan& given = required(plan, "plan").plan;
    FuseblockPlan*& forward_result = required(forward, "forward");
    FuseblockPlan*& backward_result = required(backward, "backward");
    fuseblock::TrainingPlans plans = given.for_training(read_names(wanted, wanted_count));
    auto made_forward = std::make_unique<FuseblockPlan>(std::move(plans.forward));
    auto made_backward = std::make_unique<FuseblockPlan>(std::move(plans.backward));
    forward_result = made_forward.release();
    backward_result = made_backward.release();
  });
}

void fuseblock_plan_free(FuseblockPlan* plan) { delete plan; }

size_t fuseblock_plan_input_count(const FuseblockPlan* plan) {
  return plan == nullptr ? 0 : plan->inputs.size();
}

size_t fuseblock_plan_output_count(const FuseblockPlan* plan) {
  return plan == nullptr ? 0 : plan->outputs.size();
}

FuseblockStatus fuseblock_plan_input(const FuseblockPlan* plan, size_t index, FuseblockTensorInfo* info) {
  return guarded([&] { describe(required(plan, "plan").inputs, index, info); });
}

FuseblockStatus fuseblock_plan_output(const FuseblockPlan* plan, size_t index, FuseblockTensorInfo* info) {
  return guarded([&] { describe(required(plan, "plan").outputs, index, info); });
}

size_t fuseblock_plan_workspace_bytes(const FuseblockPlan* plan) {
  return plan == nullptr ? 0 : plan->plan.workspace_bytes();
}

FuseblockStatus fuseblock_plan_run(const FuseblockPlan* plan, const FuseblockTensor* inputs,
                                   size_t input_count, const FuseblockTensor* outputs, size_t output_count,
                                   void* workspace, size_t workspace_bytes) {
  return fuseblock_plan_run_on(plan, inputs, input_count, outputs, output_count, workspace, workspace_bytes,
                               nullptr);
}

FuseblockStatus fuseblock_plan_run_on(const FuseblockPlan* plan, const FuseblockTensor* inputs,
                                      size_t input_count, const FuseblockTensor* outputs, size_t output_count,
                                      void* workspace, size_t workspace_bytes, void* stream) {
  return guarded([&] {
    const FuseblockPlan& self = required(plan, "plan");
    const fuseblock::Arguments arguments = {
        read_tensors<fuseblock::ConstTensorView>(self.inputs, inputs, input_count, "inputs"),
        read_tensors<fuseblock::TensorView>(self.outputs, outputs, output_count, "outputs"), stream};
    if (workspace == nullptr && workspace_bytes > 0)
      throw UserError("workspace: expected " + std::to_string(workspace_bytes) + " bytes, got NULL");
    self.plan.run(arguments, {static_cast<std::byte*>(workspace), workspace_bytes});
  });
}

FuseblockStatus fuseblock_plan_explain(const FuseblockPlan* plan, const char** text) {
  return guarded([&] {
    const FuseblockPlan& self = required(plan, "plan");
    required(text, "text") = self.explain.get([&] { return self.plan.explain(); });
  });
}

FuseblockStatus fuseblock_plan_explain_json(const FuseblockPlan* plan, const char** text) {
  return guarded([&] {
    const FuseblockPlan& self = required(plan, "plan");
    required(text, "text") = self.explain_json.get([&] { return self.plan.explain_json(); });
  });
}

FuseblockStatus fuseblock_plan_launches_json(FuseblockPlan* plan, const FuseblockPlan* like,
                                             const char** text) {
  return guarded([&] {
    FuseblockPlan& self = required(plan, "plan");
    self.launches_json = self.plan.launches_json(like == nullptr ? self.plan : like->plan);
    required(text, "text") = self.launches_json.c_str();
  });
}
