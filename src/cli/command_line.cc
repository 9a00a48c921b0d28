#include "command_line.h"

#include <cstdlib>
#include <functional>
#include <memory>
#include <sstream>
#include <string>
#include <string_view>

#include <CLI/CLI.hpp>

#include "commands.h"
#include "fuseblock/version.h"

namespace fuseblock::cli {
namespace {

constexpr const char* kDescription =
    "fuseblock runs convolution blocks (convolution, activation, norm, residual, reduction) fused.\n"
    "A BLOCK is notation such as \"conv2d(64, k=3) | group_norm(8) | relu\", @name for a reference block "
    "(`fuseblock info`\n"
    "lists them), a block's JSON, or - for one of these on standard input. A TYPE is f32[2,8,16,16], "
    "bf16[2,8,16,16]:cl, ...";

constexpr double kSecondsOfADay = 86400;
constexpr double kSmallestFactor = 1e-9;
constexpr double kLargestFactor = 1e9;

// A check of a number that need not be whole. Unlike CLI::Range it refuses NaN, which compares with nothing.
std::function<std::string(const std::string&)> between(double least, double most) {
  return [least, most](const std::string& text) -> std::string {
    char* end = nullptr;
    const double number = std::strtod(text.c_str(), &end);
    if (!text.empty() && *end == '\0' && number >= least && number <= most) return "";
    std::ostringstream message;
    message << "expected a number from " << least << " to " << most << ", got `" << text << "`";
    return message.str();
  };
}

// Everything the options are read into, one struct a subcommand.
struct Requests {
  OpsOptions ops;
  InfoOptions info;
  ExplainOptions explain;
  RunOptions run;
  CheckOptions check;
  BenchOptions bench;
  DemoOptions demo;
  SourceOptions source;
  CompileOptions compile;
  TuneCommandOptions tune;
  CacheOptions cache;
};

class CommandLine {
 public:
  explicit CommandLine(Console& console) : console_(console) {
    app_.get_formatter()->column_width(28);
    app_.set_version_flag("--version", std::string("fuseblock ") + kVersion, "Print the version and exit");
    app_.add_flag_callback("--json", [this] { console_.use_json(); }, "Print JSON instead of text");
    app_.require_subcommand(0, 1);
    app_.footer(
        "Examples:\n"
        "  fuseblock demo\n"
        "  fuseblock run \"group_norm(4) | silu\" --input 'f32[2,8,16,16]'\n"
        "  fuseblock explain @conv3d_gn_mean\n\n"
        "`fuseblock COMMAND --help` tells more. Exit status: 0, 1 (a check failed), 2 (bad input).");
    add_ops();
    add_info();
    add_explain();
    add_run();
    add_check();
    add_bench();
    add_demo();
    add_source();
    add_compile();
    add_tune();
    add_cache();
  }

  std::function<int()> read(int argument_count, const char* const* arguments) {
    if (argument_count > 1) refuse_unknown_command(arguments[1]);
    try {
      app_.parse(argument_count, arguments);
    } catch (const CLI::ParseError& error) {
      if (error.get_exit_code() != 0) throw UsageError(message(error));
      std::ostringstream text;
      app_.exit(error, text, text);
      return [this, help = text.str()] {
        console_.print(help);
        return kSuccess;
      };
    }
    if (!command_) throw UsageError("a command is missing\n\n" + app_.help());
    return command_;
  }

 private:
  void refuse_unknown_command(const std::string& word) const {
    if (word.empty() || word.front() == '-') return;
    std::string names;
    for (const CLI::App* command : app_.get_subcommands({})) {
      if (command->get_name() == word) return;
      names += (names.empty() ? "" : ", ") + command->get_name();
    }
    throw UsageError("there is no command `" + word + "`; the commands are " + names);
  }

