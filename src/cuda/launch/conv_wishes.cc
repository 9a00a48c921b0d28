#include "cuda/launch/conv_wishes.h"

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <sstream>

#include "fuseblock/error.h"

namespace fuseblock::cuda {
namespace {

struct Field {
  const char* name;
  std::optional<int> ConvWishes::* number;
  int least;
};

constexpr auto kFields = std::to_array<Field>({
    {"roll", &ConvWishes::roll, 0},         {"fold", &ConvWishes::fold, 0},
    {"deep", &ConvWishes::deep, 0},         {"groups", &ConvWishes::groups, 1},
    {"columns", &ConvWishes::columns, 1},   {"threads", &ConvWishes::threads, 32},
    {"blocks", &ConvWishes::blocks, 1},     {"rows", &ConvWishes::rows, 1},
    {"products", &ConvWishes::products, 1}, {"beside", &ConvWishes::beside, 1},
    {"stages", &ConvWishes::stages, 1},     {"promote", &ConvWishes::promote, 0},
    {"down", &ConvWishes::down, 0},         {"width", &ConvWishes::width, 1},
    {"depths", &ConvWishes::depths, 1},     {"rounds", &ConvWishes::rounds, 1},
    {"chunk", &ConvWishes::chunk, 1},       {"ring", &ConvWishes::ring, 1},
    {"images", &ConvWishes::images, 1},     {"taps", &ConvWishes::taps, 1},
    {"strip", &ConvWishes::strip, 1},       {"taken", &ConvWishes::taken, 0},
    {"squads", &ConvWishes::squads, 1},
});

int number_of(const std::string& text, const std::string& whole, const std::string& where) {
  int number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size() || number < 0)
    throw UserError(where + ": expected a number, got `" + text.substr(0, 40) + "` in `" +
                    whole.substr(0, 80) + "`");
  return number;
}

std::array<int, 3> tile_of(const std::string& value, const std::string& whole, const std::string& where) {
  std::array<int, 3> tile = {1, 1, 1};
  std::istringstream extents(value);
  std::string extent;
  for (int& each : tile) {
    extent.clear();
    std::getline(extents, extent, 'x');
    each = number_of(extent, whole, where);
    if (each == 0)
      throw UserError(where + ": tile: expected extents such as 1x8x30, got `" + value.substr(0, 40) + "`");
  }
  return tile;
}

void check(const ConvWishes& wishes, const std::string& where) {
  for (const Field& field : kFields)
    if (const std::optional<int>& number = wishes.*field.number; number && *number < field.least)
      throw UserError(where + ": " + field.name + ": expected at least " + std::to_string(field.least) +
                      ", got " + std::to_string(*number));
  if (wishes.threads && (*wishes.threads % 32 != 0 || *wishes.threads > 1024))
    throw UserError(where + ": threads: expected warps of 32, up to 1024, got " +
                    std::to_string(*wishes.threads));
  if (wishes.stages && *wishes.stages > 2)
    throw UserError(where + ": stages: expected 1 or 2, got " + std::to_string(*wishes.stages));
}

}  // namespace

ConvWishes ConvWishes::parse(const std::string& text, const std::string& where) {
  ConvWishes wishes;
  std::istringstream parts(text);
  for (std::string part; std::getline(parts, part, ',');) {
    const std::size_t equals = part.find('=');
    const std::string name = part.substr(0, equals);
    const std::string value = equals == std::string::npos ? "" : part.substr(equals + 1);
    const auto* const field =
        std::find_if(kFields.begin(), kFields.end(), [&](const Field& each) { return name == each.name; });
    if (field != kFields.end()) {
      wishes.*field->number = number_of(value, text, where);
      continue;
    }
    if (name != "tile") {
      std::string names;
      for (const Field& each : kFields) names += each.name + std::string(", ");
      throw UserError(where + ": expected " + names.substr(0, names.size() - 2) + " or tile, got `" +
                      name.substr(0, 40) + "`");
    }
    wishes.tile = tile_of(value, text, where);
  }
  check(wishes, where);
  return wishes;
}

ConvWishes ConvWishes::of_environment() {
  const char* text =
      std::getenv("FUSEBLOCK_CONV");  // NOLINT(concurrency-mt-unsafe): nothing here sets variables
  return text == nullptr ? ConvWishes() : parse(text);
}

std::string ConvWishes::text() const {
  std::string result;
  auto add = [&](const std::string& part) { result += (result.empty() ? "" : ",") + part; };
  for (const Field& field : kFields)
    if (const std::optional<int>& number = this->*field.number)
      add(field.name + ("=" + std::to_string(*number)));
  if (tile)
    add("tile=" + std::to_string((*tile)[0]) + "x" + std::to_string((*tile)[1]) + "x" +
        std::to_string((*tile)[2]));
  return result;
}

}  // namespace fuseblock::cuda
