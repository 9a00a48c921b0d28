#include "cuda/emit/rows_registers_text.h"

#include <algorithm>

#include "cuda/emit/rounded_products.h"
#include "cuda/emit/sigmoid_pairs.h"
#include "cuda/emit/unit_text.h"

namespace fuseblock::cuda {
namespace {

std::size_t at(int i) { return static_cast<std::size_t>(i); }
std::string number_text(std::int64_t number) { return std::to_string(number); }

constexpr int kFirst = 0;
constexpr int kLast = 1;
constexpr int kSweeps = 2;

// What a program's function takes before its results.
constexpr const char* kElement = "const Channel& channel, const Inputs& inputs, int piece, int i";

class RowsRegistersWriter : UnitWriter {
 public:
  RowsRegistersWriter(const Schedule& schedule, const KernelCut& cut, const RowsRegistersConstants& constants)
      : UnitWriter(schedule, cut), constants_(constants) {
    find_unit_sums();
    find_ring();
  }

  bool takes() const {
    const bool units = of_unit(kFirst) || cut_.unit_channels == 1;
    if (sweep_count() != kSweeps || !single_ || ring_.size() != 1 || !units) return false;
    const bool channels = has_channels(kFirst) || !has_channels(kLast);
    const std::vector<Sink>& sinks = sweep(kFirst).sinks;
    if (channels || sinks.size() != 1 || sinks[0].kind != SinkKind::kStatistic ||
        moments().statistic != Statistic::kMoments)
      return false;
    if (!cut_.remaining.empty() || !statistic_outputs(cut_.remaining, true).empty() || has_steps_around())
      return false;
    for (int i = 0; i < kSweeps; ++i)
      if (std::any_of(sweep(i).inputs.begin(), sweep(i).inputs.end(),
                      [&](int input) { return is_direct(input); }))
        return false;
    return std::all_of(sweep(kLast).sinks.begin(), sweep(kLast).sinks.end(),
                       [](const Sink& sink) { return sink.kind == SinkKind::kStore; });
  }

  EmittedKernel run() {
    Text inputs;
    write_inputs(inputs);
    Text values;
    write_values(values);
    Text programs;
    for (int i = 0; i < kSweeps; ++i) write_sweep(programs, i);
    write_finalise_units(programs);
    write_run_unit(programs);
    std::string text = head({{"kThreads", number_text(constants_.threads)},
                             {"kWarps", "kThreads / 32"},
                             {"kBlocks", number_text(constants_.blocks)},
                             {"kCluster", number_text(constants_.cluster)},
                             {"kVector", number_text(constants_.vector)},
                             {"kPieces", number_text(constants_.pieces)},
                             {"kElements", "kVector"},
                             {"kChannels", number_text(domain_[1])},
                             {"kUnitChannels", number_text(cut_.unit_channels)},
                             {"kPositions", number_text(domain_[2] * domain_[3] * domain_[4])},
                             {"k16Bit", writes_16_bit() ? "1" : "0"},
                             {"kFirstDistance", "1"},
                             {"kEndDistance", "32"}});
    for (const char* file : {"types.cuh", "functions.cuh", "statistics.cuh", "running.cuh", "arrivals.cuh",
                             "team.cuh", "crew.cuh"})
      text += "\n" + device_file(file);
    if (sigmoid_of(kLast) >= 0) text += "\n" + device_file("sigmoids.cuh");
    text += "\n" + arguments_struct() + "\n" + inputs.str() + "\n" + values.str() + "\n" +
            device_file("rows_registers.cuh") + "\n" + with_functions(programs.str()) + "\n" +
            device_file("rows_registers.cu");
    return finish("rows_registers", std::move(text));
  }

 private:
  const Part& moments() const { return part(sweep(kFirst).sinks[0].part); }
  // Whether there are finalise steps before the first sweep or behind the last one.
  bool has_steps_around() const {
    return step(cut_.first).kind != StepKind::kSweep || step(cut_.last).kind != StepKind::kSweep;
  }

  // The sigmoid that is taken by pairs; -1 where there is none.
  std::int32_t sigmoid_of(int i) const {
    if (i == kFirst || !writes_16_bit()) return -1;
    return only_sigmoid(sweep(i).steps);
  }