  std::string message(const CLI::ParseError& error) const {
    std::string path = "fuseblock";
    for (const CLI::App* command : app_.get_subcommands()) path += " " + command->get_name();
    std::string text = error.what();
    if (text.starts_with("The ")) text.front() = 't';
    return text + "; see " + path + " --help";
  }

  // The subcommand runs `command` once everything is read.
  CLI::App* add(const std::string& name, const std::string& description, const std::string& examples,
                std::function<int()> command) {
    CLI::App* sub = app_.add_subcommand(name, description);
    sub->footer("Examples:\n" + examples);
    sub->add_flag_callback("--json", [this] { console_.use_json(); }, "Print JSON instead of text");
    sub->callback([this, command = std::move(command)] { command_ = command; });
    return sub;
  }

  // BLOCK and its types.
  static CLI::Option* add_typed_block(CLI::App* sub, BlockOptions& options) {
    CLI::Option* block =
        sub->add_option("BLOCK", options.block, "Notation, @name, JSON, or - for standard input");
    sub->add_option("-i,--input", options.inputs,
                    "TYPE of x, or name=TYPE of an extra input or parameter; may be repeated")
        ->type_name("TYPE")
        ->allow_extra_args(false);
    sub->add_flag("--small", options.small, "For @name: its small input instead of its users'");
    return block;
  }

  static void add_precision(CLI::App* sub, BlockOptions& options) {
    sub->add_option(
           "--precision", options.precision,
           "Of convolutions of f32 tensors on a GPU: strict (the error of f32) or tf32; strict unless given")
        ->type_name("MODE")
        ->check(CLI::IsMember({"strict", "tf32"}));
  }

  static void add_block_options(CLI::App* sub, BlockOptions& options) {
    add_typed_block(sub, options)->required();
    sub->add_option(
           "-d,--device,-e,--engine", options.device,
           "The device, which names its engine too (see `fuseblock info`); the best one unless given")
        ->type_name("NAME");
    sub->add_option(
           "--force", options.force,
           "A choice that is not left to the planner; may be repeated: store or recompute (a\n"
           "convolution's result that is needed again), team=BLOCKS (of a kernel `rows`), tile=POSITIONS\n"
           "and residency=registers, shared or memory (of a kernel `columns`), plain or plain=no (kernels\n"
           "with a short text)")
        ->type_name("CHOICE")
        ->allow_extra_args(false)
        ->check([](const std::string& text) { return problem_of_choice(text); });
    add_precision(sub, options);
  }

  static void add_wanted(CLI::App* sub, std::vector<std::string>& wanted) {
    sub->add_option("--wanted", wanted, "The gradients to compute, such as x,conv2d.weight; all unless given")
        ->type_name("NAMES")
        ->delimiter(',')
        ->allow_extra_args(false);
  }

  static void add_gradient_options(CLI::App* sub, GradientOptions& options, const std::string& help) {
    sub->add_flag("-b,--backward", options.backward, help);
    add_wanted(sub, options.wanted);
  }

  static void add_unfused(CLI::App* sub, bool& unfused) {
    sub->add_flag("--unfused", unfused,
                  "One operation after the other, each result written to memory, for comparison");
  }

  static void add_seed(CLI::App* sub, std::uint64_t& seed) {
    sub->add_option("-s,--seed", seed, "The seed of the generated data; 0 unless given")
        ->type_name("NUMBER")
        ->check([](const std::string& text) {
          return text.starts_with('-') ? "expected a whole number from 0 on, got `" + text + "`" : "";
        });
  }

  void add_ops() {
    OpsOptions& options = requests_.ops;
    CLI::App* sub = add("ops", "The operations a block is made of, or one of them in detail",
                        "  fuseblock ops\n  fuseblock ops group_norm\n  fuseblock ops hardswish --json",
                        [this] { return run_ops(requests_.ops, console_); });
    sub->add_option("NAME", options.name, "An operation");
    sub->add_flag("--markdown", options.markdown, "Print the page docs/operations.md");
  }

