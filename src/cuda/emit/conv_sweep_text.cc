#include "cuda/emit/conv_sweep_text.h"

#include <algorithm>

namespace fuseblock::cuda {
namespace {

std::size_t at(int i) { return static_cast<std::size_t>(i); }
std::string number_text(std::int64_t number) { return std::to_string(number); }

const Rounding kBranchless = {.branchless = true};

}  // namespace

ConvSweepWriter::ConvSweepWriter(const Schedule& schedule, const KernelCut& cut)
    : UnitWriter(schedule, cut),
      conv_(conv_sum(schedule, sweep(0).source)),
      input_(sweep(0).staged[0].inputs[0]) {
  for (const Sink& sink : sweep(0).sinks)
    if (sink.kind == SinkKind::kStatistic) {
      taken_.push_back(&sink);
      over_channels_ = part(sink.part).axes == AxisSet{Axis::kC};
    }
  // What does not vary over positions is worked out once for each channel.
  std::vector<std::int32_t> taken;
  for (const Sink& sink : sweep(0).sinks)
    if (std::find(taken.begin(), taken.end(), sink.step) == taken.end()) taken.push_back(sink.step);
  split_ = split_by_channels(
      sweep(0).steps, static_cast<int>(sweep(0).inputs.size()),
      [&](int input) {
        const int from = sweep(0).inputs[at(input)];
        return from < 0 || over_positions(slot(from).extents);
      },
      taken);
}

std::string ConvSweepWriter::functions_text(ConvMode mode) const {
  if (mode == ConvMode::kTf32) return "2";
  std::vector<int> written = statistic_outputs({}, false);
  for (const Sink& sink : sweep(0).sinks) {
    if (sink.kind == SinkKind::kStore)
      written.push_back(sink.slots[0]);
    else if (!over_channels_ || cut_.shared[at(sink.part)])
      return "0";
  }
  for (const Sink& sink : sweep(0).epilogue.sinks) written.push_back(sink.slots[0]);
  if (written.empty()) return "0";
  const auto all = [&](auto&& holds) { return std::all_of(written.begin(), written.end(), holds); };
  if (!all([&](int slot) { return byte_size(element_type(slot)) == 2; })) return "0";
  return all([&](int slot) { return element_type(slot) == DType::kBF16; }) ? "3" : "1";
}

void ConvSweepWriter::write_structs(Text& text) {
  std::vector<int> steps;
  for (const Sink& sink : sweep(0).sinks)
    if (std::find(steps.begin(), steps.end(), sink.step) == steps.end()) steps.push_back(sink.step);
  text.line("// What the sinks take of an element, and the statistics.");
  text.open("struct Results0 {");
  for (int step : steps) text.line("real r" + number_text(step) + ";");
  text.close("};");
  text.line("// What does not vary over positions.");
  text.open("struct Channel0 {");
  text.line("real bias;");
  for (std::size_t k = 0; k < split_.results.size(); ++k) text.line("real q" + std::to_string(k) + ";");
  text.close("};");
  write_sums_struct(text, "Sums0", "Results0", taken_);
  for (const Sink* sink : taken_) {
    numbers_ += state_numbers(part(sink->part).statistic);
    kept_numbers_ +=
        part(sink->part).statistic == Statistic::kMoments ? 3 : component_count(part(sink->part).statistic);
  }
  write_kept(text);
}

// Moments are sums around one of the thread's own elements: where that is far from the mean, so is the
// variance large of which it is a part, so that nothing is lost to the difference of two large numbers.
void ConvSweepWriter::write_kept(Text& text) const {
  auto name = [](const Sink* sink) { return "s" + number_text(sink->part); };
  auto is_moments = [&](const Sink* sink) { return part(sink->part).statistic == Statistic::kMoments; };
  const std::vector<const Sink*> taken = over_channels_ ? std::vector<const Sink*>() : taken_;
  if (apart_) {
    text.line("// What statistics take of an element: moments how far it is from the one they are around.");
    text.open("struct Taken0 {");
    if (taken.empty()) text.line("int nothing;");
    for (const Sink* sink : taken) text.line("real " + name(sink) + ";");
    text.close("};");
  }
  text.line("// Statistics without the count of their elements; moments as sums around one of them.");
  text.open("struct Kept0 {");
  if (taken.empty()) text.line("int nothing;");
  for (const Sink* sink : taken)
    if (is_moments(sink))
      text.line("real " + name(sink) + "_pivot, " + name(sink) + "_sum, " + name(sink) + "_squares;");
    else
      text.line((part(sink->part).statistic == Statistic::kExpSum ? "branchless::" : "") +
                statistic_type(sink->part, "real") + " " + name(sink) + ";");
  text.open("__device__ void clear() {");
  for (const Sink* sink : taken)
    text.line(is_moments(sink)
                  ? name(sink) + "_pivot = " + name(sink) + "_sum = " + name(sink) + "_squares = 0;"
                  : name(sink) + ".clear();");
  text.close();
  if (moves_sums_) {
    text.line("// Before the first elements are added.");
    text.open("__device__ void begin(const Results0& results) {");
    for (const Sink* sink : taken)
      text.line(name(sink) + "_pivot = results.r" + number_text(sink->step) + ";");
    text.close();
  } else {
    text.line("// Before the first elements are added: those of `inside`, of which there may be none.");
    text.open("__device__ void begin(const Results0 (&results)[kRows], unsigned int inside) {");
    for (const Sink* sink : taken) {
      if (!is_moments(sink)) continue;
      text.line("#pragma unroll");
      text.line("for (int i = kRows - 1; i >= 0; --i)");
      text.line("  if (inside >> i & 1) " + name(sink) + "_pivot = results[i].r" + number_text(sink->step) +
                ";");
    }
    text.close();
  }
  if (apart_) {
    text.open("__device__ Taken0 taken(const Results0& results) const {");
    text.line("Taken0 taken;");
    for (const Sink* sink : taken)
      text.line("taken." + name(sink) + " = results.r" + number_text(sink->step) +
                (is_moments(sink) ? " - " + name(sink) + "_pivot;" : ";"));
    text.line("return taken;");
    text.close();
  }
  text.open(std::string("__device__ void add(const ") + (apart_ ? "Taken0 (&taken)" : "Results0 (&results)") +
            "[kRows], unsigned int inside) {");
  for (const Sink* sink : taken) {
    const std::string value = apart_ ? "taken[i]." + name(sink) : "results[i].r" + number_text(sink->step);
    if (is_moments(sink)) {
      text.line("#pragma unroll");
      if (moves_sums_) {
        text.line("for (int i = 0; i < kRows; ++i)");
        text.open("  if (inside >> i & 1) {");
        text.line(name(sink) + "_sum += " + value + ";");
        text.line(name(sink) + "_squares += " + value + " * " + value + ";");
        text.close();
        continue;
      }
      text.open("for (int i = 0; i < kRows; ++i) {");
      text.line("const real distance = inside >> i & 1 ? " + value +
                (apart_ ? "" : " - " + name(sink) + "_pivot") + " : (real)0;");
      text.line(name(sink) + "_sum += distance;");
      text.line(name(sink) + "_squares += distance * distance;");
      text.close();
    } else {
      text.open("{");
      text.line("real values[kRows];");
      text.line("#pragma unroll");
      text.line("for (int i = 0; i < kRows; ++i) values[i] = " + value + ";");
      text.line(name(sink) + ".add(values, inside);");
      text.close();
    }
  }
  text.close();
  if (moves_sums_ || starts_) {
    text.line("// Elements were less than they are, by so much.");
    text.open("__device__ void move(real by) {");
    for (const Sink* sink : taken)
      if (is_moments(sink)) text.line(name(sink) + "_pivot += by;");
    text.close();
  }
  if (moves_sums_) {
    text.line("// What the lane at `distance` has, around the same numbers.");
    text.open("__device__ void add_lane_at(int distance) {");
    for (const Sink* sink : taken)
      for (const char* sum : {"_sum", "_squares"})
        text.line(name(sink) + sum + " += __shfl_xor_sync(0xffffffffu, " + name(sink) + sum + ", distance);");
    text.close();
  }
  text.open("__device__ Sums0 whole(int count) const {");
  text.line("Sums0 sums;");
  text.line("sums.clear();");
  for (const Sink* sink : taken) {
    if (!is_moments(sink)) {
      text.line("sums." + name(sink) + " = " + name(sink) + ";");
      continue;
    }
    text.open("if (count != 0) {");
    text.line("const real mean = " +
              (moves_sums_ ? "share(" + name(sink) + "_sum, (real)count);" : name(sink) + "_sum / count;"));
    text.line("const real squares = " + name(sink) + "_squares - " + name(sink) + "_sum * mean;");
    text.line("sums." + name(sink) + " = {" + name(sink) +
              "_pivot + mean, squares < 0 ? (real)0 : squares, (real)count};");
    text.close();
  }
  text.line("return sums;");
  text.close();
  text.close("};");
}

int ConvSweepWriter::write_values(Text& text) const {
  const int channels = static_cast<int>(conv_.channels);
  if (tangents()) {
    text.line("// An exponent's form for a channel (device/conv_roll_positions.cuh).");
    text.open("struct alignas(16) Tangent0 {");
    text.line("real scale, offset, slope, constant;");
    text.close("};");
  }
  text.line("// Statistics of one sample, one number for each channel.");
  text.open("struct UnitValues {");
  text.line("Channel0 channels0[kChannels];");
  int bytes = 4 * channels * static_cast<int>(1 + split_.results.size());
  if (tangents()) {
    text.line("Tangent0 tangents0[kChannels];");
    bytes += 16 * (channels + 1);
  }
  text.line(totals() ? "Sums0 totals0[kChannels];" : "Sums0 totals0[1];");
  bytes += 4 * (totals() ? channels : 1) * std::max(numbers_, 1);
  if (totals()) bytes += write_unit_members(text);
  text.close("};");
  return bytes;
}

void ConvSweepWriter::write_input(Text& text) {
  const std::string input = tensor(input_);
  text.line("// " + narrator_.source(sweep(0)));
  text.open("__device__ inline const Element* input_data(const Arguments& a) {");
  text.line("return " + input + ".data;");
  text.close();
  text.open(
      "__device__ inline long long input_offset(const Arguments& a, int n, int c, int d, int h, int w) {");
  text.line("return offset_at(" + input + ", n, c, {d, h, w});");
  text.close();
}

void ConvSweepWriter::write_weight(Text& text) {
  const std::string weight = tensor(sweep(0).weight);
  text.open("__device__ inline float weight_at(const Arguments& a, int k, int c, const Position& tap) {");
  text.line("return to_real(" + weight + ".data[offset_at(" + weight + ", k, c, tap)]);");
  text.close();
}

void ConvSweepWriter::write_sweep(Text& text) {
  const Sweep& which = sweep(0);
  text.line("// " + narrator_.source(which));
  for (const std::string& line : narrator_.program(which)) text.line("//   " + line);
  for (const Sink& sink : which.sinks) text.line("//   -> " + narrator_.sink(sink));
  text.open("struct Sweep0 {");
  text.line("typedef Results0 Results;");
  text.line("typedef Sums0 Sums;");
  text.line("typedef Channel0 Channel;");
  text.line("typedef Kept0 Kept;");
  if (apart_) text.line("typedef Taken0 Taken;");
  text.line(std::string("static constexpr bool kStatistics = ") + (taken_.empty() ? "false;" : "true;"));
  text.open(
      "static __device__ void read_channel(const Arguments& a, const Unit& unit, int c, Channel& channel) "
      "{");
  auto per_channel = [&](int slot, const std::string& n) {
    const std::string from = tensor(slot);
    return "(real)to_real(" + from + ".data[" + from + ".offset(" + n + ", c)])";
  };
  text.line("channel.bias = " + (which.bias < 0 ? "0" : per_channel(which.bias, "0")) + ";");
  const std::vector<std::string> names = write_statements(
      text, split_.position, [&](int input) { return per_channel(which.inputs[at(input)], "unit.n"); },
      "real", single_, kBranchless);
  for (std::size_t k = 0; k < split_.results.size(); ++k)
    text.line("channel.q" + std::to_string(k) + " = " + names[at(split_.results[k])] + ";");
  text.close();
  text.line("static __device__ real bias(const Channel& channel) { return channel.bias; }");
  if (apart_) {
    text.line(std::string("static constexpr bool kBiasLater = ") + (bias_later() ? "true;" : "false;"));
    write_exponentials(text);
  }
  if (moves_sums_ || starts_)
    text.line(std::string("static constexpr bool kMoves = ") +
              (totals() && takes_convolution() ? "true;" : "false;"));
  write_places(text);
  write_program(text);
  write_store(text);
  write_end(text);
  text.close("};");
}

// Whether all that is taken is a sum of exponentials at each position, of which nobody wants the largest, and
// what that takes and gives.
bool ConvSweepWriter::sums_exponentials() const {
  return over_channels_ && taken_.size() == 1 && single_ &&
         part(taken_[0]->part).statistic == Statistic::kExpSum && !cut_.shared[at(taken_[0]->part)];
}

void ConvSweepWriter::write_exponentials(Text& text) const {
  const bool alone = sums_exponentials();
  std::string which = "false";
  if (alone) which = tangents() ? "true" : "k16Bit != 0";
  text.line("static constexpr bool kExponentials = " + which + ";");
  if (!alone) return;
  const std::string name = "s" + number_text(taken_[0]->part);
  text.line("static __device__ real exponent(const Results& results) { return results.r" +
            number_text(taken_[0]->step) + "; }");
  text.open("static __device__ Sums exponential_sum(real base, real sum) {");
  text.line("Sums sums;");
  text.line("sums." + name + ".first = base;");
  text.line("sums." + name + ".second = sum;");
  text.line("return sums;");
  text.close();
  if (late_bias_) write_tangents(text);
}

// The form that all exponents of such a sum have, or nothing.
std::optional<TangentForm> ConvSweepWriter::tangents() const {
  const Sweep& which = sweep(0);
  if (!tangents_ || !sums_exponentials() || which.sinks.size() != 1) return std::nullopt;
  return tangent_form(split_.element, split_.places[at(taken_[0]->step)], [&](int input) -> std::string {
    if (input >= split_.first_result) return "channel.q" + number_text(input - split_.first_result);
    return which.inputs[at(input)] < 0 ? "value" : "";
  });
}

void ConvSweepWriter::write_tangents(Text& text) const {
  const std::optional<TangentForm> form = tangents();
  text.line(std::string("static constexpr bool kTangents = ") + (form ? "true;" : "false;"));
  if (!form) return;
  text.line("static constexpr real kFirst = " + literal(form->first, true) +
            ", kSecond = " + literal(form->second, true) + ";");
  // Sums of products may begin at a bias of the input's own type.
  const int bias = sweep(0).bias;
  const bool same = form->same_rest && (bias < 0 || element_type(bias) == element_type(input_));
  text.line(std::string("static constexpr bool kSameRest = ") + (same ? "true;" : "false;"));
  if (same)
    text.line("static constexpr real kSlope = " + form->slope + ", kConstant = " + form->constant + ";");
  text.line("typedef Tangent0 Tangent;");
  text.line("static __device__ Tangent* tangents(const Unit& unit) { return unit.values->tangents0; }");
  text.open("static __device__ Tangent tangent(const Channel& channel) {");
  text.line("return {" + form->scale + ", " + form->offset + ", " + form->slope + ", " + form->constant +
            "};");
  text.close();
}

bool ConvSweepWriter::bias_later() const {
  return late_bias_ && totals() && sweep(0).bias >= 0 && takes_convolution();
}

bool ConvSweepWriter::takes_convolution() const {
  const Sweep& which = sweep(0);
  return std::ranges::all_of(which.sinks, [&](const Sink& sink) {
    const Formula::Step& step = which.steps[at(sink.step)];
    return sink.kind == SinkKind::kStatistic && part(sink.part).statistic == Statistic::kMoments &&
           step.primitive == Primitive::kInput && which.inputs[at(step.input)] < 0;
  });
}

std::vector<int> ConvSweepWriter::placed_slots() const {
  std::vector<int> slots;
  auto add = [&](int number) {
    if (std::find(slots.begin(), slots.end(), number) == slots.end()) slots.push_back(number);
  };
  for (int number : sweep(0).inputs)
    if (number >= 0 && over_positions(slot(number).extents)) add(number);
  for (const Sink& sink : sweep(0).sinks)
    if (sink.kind == SinkKind::kStore) add(sink.slots[0]);
  return slots;
}

void ConvSweepWriter::write_places(Text& text) {
  const std::vector<int> slots = placed_slots();
  auto name = [](int number) { return "p" + number_text(number); };
  text.line(
      "// Where a position's elements of the first channel lie, and how far behind them those of another "
      "channel.");
  text.open("struct Places {");
  if (slots.empty()) text.line("int nothing;");
  for (int number : slots) text.line(element_name(element_type(number)) + "* " + name(number) + ";");
  text.close("};");
  text.open("struct Steps {");
  if (slots.empty()) text.line("int nothing;");
  for (int number : slots) text.line("long long " + name(number) + ";");
  text.close("};");
  text.open("static __device__ Places places(const Arguments& a, const Unit& unit, const Position& at) {");
  text.line("Places places;");
  for (int number : slots)
    text.line("places." + name(number) + " = " + tensor(number) + ".data + offset_at(" + tensor(number) +
              ", unit.n, 0, at);");
  text.line("return places;");
  text.close();
  text.open("static __device__ Steps steps(const Arguments& a, int c) {");
  text.line("Steps steps;");
  for (int number : slots) text.line("steps." + name(number) + " = c * " + tensor(number) + ".c;");
  text.line("return steps;");
  text.close();
  if (!moves_) return;
  text.open("static __device__ void move(Places& places, const Steps& steps) {");
  for (int number : slots) text.line("places." + name(number) + " += steps." + name(number) + ";");
  text.close();
}

std::string ConvSweepWriter::placed(int number) {
  return "places.p" + number_text(number) + "[steps.p" + number_text(number) + "]";
}

void ConvSweepWriter::write_program(Text& text) {
  const Sweep& which = sweep(0);
  text.open(
      "static __device__ Results program(const Channel& channel, const Places& places, const Steps& steps, "
      "real value) {");
  const std::vector<std::string> names = write_statements(
      text, split_.element,
      [&](int input) -> std::string {
        if (input >= split_.first_result) return "channel.q" + number_text(input - split_.first_result);
        const int from = which.inputs[at(input)];
        return from < 0 ? "value" : "to_real(" + placed(from) + ")";
      },
      "real", single_, kBranchless);
  text.line("Results results;");
  std::vector<int> done;
  for (const Sink& sink : which.sinks) {
    if (std::find(done.begin(), done.end(), sink.step) != done.end()) continue;
    done.push_back(sink.step);
    text.line("results.r" + number_text(sink.step) + " = " + names[at(split_.places[at(sink.step)])] + ";");
  }
  text.line("return results;");
  text.close();
}

void ConvSweepWriter::write_store(Text& text) {
  text.open(
      "static __device__ void store(const Places& places, const Steps& steps, const Results& results) {");
  for (const Sink& sink : sweep(0).sinks) {
    if (sink.kind != SinkKind::kStore) continue;
    text.line("assign(" + placed(sink.slots[0]) + ", results.r" + number_text(sink.step) + ");");
  }
  text.close();
}

// What follows a reduction over channels at its position.
void ConvSweepWriter::write_end(Text& text) {
  const Epilogue& epilogue = sweep(0).epilogue;
  for (const std::string& line : narrator_.epilogue(sweep(0))) text.line("//   " + line);
  text.open(
      "static __device__ void end(const Arguments& a, const Unit& unit, const Position& at, const Sums& "
      "total) "
      "{");
  auto store = [&](int to, const std::string& value) {
    text.line("assign(" + tensor(to) + ".data[offset_at(" + tensor(to) + ", unit.n, 0, at)], " + value +
              ");");
  };
  auto reduced = [&](int number) {
    return "total.s" + number_text(slot(number).part) + (slot(number).component == 0 ? ".first" : ".second");
  };
  if (over_channels_) {
    for (const Sink* sink : taken_) {
      if (!cut_.shared[at(sink->part)]) continue;
      for (int number : sink->slots)
        if (slot(number).kind != SlotKind::kTile) store(number, reduced(number));
    }
    const std::vector<std::string> names = write_statements(
        text, epilogue.steps,
        [&](int input) -> std::string {
          const int from = epilogue.inputs[at(input)];
          const bool own = std::any_of(taken_.begin(), taken_.end(), [&](const Sink* sink) {
            return std::find(sink->slots.begin(), sink->slots.end(), from) != sink->slots.end();
          });
          return own ? reduced(from)
                     : "to_real(" + tensor(from) + ".data[offset_at(" + tensor(from) + ", unit.n, 0, at)])";
        },
        "real", single_, {.branchless = true, .brief_logarithm = late_bias_ && sums_exponentials()});
    for (const Sink& sink : epilogue.sinks) store(sink.slots[0], names[at(sink.step)]);
  }
  text.close();
}

bool ConvSweepWriter::write_programs(Text& text) {
  write_sweep(text);
  if (totals()) write_finalise_units(text);
  if (moves_sums_) write_ask_for_channels(text);
  const std::vector<int> outputs = statistic_outputs(cut_.remaining, true);
  write_finalise_all(text, cut_.remaining, outputs);
  return !cut_.remaining.empty() || !outputs.empty();
}

// What is read of each channel, of those that a launch can ask for before it has anything to do.
void ConvSweepWriter::write_ask_for_channels(Text& text) {
  std::vector<int> slots;
  if (sweep(0).bias >= 0) slots.push_back(sweep(0).bias);
  for (int i = cut_.first; i <= cut_.last; ++i) {
    if (step(i).kind != StepKind::kFinalise) continue;
    for (int number : step(i).parts)
      for (int operand : part(number).operands)
        if (in_unit(number) && !in_unit(operand) && sweep_of(operand) < 0 &&
            part(operand).kind != PartKind::kComponent)
          slots.push_back(statistic_slot(operand));
  }
  text.open("__device__ inline void ask_for_channels(const Arguments& a, int n) {");
  text.line("#pragma unroll 1");
  text.open("for (int c = (int)threadIdx.x; c < kChannels; c += kThreads) {");
  for (int number : slots)
    if (slot(number).kind == SlotKind::kArgument && slot(number).extents[1] == conv_.channels)
      text.line("ask_for(&" + tensor(number) + ".at(n, c));");
  text.close();
  text.close();
}

void ConvSweepWriter::write_finalise_calls(Text& text) const {
  if (!totals()) return;
  text.line("const Team team = {1, 0, unit.n, 1};");
  for (int i = cut_.first; i <= cut_.last; ++i)
    if (has_finalise(i)) text.line("finalise_" + number_text(i) + "<" + crew_ + ">(a, unit, team);");
}

void ConvSweepWriter::write_finish_sample(Text& text) {
  scalar("const char*", "weights");
  scalar("unsigned int*", "finished");
  scalar("unsigned int*", "arrived");
  scalar("Sums0*", "list0");
  text.line("// Behind the last tile of a sample.");
  text.open("__device__ void finish_sample(const Arguments& a, const Unit& unit) {");
  write_finalise_calls(text);
  text.close();
}

std::string ConvSweepWriter::types_text(bool far) const {
  return std::string("typedef int Count;\n") +
         (far ? "typedef long long Offset;\n\n" : "typedef int Offset;\n\n") + device_file("types.cuh") +
         "\ntypedef " + element_name(element_type(input_)) + " Element;\n";
}

void ConvSweepWriter::write_run_item(Text& text, const std::string& stages) {
  scalar("unsigned int*", "finished");
  if (totals()) {
    scalar("unsigned int*", "arrived");
    scalar("Sums0*", "list0");
  }
  text.line("// A run of tiles of one sample, and behind the sample's last the plan's finalise steps.");
  text.open("__device__ inline void run_item(const Arguments& a, long long item, Shared& shared, " + stages +
            " stages) {");
  if (moves_sums_) {
    text.line("const Run run = run_of(a, item);");
    text.line("const Unit unit = {run.n, 0, &shared.values};");
    text.line("sweep_item<Sweep0>(a, unit, run, shared, stages, unit.values->totals0);");
  } else {
    text.line("const int n = (int)(item / a.sample_items);");
    text.line("const int run = (int)(item - n * a.sample_items);");
    text.line("const Unit unit = {n, 0, &shared.values};");
    text.line("const int first = (int)(run * a.tiles / a.sample_items);");
    text.line("const int end = (int)((run + 1) * a.tiles / a.sample_items);");
    text.line("sweep_item<Sweep0>(a, unit, first, end, shared, stages, unit.values->totals0);");
  }
  if (bias_later()) {
    text.line("for (int c = (int)threadIdx.x; c < kChannels; c += kThreads)");
    for (const Sink* sink : taken_)
      text.line("  unit.values->totals0[c].s" + number_text(sink->part) +
                ".first += unit.values->channels0[c].bias;");
    text.line("__syncthreads();");
  }
  if (totals()) {
    text.line(moves_sums_
                  ? "if (!join_items(a, run.number, a.list0 + run.n * a.sample_items * kChannels, "
                    "a.arrived + run.n, unit.values->totals0)) return;"
                  : "if (!join_items(a, run, a.list0 + n * a.sample_items * kChannels, a.arrived + n, "
                    "unit.values->totals0)) return;");
    write_finalise_calls(text);
  }
  text.line("__syncthreads();");
  text.close();
}

}  // namespace fuseblock::cuda
