#include "cuda/launch/conv_wishes.h"

#include <charconv>
#include <cstdlib>
#include <map>
#include <sstream>

#include "fuseblock/error.h"

namespace fuseblock::cuda {
namespace {

int number_of(const std::string& text, const std::string& whole) {
  int number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size() || number < 0)
    throw UserError("FUSEBLOCK_CONV: expected a number, got `" + text.substr(0, 40) + "` in `" +
                    whole.substr(0, 80) + "`");
  return number;
}

}  // namespace

ConvWishes ConvWishes::parse(const std::string& text) {
  ConvWishes wishes;
  const std::map<std::string, std::optional<int>*> fields = {
      {"threads", &wishes.threads}, {"blocks", &wishes.blocks},   {"rows", &wishes.rows},
      {"stages", &wishes.stages},   {"promote", &wishes.promote}, {"down", &wishes.down},
      {"roll", &wishes.roll},       {"fold", &wishes.fold},       {"deep", &wishes.deep},
      {"columns", &wishes.columns}};
  std::istringstream parts(text);
  for (std::string part; std::getline(parts, part, ',');) {
    const std::size_t equals = part.find('=');
    const std::string name = part.substr(0, equals);
    const std::string value = equals == std::string::npos ? "" : part.substr(equals + 1);
    const auto field = fields.find(name);
    if (field != fields.end()) {
      *field->second = number_of(value, text);
      continue;
    }
    if (name != "tile")
      throw UserError(
          "FUSEBLOCK_CONV: expected threads, blocks, rows, stages, promote, down, roll, fold, deep, columns "
          "or "
          "tile, got `" +
          name.substr(0, 40) + "`");
    std::array<int, 3> tile = {1, 1, 1};
    std::istringstream extents(value);
    std::string extent;
    for (int& each : tile) {
      extent.clear();
      std::getline(extents, extent, 'x');
      each = number_of(extent, text);
      if (each == 0)
        throw UserError("FUSEBLOCK_CONV: tile: expected extents such as 1x8x30, got `" + value + "`");
    }
    wishes.tile = tile;
  }
  for (const auto& [name, least] : std::map<std::string, int>{{"threads", 32}, {"blocks", 1}, {"rows", 1}})
    if (const std::optional<int>& number = *fields.at(name); number && *number < least)
      throw UserError("FUSEBLOCK_CONV: " + name + ": expected at least " + std::to_string(least) + ", got " +
                      std::to_string(*number));
  if (wishes.threads && (*wishes.threads % 32 != 0 || *wishes.threads > 1024))
    throw UserError("FUSEBLOCK_CONV: threads: expected warps of 32, up to 1024, got " +
                    std::to_string(*wishes.threads));
  if (wishes.stages && *wishes.stages != 1 && *wishes.stages != 2)
    throw UserError("FUSEBLOCK_CONV: stages: expected 1 or 2, got " + std::to_string(*wishes.stages));
  return wishes;
}

ConvWishes ConvWishes::of_environment() {
  const char* text =
      std::getenv("FUSEBLOCK_CONV");  // NOLINT(concurrency-mt-unsafe): nothing here sets variables
  return text == nullptr ? ConvWishes() : parse(text);
}

}  // namespace fuseblock::cuda