  void write_inputs(Text& text) {
    const std::string name = names_[at(ring_[0])];
    const std::string vector = "Vector<" + element_name(element_type(ring_[0])) + ">";
    text.line("// A thread's vectors; the first lies at `offset` in the tensors.");
    text.open("struct Inputs {");
    text.line(vector + " " + name + "[kPieces];");
    text.close("};");
    text.line(
        "__device__ inline void read_piece(const Arguments& a, long long offset, Inputs& inputs, int piece) "
        "{");
    text.line("  inputs." + name + "[piece] = load_vector(reinterpret_cast<const " + vector + "*>(" +
              tensor(ring_[0]) + ".data + offset));");
    text.line("}");
    text.line(
        "// What a sweep before has made of a vector is not kept for this one, which has no registers for "
        "that.");
    text.open("__device__ inline void keep_as_read(Inputs& inputs, int piece) {");
    text.line("#pragma unroll");
    text.line("for (int i = 0; i < " + vector + "::kWords; ++i) asm volatile(\"\" : \"+r\"(inputs." + name +
              "[piece].words[i]));");
    text.close();
  }

  void write_values(Text& text) {
    const std::string sums = "Sums" + number_text(kFirst),
                      name = "s" + number_text(sweep(kFirst).sinks[0].part);
    text.line("// The moments of a unit.");
    text.open("struct " + sums + " {");
    text.line("Moments<real> " + name + ";");
    text.close("};");
    write_channel_struct(text, kLast);
    text.line("// Statistics of one unit, one number for each of its channels.");
    text.open("struct UnitValues {");
    text.line(sums + " totals" + number_text(kFirst) + "[1];");
    write_unit_members(text);
    text.line("Channel" + number_text(kLast) + " channels[kUnitChannels];");
    text.close("};");
    text.line("// These, and the parts of the block's warps and of the cluster's blocks.");
    text.open("struct Shared {");
    text.line("arrivals::Barrier arrived;");
    text.line("UnitValues values;");
    text.line("Moments<real> list[kWarps];");
    text.line("Moments<real> parts[kCluster];");
    text.close("};");
    text.line("struct NoChannel {};");
  }

  void write_sweep(Text& text, int i) {
    const Sweep& which = sweep(i);
    const std::string name = number_text(i);
    text.line("// Sweep " + name + ": " + narrator_.source(which));
    for (const std::string& line : narrator_.program(which)) text.line("//   " + line);
    for (const Sink& sink : which.sinks) text.line("//   -> " + narrator_.sink(sink));
    text.open("struct Sweep" + name + " {");
    text.line("typedef " + (has_channels(i) ? "Channel" + name : std::string("NoChannel")) + " Channel;");
    text.line("static constexpr int kResults = " + number_text(static_cast<int>(results_of(i).size())) + ";");
    write_channel_functions(text, i);
    write_program(text, i);
    if (i == kLast) {
      write_program_of_vector(text);
      write_stores(text, i);
    }
    text.close("};");
  }

  // Statements for `steps` of a sweep, and the names of all of them, of which those of `wanted` may be used; the input behind the program's own is
  // `of_argument`.
  std::vector<std::string> write_steps(Text& text, int i, std::span<const Formula::Step> steps,
                                       const std::vector<std::int32_t>& wanted) {
    const Sweep& which = sweep(i);
    return write_nested(text, steps,
                        [&](int input) -> std::string {
                          if (input == static_cast<int>(which.inputs.size())) return "of_argument";
                          const int from = which.inputs[at(input)];
                          if (in_ring(from)) return "element_at(inputs." + names_[at(from)] + "[piece], i)";
                          return "channel." + channel_name(i, input);
                        },
                        "real", single_, wanted, {rounded_products(schedule_, which), !writes_16_bit()});
  }
  void write_results(Text& text, int i, std::span<const Formula::Step> steps) {
    const std::vector<std::int32_t> wanted = results_of(i);
    const std::vector<std::string> names = write_steps(text, i, steps, wanted);
    for (std::size_t k = 0; k < wanted.size(); ++k)
      text.line("results[" + std::to_string(k) + "][i] = " + names[at(wanted[k])] + ";");
  }
  void write_program(Text& text, int i) {
    text.line(std::string("static __device__ void program(") + kElement + ",");
    text.open("                               real (&results)[kResults][kVector]) {");
    write_results(text, i, sweep(i).steps);
    text.close();
  }

