// The subcommands: what each is asked (filled in from the command line by command_line.cc) and the function
// that answers, one file each. They return an exit status and throw for bad input.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "arguments.h"
#include "console.h"

namespace fuseblock::cli {

struct OpsOptions {
  std::string name;  // empty: all of them
  bool markdown = false;
};
int run_ops(const OpsOptions& options, const Console& console);
// The page docs/operations.md.
std::string operations_page();

struct InfoOptions {
  bool measure = false;
};
int run_info(const InfoOptions& options, const Console& console);

struct ExplainOptions {
  BlockOptions block;
  GradientOptions gradient;
  bool statements = false;
  bool dot = false;
};
int run_explain(const ExplainOptions& options, const Console& console);

struct RunOptions {
  BlockOptions block;
  GradientOptions gradient;
  std::uint64_t seed = 0;
  std::string save;  // a folder; empty: do not
  std::string load;
  bool unfused = false;
};
int run_run(const RunOptions& options, const Console& console);

struct CheckOptions {
  BlockOptions block;
  std::vector<std::string> wanted;
  std::uint64_t seed = 0;
  double tolerance = 1;  // a factor of every bound
};
int run_check(const CheckOptions& options, const Console& console);

struct BenchOptions {
  BlockOptions block;
  GradientOptions gradient;
  std::uint64_t seed = 0;
  int threads = 0;  // 0: the engine's own choice
  int repeat = 0;   // 0: as many as fit into `seconds`
  double seconds = 1;
  bool unfused = false;
};
int run_bench(const BenchOptions& options, const Console& console);

struct DemoOptions {
  bool small = false;
};
int run_demo(const DemoOptions& options, const Console& console);

struct SourceOptions {
  BlockOptions block;
  GradientOptions gradient;
};
int run_source(const SourceOptions& options, const Console& console);

struct CompileOptions {
  BlockOptions block;
  GradientOptions gradient;
  std::vector<std::string> architectures;  // empty: the device's; `all` alone: every one
  std::string carry;                       // a folder; empty: do not
};
int run_compile(const CompileOptions& options, const Console& console);

struct TuneCommandOptions {
  BlockOptions block;  // without the device
  std::string cases;   // a file; empty: the block
  std::string device = "cuda";
  std::string out;  // a table; empty: nothing is written
  int divisions = 12;
  int repeat = 9;
  double seconds = 0;  // 0: no limit
  double within = 0;   // the factor that a check allows; 0: no check
};
int run_tune(const TuneCommandOptions& options, const Console& console);

struct CacheOptions {
  std::string action;  // `ls`, `clear`, `path`
};
int run_cache(const CacheOptions& options, const Console& console);

}  // namespace fuseblock::cli
