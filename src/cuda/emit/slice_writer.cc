#include "cuda/emit/slice_writer.h"

#include <algorithm>
#include <numeric>

#include "cuda/emit/rounded_products.h"
#include "cuda/emit/sigmoid_pairs.h"

namespace fuseblock::cuda {
namespace {

std::size_t at(int i) { return static_cast<std::size_t>(i); }
std::string number_text(std::int64_t number) { return std::to_string(number); }

// The number of an input that no program has: what the sigmoid of an element is.
constexpr int kOfArgument = 1 << 20;

constexpr int kAlignment = 128;
// Of a struct's members, and what it has where it has nothing.
constexpr int kPadding = 16;

}  // namespace

SliceWriter::SliceWriter(const Schedule& schedule, const KernelCut& cut, const SlicesConstants& constants)
    : UnitWriter(schedule, cut), constants_(constants) {
  find_ring();
  for (int input : ring_) ring_chunk_bytes_ += chunk_bytes(input);
  for (int i = 0; i < sweep_count(); ++i) {
    const Sweep& which = sweep(i);
    std::vector<std::int32_t> taken;
    for (const Sink& sink : which.sinks) taken.push_back(sink.step);
    programs_.push_back(split_by_channels(
        which.steps, static_cast<int>(which.inputs.size()),
        [&](int input) { return !is_channel_input(which.inputs[at(input)]); }, taken));
  }
}

SlicesText SliceWriter::run() {
  Text structs;
  for (int i = 0; i < sweep_count(); ++i) write_structs(structs, i);
  Text inputs;
  write_inputs(inputs);
  Text values;
  write_unit_values(values);
  Text programs;
  for (int i = 0; i < sweep_count(); ++i) write_sweep(programs, i);
  write_finalise_units(programs);
  const std::vector<int> outputs = statistic_outputs(cut_.remaining, true);
  const bool tail = !cut_.remaining.empty() || !outputs.empty();
  write_finalise_all(programs, cut_.remaining, outputs);
  write_unit_functions(programs);
  add_scalars();

  const int units = constants_.ahead ? 2 : 1;
  const int shared_bytes = (list_bytes_ + units * unit_bytes_ + kAlignment - 1) / kAlignment * kAlignment;
  std::string text = head(constants(shared_bytes, tail));
  const double positions =
      static_cast<double>(domain_[2]) * static_cast<double>(domain_[3]) * static_cast<double>(domain_[4]);
  text += positions < 1e9 ? "typedef int Count;\n" : "typedef long long Count;\n";
  for (const std::string& file : first_files()) text += "\n" + device_file(file);
  text += "\n" + structs.str() + "\n" + arguments_struct() + "\n" + inputs.str() + "\n" + values.str();
  for (const std::string& file : files()) text += "\n" + device_file(file);
  text += "\n" + with_functions(programs.str()) + "\n" + device_file(kernel_file());
  SlicesText result;
  result.kernel = finish(name(), std::move(text));
  result.vector_bytes = ring_chunk_bytes_ / constants_.pieces;
  result.shared_bytes = shared_bytes;
  result.unit_bytes = unit_bytes_;
  result.group_statistics = true;
  for (int i = 0; i < sweep_count(); ++i)
    if (has_statistics(i) && common_group(i) == 0) result.group_statistics = false;
  result.tail = tail;
  result.passes = sweep_count();
  result.list_numbers = list_numbers_;
  for (int i = 0; i < sweep_count(); ++i)
    result.hoisted_numbers = std::max(result.hoisted_numbers, hoisted_numbers(i));
  return result;
}

int SliceWriter::list_slots() const {
  const int slots = constants_.row_positions * static_cast<int>(cut_.unit_channels);
  return std::max(slices_lists(constants_, slots / constants_.vector) * slots,
                  static_cast<int>(cut_.unit_channels) + 16);
}

int SliceWriter::part_slots(int group) const {
  const int vector = constants_.vector, common = std::gcd(group, vector);
  const bool whole = common == group || common == vector;
  const int columns = (group + vector - common - 1) / vector + 1;
  const int channels = static_cast<int>(cut_.unit_channels);
  return slices_lists(constants_, channels / vector) * (channels / group) *
         (whole ? columns / std::min(32, columns & -columns) : columns);
}

std::vector<const Sink*> SliceWriter::statistics_of(int i) const {
  std::vector<const Sink*> taken;
  for (const Sink& sink : sweep(i).sinks)
    if (sink.kind == SinkKind::kStatistic) taken.push_back(&sink);
  return taken;
}

void SliceWriter::write_structs(Text& text, int i) {
  const std::string name = number_text(i);
  std::vector<std::int32_t> steps;
  for (const Sink& sink : sweep(i).sinks)
    if (std::find(steps.begin(), steps.end(), sink.step) == steps.end()) steps.push_back(sink.step);
  text.line("// Sweep " + name + ": what its sinks take of an element.");
  text.open("struct Results" + name + " {");
  for (std::int32_t step : steps) text.line("real r" + number_text(step) + ";");
  text.close("};");
  text.line("// What its program takes that does not vary over positions, and what that comes to.");
  const std::vector<int> inputs = channel_inputs(i);
  text.open("struct Channel" + name + " {");
  if (inputs.empty()) text.line("int nothing;");
  for (int k : inputs) text.line("real i" + number_text(k) + ";");
  text.close("};");
  const std::size_t hoisted = programs_[at(i)].results.size();
  text.open("struct Hoisted" + name + " {");
  if (hoisted == 0) text.line("int nothing;");
  for (std::size_t k = 0; k < hoisted; ++k) text.line("real h" + std::to_string(k) + ";");
  text.close("};");
  write_sums(text, i);
  const int real_bytes = single_ ? 4 : 8;
  const int channels = static_cast<int>(cut_.unit_channels);
  int numbers = 0;
  for (const Sink* sink : statistics_of(i)) numbers += state_numbers(part(sink->part).statistic);
  list_numbers_.push_back(numbers);
  unit_bytes_ += real_bytes * (static_cast<int>(inputs.size()) + numbers) * channels;
  list_bytes_ += numbers * real_bytes * list_slots();
}

void SliceWriter::write_sums(Text& text, int i) {
  const std::string name = number_text(i);
  const std::vector<const Sink*> taken = statistics_of(i);
  auto each = [&](const std::string& head, const auto& line) {
    text.open(head);
    for (const Sink* sink : taken) text.line(line(*sink));
    text.close();
  };
  text.line("// Its statistics: of a channel, and of a thread's channels.");
  text.open("struct Sums" + name + " {");
  if (taken.empty()) text.line("int nothing;");
  for (const Sink* sink : taken) text.line(statistic_type(sink->part, "real") + " " + sum_name(*sink) + ";");
  each("__device__ void clear() {", [](const Sink& sink) { return sum_name(sink) + ".clear();"; });
  each("__device__ void merge(const Sums" + name + "& other) {",
       [](const Sink& sink) { return sum_name(sink) + ".merge(other." + sum_name(sink) + ");"; });
  each("__device__ void merge_lanes() {",
       [](const Sink& sink) { return sum_name(sink) + ".merge_lanes();"; });
  write_more_sums(text, name, taken);
  text.close("};");

  text.open("struct VectorSums" + name + " {");
  if (taken.empty()) text.line("int nothing;");
  for (const Sink* sink : taken)
    text.line(vector_sums() + "<" + statistic_type(sink->part, "real") + "> " + sum_name(*sink) + ";");
  each("__device__ void clear() {", [](const Sink& sink) { return sum_name(sink) + ".clear();"; });
  text.open("__device__ void add(const Results" + name + " (&results)[kVector]) {");
  write_values(text, taken, "add");
  text.close();
  text.open("__device__ void start(const Results" + name + " (&results)[kVector]) {");
  write_values(text, taken, "start");
  text.close();
  each("__device__ void took(int count) {",
       [](const Sink& sink) { return sum_name(sink) + ".took(count);"; });
  each("__device__ void finish() {", [](const Sink& sink) { return sum_name(sink) + ".finish();"; });
  each("template <int kRows, int kApart> __device__ void merge_rows(int row) {",
       [](const Sink& sink) { return sum_name(sink) + ".template merge_rows<kRows, kApart>(row);"; });
  text.open("__device__ Sums" + name + " at(int v) const {");
  text.line("Sums" + name + " sums;");
  for (const Sink* sink : taken) text.line("sums." + sum_name(*sink) + " = " + sum_name(*sink) + ".at(v);");
  text.line("return sums;");
  text.close();
  text.close("};");
}

void SliceWriter::write_merge_all(Text& text, const std::string& name,
                                  const std::vector<const Sink*>& taken) const {
  text.open("template <int kParts> __device__ void merge_all(const Sums" + name + " (&parts)[kParts]) {");
  for (const Sink* sink : taken) {
    text.open("{");
    text.line(statistic_type(sink->part, "real") + " all[kParts];");
    text.line("#pragma unroll");
    text.line("for (int i = 0; i < kParts; ++i) all[i] = parts[i]." + sum_name(*sink) + ";");
    text.line(sum_name(*sink) + ".merge_all(all);");
    text.close();
  }
  text.close();
}

void SliceWriter::write_values(Text& text, const std::vector<const Sink*>& taken,
                               const std::string& function) {
  for (const Sink* sink : taken) {
    text.open("{");
    text.line("real values[kVector];");
    text.line("#pragma unroll");
    text.line("for (int v = 0; v < kVector; ++v) values[v] = results[v].r" + number_text(sink->step) + ";");
    text.line(sum_name(*sink) + "." + function + "(values);");
    text.close();
  }
}

void SliceWriter::write_inputs(Text& text) {
  text.line(
      "// A thread's vectors of a chunk, of each value in the ring. `offset` is where the first lies in "
      "the tensors,");
  text.line("// `row` its row in the unit, which has `end` of them.");
  text.open("struct Inputs {");
  if (ring_.empty()) text.line("int nothing;");
  for (int input : ring_) text.line(vector_type(input) + " " + names_[at(input)] + "[kPieces];");
  text.close("};");
  write_reading(text);
}

int SliceWriter::vector_bytes(int input) const {
  return constants_.vector * static_cast<int>(byte_size(element_type(input)));
}

void SliceWriter::write_unit_values(Text& text) {
  text.line("// Statistics of one unit, one number for each of its channels.");
  text.open("struct UnitValues {");
  for (int i = 0; i < sweep_count(); ++i)
    if (has_statistics(i))
      text.line("Sums" + number_text(i) + " totals" + number_text(i) + "[kUnitChannels];");
  for (int i = cut_.first; i <= cut_.last; ++i) {
    if (step(i).kind != StepKind::kFinalise) continue;
    for (int number : step(i).parts) {
      const Part& which = part(number);
      if (!in_unit(number) || which.kind == PartKind::kComponent || which.kind == PartKind::kRegroup)
        continue;
      if (constants_.registers > 0 && unit_sum(number) >= 0) continue;  // among a sweep's totals
      const bool merged = which.kind == PartKind::kMerge || which.kind == PartKind::kReduce;
      unit_bytes_ += (single_ ? 4 : 8) * static_cast<int>(cut_.unit_channels) *
                     (merged ? state_numbers(which.statistic) : 1);
    }
  }
  write_unit_members(text);
  write_prepared(text);
  text.line("int nothing;");
  text.close("};");
  write_shared(text);
  unit_bytes_ += kPadding;
}

void SliceWriter::write_sweep(Text& text, int i) {
  const Sweep& which = sweep(i);
  const PositionSteps& program = programs_[at(i)];
  const std::vector<bool> rounded = rounded_products(schedule_, which);
  const std::string name = number_text(i);
  text.line("// Sweep " + name + ": " + narrator_.source(which));
  for (const std::string& line : narrator_.program(which)) text.line("//   " + line);
  for (const Sink& sink : which.sinks) text.line("//   -> " + narrator_.sink(sink));
  text.open("struct Sweep" + name + " {");
  for (const char* type : {"Results", "Sums", "VectorSums", "Channel", "Hoisted"})
    text.line(std::string("typedef ") + type + name + " " + type + ";");
  text.line("static constexpr bool " + sweep_constant(i) + ";");

  for (const bool statistics : {false, true}) {
    text.open(std::string("static __device__ void ") + (statistics ? "statistics" : "parameters") +
              "(const Arguments& a, const Unit& unit, int c, Channel& channel) {");
    for (int k : channel_inputs(i)) {
      const int input = which.inputs[at(k)];
      if (made_here(input) == statistics)
        text.line("channel.i" + number_text(k) + " = (real)" + channel_value(input) + ";");
    }
    text.close();
  }

  text.open("static __device__ Hoisted hoisted(const Channel* channels, int c) {");
  text.line("Hoisted result = {};");
  if (!program.results.empty()) {
    text.line("const Channel channel = channels[c];");
    const std::vector<std::string> names = write_statements(
        text, program.position, [](int input) { return "channel.i" + std::to_string(input); }, "real",
        single_, {rounded_at(rounded, program.position_places), !writes_16_bit()});
    for (std::size_t k = 0; k < program.results.size(); ++k)
      text.line("result.h" + std::to_string(k) + " = " + names[at(program.results[k])] + ";");
  }
  text.line("return result;");
  text.close();

  write_element(text, i);
  if (goes_by_vectors()) write_vector(text, i);

  text.open(
      "static __device__ void store(const Arguments& a, long long offset, const Results "
      "(&results)[kVector]) {");
  for (const Sink& sink : which.sinks) {
    if (sink.kind != SinkKind::kStore) continue;
    text.open("{");
    text.line("real values[kVector];");
    text.line("#pragma unroll");
    text.line("for (int v = 0; v < kVector; ++v) values[v] = results[v].r" + number_text(sink.step) + ";");
    text.line("store_vector(" + tensor(sink.slots[0]) + ".data + offset, values);");
    text.close();
  }
  text.close();
  text.close("};");
}

std::vector<std::string> SliceWriter::write_element_steps(Text& text, int i,
                                                          std::span<const Formula::Step> steps) {
  const Sweep& which = sweep(i);
  const PositionSteps& program = programs_[at(i)];
  if (std::any_of(which.inputs.begin(), which.inputs.end(), [&](int input) { return is_direct(input); })) {
    text.line("const int c = unit.first_channel + place.channel(v);");
    text.line("const Position at = position_at((long long)row * kRowPositions + place.position(v), " +
              scalar("long long", "height") + ", " + scalar("long long", "width") + ");");
  }
  std::vector<bool> rounded = rounded_at(rounded_products(schedule_, which), program.places);
  return write_statements(text, steps,
                          [&](int input) -> std::string {
                            if (input == kOfArgument) return "of_argument";
                            if (input >= program.first_result)
                              return "channel.h" + number_text(input - program.first_result);
                            const int from = which.inputs[at(input)];
                            if (in_ring(from)) return "element_at(inputs." + names_[at(from)] + "[piece], v)";
                            return "to_real(" + tensor(from) + ".data[offset_at(" + tensor(from) +
                                   ", unit.n, c, at)])";
                          },
                          "real", single_, {std::move(rounded), !writes_16_bit()});
}

void SliceWriter::write_element_results(Text& text, int i, const std::vector<std::string>& names) {
  text.line("Results results;");
  std::vector<std::int32_t> done;
  for (const Sink& sink : sweep(i).sinks) {
    if (std::find(done.begin(), done.end(), sink.step) != done.end()) continue;
    done.push_back(sink.step);
    text.line("results.r" + number_text(sink.step) + " = " +
              names[at(programs_[at(i)].places[at(sink.step)])] + ";");
  }
  text.line("return results;");
}

void SliceWriter::write_element(Text& text, int i) {
  text.line(
      "static __device__ Results program(const Arguments& a, const Hoisted& channel, const Inputs& inputs, "
      "int piece,");
  text.open("                                 int v, const Unit& unit, const Place& place, Count row) {");
  write_element_results(text, i, write_element_steps(text, i, programs_[at(i)].element));
  text.close();
}

std::int32_t SliceWriter::paired_sigmoid(int i) const {
  const bool pairs = goes_by_vectors() && !has_statistics(i) && writes_16_bit() && constants_.vector % 2 == 0;
  return pairs ? only_sigmoid(programs_[at(i)].element) : -1;
}

void SliceWriter::write_vector(Text& text, int i) {
  const std::span<const Formula::Step> steps = programs_[at(i)].element;
  const std::int32_t sigmoid = paired_sigmoid(i);
  const bool pairs = sigmoid >= 0;
  const std::string element = "const Arguments& a, const Hoisted& channel, const Inputs& inputs, int piece,";
  const std::string place = "int v, const Unit& unit, const Place& place, Count row";
  if (pairs) {
    const std::int32_t argument = steps[at(sigmoid)].a;
    text.line("static __device__ real argument(" + element);
    text.open("                                 " + place + ") {");
    const std::vector<std::string> names = write_element_steps(text, i, steps.first(at(argument) + 1));
    text.line("return " + names[at(argument)] + ";");
    text.close();
    text.line("static __device__ Results program_behind(" + element);
    text.open("                                        " + place + ", real of_argument) {");
    write_element_results(text, i, write_element_steps(text, i, behind_sigmoid(steps, sigmoid, kOfArgument)));
    text.close();
  }
  write_pairs_hold(text, pairs);
  text.line(
      "static __device__ float program_of_vector(const Arguments& a, const Hoisted (&channels)[kVector], "
      "const "
      "Inputs& inputs,");
  text.line(
      "                                          int piece, const Unit& unit, const Place& place, Count "
      "row,");
  text.open("                                          Results (&results)[kVector]) {");
  const auto each = [&](const std::string& to, const std::string& function, const std::string& last) {
    text.line("#pragma unroll");
    text.line("for (int v = 0; v < kVector; ++v) " + to + "[v] = " + function +
              "(a, channels[v], inputs, piece, v, unit, place, row" + last + ");");
  };
  if (pairs) {
    text.line("real arguments[kVector], of_arguments[kVector];");
    each("arguments", "argument", "");
    text.line("const float products = sigmoids(arguments, of_arguments);");
    each("results", "program_behind", ", of_arguments[v]");
    text.line("return products;");
  } else {
    each("results", "program", "");
    text.line("return 0;");
  }
  text.close();
}

}  // namespace fuseblock::cuda