  // All elements of a vector: where pairs share a reciprocal, the sigmoids' arguments first, and then what takes these.
  void write_program_of_vector(Text& text) {
    const std::int32_t sigmoid = sigmoid_of(kLast);
    const bool pairs = sigmoid >= 0;
    if (pairs) {
      const std::int32_t argument = sweep(kLast).steps[at(sigmoid)].a;
      text.open(std::string("static __device__ real argument(") + kElement + ") {");
      const std::vector<std::string> names = write_steps(text, kLast, sweep(kLast).steps, {argument});
      text.line("return " + names[at(argument)] + ";");
      text.close();
      text.line(std::string("static __device__ void program_behind(") + kElement + ", real of_argument,");
      text.open("                                      real (&results)[kResults][kVector]) {");
      write_results(
          text, kLast,
          behind_sigmoid(sweep(kLast).steps, sigmoid, static_cast<int>(sweep(kLast).inputs.size())));
      text.close();
    }
    write_pairs_hold(text, pairs);
    text.line(
        "static __device__ float program_of_vector(const Channel& channel, const Inputs& inputs, int piece,");
    text.open("                                          real (&results)[kResults][kVector]) {");
    if (pairs) text.line("real arguments[kVector], of_arguments[kVector];");
    const auto each = [&](const std::string& call) {
      text.line("#pragma unroll");
      text.line("for (int i = 0; i < kVector; ++i) " + call);
    };
    if (pairs) {
      each("arguments[i] = argument(channel, inputs, piece, i);");
      text.line("const float products = sigmoids(arguments, of_arguments);");
      each("program_behind(channel, inputs, piece, i, of_arguments[i], results);");
    } else {
      each("program(channel, inputs, piece, i, results);");
    }
    text.line(pairs ? "return products;" : "return 0;");
    text.close();
  }

  void write_stores(Text& text, int i) {
    text.line("static __device__ void store(const Arguments& a, long long offset,");
    text.open("                             const real (&results)[kResults][kVector]) {");
    for (const Sink& sink : sweep(i).sinks)
      text.line("store_vector(" + tensor(sink.slots[0]) + ".data + offset, results[" +
                number_text(result_number(i, sink.step)) + "]);");
    text.close();
  }

  void write_run_unit(Text& text) {
    const std::string first = number_text(kFirst), last = number_text(kLast);
    text.line("// The plan's steps for the unit.");
    text.line("__device__ inline void run_unit(const Arguments& a, const Team& team, const Unit& unit,");
    text.open("                                const Share& share, Shared& shared) {");
    text.line("Inputs inputs;");
    text.line("#pragma unroll");
    text.line("for (int piece = 0; piece < kPieces; ++piece)");
    text.line("  if (share.has(piece)) read_piece(a, share.offset(piece), inputs, piece);");
    text.line("begin_parts(shared);");
    text.line("OwnChannels<Sweep" + last + "> channels;");
    text.line("if (is_first_warp()) channels.parameters(a, unit);");
    text.line("const Moments<real> total = of_unit(team, first_sweep<Sweep" + first +
              ">(share, inputs), shared);");
    text.open("if (is_first_warp()) {");
    text.line("if (threadIdx.x == 0) unit.values->totals" + first + "[0].s" +
              number_text(sweep(kFirst).sinks[0].part) + " = total;");
    text.line("__syncwarp();");
    for (int i = cut_.first; i < cut_.last; ++i)
      if (has_finalise(i)) text.line("finalise_" + number_text(i) + "<Warp>(a, unit, team);");
    text.line("channels.prepare(a, unit, unit.values->channels);");
    text.close();
    text.line("__syncthreads();");
    text.line("last_sweep<Sweep" + last + ">(a, share, inputs, unit.values->channels);");
    text.close();
  }

  RowsRegistersConstants constants_;
};

}  // namespace

bool is_for_rows_registers(const Schedule& schedule, const KernelCut& cut) {
  return RowsRegistersWriter(schedule, cut, {}).takes();
}

EmittedKernel rows_registers_text(const Schedule& schedule, const KernelCut& cut,
                                  const RowsRegistersConstants& constants) {
  return RowsRegistersWriter(schedule, cut, constants).run();
}

}  // namespace fuseblock::cuda
