// How the launch of a kernel `slices` divides its work: widths of slices, teams, what stays on chip.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "cuda/launch/slices.h"
#include "fuseblock/error.h"

namespace fuseblock::cuda {
namespace {

const Gpu& h200() {
  static const Gpu kGpu = gpu_of(Device::by_name("h200").description());
  return kGpu;
}

// Of a forward norm over bf16 tensors.
SlicesWork norm_of(std::int64_t samples, std::int64_t channels, std::int64_t positions, std::int64_t group) {
  SlicesWork work;
  work.samples = samples;
  work.channels = channels;
  work.positions = positions;
  work.group = group;
  work.passes = 2;
  return work;
}

std::vector<SlicesDivision> divisions_of(const SlicesWork& work, const SlicesChoice& choice = {}) {
  std::vector<SlicesDivision> divisions;
  for (SlicesWidth& width : slices_widths(work, choice)) {
    width.shared_bytes = static_cast<int>(width.channels) * 150 + 256;
    width.unit_bytes = static_cast<int>(width.channels) * 40;
    width.vector_bytes = width.constants.vector * work.input_bytes;
    width.constants.packed = choice.packed > 0;
    if (width.constants.packed) width.register_bytes = static_cast<int>(width.channels) * 20 + 256;
    if (const auto division = divide_slices(h200(), work, width, choice)) divisions.push_back(*division);
  }
  return divisions;
}

// A division covers every position of every unit once, with blocks that are all there at the same time.
void expect_whole(const SlicesWork& work, const SlicesDivision& d) {
  const SlicesConstants& constants = d.constants;
  const std::int64_t slots = d.channels * constants.row_positions;
  ASSERT_EQ(slots % constants.vector, 0);
  ASSERT_EQ(work.channels * work.positions % constants.vector, 0);
  ASSERT_EQ(work.channels % d.channels, 0);
  ASSERT_EQ(d.channels % work.group, 0);
  ASSERT_TRUE(constants.row_positions == 1 || d.channels == work.channels);
  const std::int64_t columns = slots / constants.vector;
  const std::int64_t row_warps = (columns + 31) / 32;
  const std::int64_t lists =
      constants.packed ? constants.threads / columns : constants.threads / 32 / row_warps;
  ASSERT_GT(lists, 0);
  ASSERT_TRUE(!constants.packed || constants.registers > 0);
  const std::int64_t of_warp = columns < 32 && !constants.packed ? 32 / columns : 1;
  const std::int64_t rows = lists * of_warp * constants.pieces;
  const std::int64_t positions = rows * constants.row_positions * d.steps;
  EXPECT_GE(positions * d.team, work.positions);
  if (constants.dealt) {
    // Every team.size-th chunk is a block's, and rings have room for a warp to draw another.
    EXPECT_TRUE(constants.again);
    EXPECT_GT(d.steps, constants.ring + constants.registers);
    EXPECT_LT(d.kept, constants.ring + constants.registers);
    EXPECT_GT(d.kept, constants.registers);
    EXPECT_LE(constants.lead, d.steps - constants.ring - constants.registers);
    EXPECT_LE(constants.ring, 32);
    EXPECT_LT(rows * constants.row_positions * (d.steps - 1) * d.team, work.positions);
  } else {
    EXPECT_LT(positions * (d.team - 1), work.positions) << "a block of the team has nothing to do";
  }
  EXPECT_LE(d.team * d.teams, h200().multiprocessors * constants.blocks);
  EXPECT_EQ(d.units, work.samples * (work.channels / d.channels));
  EXPECT_LE(d.kept, constants.ring + constants.registers);
  EXPECT_EQ(constants.again, d.kept < d.steps);
  if (constants.ahead) {
    EXPECT_FALSE(constants.again);
    if (work.passes > 1) {
      EXPECT_LE(2 * d.steps, constants.ring) << "copies of the next unit would never begin";
    }
  }
}

TEST(SlicesDivision, CoversEveryShape) {
  for (const SlicesWork& work :
       {norm_of(2, 320, 64 * 64, 10), norm_of(1, 512, 256 * 256, 16), norm_of(1, 512, 16 * 180 * 320, 16),
        norm_of(64, 256, 56 * 56, 8), norm_of(2, 32, 128 * 128 * 128, 4), norm_of(3, 30, 9 * 10, 3),
        norm_of(2, 3, 8, 1), norm_of(1, 2, 1, 2), norm_of(1, 1024, 4, 1024), norm_of(5, 6, 40, 2)}) {
    const std::vector<SlicesDivision> divisions = divisions_of(work);
    EXPECT_FALSE(divisions.empty()) << work.channels;
    for (const SlicesDivision& division : divisions) expect_whole(work, division);
  }
}

TEST(SlicesDivision, SeveralPositionsMakeWholeVectors) {
  const std::vector<SlicesDivision> divisions = divisions_of(norm_of(2, 15, 64, 3));
  ASSERT_FALSE(divisions.empty());
  EXPECT_EQ(divisions[0].constants.vector, 8);
  EXPECT_EQ(divisions[0].constants.row_positions, 8);
  EXPECT_EQ(divisions[0].channels, 15);
}

TEST(SlicesDivision, ThereIsNoneForElementsThatCannotBeCopied) {
  // Samples of 2-byte elements that begin at odd places.
  EXPECT_TRUE(slices_widths(norm_of(2, 3, 5, 1), {}).empty());
  // A row that is wider than a block.
  EXPECT_TRUE(slices_widths(norm_of(1, 8192, 4, 8192), {}).empty());
}

TEST(SlicesDivision, EveryTeamThatIsAskedForIsWhole) {
  const SlicesWork work = norm_of(3, 64, 1111, 4);
  for (int team : {1, 2, 3, 7, 20, 132, 264})
    for (int ring : {3, 5, 9})
      for (int ahead : {0, 1}) {
        SlicesChoice choice;
        choice.team = team;
        choice.ring = ring;
        choice.ahead = ahead;
        for (const SlicesDivision& division : divisions_of(work, choice)) {
          expect_whole(work, division);
          EXPECT_LE(division.team, team);
          EXPECT_LE(division.constants.ring, ring);
          EXPECT_EQ(division.constants.ahead, ahead == 1);
        }
      }
}

// As the planner has it: of all widths the one that costs least.
SlicesDivision best_of(const SlicesWork& work, const SlicesChoice& choice = {}) {
  const std::vector<SlicesDivision> divisions = divisions_of(work, choice);
  return *std::min_element(
      divisions.begin(), divisions.end(),
      [](const SlicesDivision& one, const SlicesDivision& other) { return one.seconds < other.seconds; });
}

TEST(SlicesDivision, ChunksAreDealtOutWhereThatWasMeasured) {
  SlicesWork work = norm_of(1, 128, 1024 * 1024, 4);
  work.group_statistics = true;
  const SlicesDivision best = best_of(work);
  EXPECT_TRUE(best.constants.dealt);
  EXPECT_EQ(best.team, 132);
  EXPECT_FALSE(best_of(work, SlicesChoice::parse("own=1")).constants.dealt);
  for (const auto& change : std::initializer_list<void (*)(SlicesWork&)>{
           [](SlicesWork& w) { w.group_statistics = false; },
           [](SlicesWork& w) {
             w.inputs = 2;
             w.input_bytes = 4;
           },
           [](SlicesWork& w) { w.smallest_bytes = w.input_bytes = w.output_bytes = 4; },
           [](SlicesWork& w) { w.passes = 3; }, [](SlicesWork& w) { w.last_statistics = true; }}) {
    SlicesWork other = work;
    change(other);
    for (const SlicesDivision& division : divisions_of(other)) {
      EXPECT_FALSE(division.constants.dealt);
      expect_whole(other, division);
    }
  }
}

TEST(SlicesDivision, DealtChunksAreWhole) {
  SlicesWork work = norm_of(3, 64, 1111, 4);
  work.group_statistics = true;
  int dealt = 0;
  for (int team : {1, 2, 3, 7, 20, 132})
    for (int ring : {3, 5, 9})
      for (const SlicesDivision& division : divisions_of(
               work, SlicesChoice::parse("team=" + std::to_string(team) + ",ring=" + std::to_string(ring)))) {
        expect_whole(work, division);
        EXPECT_EQ(division.constants.dealt, division.constants.again && division.team > 1);
        dealt += division.constants.dealt ? 1 : 0;
      }
  EXPECT_GT(dealt, 0);
}

// The division that the cost model's leads to, with chunks in registers; the cost model's where there is none.
SlicesDivision held_of(const SlicesWork& work, const Gpu& gpu = h200(), const SlicesChoice& fixed = {}) {
  const SlicesDivision best = best_of(work, fixed);
  for (const SlicesChoice& choice : choose_registers(gpu, work, best, fixed)) {
    if (divisions_of(work, choice).empty()) continue;
    const SlicesDivision held = best_of(work, choice);
    if (suits_registers(gpu, held)) return held;
  }
  return best;
}

SlicesWork groups_of(std::int64_t samples, std::int64_t channels, std::int64_t positions,
                     std::int64_t group) {
  SlicesWork work = norm_of(samples, channels, positions, group);
  work.group_statistics = true;
  return work;
}

TEST(SlicesDivision, ChunksAreInRegistersWhereThatWasMeasured) {
  for (const SlicesWork& work : {groups_of(1, 128, 1024 * 1024, 4), groups_of(1, 128, 20 * 256 * 256, 4),
                                 groups_of(2, 32, 128 * 128 * 128, 4), groups_of(1, 512, 256 * 256, 16)}) {
    const SlicesDivision held = held_of(work);
    expect_whole(work, held);
    EXPECT_TRUE(held.constants.dealt);
    EXPECT_EQ(held.constants.registers, 3) << work.channels;
    EXPECT_EQ(held.constants.threads, 512);
    EXPECT_EQ(held.constants.blocks, 1);
    EXPECT_EQ(held.constants.lead, std::min(30, held.steps - held.constants.ring - 3));
    EXPECT_EQ(held.team, 132 / held.teams);
  }
  SlicesWork scaled = groups_of(1, 128, 20 * 256 * 256, 4);
  scaled.hoisted_numbers = 4;
  const SlicesDivision fewer = held_of(scaled);
  expect_whole(scaled, fewer);
  EXPECT_TRUE(fewer.constants.dealt);
  EXPECT_EQ(fewer.constants.registers, 4);
  EXPECT_EQ(fewer.constants.threads, 384);
  // Of groups of whole vectors a thread has one.
  SlicesWork whole = groups_of(1, 512, 256 * 256, 16);
  whole.hoisted_numbers = 4;
  EXPECT_EQ(held_of(whole).constants.threads, 512);
  const SlicesWork small = groups_of(64, 256, 56 * 56, 8);
  const SlicesDivision alone = held_of(small);
  expect_whole(small, alone);
  EXPECT_EQ(alone.constants.registers, 5);
  EXPECT_EQ(alone.constants.threads, 384);
  EXPECT_EQ(alone.team, 1);
  EXPECT_FALSE(alone.constants.again);
}

// Channels of 40 vectors, which no warp has without idle lanes: blocks of 480 threads have 12 positions at a time.
TEST(SlicesDivision, RowsArePackedWhereWarpsWouldHaveIdleLanes) {
  struct Expected {
    SlicesWork work;
    int threads, team, teams;
    bool dealt;
  };
  for (const auto& [work, threads, team, teams, dealt] :
       {Expected{groups_of(2, 320, 128 * 128, 10), 480, 57, 2, false},
        Expected{groups_of(2, 320, 256 * 256, 10), 480, 66, 2, true},
        Expected{groups_of(8, 320, 128 * 128, 10), 480, 33, 4, true},
        Expected{groups_of(32, 320, 64 * 64, 10), 480, 8, 16, true},
        Expected{groups_of(16, 640, 64 * 64, 20), 480, 16, 8, true},
        Expected{groups_of(1, 96, 512 * 512, 3), 512, 132, 1, true},
        Expected{groups_of(4, 640, 64 * 64, 20), 480, 29, 4, false}}) {
    const SlicesDivision held = held_of(work);
    expect_whole(work, held);
    EXPECT_TRUE(held.constants.packed) << work.channels;
    EXPECT_EQ(held.channels, work.channels);
    EXPECT_EQ(held.constants.threads, threads) << work.channels;
    EXPECT_EQ(held.constants.registers, 3);
    EXPECT_EQ(held.team, team) << work.samples << ' ' << work.channels;
    EXPECT_EQ(held.teams, teams) << work.samples << ' ' << work.channels;
    EXPECT_EQ(held.constants.dealt, dealt) << work.samples << ' ' << work.channels;
  }
  // Warps have whole rows, or no block of some 500 threads is busy with them, or a block would have few chunks.
  for (const SlicesWork& work : {groups_of(1, 512, 256 * 256, 16), groups_of(2, 2560, 64 * 64, 80),
                                 groups_of(2, 320, 64 * 64, 10), groups_of(0, 320, 64 * 64, 10)})
    EXPECT_FALSE(held_of(work).constants.packed) << work.channels;
  // Groups of two vectors, of half a vector, vectors of 8 bytes, and many numbers of a channel were not measured.
  const SlicesWork work = groups_of(2, 320, 256 * 256, 10);
  for (const auto& change : std::initializer_list<void (*)(SlicesWork&)>{
           [](SlicesWork& w) { w.group = 16; }, [](SlicesWork& w) { w.group = 4; },
           [](SlicesWork& w) {
             w.channels = 300;
             w.group = 10;
           },
           [](SlicesWork& w) { w.hoisted_numbers = 4; }}) {
    SlicesWork other = work;
    change(other);
    EXPECT_FALSE(held_of(other).constants.packed) << other.group;
  }
  // Who fixes a width has that width, and who wants none of it has none.
  for (const char* fixed : {"channels=80", "channels=160", "packed=0"})
    EXPECT_FALSE(held_of(work, h200(), SlicesChoice::parse(fixed)).constants.packed) << fixed;
  EXPECT_TRUE(held_of(work, h200(), SlicesChoice::parse("channels=320")).constants.packed);
}

// For where rows that go on from warp to warp do not fit, such as those of 3,840 channels (cuda_variants.h).
TEST(SlicesDivision, ThereIsAnotherKindWithChunksInRegisters) {
  const SlicesWork work = groups_of(1, 384, 256 * 256, 8);
  const SlicesDivision best = best_of(work);
  const std::vector<SlicesChoice> choices = choose_registers(h200(), work, best, {});
  ASSERT_EQ(choices.size(), 2);
  EXPECT_EQ(choices[0].packed, 1);
  EXPECT_LT(choices[1].packed, 1);
  EXPECT_EQ(choices[1].registers, 3);
}

TEST(SlicesDivision, NoPositionsHaveNoSlices) {
  EXPECT_TRUE(slices_widths(groups_of(2, 320, 0, 10), {}).empty());
}

TEST(SlicesDivision, ChunksStayOutOfRegistersElsewhere) {
  const SlicesWork work = groups_of(1, 128, 1024 * 1024, 4);
  for (const auto& change : std::initializer_list<void (*)(SlicesWork&)>{
           [](SlicesWork& w) { w.group_statistics = false; },
           [](SlicesWork& w) {
             w.inputs = 2;
             w.input_bytes = 4;
           },
           [](SlicesWork& w) { w.output_bytes = 4; }, [](SlicesWork& w) { w.leaves_registers = false; },
           [](SlicesWork& w) { w.smallest_bytes = w.input_bytes = w.output_bytes = 4; },
           [](SlicesWork& w) { w.passes = 3; }, [](SlicesWork& w) { w.last_statistics = true; },
           // A fifth of the blocks would be idle.
           [](SlicesWork& w) {
             w.samples = 5;
             w.channels = 320;
             w.group = 10;
             w.positions = 128 * 128;
           }}) {
    SlicesWork other = work;
    change(other);
    EXPECT_EQ(held_of(other).constants.registers, 0);
  }
  Gpu small = h200();
  small.multiprocessors = 100;
  Gpu later = h200();
  later.architecture = &jit::architecture("sm_100a");
  for (const Gpu& gpu : {small, later}) EXPECT_EQ(held_of(work, gpu).constants.registers, 0);
  // Units of which half of the blocks would have none in the last round.
  EXPECT_EQ(held_of(groups_of(25, 256, 56 * 56, 8)).constants.registers, 0);
  EXPECT_TRUE(SlicesChoice::parse("channels=64,cluster=1").may_have_registers());
  for (const char* fixed : {"registers=0", "team=4", "threads=256", "own=1", "ahead=1", "pieces=4", "ring=5"})
    EXPECT_FALSE(SlicesChoice::parse(fixed).may_have_registers());
  EXPECT_TRUE(SlicesChoice::parse("registers=0").may_cluster());
  EXPECT_TRUE(SlicesChoice::parse("packed=0").may_have_registers());
  EXPECT_FALSE(SlicesChoice::parse("packed=1").may_have_registers());
}

TEST(SlicesDivision, FourBlocksOfAMultiprocessorAreSmallTeamsThatReadOnce) {
  SlicesWork work = norm_of(64, 256, 56 * 56, 8);
  for (const SlicesDivision& division : divisions_of(work)) EXPECT_LE(division.constants.blocks, 2);
  work.group_statistics = true;
  int four = 0;
  for (const SlicesDivision& division : divisions_of(work)) {
    expect_whole(work, division);
    if (division.constants.blocks <= 2) continue;
    ++four;
    EXPECT_FALSE(division.constants.again);
    EXPECT_LE(division.team, 8);
  }
  EXPECT_GT(four, 0);
}

TEST(SlicesDivision, StatisticsOfFewGroupsAreHandedOverOnce) {
  EXPECT_FALSE(few_parts(1, 8));
  EXPECT_TRUE(few_parts(33, 32));
  EXPECT_TRUE(few_parts(64, 20));
  EXPECT_FALSE(few_parts(64, 21));
  EXPECT_FALSE(few_parts(66, 1));
}

std::vector<SlicesDivision> clusters_of(const SlicesWork& work, const SlicesChoice& choice = {}) {
  std::vector<SlicesDivision> divisions;
  for (const SlicesWidth& width : slices_widths(work, choice))
    if (const auto division = divide_cluster(h200(), work, width, choice)) divisions.push_back(*division);
  return divisions;
}

// A cluster's blocks have every position of its unit, and registers for it.
void expect_whole_clusters(const SlicesWork& work, const SlicesDivision& d) {
  const SlicesConstants& constants = d.constants;
  ASSERT_EQ(work.channels % d.channels, 0);
  ASSERT_EQ(d.channels % work.group, 0);
  const std::int64_t columns = d.channels * constants.row_positions / constants.vector;
  const std::int64_t row_warps = (columns + 31) / 32;
  const std::int64_t warp_rows = columns < 32 ? 32 / columns : 1;
  ASSERT_EQ(constants.threads % (32 * row_warps), 0);
  const std::int64_t rows = constants.threads / 32 / row_warps * warp_rows * constants.pieces;
  EXPECT_GE(rows * constants.row_positions * constants.cluster, work.positions);
  EXPECT_LE(warp_rows * constants.pieces, 64) << "sums of more positions than a tile's around one element";
  EXPECT_LE(d.channels, constants.threads);
  EXPECT_LE(constants.threads, 1024);
  EXPECT_LE(constants.threads * constants.blocks, 2048);
  const int vectors = constants.pieces * constants.vector * work.input_bytes / 4;
  EXPECT_LE((vectors + 40) * constants.threads * constants.blocks, 65536) << "registers";
  EXPECT_EQ(d.team, constants.cluster);
  EXPECT_EQ(d.units, work.samples * (work.channels / d.channels));
}

TEST(SlicesDivision, ClustersHaveWholeUnits) {
  for (const SlicesWork& work :
       {norm_of(2, 320, 64 * 64, 10), norm_of(2, 640, 32 * 32, 20), norm_of(8, 320, 32 * 32, 10),
        norm_of(4, 1280, 16 * 16, 40), norm_of(1, 256, 64 * 64, 8), norm_of(3, 30, 9 * 10, 3),
        norm_of(2, 3, 8, 1), norm_of(1, 512, 4, 512), norm_of(5, 6, 40, 2), norm_of(64, 256, 14 * 14, 8)}) {
    const std::vector<SlicesDivision> divisions = clusters_of(work);
    EXPECT_FALSE(divisions.empty()) << work.channels;
    for (const SlicesDivision& division : divisions) expect_whole_clusters(work, division);
    for (int cluster = 2; cluster <= 8; ++cluster) {
      SlicesChoice choice;
      choice.cluster = cluster;
      for (const SlicesDivision& division : clusters_of(work, choice)) {
        expect_whole_clusters(work, division);
        EXPECT_EQ(division.constants.cluster, cluster);
      }
    }
  }
}

TEST(SlicesDivision, ClustersAreForUnitsThatAreAllAtWorkAtOnce) {
  // One unit of 2 MB and more than the registers of eight blocks.
  EXPECT_TRUE(clusters_of(norm_of(1, 320, 128 * 128, 320)).empty());
  for (const SlicesDivision& division : clusters_of(norm_of(2, 320, 64 * 64, 10))) {
    EXPECT_LE(division.units * division.team, std::int64_t{132} * division.constants.blocks);
    // An H200 holds fifteen clusters of 7 or 8 blocks, where each has a multiprocessor to itself, and seventeen of 6.
    EXPECT_TRUE(division.units != 16 || division.team <= 6 || division.constants.blocks > 1);
  }
  Gpu old = h200();
  old.architecture = &jit::architecture("sm_80");
  for (const SlicesWidth& width : slices_widths(norm_of(2, 320, 64 * 64, 10), {}))
    EXPECT_FALSE(divide_cluster(old, norm_of(2, 320, 64 * 64, 10), width, {}));
}

TEST(SlicesDivision, ClustersAreChosenWhereTheyWereMeasured) {
  SlicesWork work = norm_of(2, 320, 64 * 64, 10);
  work.group_statistics = true;
  EXPECT_TRUE(suits_clusters(h200(), work));
  for (const auto& change : std::initializer_list<void (*)(SlicesWork&)>{
           [](SlicesWork& w) { w.group_statistics = false; }, [](SlicesWork& w) { w.inputs = 2; },
           [](SlicesWork& w) { w.passes = 3; }, [](SlicesWork& w) { w.statistics = 2; },
           [](SlicesWork& w) { w.smallest_bytes = 8; }, [](SlicesWork& w) { w.group = 160; }}) {
    SlicesWork other = work;
    change(other);
    EXPECT_FALSE(suits_clusters(h200(), other));
  }
  Gpu small = h200();
  small.multiprocessors = 100;
  EXPECT_FALSE(suits_clusters(small, work));
  Gpu later = h200();
  later.architecture = &jit::architecture("sm_100a");
  EXPECT_FALSE(suits_clusters(later, work));
  EXPECT_TRUE(SlicesChoice::parse("channels=40").may_cluster());
  EXPECT_FALSE(SlicesChoice::parse("team=4").may_cluster());
  EXPECT_FALSE(SlicesChoice::parse("cluster=1").may_cluster());
}

TEST(SlicesDivision, TheVariableIsReadWordByWord) {
  const SlicesChoice choice = SlicesChoice::parse("channels=64,team=132,pieces=4,ahead=0");
  EXPECT_EQ(SlicesChoice::parse("cluster=8").cluster, 8);
  EXPECT_EQ(SlicesChoice::parse("own=1").own, 1);
  EXPECT_EQ(choice.channels, 64);
  EXPECT_EQ(choice.team, 132);
  EXPECT_EQ(choice.pieces, 4);
  EXPECT_EQ(choice.ahead, 0);
  EXPECT_EQ(choice.ring, 0);
  EXPECT_EQ(SlicesChoice::parse("").ahead, 0);
  EXPECT_THROW(SlicesChoice::parse("rings=4"), UserError);
  EXPECT_THROW(SlicesChoice::parse("ring"), UserError);
  EXPECT_THROW(SlicesChoice::parse("ring=-1"), UserError);
  EXPECT_THROW(SlicesChoice::parse("ring=4x"), UserError);
}

// Whole samples: all at work at once, every position some thread's, no more registers and shared memory than there are.
TEST(SlicesDivision, WholeSamples) {
  for (const auto& [samples, channels, positions] : std::vector<std::array<std::int64_t, 3>>{
           {2, 320, 16384}, {4, 640, 4096}, {2, 1280, 4096}, {1, 512, 16384}, {2, 960, 4096}}) {
    SlicesWork work = norm_of(samples, channels, positions, 32);
    work.group_statistics = true;
    const auto division = divide_whole(h200(), work, {});
    ASSERT_TRUE(division) << channels;
    const SlicesConstants& constants = division->constants;
    const std::int64_t lists = constants.threads / (channels / constants.vector);
    EXPECT_LE(division->team * samples, h200().multiprocessors);
    EXPECT_GE(division->team * lists * division->steps, positions);
    EXPECT_LT((division->team - 1) * lists * division->steps, positions) << "a block without positions";
    EXPECT_EQ(constants.registers + constants.ring, division->steps);
    EXPECT_LE(constants.ring * constants.threads * 16, h200().architecture->shared_bytes_block);
  }
  // Where statistics of so many channels leave no room, there are none, also where they are asked for.
  SlicesWork wide = norm_of(2, 5120, 256, 160);
  wide.group_statistics = true;
  for (const auto& [channels, positions] : {std::pair{5120, 256}, {4992, 256}, {5120, 64}}) {
    wide.channels = channels;
    wide.positions = positions;
    const auto division = divide_whole(h200(), wide, SlicesChoice::parse("whole=1"));
    EXPECT_TRUE(!division || division->constants.ring >= 0) << channels;
  }
  EXPECT_THROW(SlicesChoice::parse("whole=1,threads=500"), UserError);
  // Neither small tensors, nor samples that are more than on chip, nor more of them than multiprocessors.
  for (const auto& [samples, channels, positions] :
       std::vector<std::array<std::int64_t, 3>>{{2, 320, 4096}, {1, 512, 65536}, {300, 256, 784}}) {
    SlicesWork work = norm_of(samples, channels, positions, 32);
    work.group_statistics = true;
    EXPECT_FALSE(divide_whole(h200(), work, {})) << channels;
  }
}

}  // namespace
}  // namespace fuseblock::cuda
