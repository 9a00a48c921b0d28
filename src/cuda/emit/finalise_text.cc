#include "cuda/emit/finalise_text.h"

#include <array>

namespace fuseblock::cuda {
namespace {

std::size_t at(int i) { return static_cast<std::size_t>(i); }

class FinaliseWriter : KernelWriter {
 public:
  FinaliseWriter(const Schedule& schedule, const KernelCut& cut) : KernelWriter(schedule, cut) {}

  EmittedKernel run() {
    Text function;
    if (varies_over_positions(schedule_, step(cut_.first)))
      write_over_positions(function);
    else
      write_finalise_all(function, cut_.remaining, cut_.outputs);
    std::string text = head({{"kVector", "1"},
                             {"kElements", "1"},
                             {"k16Bit", "0"},
                             {"kFirstDistance", "1"},
                             {"kEndDistance", "32"}});
    for (const char* file : {"types.cuh", "functions.cuh", "statistics.cuh"})
      text += "\n" + device_file(file);
    text += "\n" + arguments_struct() + "\n" + function.str() + "\n" + device_file("finalise.cu");
    return finish("finalise", std::move(text));
  }

 private:
  static constexpr std::array<const char*, kAxisCount> kAxes = {"n", "c", "d", "h", "w"};

  // By all blocks of a grid: one statistic, or the outputs of the step.
  void write_over_positions(Text& text) {
    text.line("// Statistics that vary over positions, by all blocks of the grid.");
    text.open("__device__ void finalise_all(const Arguments& a) {");
    text.line("const long long thread = (long long)blockIdx.x * blockDim.x + threadIdx.x;");
    text.line("const long long threads = (long long)gridDim.x * blockDim.x;");
    for (int number : cut_.remaining) {
      const PartKind kind = part(number).kind;
      if (kind == PartKind::kMerge || kind == PartKind::kReduce)
        write_merge(text, number);
      else
        write_each(text, number);
    }
    for (int output : cut_.outputs) {
      open_elements(text, slot(output).extents);
      const std::string to = tensor(output);
      text.line("assign(" + to + ".data[" + offset(to) + "], " + value_of(slot(output).part) + ");");
      text.close();
    }
    text.close();
  }

  static std::string offset(const std::string& tensor, const std::string& channel = "c") {
    return "offset_at(" + tensor + ", n, " + channel + ", {d, h, w})";
  }

  // The value of a part at n, c, d, h, w.
  std::string value_of(int number, const std::string& channel = "c") {
    const std::string from = tensor(statistic_slot(number));
    return "number(" + from + ".data[" + offset(from, channel) + "])";
  }

  // Coordinates out of a number, the last axis fastest: those of the axes whose extent is not 0.
  static void write_coordinates(Text& text, const std::string& of, const Extents& extents,
                                const std::string& prefix) {
    text.line("long long " + prefix + "rest = " + of + ";");
    for (std::size_t i = kAxisCount; i-- > 0;) {
      const std::string name = prefix + kAxes[i];
      if (extents[i] == 1) {
        text.line("const long long " + name + " = 0;");
        continue;
      }
      const std::string extent = std::to_string(extents[i]);
      text.line("const long long " + name + " = " + prefix + "rest % " + extent + ";");
      text.line(prefix + "rest /= " + extent + ";");
    }
  }

  static std::int64_t product(const Extents& extents) {
    std::int64_t result = 1;
    for (std::int64_t extent : extents) result *= extent;
    return result;
  }

  static void open_elements(Text& text, const Extents& extents) {
    text.open("for (long long i = thread; i < " + std::to_string(product(extents)) + "; i += threads) {");
    write_coordinates(text, "i", extents, "");
  }

  // A formula, or the same numbers for other groups of channels.
  void write_each(Text& text, int number) {
    const Part& which = part(number);
    open_elements(text, which.extents);
    std::string value;
    if (which.kind == PartKind::kRegroup) {
      const std::int64_t other = part(which.operands[0]).extents[1];
      value = value_of(which.operands[0],
                       "c * " + std::to_string(other) + " / " + std::to_string(which.extents[1]));
    } else {
      value = write_statements(
                  text, which.formula.steps(), [&](int input) { return value_of(which.operands[at(input)]); },
                  "double", false)
                  .back();
    }
    const std::string to = tensor(statistic_slot(number));
    text.line(to + ".data[" + offset(to) + "] = " + value + ";");
    text.close();
  }

  // One warp a result; a set is what one result is made of.
  void write_merge(Text& text, int number) {
    const Part& which = part(number);
    const Part& operand = part(which.operands[0]);
    const bool over_c = which.axes.contains(Axis::kC);
    Extents sets = operand.extents;
    Extents inner = {1, 1, 1, 1, 1};
    for (Axis axis : which.axes.list()) {
      const auto i = static_cast<std::size_t>(index(axis));
      inner[i] = axis == Axis::kC ? operand.extents[i] / which.groups : operand.extents[i];
      sets[i] = axis == Axis::kC ? which.groups : 1;
    }
    const std::string type = statistic_type(number, "double");
    text.open("for (long long set = thread / 32; set < " + std::to_string(product(sets)) +
              "; set += threads / 32) {");
    write_coordinates(text, "set", sets, "set_");
    text.line(type + " total;");
    text.line("total.clear();");
    text.open("for (long long i = thread % 32; i < " + std::to_string(product(inner)) + "; i += 32) {");
    write_coordinates(text, "i", inner, "in_");
    for (std::size_t i = 0; i < kAxisCount; ++i) {
      const std::string name = kAxes[i];
      const bool grouped = i == 1 && over_c;
      text.line("const long long " + name + " = set_" + name +
                (grouped ? " * " + std::to_string(inner[i]) : std::string()) + " + in_" + name + ";");
    }
    text.line("total.merge(" + type + "{" + state_of(which, operand) + "});");
    text.close();
    text.line("total = warp::from_first(warp::merge(total));");
    // A group's statistic stands at every channel of the group.
    const std::int64_t places = over_c && which.groups > 1 ? inner[1] : 1;
    text.open("for (long long i = thread % 32; i < " + std::to_string(places) + "; i += 32) {");
    text.line("const long long n = set_n, d = set_d, h = set_h, w = set_w;");
    text.line("const long long c = set_c * " + std::to_string(places) + " + i;");
    for (int i = 0; i < component_count(which.statistic); ++i) {
      const std::string to = tensor(schedule_.statistic_slot(number, i));
      text.line(to + ".data[" + offset(to) + "] = total." + (i == 0 ? "first" : "second") + ";");
    }
    text.close();
    text.close();
  }

  // The statistic of one element of the operand: a finer one, or a plain value.
  std::string state_of(const Part& which, const Part& operand) {
    if (which.kind == PartKind::kReduce) {
      const std::string value = value_of(which.operands[0]);
      if (which.statistic == Statistic::kMoments) return value + ", 0, 1";
      return which.statistic == Statistic::kExpSum ? value + ", 1" : value;
    }
    std::string state;
    for (int i = 0; i < component_count(which.statistic); ++i) {
      const std::string from = tensor(schedule_.statistic_slot(which.operands[0], i));
      state += (i == 0 ? "" : ", ") + from + ".data[" + offset(from) + "]";
    }
    if (which.statistic == Statistic::kMoments)
      state += ", " + literal(static_cast<double>(operand.count), false);
    return state;
  }
};

}  // namespace

EmittedKernel finalise_text(const Schedule& schedule, const KernelCut& cut) {
  return FinaliseWriter(schedule, cut).run();
}

}  // namespace fuseblock::cuda
