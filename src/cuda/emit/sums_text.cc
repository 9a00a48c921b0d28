#include "cuda/emit/sums_text.h"

namespace fuseblock::cuda {
namespace {

// A function whose body is one statement for each statistic.
void write_each(Text& text, const std::string& head, const std::vector<TakenStatistic>& taken,
                const std::string& call) {
  text.open("__device__ void " + head + " {");
  for (const TakenStatistic& each : taken) text.line(each.name + call);
  text.close();
}

void write_sums(Text& text, const std::string& sweep, bool of_unit,
                const std::vector<TakenStatistic>& taken) {
  text.open("struct Sums" + sweep + " {");
  text.line(std::string("static constexpr int kChannels = ") + (of_unit ? "1;" : "kUnitChannels;"));
  if (taken.empty()) text.line("int nothing;");
  for (const TakenStatistic& each : taken) text.line(each.type + " " + each.name + ";");
  write_each(text, "clear()", taken, ".clear();");
  text.open("__device__ void merge(const Sums" + sweep + "& other) {");
  for (const TakenStatistic& each : taken) text.line(each.name + ".merge(other." + each.name + ");");
  text.close();
  write_each(text, "merge_lanes()", taken, ".merge_lanes();");
  text.close("};");
}

void write_running(Text& text, const std::string& sweep, const std::vector<TakenStatistic>& taken) {
  text.open("struct Running" + sweep + " {");
  if (taken.empty()) text.line("int nothing;");
  for (const TakenStatistic& each : taken) text.line("Running<" + each.type + "> " + each.name + ";");
  write_each(text, "clear()", taken, ".clear();");
  text.open("__device__ void add(const Results" + sweep +
            " (&results)[kElements], unsigned int taken, bool begins) {");
  for (const TakenStatistic& each : taken) {
    text.open("{");
    text.line("real values[kElements];");
    text.line("#pragma unroll");
    text.line("for (int i = 0; i < kElements; ++i) values[i] = results[i].r" + std::to_string(each.step) +
              ";");
    text.line(each.name + ".add(values, taken, begins);");
    text.close();
  }
  text.close();
  text.open("__device__ Sums" + sweep + " settled() const {");
  text.line("Sums" + sweep + (taken.empty() ? " sums = {};" : " sums;"));
  for (const TakenStatistic& each : taken) text.line("sums." + each.name + " = " + each.name + ".settled();");
  text.line("return sums;");
  text.close();
  text.close("};");
}

}  // namespace

void write_sums_structs(Text& text, const std::string& sweep, bool of_unit,
                        const std::vector<TakenStatistic>& taken) {
  write_sums(text, sweep, of_unit, taken);
  write_running(text, sweep, taken);
}

}  // namespace fuseblock::cuda