  void add_info() {
    InfoOptions& options = requests_.info;
    CLI::App* sub =
        add("info", "Versions, devices and reference blocks",
            "  fuseblock info\n  fuseblock info --json\n  fuseblock info --measure\n\n"
            "Plans are chosen by a description of the device. That of the CPU is an estimate until it is "
            "measured;\n"
            "the measured one is kept in FUSEBLOCK_CACHE_DIR, else in fuseblock/ of the user's cache folder.",
            [this] { return run_info(requests_.info, console_); });
    sub->add_flag("--measure", options.measure,
                  "Measure this machine's CPU, which takes a few seconds, and keep the result");
  }

  void add_explain() {
    ExplainOptions& options = requests_.explain;
    CLI::App* sub = add(
        "explain", "What a block computes, its parameters, and the plan: sweeps, their cost, the choices",
        "  fuseblock explain @conv3d_gn_mean\n"
        "  fuseblock explain \"group_norm(32, affine=false) | mul(scale) | silu\" --input 'f32[2,64,8,8]'"
        " \\\n      --input 'scale=f32[2,64,1,1]'\n"
        "  fuseblock explain \"conv2d(8, k=3) | relu\" --input 'f32[1,3,8,8]' --backward --wanted x\n"
        "  fuseblock explain @conv_transpose3d_relu_gn --device h200\n"
        "  fuseblock explain @conv3d_gn_mean --dot | dot -Tsvg > plan.svg\n\n"
        "With --device a plan can be made for a GPU that is not there. Times are estimates by the device's "
        "description.",
        [this] { return run_explain(requests_.explain, console_); });
    add_block_options(sub, options.block);
    add_gradient_options(
        sub, options.gradient,
        "Explain the gradients instead, as training runs them: with what forward saves for them");
    sub->add_flag("--dot", options.dot, "Print the plan as a picture, for Graphviz's `dot`");
    sub->add_flag("--statements", options.statements, "Also print the block with one statement a value");
  }

  void add_run() {
    RunOptions& options = requests_.run;
    CLI::App* sub = add(
        "run", "Run a block on generated data; print a digest and statistics of each output",
        "  fuseblock run \"conv2d(8, k=3) | relu\" --input 'f32[1,3,8,8]' --backward\n"
        "  fuseblock run @conv3d_gn_mean --small --save data\n"
        "  fuseblock run @conv3d_gn_mean --small --load data\n"
        "  echo 'y = tanh(x); z = exp(y); return z, y' | fuseblock run - --input 'f64[2,3]'\n\n"
        "Generated data: x and extra inputs are uniform in [0,1), convolution parameters uniform as PyTorch\n"
        "initialises them, gamma 1 + 0.3 normal, beta 0.3 normal, gradients d_* of outputs normal. The "
        "digest is\n"
        "FNV-1a over the bytes; statistics are over the finite elements.\n"
        "Files are NAME.npy, one a tensor (bf16 as f32), and block.json.",
        [this] { return run_run(requests_.run, console_); });
    add_block_options(sub, options.block);
    add_seed(sub, options.seed);
    add_gradient_options(sub, options.gradient, "Run the gradients too");
    add_unfused(sub, options.unfused);
    sub->add_option("--save", options.save, "Write every tensor as .npy and the block as block.json")
        ->type_name("DIR");
    sub->add_option("--load", options.load,
                    "Read every input and parameter from .npy files; with --backward also d_* of outputs")
        ->type_name("DIR");
  }

