#include "arguments.h"

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <iostream>
#include <map>
#include <optional>

#include "fuseblock/reference_blocks.h"

namespace fuseblock::cli {
namespace {

constexpr std::size_t kLargestText = std::size_t{64} << 20;  // of standard input

std::string read_standard_input() {
  std::string text;
  std::string chunk(65536, '\0');
  while (std::cin.read(chunk.data(), static_cast<std::streamsize>(chunk.size())) || std::cin.gcount() > 0) {
    text.append(chunk, 0, static_cast<std::size_t>(std::cin.gcount()));
    if (text.size() > kLargestText) throw UserError("standard input: a block of more than 64 MiB");
  }
  return text;
}

std::string_view trimmed(std::string_view text) {
  constexpr std::string_view kBlanks = " \t\r\n";
  const std::size_t first = text.find_first_not_of(kBlanks);
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(kBlanks) - first + 1);
}

const ReferenceBlock& named_block(std::string_view name) {
  if (const ReferenceBlock* found = find_reference_block(name)) return *found;
  std::string message = "there is no reference block `@" + std::string(name) + "`; the names are";
  for (const ReferenceBlock& block : reference_blocks()) message += "\n  @" + std::string(block.name);
  throw UserError(message);
}

TensorType read_type(const std::string& text, const std::string& where) {
  try {
    return TensorType::parse(text);
  } catch (const UserError& error) {
    throw UserError(where + ": " + error.what(), error.position(), error.excerpt());
  }
}

// `name=TYPE` gives the name; labels of axes (`f32[n=2]`) stand behind a bracket.
std::string input_name(std::string_view text) {
  const std::size_t equals = text.find('=');
  if (equals == std::string_view::npos || equals > text.find('[')) return {};
  return std::string(trimmed(text.substr(0, equals)));
}

void read_inputs(const std::vector<std::string>& inputs, std::optional<TensorType>& x, TypeMap& others) {
  for (const std::string& text : inputs) {
    std::string name = input_name(text);
    const std::string type_text = name.empty() ? text : text.substr(text.find('=') + 1);
    const TensorType type = read_type(type_text, "--input" + (name.empty() ? "" : " " + name));
    if (name.empty() || name == "x") {
      if (x) throw UserError("--input: the type of x is given twice; other inputs are written name=TYPE");
      x = type;
    } else if (!others.emplace(name, type).second) {
      throw UserError("--input: the type of " + name + " is given twice");
    }
  }
}

int read_count(const std::string& name, const std::string& text) {
  int count = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), count);
  if (error != std::errc() || end != text.data() + text.size() || count < 1)
    throw UserError(name + ": expected a number from 1 on, got `" + text + "`");
  return count;
}

KernelResidency read_residency(const std::string& text) {
  if (text == "registers") return KernelResidency::kRegisters;
  if (text == "shared") return KernelResidency::kShared;
  if (text == "memory") return KernelResidency::kMemory;
  throw UserError("residency: expected registers, shared or memory, got `" + text + "`");
}

bool is_about_reuse(const std::string& choice) { return choice == "store" || choice == "recompute"; }

// One word of --force.
void read_choice(const std::string& text, Reuse& reuse, KernelChoices& kernels) {
  const std::size_t equals = text.find('=');
  const std::string name = text.substr(0, equals);
  const std::string value = equals == std::string::npos ? "" : text.substr(equals + 1);
  if (text == "store")
    reuse = Reuse::kStore;
  else if (text == "recompute")
    reuse = Reuse::kRecompute;
  else if (name == "team")
    kernels.team = read_count(name, value);
  else if (name == "tile")
    kernels.tile = read_count(name, value);
  else if (name == "residency")
    kernels.residency = read_residency(value);
  else if (text == "plain")
    kernels.plain = PlainKernels::kAlways;
  else if (text == "plain=no")
    kernels.plain = PlainKernels::kNever;
  else
    throw UserError(
        "expected store, recompute, team=BLOCKS, tile=POSITIONS, residency=PLACE, plain or plain=no, got "
        "`" +
        text + "`");
}

