// libFuzzer on the notation: any bytes, read as a block, met with a type of each rank, differentiated, written and read again.
//
//   cmake --preset fuzz && cmake --build --preset fuzz
//   build-fuzz/tests/fuzz/notation_fuzzer [folder] [-max_total_time=600]
#include "fuseblock/reference_blocks.h"
#include "fuzz_target.h"

namespace {

namespace fuzz = fuseblock::fuzz;

const std::vector<std::string>& seeds() {
  static const std::vector<std::string> kTexts = [] {
    std::vector<std::string> texts = {"y = conv2d(x, 4, k=3); z = y * sigmoid(1.702 * y); return z, y"};
    for (const fuseblock::ReferenceBlock& block : fuseblock::reference_blocks())
      texts.emplace_back(block.notation);
    return texts;
  }();
  return kTexts;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text = fuzz::text_of(data, size);
  fuzz::require_nothing_wrong(fuzz::check_notation(text, fuzz::usual_types()), text);
  return 0;
}

extern "C" std::size_t LLVMFuzzerCustomMutator(std::uint8_t* data, std::size_t size, std::size_t max_size,
                                               unsigned seed) {
  return fuzz::mutate_buffer(data, size, max_size, seed, seeds());
}