  void add_check() {
    CheckOptions& options = requests_.check;
    CLI::App* sub = add(
        "check", "Compare an engine with the reference engine: outputs and every gradient",
        "  fuseblock check \"group_norm(4) | silu\" --input 'f32[2,8,5,7]'\n"
        "  fuseblock check @conv3d_hardswish_gn_mean --small --json\n\n"
        "Bound of an engine's error, for each tensor:\n"
        "  max|e| <= tolerance * (1 + max|ref|) * (eps(dtype) + 64 * eps(f32; f64 for f64 tensors))\n"
        "The reference engine itself is run twice over differently filled memory, which must agree bit for\n"
        "bit, and each gradient is held against central differences in f64 along random directions:\n"
        "  |e| <= tolerance * 1e-5 * (size of the slope + 0.001 * sum|d_out * out|)\n"
        "Exit status 1 where a bound is missed.",
        [this] { return run_check(requests_.check, console_); });
    add_block_options(sub, options.block);
    add_seed(sub, options.seed);
    add_wanted(sub, options.wanted);
    sub->add_flag_callback("-b,--backward", [] {}, "Does nothing: gradients are always checked");
    sub->add_option("--tolerance", options.tolerance, "A factor of every bound; 1 unless given")
        ->type_name("FACTOR")
        ->check(between(0, kLargestFactor));
  }

  void add_bench() {
    BenchOptions& options = requests_.bench;
    CLI::App* sub = add("bench", "Time a block: median and spread",
                        "  fuseblock bench \"conv2d(8, k=3) | relu\" --input 'f32[1,3,32,32]'\n"
                        "  fuseblock bench @conv3d_gn_mean --small --backward --json\n"
                        "  fuseblock bench @conv3d_gn_mean --input 'f32[16,3,24,32,32]' --unfused",
                        [this] { return run_bench(requests_.bench, console_); });
    add_block_options(sub, options.block);
    add_seed(sub, options.seed);
    add_gradient_options(sub, options.gradient, "Time forward and backward together, as training runs them");
    add_unfused(sub, options.unfused);
    sub->add_option("-t,--threads", options.threads,
                    "Threads; 0 takes all cores (the reference engine uses one)")
        ->type_name("NUMBER")
        ->check(CLI::Range(0, 4096));
    sub->add_option("-r,--repeat", options.repeat, "Exactly this many runs after one for warming up")
        ->type_name("NUMBER")
        ->check(CLI::Range(1, 10000000));
    sub->add_option("--seconds", options.seconds,
                    "Without --repeat: run for this long, at least three times; 1 unless given")
        ->type_name("SECONDS")
        ->check(between(0, kSecondsOfADay));
  }

  void add_demo() {
    CLI::App* sub =
        add("demo",
            "Run the reference blocks fused and unfused, compare them with the reference engine, "
            "and show a plan",
            "  fuseblock demo\n\n"
            "The blocks have the extents of their users; batches are smaller where time or memory "
            "asks for it.\nExit status 1 where an error is larger than `check` allows.",
            [this] { return run_demo(requests_.demo, console_); });
    sub->add_flag("--small", requests_.demo.small, "Their small inputs instead");
  }

  void add_source() {
    SourceOptions& options = requests_.source;
    CLI::App* sub =
        add("source", "The text of every kernel of a plan, as the run-time compiler is given it",
            "  fuseblock source \"group_norm(32) | silu\" --input 'bf16[2,320,64,64]' --device h200\n"
            "  fuseblock source \"group_norm(32) | silu\" --input 'bf16[2,320,64,64]' --device h200 "
            "--backward\n\n"
            "The first line of each is a comment with the compiler's options.",
            [this] { return run_source(requests_.source, console_); });
    add_block_options(sub, options.block);
    add_gradient_options(sub, options.gradient, "The kernels of the gradients instead");
  }