bool convolves(const Block& block) {
  return std::any_of(block.nodes().begin(), block.nodes().end(), [](const Node& node) {
    const OpCode code = node.operation->code;
    return code == OpCode::kConvolution || code == OpCode::kConvolutionGradInput ||
           code == OpCode::kConvolutionGradWeight;
  });
}

// What --force says: the choices that are not left to the planner. Those about a kernel that the plan does not have are
// refused when it is made.
void read_choices(const std::vector<std::string>& texts, const Block& block, Reuse& reuse,
                  KernelChoices& kernels) {
  std::map<std::string, std::string> given;  // the words by what they are about
  for (const std::string& text : texts) {
    const std::string about = is_about_reuse(text) ? "reuse" : text.substr(0, text.find('='));
    if (const auto [place, is_first] = given.emplace(about, text); !is_first && place->second != text)
      throw UserError("--force: " + place->second + " and " + text + " contradict each other");
    if (is_about_reuse(text) && !convolves(block))
      throw UserError("--force " + text + ": expected a block with a convolution, but this one has none");
    read_choice(text, reuse, kernels);
  }
}

Precision read_precision(const std::string& text) {
  if (text == "strict") return Precision::kStrict;
  if (text == "tf32") return Precision::kTf32;
  throw UserError("--precision: expected strict or tf32, got `" + text + "`");
}

bool names_a_file(const std::string& text) {
  std::error_code ignored;
  return text.size() < 4096 && std::filesystem::is_regular_file(text, ignored);
}

}  // namespace

std::string problem_of_choice(const std::string& text) {
  try {
    Reuse reuse = Reuse::kByCost;
    KernelChoices kernels;
    read_choice(text, reuse, kernels);
    return "";
  } catch (const UserError& error) {
    return error.what();
  }
}

Block read_block(const std::string& text) {
  if (trimmed(text).starts_with('{')) return Block::from_json(text);
  try {
    return Block::parse(text);
  } catch (const UserError& error) {
    if (!names_a_file(text)) throw;
    throw UserError("`" + text + "` is no notation; to read a block from a file: fuseblock ... - < " + text);
  }
}

BlockRequest read_request(const BlockOptions& options) {
  const std::string text = options.block == "-" ? read_standard_input() : options.block;
  std::optional<TensorType> x;
  TypeMap others;
  read_inputs(options.inputs, x, others);

  const std::string_view name = trimmed(text);
  const ReferenceBlock* reference = name.starts_with('@') ? &named_block(name.substr(1)) : nullptr;
  Block block = reference != nullptr ? Block::parse(reference->notation) : read_block(text);
  if (options.small) {
    if (reference == nullptr) throw UserError("--small: only a reference block, @name, has a small input");
    if (x) throw UserError("--small: the type of x is given by --input already");
    x = TensorType::parse(reference->small_input);
  } else if (!x && reference != nullptr) {
    x = TensorType::parse(reference->input);
  }
  if (!x) throw UserError("the type of x is missing; give it as in --input 'f32[2,8,16,16]'");
  Reuse reuse = Reuse::kByCost;
  KernelChoices kernels;
  read_choices(options.force, block, reuse, kernels);
  return {std::move(block),
          *std::move(x),
          std::move(others),
          options.device.empty() ? Device::best() : Device::by_name(options.device),
          reuse,
          kernels,
          read_precision(options.precision)};
}

BlockRequest read_runnable_request(const BlockOptions& options) {
  BlockRequest request = read_request(options);
  request.device.require_runs();
  return request;
}

void require_consistent(const GradientOptions& options) {
  if (!options.wanted.empty() && !options.backward)
    throw UserError("--wanted: names gradients, so it needs --backward");
}

}  // namespace fuseblock::cli
