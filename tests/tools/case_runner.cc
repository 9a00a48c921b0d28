// Runs cases on an engine, forward and backward, and writes every tensor for others to compare:
//
//   case_runner [--out DIR] [--load DIR] [--dtype f64] [--engine reference] [--seed 1] [--filter TEXT]
//               [FILE.cases ...]
//
// Without files it takes all of tests/cases. --filter keeps the cases whose name contains the text. For each
// case DIR/<name>/ has `<argument>.npy`, `<output>.npy`, `d_<output>.npy` (drawn at random) and
// `d_<argument>.npy`, all float64, with
//   block.json     the block                   types.json   the type of each tensor
//   backward.json  the block of the gradients  error.txt    instead of all else, where the case fails
// With --load, tensors that DIR/<name>/ has as float64 .npy files are taken from there instead of drawn. The
// exit status is 1 where a case fails and 2 for a bad command line.
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>

#include "cases.h"

namespace fuseblock::cases {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

struct Options {
  fs::path out = "cases_out";
  fs::path load;
  std::optional<DType> dtype;
  std::string engine = "reference";
  std::string filter;
  std::uint64_t seed = 1;
  std::vector<fs::path> files;
};

Options parse_options(const std::vector<std::string>& words) {
  Options options;
  for (std::size_t i = 0; i < words.size(); ++i) {
    const std::string& word = words[i];
    if (!word.starts_with("--")) {
      options.files.emplace_back(word);
      continue;
    }
    if (i + 1 == words.size()) throw UserError(word + ": a value is missing");
    const std::string& value = words[++i];
    if (word == "--out")
      options.out = value;
    else if (word == "--load")
      options.load = value;
    else if (word == "--dtype")
      options.dtype = parse_dtype(value);
    else if (word == "--engine")
      options.engine = value;
    else if (word == "--seed")
      options.seed = std::stoull(value);
    else if (word == "--filter")
      options.filter = value;
    else
      throw UserError(word + ": there is no such option");
  }
  if (options.files.empty()) options.files = case_files();
  return options;
}

void write_text(const fs::path& path, const std::string& text) {
  std::ofstream stream(path, std::ios::binary);
  stream << text;
  if (!stream.flush()) throw UserError(path.string() + ": cannot be written");
}

// NumPy's format 1.0: magic, version, length of the header, header padded to 64 bytes, little-endian doubles.
constexpr std::string_view kMagic = "\x93NUMPY";
constexpr std::size_t kPreamble = 10;

void write_npy(const fs::path& path, const Tensor& tensor) {
  std::string shape;
  for (std::int64_t extent : tensor.type().extents) shape += std::to_string(extent) + ",";
  std::string header = "{'descr': '<f8', 'fortran_order': False, 'shape': (" + shape + "), }";
  header.append(64 - (kPreamble + header.size() + 1) % 64, ' ');
  header += '\n';
  std::string bytes(kMagic);
  bytes += {'\x01', '\x00', static_cast<char>(header.size() % 256), static_cast<char>(header.size() / 256)};
  bytes += header;
  const std::vector<double> numbers = tensor.to_doubles();
  bytes.append(reinterpret_cast<const char*>(numbers.data()), numbers.size() * sizeof(double));
  write_text(path, bytes);
}

// Reads what numpy.save writes for a contiguous array of float64 that has as many elements as the tensor.
void read_npy(const fs::path& path, Tensor& tensor) {
  std::ifstream stream(path, std::ios::binary);
  const std::string bytes(std::istreambuf_iterator<char>(stream), {});
  if (!bytes.starts_with(kMagic) || bytes.size() < kPreamble)
    throw UserError(path.string() + ": not a .npy file");
  const std::size_t length = static_cast<unsigned char>(bytes[8]) +
                             256 * static_cast<std::size_t>(static_cast<unsigned char>(bytes[9]));
  const std::string header = bytes.substr(kPreamble, length);
  const auto count = static_cast<std::size_t>(tensor.type().element_count());
  if (header.find("'<f8'") == std::string::npos || header.find("False") == std::string::npos ||
      bytes.size() != kPreamble + length + count * sizeof(double))
    throw UserError(path.string() + ": expected float64 numbers for " + to_string(tensor.type()));
  std::vector<double> numbers(count);
  std::memcpy(numbers.data(), bytes.data() + kPreamble + length, count * sizeof(double));
  for (std::size_t i = 0; i < count; ++i) tensor.set(static_cast<std::int64_t>(i), numbers[i]);
}

void take_loaded(const fs::path& folder, TensorMap& tensors) {
  for (auto& [name, tensor] : tensors)
    if (const fs::path path = folder / (name + ".npy"); fs::exists(path)) read_npy(path, tensor);
}

Json type_json(const NamedType& named) {
  return {{"name", named.name},
          {"dtype", to_string(named.type.dtype)},
          {"axes", to_string(named.type.axes, "")},
          {"extents", named.type.extents}};
}

Json types_json(const std::vector<NamedType>& list) {
  Json json = Json::array();
  for (const NamedType& named : list) json.push_back(type_json(named));
  return json;
}

void write_tensors(const fs::path& folder, const TensorMap& tensors) {
  for (const auto& [name, tensor] : tensors) write_npy(folder / (name + ".npy"), tensor);
}

void run_case(const Case& each, const Options& options, const fs::path& folder) {
  const Plan forward = Plan::make(each.typed(options.dtype), Device::by_name(options.engine));
  const Plan backward = forward.backward();
  const TypedBlock& block = forward.block();

  TensorMap arguments = random_arguments(block, options.seed);
  TensorMap output_gradients = random_output_gradients(block, options.seed + 1);
  if (!options.load.empty()) take_loaded(options.load / each.name, arguments);
  if (!options.load.empty()) take_loaded(options.load / each.name, output_gradients);

  write_text(folder / "block.json", block.block().to_json());
  write_text(folder / "backward.json", backward.block().block().to_json());
  const Json types = {{"arguments", types_json(block.arguments())},
                      {"outputs", types_json(block.outputs())},
                      {"differentiable", block.differentiable()},
                      {"backward_arguments", types_json(backward.block().arguments())}};
  write_text(folder / "types.json", types.dump(1));

  write_tensors(folder, arguments);
  write_tensors(folder, output_gradients);
  write_tensors(folder, run(forward, arguments));
  TensorMap all = std::move(arguments);
  all.merge(output_gradients);
  write_tensors(folder, run(backward, all));
}

int run_all(const Options& options) {
  int ran = 0;
  int failed = 0;
  for (const Case& each : read_cases(options.files)) {
    if (each.name.find(options.filter) == std::string::npos) continue;
    const fs::path folder = options.out / each.name;
    fs::remove_all(folder);
    fs::create_directories(folder);
    ++ran;
    std::string trouble;
    try {
      run_case(each, options, folder);
    } catch (const Error& error) {
      trouble = error.report();
    } catch (const std::exception& error) {
      trouble = error.what();
    }
    if (trouble.empty()) continue;
    ++failed;
    write_text(folder / "error.txt", trouble);
    std::cout << each.location << ": " << each.name << ": " << trouble << "\n";
  }
  std::cout << ran << " cases, " << failed << " failed\n";
  return failed > 0 ? 1 : 0;
}

}  // namespace
}  // namespace fuseblock::cases

int main(int argc, char** argv) {
  try {
    return fuseblock::cases::run_all(fuseblock::cases::parse_options({argv + 1, argv + argc}));
  } catch (const fuseblock::Error& error) {
    std::cerr << "case_runner: " << error.report() << "\n";
    return 2;
  }
}
