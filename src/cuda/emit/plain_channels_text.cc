#include "cuda/emit/plain_channels_text.h"

#include <algorithm>

#include "cuda/emit/plain_values.h"
#include "cuda/emit/rounded_products.h"

namespace fuseblock::cuda {
namespace {

std::size_t at(int i) { return static_cast<std::size_t>(i); }
std::string number_text(std::int64_t number) { return std::to_string(number); }

class PlainChannelsWriter : public PlainValues {
 public:
  PlainChannelsWriter(const Schedule& schedule, const KernelCut& cut, const PlainChannelsConstants& constants)
      : PlainValues(schedule, cut), constants_(constants) {}

  bool takes_reduction() const {
    const Sweep& which = sweep(0);
    if (!single_ || position_inputs(0).empty() || which.epilogue.sinks.empty()) return false;
    for (int input : which.inputs)
      if (in_ring(input) ? !is_dense(input) : is_direct(input) || !is_small(input)) return false;
    const std::vector<int>& reduced = which.sinks[0].slots;
    for (int input : which.epilogue.inputs)
      if (std::find(reduced.begin(), reduced.end(), input) == reduced.end()) return false;
    return std::all_of(which.epilogue.sinks.begin(), which.epilogue.sinks.end(), [&](const Sink& sink) {
      const Extents& extents = slot(sink.slots[0]).extents;
      const bool everywhere = extents[0] == domain_[0] && extents[1] == 1 && extents[2] == domain_[2] &&
                              extents[3] == domain_[3] && extents[4] == domain_[4];
      return sink.kind == SinkKind::kStore && everywhere && is_f32(sink.slots[0]);
    });
  }

  EmittedKernel run() {
    Text body;
    write_kernel(body);
    std::string text = head({{"kThreads", number_text(constants_.threads)},
                             {"kWidth", number_text(constants_.width)},
                             {"kBatch", number_text(constants_.batch)},
                             {"kChannels", number_text(domain_[1])}});
    const std::string program = with_own_functions(body.str());
    if (needs_functions(program)) text += "constexpr int k16Bit = 0;\n";
    text += "\n" + device_file("plain_channels.cuh");
    if (needs_functions(program)) text += "\n" + device_file("functions.cuh");
    text += "\n" + addresses_struct(written_) + "\n" + channel_struct() + with_functions(program);
    return finish("plain_channels", std::move(text));
  }

 private:
  void write_kernel(Text& text) {
    text.open("extern \"C\" __global__ void __launch_bounds__(kThreads, " + number_text(constants_.blocks) +
              ") plain_channels(const Arguments a) {");
    const std::string blocks = scalar("long long", "blocks");
    const std::string positions = scalar("long long", "positions");
    text.line("const int n = blockIdx.x / " + blocks + ", block = blockIdx.x % " + blocks + ";");
    text.line("// Threads behind the last positions do these, too.");
    text.line("const int position = min((int)(block * kThreads + threadIdx.x) * kWidth, (int)" + positions +
              " - kWidth);");
    write_parameters(text);
    write_sweep(text);
    write_epilogue(text);
    text.close();
  }

  // What the program takes that does not vary over positions, in shared memory.
  void write_parameters(Text& text) {
    std::string values;
    for (int k : channel_inputs(0)) {
      const int input = sweep(0).inputs[at(k)];
      if (std::find(parameters_.begin(), parameters_.end(), input) != parameters_.end()) continue;
      parameters_.push_back(input);
      values += (values.empty() ? "" : ", ") + element(input, "c");
    }
    if (parameters_.empty()) return;
    text.line("__shared__ Channel channels[kChannels];");
    text.line("for (int c = threadIdx.x; c < kChannels; c += kThreads)");
    text.line("  channels[c] = {" + values + "};");
    text.line("__syncthreads();");
  }
  std::string channel_struct() const {
    std::string members;
    for (int input : parameters_) members += (members.empty() ? "" : ", ") + names_[at(input)];
    return members.empty() ? ""
                           : "// What the program takes of a channel.\nstruct Channel {\n  float " + members +
                                 ";\n};\n\n";
  }

