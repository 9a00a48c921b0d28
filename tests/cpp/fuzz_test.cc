// Mutated notations and JSON blocks: whatever the text, it is read or refused well. See fuzz_support.h for what that means.
//
// FUSEBLOCK_LONG=1 takes ten times as many texts. A failure prints the one command that repeats it: with FUSEBLOCK_FUZZ_TEXT
// (and FUSEBLOCK_FUZZ_TYPES) set, a test checks that text alone.
#include <gtest/gtest.h>

#include <cstdlib>

#include "cases.h"
#include "fuzz_support.h"
#include "refusal.h"

namespace fuseblock {
namespace {

using Check = std::string (*)(std::string_view text, const std::vector<fuzz::Types>& types);

struct Seed {
  std::string text;
  fuzz::Types types;
};

const std::vector<Seed>& notation_seeds() {
  static const std::vector<Seed> kSeeds = [] {
    std::vector<Seed> list;
    for (const cases::Case& each : cases::read_cases(cases::case_files())) {
      Seed seed{each.block, {TensorType::parse(each.input), {}}};
      for (const auto& [name, text] : each.others) seed.types.others[name] = TensorType::parse(text);
      list.push_back(std::move(seed));
    }
    return list;
  }();
  return kSeeds;
}

// The cases and every fifth of their backward blocks as JSON.
const std::vector<Seed>& json_seeds() {
  static const std::vector<Seed> kSeeds = [] {
    std::vector<Seed> list;
    for (const Seed& seed : notation_seeds()) {
      const TypedBlock block = TypedBlock::infer(Block::parse(seed.text), seed.types.x, seed.types.others);
      list.push_back({block.block().to_json(), seed.types});
      if (list.size() % 5 != 0) continue;
      const TypedBlock backward = block.backward();
      Seed of_backward{backward.block().to_json(), {seed.types.x, {}}};
      for (const NamedType& argument : backward.arguments())
        if (argument.name != "x") of_backward.types.others[argument.name] = argument.type;
      list.push_back(std::move(of_backward));
    }
    return list;
  }();
  return kSeeds;
}

const char* environment(const char* name) { return std::getenv(name); }

bool is_long() { return environment("FUSEBLOCK_LONG") != nullptr; }

// Types on one line, always with their labels: `f32[n=2,c=3], scale=f32[c=3]`.
std::string types_text(const fuzz::Types& types) {
  const auto text = [](const TensorType& type) {
    std::string extents;
    const std::vector<Axis> axes = type.axes.list();
    for (std::size_t i = 0; i < type.extents.size(); ++i) {
      if (i > 0) extents += ",";
      if (type.labelled()) extents += std::string(1, letter(axes[i])) + "=";
      extents += std::to_string(type.extents[i]);
    }
    return std::string(to_string(type.dtype)) + "[" + extents + "]" +
           (type.layout == Layout::kChannelsLast ? ":cl" : "");
  };
  std::string result = text(types.x);
  for (const auto& [name, type] : types.others) result += ", " + name + "=" + text(type);
  return result;
}

fuzz::Types read_types(std::string text) {
  fuzz::Types types;
  for (bool first = true; !text.empty(); first = false) {
    const std::size_t end = std::min(text.find(", "), text.size());
    const std::string part = text.substr(0, end);
    const std::size_t equals = first ? std::string::npos : part.find('=');
    TensorType& type = first ? types.x : types.others[part.substr(0, equals)];
    type = TensorType::parse(part.substr(equals + 1));
    text.erase(0, end + 2);
  }
  return types;
}

// The only text to check, where one is given.
bool check_given_text(Check check) {
  const char* text = environment("FUSEBLOCK_FUZZ_TEXT");
  if (text == nullptr) return false;
  const char* types = environment("FUSEBLOCK_FUZZ_TYPES");
  EXPECT_EQ(check(fuzz::unescaped(text), {read_types(types != nullptr ? types : "f32[2,4,6,6]")}), "");
  return true;
}

void check_mutations(const std::vector<Seed>& seeds, std::size_t count, Check check,
                     const std::string& test) {
  if (check_given_text(check)) return;
  std::size_t changed = 0;
  for (std::size_t i = 0; i < count; ++i) {
    fuzz::Random random(i);
    const Seed& seed = seeds[i % seeds.size()];
    const std::string text = fuzz::mutate(seed.text, seeds[random.below(seeds.size())].text, random);
    const std::string trouble = check(text, {seed.types});
    changed += text == seed.text ? 0 : 1;
    ASSERT_EQ(trouble, "") << "repeat it with\n  FUSEBLOCK_FUZZ_TYPES='" << types_text(seed.types)
                           << "' FUSEBLOCK_FUZZ_TEXT='" << fuzz::escaped(text)
                           << "' build/tests/cpp/fuzz_test --gtest_filter=" << test;
  }
  EXPECT_GT(changed, count / 2) << "most texts came out unchanged";
}

TEST(Fuzz, Notation) {
  check_mutations(notation_seeds(), is_long() ? 200000 : 20000, fuzz::check_notation, "Fuzz.Notation");
}

TEST(Fuzz, Json) { check_mutations(json_seeds(), is_long() ? 20000 : 2000, fuzz::check_json, "Fuzz.Json"); }

// The seeds themselves pass, so that a refusal of a mutation says something about the mutation.
TEST(FuzzSeeds, AreGood) {
  for (const Seed& seed : notation_seeds())
    EXPECT_EQ(fuzz::check_notation(seed.text, {seed.types}), "") << seed.text;
  for (const Seed& seed : json_seeds()) EXPECT_EQ(fuzz::check_json(seed.text, {seed.types}), "") << seed.text;
}

// The mutations reach the far side: a good share of the texts still reads, and a good share is refused.
TEST(FuzzMutations, LeaveSomeTextsReadable) {
  int read = 0;
  constexpr int kTexts = 2000;
  for (int i = 0; i < kTexts; ++i) {
    fuzz::Random random(static_cast<std::uint64_t>(i));
    const auto& seeds = notation_seeds();
    const std::string text = fuzz::mutate(seeds[static_cast<std::size_t>(i) % seeds.size()].text,
                                          seeds[random.below(seeds.size())].text, random);
    read += refusal([&] { Block::parse(text); }).message.empty() ? 1 : 0;
  }
  EXPECT_GT(read, kTexts / 20);
  EXPECT_LT(read, kTexts / 2);
}

TEST(FuzzChecks, FindWhatIsWrong) {
  const std::vector<fuzz::Types>& types = fuzz::usual_types();
  EXPECT_EQ(fuzz::check_notation("group_norm(2) | relu", types), "");
  EXPECT_EQ(fuzz::check_notation("group_norm(7)", types), "");
  EXPECT_EQ(fuzz::check_notation("no such thing", types), "");
  EXPECT_EQ(fuzz::check_json("{}", types), "");
  const auto throwing = [&](const auto& error) {
    // NOLINTNEXTLINE(cert-err60-cpp): which exception is thrown is the point
    return fuzz::check([&]() -> Block { throw error; }, types);
  };
  EXPECT_EQ(throwing(UserError("bad", Position{1, 3, ""}, "  x\n  ^")), "");
  EXPECT_EQ(throwing(UserError("bad", Position{0, 0, "/outputs"}, "")), "");
  EXPECT_EQ(throwing(UserError("bad")), "reading: a refusal without a position: bad");
  EXPECT_EQ(throwing(UserError("bad", Position{1, 3, ""}, "")), "reading: a refusal without a caret: bad");
  EXPECT_EQ(throwing(NotSupportedError("b\xff", Position{0, 0, "/outputs"}, "")).substr(0, 35),
            "reading: an unprintable refusal: b\\");
  EXPECT_EQ(throwing(InternalError("bug")), "reading: internal error: bug");
  EXPECT_EQ(throwing(std::out_of_range("vector")), "reading: a foreign exception: vector");
}

TEST(FuzzChecks, TextsFitOnALine) {
  const fuzz::Types types = read_types("bf16[2,3,4]:cl, scale=f32[n=2,h=4], y.bias=f32[3]");
  EXPECT_EQ(types.others.at("y.bias").extents, (std::vector<std::int64_t>{3}));
  EXPECT_EQ(types_text(types), "bf16[2,3,4]:cl, scale=f32[n=2,h=4], y.bias=f32[3]");
  const std::string bytes("a\0'\\\xff\n", 6);
  EXPECT_EQ(fuzz::escaped(bytes), "a\\x00\\x27\\x5c\\xff\\x0a");
  EXPECT_EQ(fuzz::unescaped(fuzz::escaped(bytes)), bytes);
}

}  // namespace
}  // namespace fuseblock
