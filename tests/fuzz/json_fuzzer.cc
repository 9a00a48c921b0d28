// libFuzzer on blocks as JSON; see notation_fuzzer.cc.
#include "fuseblock/reference_blocks.h"
#include "fuzz_target.h"

namespace {

namespace fuzz = fuseblock::fuzz;

// The reference blocks and the backward blocks of their small forms.
const std::vector<std::string>& seeds() {
  static const std::vector<std::string> kTexts = [] {
    std::vector<std::string> texts;
    for (const fuseblock::ReferenceBlock& block : fuseblock::reference_blocks()) {
      const auto parsed = fuseblock::Block::parse(block.notation);
      const auto input = fuseblock::TensorType::parse(block.small_input);
      texts.push_back(parsed.to_json());
      texts.push_back(fuseblock::TypedBlock::infer(parsed, input).backward().block().to_json());
    }
    return texts;
  }();
  return kTexts;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text = fuzz::text_of(data, size);
  fuzz::require_nothing_wrong(fuzz::check_json(text, fuzz::usual_types()), text);
  return 0;
}

extern "C" std::size_t LLVMFuzzerCustomMutator(std::uint8_t* data, std::size_t size, std::size_t max_size,
                                               unsigned seed) {
  return fuzz::mutate_buffer(data, size, max_size, seed, seeds());
}
