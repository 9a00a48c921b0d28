// The launches of a schedule as JSON, for programs that make them by themselves: exported files.
#include <map>
#include <nlohmann/json.hpp>

#include "cuda/arrange.h"
#include "cuda/engine.h"
#include "cuda/launch/kernel.h"
#include "plan/narrator.h"
#include "plan/slot_memory.h"

namespace fuseblock::cuda {
namespace {

using Json = nlohmann::ordered_json;

std::string kind_name(SlotKind kind) {
  switch (kind) {
    case SlotKind::kArgument: return "input";
    case SlotKind::kOutput: return "output";
    case SlotKind::kStored: return "stored";
    case SlotKind::kStatistic: return "statistic";
    case SlotKind::kTile: return "tile";
  }
  throw InternalError("an unknown kind of slot");
}

Json types_json(const std::vector<NamedType>& tensors) {
  Json list = Json::array();
  for (const auto& [name, type] : tensors)
    list.push_back({{"name", name},
                    {"type", to_string(type)},
                    {"dtype", std::string(to_string(type.dtype))},
                    {"axes", to_string(type.axes, "")},
                    {"extents", type.extents}});
  return list;
}

Json slot_json(const Schedule& schedule, const Slot& slot, DType stored) {
  const auto number = static_cast<std::size_t>(slot.number);
  const TensorType* type = slot.kind == SlotKind::kArgument ? &schedule.inputs[number].type
                           : slot.kind == SlotKind::kOutput ? &schedule.outputs[number].type
                                                            : nullptr;
  const DType dtype = type != nullptr                     ? type->dtype
                      : slot.kind == SlotKind::kStatistic ? DType::kF64
                                                          : slot.dtype.value_or(stored);
  const Layout layout = type != nullptr ? type->layout : slot.layout;
  return {{"kind", kind_name(slot.kind)},
          {"number", slot.number},
          {"part", slot.part},
          {"dtype", std::string(to_string(dtype))},
          {"extents", slot.extents},
          {"strides", dense_strides(slot.extents, layout)}};
}

// A kernel's text in pieces: device files by their names, and what was emitted around them without one.
Json pieces_json(const std::string& text) {
  std::map<std::size_t, std::string> places;
  for (const auto& [name, content] : device_files())
    if (const std::size_t place = text.find(content); place != std::string::npos) places[place] = name;
  Json pieces = Json::array();
  std::size_t end = 0;
  auto add = [&](const std::string& file, const std::string& part) {
    if (part.find_first_not_of('\n') != std::string::npos) pieces.push_back({{"file", file}, {"text", part}});
  };
  for (const auto& [place, name] : places) {
    add("", text.substr(end, place - end));
    add(name, device_file(name));
    end = place + device_file(name).size();
  }
  add("", text.substr(end));
  return pieces;
}

Json named_json(const std::vector<LaunchDescription::Named>& list) {
  Json result = Json::array();
  for (const auto& [name, text] : list) result.push_back({{"name", name}, {"text", text}});
  return result;
}

Json sums_json(const std::vector<LaunchDescription::BatchSum>& sums) {
  Json result = Json::array();
  for (const auto& [list, output, channels, parts] : sums)
    result.push_back({{"list", list}, {"output", output}, {"channels", channels}, {"parts", parts}});
  return result;
}

Json launch_json(const LaunchDescription& launch) {
  return {{"name", launch.source.name},
          {"entry", launch.source.entry},
          {"options", launch.source.options},
          {"pieces", pieces_json(launch.source.text)},
          {"tensors", launch.tensors},
          {"addresses", launch.addresses},
          {"domain", launch.domain},
          {"values", named_json(launch.values)},
          {"blocks", launch.blocks},
          {"threads", launch.threads},
          {"shared_bytes", launch.shared_bytes},
          {"cooperative", launch.cooperative},
          {"cluster", launch.cluster},
          {"scalars", named_json(launch.scalars)},
          {"counters", named_json(launch.counters)},
          {"scratch", named_json(launch.scratch)},
          {"batch_sums", sums_json(launch.batch_sums)},
          {"conditions", launch.conditions}};
}

}  // namespace

std::string launches_json(const Schedule& schedule, const Gpu& gpu, const Schedule* like) {
  const Schedule pieces = arranged(schedule);
  const DType stored = arithmetic_type(pieces.inputs);
  Json document;
  document["architecture"] = gpu.architecture->name;
  document["shared_bytes_multiprocessor"] = gpu.architecture->shared_bytes_multiprocessor;
  document["block"] = pieces.block.block().to_string();
  document["inputs"] = types_json(pieces.inputs);
  document["outputs"] = types_json(pieces.outputs);
  document["slots"] = Json::array();
  for (const Slot& slot : pieces.slots) document["slots"].push_back(slot_json(pieces, slot, stored));
  document["launches"] = Json::array();
  const auto launches = make_launches(pieces, gpu, nullptr);
  const Schedule like_pieces = arranged(like != nullptr ? *like : schedule);
  const auto like_launches = make_launches(like_pieces, gpu, nullptr);
  for (std::size_t i = 0; i < launches.size(); ++i)
    document["launches"].push_back(launch_json(launches[i]->described().describe(
        i < like_launches.size() ? &like_launches[i]->described() : nullptr)));
  return document.dump();
}

}  // namespace fuseblock::cuda