  void add_compile() {
    CompileOptions& options = requests_.compile;
    CLI::App* sub = add(
        "compile", "Compile every kernel of a plan, without a GPU; print what each takes",
        "  fuseblock compile \"group_norm(32) | silu\" --input 'bf16[2,320,64,64]' --device h200\n"
        "  fuseblock compile \"group_norm(32) | silu\" --input 'bf16[2,320,64,64]' --device a100 --arch all\n"
        "  fuseblock compile \"group_norm(32) | silu\" --input 'bf16[2,320,64,64]' --device h200 --carry "
        "cubins\n\n"
        "Registers and local memory are those of a thread, shared memory is the static one of a block. A "
        "machine\n"
        "without a compiler runs what was compiled here with FUSEBLOCK_CUBINS=FOLDER.",
        [this] { return run_compile(requests_.compile, console_); });
    add_block_options(sub, options.block);
    add_gradient_options(sub, options.gradient, "The kernels of the gradients instead");
    sub->add_option("--arch", options.architectures,
                    "Architectures such as sm_80,sm_90a, or all, each with kernels within its limits; the "
                    "device's unless given")
        ->type_name("NAMES")
        ->delimiter(',')
        ->allow_extra_args(false);
    sub->add_option("--carry", options.carry, "Also write the compiled kernels to this folder")
        ->type_name("FOLDER");
  }

  void add_tune() {
    TuneCommandOptions& options = requests_.tune;
    CLI::App* sub =
        add("tune", "Time how convolution kernels can divide their work on a GPU; keep the fastest",
            "  fuseblock tune @conv3d_gn_mean --precision tf32 --out tuned.json\n"
            "  fuseblock tune --cases benchmarks/gpu/tuned.cases --out src/cuda/tuned.json\n"
            "  fuseblock tune --cases benchmarks/gpu/held_out.cases --within 1.3\n\n"
            "Each launch over a convolution is compiled with the divisions that the cost model finds "
            "cheapest, and\n"
            "timed, nothing of its arguments in L2. Plans take the divisions of the library's own table and "
            "of the\n"
            "one that FUSEBLOCK_TUNED names; `explain` says so. A line of a file of cases is\n"
            "`name: BLOCK @ TYPE MODES`, the modes being strict and tf32; strict where there is none.",
            [this] { return run_tune(requests_.tune, console_); });
    add_typed_block(sub, options.block);
    add_precision(sub, options.block);
    sub->add_option("--cases", options.cases, "A file of blocks, one a line, in place of BLOCK")
        ->type_name("FILE");
    sub->add_option("-d,--device", options.device, "The GPU; cuda unless given")->type_name("NAME");
    sub->add_option("-o,--out", options.out,
                    "A table to write the divisions to; entries for other problems stay")
        ->type_name("FILE");
    sub->add_option("--divisions", options.divisions,
                    "How many of a launch are timed, each of another shape; 12 unless given")
        ->type_name("NUMBER")
        ->check(CLI::Range(1, 1000));
    sub->add_option("-r,--repeat", options.repeat, "Timed runs of each; 9 unless given")
        ->type_name("NUMBER")
        ->check(CLI::Range(1, 100000));
    sub->add_option("--seconds", options.seconds,
                    "Compile nothing more after this long, and keep what is the fastest until then")
        ->type_name("SECONDS")
        ->check(between(0, kSecondsOfADay));
    sub->add_option(
           "--within", options.within,
           "Exit status 1 where a block takes more than this many times as long with the cost model's "
           "divisions")
        ->type_name("FACTOR")
        ->check(between(kSmallestFactor, kLargestFactor));
  }

  void add_cache() {
    CLI::App* sub = add("cache", "The compiled kernels that are kept on disk",
                        "  fuseblock cache ls\n  fuseblock cache clear\n  fuseblock cache path",
                        [this] { return run_cache(requests_.cache, console_); });
    sub->add_option("ACTION", requests_.cache.action,
                    "ls lists them, clear removes them, path is their folder")
        ->required()
        ->check(CLI::IsMember({"ls", "clear", "path"}));
  }

  Console& console_;
  Requests requests_;
  std::function<int()> command_;
  CLI::App app_{kDescription, "fuseblock"};
};

}  // namespace

std::function<int()> read_command_line(int argument_count, const char* const* arguments, Console& console) {
  auto command_line = std::make_shared<CommandLine>(console);
  std::function<int()> command = command_line->read(argument_count, arguments);
  return
      [command_line, command] { return command(); };  // the command reads options that the command line holds
}

}  // namespace fuseblock::cli
