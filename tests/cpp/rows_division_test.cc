// How the launch of a kernel `rows` divides its work: teams, what stays in the ring, how far first sweeps are ahead.
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

#include "cuda/launch/rows.h"
#include "fuseblock/error.h"
#include "fuseblock/sources.h"

namespace fuseblock::cuda {
namespace {

const Gpu& h200() {
  static const Gpu kGpu = gpu_of(Device::by_name("h200").description());
  return kGpu;
}

// A forward norm over bf16 tensors: two sweeps, of which the first takes statistics.
RowsDivision divide(const Extents& domain, std::int64_t unit_channels, const RowsConstants& constants,
                    const RowsChoice& choice = {}) {
  KernelCut cut;
  cut.unit_channels = unit_channels;
  RowsSweeps sweeps;
  sweeps.count = 2;
  sweeps.bytes = constants.pieces * constants.vector * 2;
  return divide_rows(h200(), cut, domain, constants, sweeps, choice);
}

RowsConstants constants_of(int ahead, int ring, int pieces = 2) {
  return {.threads = 512, .blocks = 1, .vector = 8, .pieces = pieces, .ring = ring, .ahead = ahead};
}

// The ring holds the units that are begun and not ended, without their chunks in registers, and copies that are on their way; every
// chunk of a unit is some warp's.
void expect_whole(const Extents& domain, std::int64_t unit_channels, const RowsConstants& constants,
                  const RowsDivision& d) {
  const std::int64_t elements = unit_channels * domain[2] * domain[3] * domain[4];
  const std::int64_t warps = constants.threads / 32;
  EXPECT_GE(std::int64_t{d.team} * warps * d.steps * 32 * constants.vector * constants.pieces, elements);
  EXPECT_LE(d.team * d.teams, h200().multiprocessors * constants.blocks);
  const int units = std::max(constants.ahead, 1);
  const int kept = d.steps - d.again;
  EXPECT_GT(kept, 0);
  const int held = constants.ahead > 0 ? d.again : 0;
  EXPECT_LE(units * kept + (units > 1 ? kRowsDelay : 0), constants.ring);
  EXPECT_LE(d.lead, d.steps);
  EXPECT_LE(units * kept + d.lead - held, constants.ring)
      << "a first sweep would take what is not copied yet";
  if (constants.ahead == 0) return;
  EXPECT_FALSE(d.cluster) << "a cluster's barrier allows one unit under way";
  EXPECT_TRUE(held == 0 || constants.ahead == 1) << "registers are for one unit and the next";
  EXPECT_LT(d.lead, d.steps) << "lists of warps are for first sweeps that lead by less than a unit";
  EXPECT_LE(d.lead + held, d.steps) << "chunks in registers would be gone before the last sweep";
}

TEST(RowsDivision, HoldsUnitsUnderWay) {
  for (const Extents& domain : {Extents{1, 128, 1, 1024, 1024}, Extents{1, 128, 20, 256, 256},
                                Extents{64, 256, 1, 56, 56}, Extents{2, 32, 128, 128, 128}})
    for (int ahead = 0; ahead <= kRowsMostAhead; ++ahead)
      for (int ring : {6, 7, 14, 28})
        for (int pieces : {1, 2, 4}) {
          const RowsConstants constants = constants_of(ahead, ring, pieces);
          RowsChoice choice;
          choice.ahead = ahead;
          const RowsDivision d = divide(domain, 4, constants, choice);
          // Without barriers nothing is read again: units may be too large.
          if (ahead == 0 || d.steps > 0) expect_whole(domain, 4, constants, d);
          const std::int64_t chunks = 4 * domain[2] * domain[3] * domain[4] / (std::int64_t{256} * pieces);
          const bool fits = chunks <= std::int64_t{132} * 16 * ((ring - kRowsDelay) / std::max(ahead, 1));
          EXPECT_TRUE(d.steps > 0 || !fits) << chunks << " chunks, ahead " << ahead << ", ring " << ring;
        }
}

TEST(RowsDivision, FixedParts) {
  const Extents domain = {1, 128, 1, 1024, 1024};
  const RowsChoice choice = RowsChoice::parse("ahead=1,team=128,kept=3,lead=-1");
  const RowsDivision d = divide(domain, 4, constants_of(1, 14), choice);
  EXPECT_EQ(d.team, 128);
  EXPECT_EQ(d.teams, 1);
  EXPECT_EQ(d.steps, 4);
  EXPECT_EQ(d.again, 1);
  EXPECT_EQ(d.lead, -1);
  // Two units of eight steps are more than the ring of 14.
  EXPECT_EQ(divide(domain, 4, constants_of(2, 14), RowsChoice::parse("ahead=2,team=64")).steps, 0);
  EXPECT_EQ(divide(domain, 4, constants_of(2, 18), RowsChoice::parse("ahead=2,team=64")).again, 0);
}

// Without barriers where that was measured to be faster.
TEST(RowsDivision, ByItself) {
  const Extents large = {1, 128, 1, 1024, 1024};
  EXPECT_EQ(divide(large, 4, constants_of(3, 14)).team, 128);
  EXPECT_LT(divide(large, 4, constants_of(3, 14)).cost, divide(large, 4, constants_of(2, 14)).cost);
  EXPECT_LT(divide(large, 4, constants_of(2, 14)).cost, divide(large, 4, constants_of(0, 14)).cost);
  EXPECT_EQ(divide({2, 320, 1, 64, 64}, 10, constants_of(1, 14)).steps, 0);
  const Extents several = {1, 512, 1, 256, 256};
  EXPECT_EQ(divide(several, 16, constants_of(2, 7, kRowsLong)).team, 32);
  EXPECT_LT(divide(several, 16, constants_of(2, 7, kRowsLong)).cost,
            divide(several, 16, constants_of(0, 7, kRowsLong)).cost);
}

// One unit in the ring: 512 threads have one chunk of two vectors in registers, 480 two, and more steps that are cheaper only where
// the ring is full.
TEST(RowsDivision, ChunksInRegisters) {
  RowsConstants fewer = constants_of(1, 15);
  fewer.threads = kRowsBesideTaker;
  const RowsChoice all = RowsChoice::parse("team=132");
  const Extents half = {2, 32, 128, 128, 128};
  const RowsDivision some = divide(half, 4, constants_of(1, 14));
  EXPECT_EQ(some.team, 128);
  EXPECT_EQ(some.steps, 8);
  EXPECT_EQ(some.again, 1);
  EXPECT_EQ(some.lead, 6);
  EXPECT_LT(some.cost, divide(half, 4, constants_of(0, 14)).cost);
  EXPECT_LT(some.cost, divide(half, 4, fewer, all).cost);
  const Extents full = {1, 512, 16, 180, 320};
  const RowsDivision one = divide(full, 16, constants_of(1, 14)), two = divide(full, 16, fewer, all);
  EXPECT_EQ(one.steps, 14);
  EXPECT_EQ(one.again, 1);
  EXPECT_EQ(two.steps, 15);
  EXPECT_EQ(two.again, 2);
  EXPECT_LT(one.cost, divide(full, 16, constants_of(0, 14)).cost);
  EXPECT_LT(two.cost, one.cost);
  // Units that are larger than the ring are for barriers.
  EXPECT_EQ(divide(full, 16, constants_of(1, 13)).steps, 0);
  EXPECT_EQ(divide(full, 16, constants_of(1, 13), RowsChoice::parse("ahead=1,team=132")).again, 1);
}

// The text of the kernel for a norm with SiLU.
std::string norm_text(const std::string& input, const char* wishes, std::string_view architecture = "") {
  setenv("FUSEBLOCK_ROWS", wishes, 1);
  const TypedBlock block = TypedBlock::infer(Block::parse("group_norm(32) | silu"), TensorType::parse(input));
  const std::vector<KernelText> kernels = kernel_sources(block, Device::by_name("h200"), {}, architecture);
  unsetenv("FUSEBLOCK_ROWS");
  return kernels.size() == 1 ? kernels[0].text : "";
}

// What stands in the text of the kernel `rows`.
void expect_constants(const std::string& input, const std::string& threads, const std::string& blocks) {
  const std::string text = norm_text(input, "registers=0");
  EXPECT_NE(text.find("kThreads = " + threads + ";"), std::string::npos) << input;
  EXPECT_NE(text.find("kBlocks = " + blocks + ";"), std::string::npos) << input;
}

// Units that are a block's by itself: as many threads as divide the chunks, where that is much better than the usual number and
// channels do not end inside of vectors; few rounds.
TEST(RowsDivision, UnitsOfABlock) {
  expect_constants("bf16[64,256,56,56]", "224", "4");
  expect_constants("bf16[64,256,55,55]", "128", "4");
  expect_constants("bf16[128,256,32,32]", "128", "4");
  expect_constants("bf16[32,320,64,64]", "256", "2");
}

int constant_of(const std::string& text, const std::string& name) {
  const std::size_t place = text.find("constexpr int " + name + " = ");
  return place == std::string::npos ? 0 : std::stoi(text.substr(place + name.size() + 17));
}

// What plans have in registers: units of all at once and units that wait for others, every vector some thread's, hardly any place empty,
// and no more than a multiprocessor's registers.
TEST(RowsDivision, UnitsInRegisters) {
  for (const char* input :
       {"bf16[2,320,64,64]", "bf16[2,320,128,128]", "bf16[64,256,56,56]", "bf16[32,320,64,64]",
        "bf16[128,512,28,28]", "f16[1,512,64,64]", "f32[2,320,64,64]", "f32[64,256,56,56]"}) {
    const std::string text = norm_text(input, "");
    ASSERT_NE(text.find("rows_registers(const"), std::string::npos) << input;
    const int cluster = constant_of(text, "kCluster"), threads = constant_of(text, "kThreads");
    const int blocks = constant_of(text, "kBlocks"), pieces = constant_of(text, "kPieces");
    const int vectors =
        constant_of(text, "kUnitChannels") * constant_of(text, "kPositions") / constant_of(text, "kVector");
    const int places = cluster * threads * pieces;
    EXPECT_GE(places, vectors) << input;
    EXPECT_LE(places, 1.12 * vectors) << input;
    EXPECT_LT((cluster - 1) * threads * pieces, vectors) << input << ": a block without any";
    EXPECT_LE((4 * pieces + 32) * threads * blocks, 65536) << input;
  }
}

// Elsewhere plans have `rows`: units that are too large or were not measured, channels that end inside of vectors, other programs, f64,
// other GPUs.
TEST(RowsDivision, NotInRegisters) {
  for (const char* input :
       {"bf16[1,512,256,256]", "bf16[64,256,14,14]", "bf16[2,320,63,63]", "f64[2,320,64,64]"})
    EXPECT_NE(norm_text(input, "").find("rows(const"), std::string::npos) << input;
  for (const char* architecture : {"sm_80", "sm_89", "sm_100a", "sm_120"})
    EXPECT_NE(norm_text("bf16[2,320,64,64]", "", architecture).find("rows(const"), std::string::npos)
        << architecture;
  for (const char* wishes : {"registers=0", "team=2", "ahead=1", "threads=512"})
    EXPECT_NE(norm_text("bf16[2,320,64,64]", wishes).find("rows(const"), std::string::npos) << wishes;
  const TypedBlock gelu =
      TypedBlock::infer(Block::parse("group_norm(32) | gelu"), TensorType::parse("bf16[2,320,64,64]"));
  EXPECT_EQ(kernel_sources(gelu, Device::by_name("h200"), {}, "")[0].name, "rows");
}

TEST(RowsDivision, ChoiceRefused) {
  EXPECT_EQ(RowsChoice::parse("").team, std::nullopt);
  EXPECT_EQ(RowsChoice::parse("ahead=2,threads=640").threads, 640);
  EXPECT_EQ(RowsChoice::parse("cluster=2,threads=96").cluster, 2);
  for (const char* text : {"threads=0", "threads=100", "threads=2048", "cluster=2,threads=0", "pieces=0"})
    EXPECT_THROW(RowsChoice::parse(text), UserError) << text;
  for (const char* text : {"warps=4", "team", "team=", "team=x", "team=-1", "ahead=1,,lead=0"})
    EXPECT_THROW(RowsChoice::parse(text), UserError) << text;
}

}  // namespace
}  // namespace fuseblock::cuda
