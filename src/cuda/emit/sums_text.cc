#include "cuda/emit/sums_text.h"

#include <functional>

namespace fuseblock::cuda {
namespace {

// What `make` says of each statistic, one behind the other.
std::string joined(const std::vector<TakenStatistic>& taken,
                   const std::function<std::string(const TakenStatistic&)>& make) {
  std::string result;
  for (const TakenStatistic& each : taken) result += (result.empty() ? "" : ", ") + make(each);
  return result;
}

// A function that does something with each statistic.
void write_each(Text& text, const std::string& head, const std::vector<TakenStatistic>& taken,
                const std::function<std::string(const TakenStatistic&)>& call) {
  text.line("__device__ void " + head + " { " + joined(taken, call) + "; }");
}

}  // namespace

void write_sums_structs(Text& text, const std::string& sweep, bool of_unit,
                        const std::vector<TakenStatistic>& taken, int results) {
  const auto clear = [](const TakenStatistic& each) { return each.name + ".clear()"; };
  text.line("// Sweep " + sweep + ": its statistics, and these while a thread adds elements to them.");
  text.open("struct Sums" + sweep + " {");
  text.line(std::string("static constexpr int kChannels = ") + (of_unit ? "1;" : "kUnitChannels;"));
  for (const TakenStatistic& each : taken) text.line(each.type + " " + each.name + ";");
  write_each(text, "clear()", taken, clear);
  write_each(text, "merge(const Sums" + sweep + "& other)", taken,
             [](const TakenStatistic& each) { return each.name + ".merge(other." + each.name + ")"; });
  write_each(text, "merge_lanes()", taken,
             [](const TakenStatistic& each) { return each.name + ".merge_lanes()"; });
  text.close("};");
  text.open("struct Running" + sweep + " {");
  for (const TakenStatistic& each : taken) text.line("Running<" + each.type + "> " + each.name + ";");
  write_each(text, "clear()", taken, clear);
  write_each(text,
             "add(const real (&results)[" + std::to_string(results) +
                 "][kElements], unsigned int taken, bool begins)",
             taken, [](const TakenStatistic& each) {
               return each.name + ".add(results[" + std::to_string(each.result) + "], taken, begins)";
             });
  text.line("__device__ Sums" + sweep + " settled() const { return {" +
            joined(taken, [](const TakenStatistic& each) { return each.name + ".settled()"; }) + "}; }");
  text.close("};");
}

void write_sums_of_warp(Text& text, const std::vector<std::string>& names) {
  for (const std::string from : {"lanes", "running"}) {
    std::string parts;
    for (const std::string& name : names)
      parts += (parts.empty() ? "of_" : ", of_") + from + "(" + from + "." + name + ")";
    text.line("__device__ inline Sums0 sums_of_" + from + "(const " +
              (from == "lanes" ? "Sums0" : "Running0") + "& " + from + ") { return {" + parts + "}; }");
  }
}

}  // namespace fuseblock::cuda