  std::string sums_name() { return value_name(sweep(0).sinks[0].part) + "_sums"; }

  void write_sweep(Text& text) {
    const Sweep& which = sweep(0);
    const Sink& sink = which.sinks[0];
    const std::vector<int> inputs = position_inputs(0);
    text.line("// Sweep: " + narrator_.source(which) + " -> " + narrator_.sink(sink));
    text.line("const long long begin = n * " + number_text(domain_[1]) + " * a.positions + position;");
    text.line("ExpSum " + sums_name() + "[kWidth];");
    std::string from;
    std::string named;
    for (std::size_t k = 0; k < inputs.size(); ++k) {
      from += (k == 0 ? "" : ", ") + tensor(inputs[k]) + " + begin";
      named += (k == 0 ? "const float " : ", ") + names_[at(inputs[k])] + " = in[" + std::to_string(k) + "]";
    }
    text.open("sweep_channels({" + from + "}, a.positions, " + sums_name() +
              ", [&](int c, const float (&in)[" + std::to_string(inputs.size()) + "]) {");
    text.line(named + ";");
    Text statements;
    std::string value =
        write_nested(statements, which.steps,
                     [&](int input) {
                       const int slot = which.inputs[at(input)];
                       return in_ring(slot) ? names_[at(slot)] : "channels[c]." + names_[at(slot)];
                     },
                     "float", true, {sink.step}, {rounded_products(schedule_, which), true})[at(sink.step)];
    nest(statements, value, text);
    text.line("return " + value + ";");
    text.close("});");
  }

  void write_epilogue(Text& text) {
    const Epilogue& epilogue = sweep(0).epilogue;
    for (const std::string& line : narrator_.epilogue(sweep(0))) text.line("// " + line);
    text.open("for (int i = 0; i < kWidth; ++i) {");
    text.line("const long long at = n * a.positions + position + i;");
    std::vector<std::int32_t> wanted;
    for (const Sink& sink : epilogue.sinks)
      if (std::find(wanted.begin(), wanted.end(), sink.step) == wanted.end()) wanted.push_back(sink.step);
    const std::vector<std::string> values = write_nested(
        text, epilogue.steps,
        [&](int input) {
          const bool largest = slot(epilogue.inputs[at(input)]).component == 0;
          return sums_name() + "[i]." + (largest ? "largest" : "sum");
        },
        "float", true, wanted);
    for (std::int32_t step : wanted) {
      std::string to;
      for (const Sink& sink : epilogue.sinks) {
        if (sink.step != step) continue;
        to += tensor(sink.slots[0]) + "[at] = ";
        written_.push_back(sink.slots[0]);
      }
      text.line(to + values[at(step)] + ";");
    }
    text.close();
  }

  PlainChannelsConstants constants_;
  std::vector<int> written_;     // slots
  std::vector<int> parameters_;  // inputs that do not vary over positions, slots
};

// The sums of units are no part of it.
KernelCut without_units(const Schedule& schedule, const KernelCut& cut) {
  KernelCut result = cut;
  result.local.assign(schedule.graph.parts.size(), false);
  return result;
}

}  // namespace

bool is_for_plain_channels(const Schedule& schedule, const KernelCut& cut) {
  if (cut.kind != KernelKind::kColumns || cut.first != cut.last) return false;
  const Sweep& sweep = schedule.steps[at(cut.first)].sweep;
  if (sweep.source >= 0 || sweep.sinks.size() != 1 || sweep.sinks[0].kind != SinkKind::kStatistic)
    return false;
  const int part = sweep.sinks[0].part;
  if (schedule.graph[part].statistic != Statistic::kExpSum || cut.shared[at(part)]) return false;
  return PlainChannelsWriter(schedule, without_units(schedule, cut), {}).takes_reduction();
}

EmittedKernel plain_channels_text(const Schedule& schedule, const KernelCut& cut,
                                  const PlainChannelsConstants& constants) {
  return PlainChannelsWriter(schedule, without_units(schedule, cut), constants).run();
}

}  // namespace fuseblock::cuda
