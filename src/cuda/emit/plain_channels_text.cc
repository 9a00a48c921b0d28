#include "cuda/emit/plain_channels_text.h"

#include <algorithm>
#include <map>

#include "cuda/emit/plain_values.h"
#include "cuda/emit/rounded_products.h"

namespace fuseblock::cuda {
namespace {

std::size_t at(int i) { return static_cast<std::size_t>(i); }
std::string number_text(std::int64_t number) { return std::to_string(number); }

class PlainChannelsWriter : public PlainValues {
 public:
  PlainChannelsWriter(const Schedule& schedule, const KernelCut& cut, const PlainChannelsConstants& constants)
      : PlainValues(schedule, cut), constants_(constants) {
    by_units_ = false;
  }

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
    text += "\n" + addresses_struct(written_) + "\n" + with_functions(program);
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
    std::string members;
    std::string values;
    for (int k : channel_inputs(0)) {
      const int input = sweep(0).inputs[at(k)];
      const int from = saved_like(input);
      if (parameters_.contains(input)) continue;
      parameters_[input] = names_[at(from)];
      members += (members.empty() ? "" : ", ") + names_[at(from)];
      values += (values.empty() ? "" : ", ") + element(from, "c");
    }
    if (parameters_.empty()) return;
    text.open("struct Channel {");
    text.line("float " + members + ";");
    text.close("};");
    text.line("__shared__ Channel channels[kChannels];");
    text.line("for (int c = threadIdx.x; c < kChannels; c += kThreads)");
    text.line("  channels[c] = {" + values + "};");
    text.line("__syncthreads();");
  }
  // The tensor with the same numbers that an earlier step has saved for backward; a statistic itself where there is none.
  int saved_like(int input) const {
    if (slot(input).kind != SlotKind::kStatistic) return input;
    for (int i = 0; i < cut_.first; ++i)
      for (int output : step(i).operands)
        if (step(i).kind == StepKind::kFinalise && slot(output).kind == SlotKind::kOutput &&
            is_small(output) && is_f32(output) && value_of(output) == value_of(input))
          return output;
    return input;
  }
  // What a statistic's slot has: a part, at channels or their groups, and a component of it.
  std::pair<int, int> value_of(int number) const {
    std::pair<int, int> value = {slot(number).part, slot(number).component};
    for (;;) {
      const Part& which = part(value.first);
      if (which.kind == PartKind::kComponent) value.second = which.component;
      if (which.kind != PartKind::kComponent && which.kind != PartKind::kRegroup) return value;
      value.first = which.operands[0];
    }
  }

  std::string sums_name() { return value_name(sweep(0).sinks[0].part) + "_sums"; }

  // The loop over the channels: the elements of several are on the way at once.
  void write_sweep(Text& text) {
    const Sweep& which = sweep(0);
    const Sink& sink = which.sinks[0];
    const std::vector<int> inputs = position_inputs(0);
    const bool vectors = constants_.width > 1;
    const bool behind = domain_[1] % constants_.batch != 0;
    std::string arrays;
    std::string named;
    for (int input : inputs) {
      arrays += names_[at(input)] + "s[kBatch][kWidth], ";
      named +=
          (named.empty() ? "const float " : ", ") + names_[at(input)] + " = " + names_[at(input)] + "s[b][i]";
    }
    text.line("// Sweep: " + narrator_.source(which) + " -> " + narrator_.sink(sink));
    text.line("const long long begin = n * " + number_text(domain_[1]) + " * a.positions + position;");
    text.line("ExpSum " + sums_name() + "[kWidth];");
    text.open("for (int first = 0; first < kChannels; first += kBatch) {");
    text.line("alignas(16) float " + arrays + "values[kWidth][kBatch];");
    const std::string each_channel =
        std::string("for (int b = 0; b < kBatch") + (behind ? " && first + b < kChannels" : "") + "; ++b)";
    text.open(each_channel + (inputs.size() > 1 ? " {" : ""));
    for (int input : inputs) {
      const std::string from = tensor(input) + " + begin + (first + b) * a.positions";
      text.line(vectors ? "*(float4*)" + names_[at(input)] + "s[b] = *(const float4*)(" + from + ");"
                        : names_[at(input)] + "s[b][0] = *(" + from + ");");
    }
    if (inputs.size() > 1)
      text.close();
    else
      text.dedent();
    text.line("__syncwarp();  // all loads have begun before the first is used");
    text.open("for (int b = 0; b < kBatch; ++b)");
    text.open("for (int i = 0; i < kWidth; ++i) {");
    if (behind) {
      text.line("values[i][b] = -__int_as_float(0x7f800000);  // behind the last channel");
      text.line("if (first + b >= kChannels) continue;");
    }
    text.line(named + ";");
    if (!parameters_.empty()) text.line("const Channel& channel = channels[first + b];");
    Text statements;
    std::string value =
        write_nested(statements, which.steps,
                     [&](int input) {
                       const int slot = which.inputs[at(input)];
                       return in_ring(slot) ? names_[at(slot)] : "channel." + parameters_.at(slot);
                     },
                     "float", true, {sink.step}, {rounded_products(schedule_, which), true})[at(sink.step)];
    nest(statements, value, text);
    text.line("values[i][b] = " + value + ";");
    text.close();
    text.dedent();
    text.line("for (int i = 0; i < kWidth; ++i) " + sums_name() + "[i].add(values[i]);");
    text.close();
  }

  void write_epilogue(Text& text) {
    const Epilogue& epilogue = sweep(0).epilogue;
    for (const std::string& line : narrator_.epilogue(sweep(0))) text.line("// " + line);
    text.open("for (int i = 0; i < kWidth; ++i) {");
    text.line("const float largest = " + sums_name() + "[i].largest, sum = " + sums_name() + "[i].sum;");
    std::vector<std::int32_t> wanted;
    for (const Sink& sink : epilogue.sinks)
      if (std::find(wanted.begin(), wanted.end(), sink.step) == wanted.end()) wanted.push_back(sink.step);
    const std::vector<std::string> values = write_nested(
        text, epilogue.steps,
        [&](int input) {
          const bool largest = slot(epilogue.inputs[at(input)]).component == 0;
          return std::string(largest ? "largest" : "sum");
        },
        "float", true, wanted);
    for (std::int32_t step : wanted) {
      std::string to;
      for (const Sink& sink : epilogue.sinks) {
        if (sink.step != step) continue;
        to += tensor(sink.slots[0]) + "[n * a.positions + position + i] = ";
        written_.push_back(sink.slots[0]);
      }
      text.line(to + values[at(step)] + ";");
    }
    text.close();
  }

  PlainChannelsConstants constants_;
  std::vector<int> written_;               // slots
  std::map<int, std::string> parameters_;  // names of inputs that do not vary over positions, by slots
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
