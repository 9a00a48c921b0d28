#include "cuda/tuned.h"

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <tuple>

#include "cuda/launch/conv_wishes.h"
#include "fuseblock/error.h"

namespace fuseblock::cuda {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kFormat = "fuseblock tuned divisions 1";

auto key_of(const TunedDivision& entry) { return std::tie(entry.gpu, entry.multiprocessors, entry.problem); }

template <typename Value>
Value field_of(const Json& entry, const char* name, const std::string& where) {
  const auto found = entry.is_object() ? entry.find(name) : entry.end();
  if (!entry.is_object() || found == entry.end()) throw UserError(where + ": `" + name + "` is missing");
  try {
    return found->get<Value>();
  } catch (const Json::exception&) {
    throw UserError(where + ": " + name + ": not what was expected: `" + found->dump().substr(0, 60) + "`");
  }
}

TunedDivision entry_of(const Json& json, const std::string& where) {
  TunedDivision entry;
  entry.gpu = field_of<std::string>(json, "gpu", where);
  entry.multiprocessors = field_of<int>(json, "multiprocessors", where);
  entry.kernel = field_of<std::string>(json, "kernel", where);
  entry.problem = field_of<std::string>(json, "problem", where);
  entry.division = field_of<std::string>(json, "division", where);
  entry.us = field_of<double>(json, "us", where);
  entry.us_by_cost = field_of<double>(json, "us_by_cost_model", where);
  ConvWishes::parse(entry.division, where + ": division");
  return entry;
}

std::string contents_of(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) throw UserError("FUSEBLOCK_TUNED: cannot read " + path);
  return {std::istreambuf_iterator<char>(file), {}};
}

TunedTable table_of_environment() {
  const char* variable =
      std::getenv("FUSEBLOCK_TUNED");  // NOLINT(concurrency-mt-unsafe): nothing here sets variables
  const std::string path = variable == nullptr ? "" : variable;
  if (path == "none") return {};
  TunedTable table = TunedTable::parse(tuned_file(), "src/cuda/tuned.json");
  if (path.empty()) return table;
  const TunedTable own = TunedTable::parse(contents_of(path), "FUSEBLOCK_TUNED: " + path);
  for (const TunedDivision& entry : own.entries()) table.add(entry);
  return table;
}

}  // namespace

TunedTable TunedTable::parse(std::string_view text, const std::string& where) {
  Json document;
  try {
    document = Json::parse(text);
  } catch (const Json::exception& error) {
    throw UserError(where + ": no table of tuned divisions: " + error.what());
  }
  if (const auto format = field_of<std::string>(document, "format", where); format != kFormat)
    throw UserError(where + ": expected the format `" + kFormat + "`, got `" + format.substr(0, 60) + "`");
  const auto entries = field_of<Json>(document, "entries", where);
  if (!entries.is_array()) throw UserError(where + ": entries: expected a list");
  TunedTable table;
  for (std::size_t i = 0; i < entries.size(); ++i)
    table.add(entry_of(entries[i], where + ": entry " + std::to_string(i + 1)));
  return table;
}

void TunedTable::add(TunedDivision entry) {
  const auto place =
      std::lower_bound(entries_.begin(), entries_.end(), entry,
                       [](const TunedDivision& a, const TunedDivision& b) { return key_of(a) < key_of(b); });
  if (place != entries_.end() && key_of(*place) == key_of(entry))
    *place = std::move(entry);
  else
    entries_.insert(place, std::move(entry));
}

const TunedDivision* TunedTable::find(const Gpu& gpu, const std::string& problem) const {
  TunedDivision wanted;
  wanted.gpu = gpu.kind;
  wanted.multiprocessors = gpu.multiprocessors;
  wanted.problem = problem;
  const auto place =
      std::lower_bound(entries_.begin(), entries_.end(), wanted,
                       [](const TunedDivision& a, const TunedDivision& b) { return key_of(a) < key_of(b); });
  return place != entries_.end() && key_of(*place) == key_of(wanted) ? &*place : nullptr;
}

std::string TunedTable::text() const {
  std::string lines;
  for (const TunedDivision& entry : entries_) {
    const Json json = {{"gpu", entry.gpu},
                       {"multiprocessors", entry.multiprocessors},
                       {"kernel", entry.kernel},
                       {"problem", entry.problem},
                       {"division", entry.division},
                       {"us", entry.us},
                       {"us_by_cost_model", entry.us_by_cost}};
    lines += (lines.empty() ? "\n  " : ",\n  ") + json.dump();
  }
  return "{\n \"format\": \"" + std::string(kFormat) + "\",\n \"entries\": [" + lines + "\n ]\n}\n";
}

std::shared_ptr<const TunedTable> tuned_table() {
  static const auto kTable = std::make_shared<const TunedTable>(table_of_environment());
  return kTable;
}

}  // namespace fuseblock::cuda
