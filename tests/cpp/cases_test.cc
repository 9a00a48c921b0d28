// The list of cases itself: it reads, is long, covers the catalogue, and stays small enough for the oracle.
#include "cases.h"

#include <gtest/gtest.h>

#include <fstream>
#include <set>

#include "fuseblock/operations.h"

namespace fuseblock {
namespace {

using cases::Case;

const std::vector<Case>& all_cases() {
  static const std::vector<Case> kCases = cases::read_cases(cases::case_files());
  return kCases;
}

std::filesystem::path write_file(const std::string& name, const std::string& text) {
  const std::filesystem::path path = std::filesystem::path(::testing::TempDir()) / name;
  std::ofstream(path) << text;
  return path;
}

// What reading the text says is wrong with it.
std::string refusal(const std::string& text) {
  try {
    cases::read_cases(write_file("refused.cases", text));
  } catch (const UserError& error) {
    return error.what();
  }
  return "";
}

TEST(CaseFiles, ReadNameBlockAndTypes) {
  const std::vector<Case> list = cases::read_cases(
      write_file("some.cases", "# a comment\n\n  first_1:  relu | add(b)  @ f32[2,3]:cl, b=f32[1,3] \n"));
  ASSERT_EQ(list.size(), 1U);
  EXPECT_EQ(list[0].name, "first_1");
  EXPECT_EQ(list[0].block, "relu | add(b)");
  EXPECT_EQ(list[0].input, "f32[2,3]:cl");
  EXPECT_EQ(list[0].others, (std::map<std::string, std::string>{{"b", "f32[1,3]"}}));
  EXPECT_EQ(list[0].location, "some.cases:3");
  EXPECT_EQ(list[0].command("cpu"),
            "build/fuseblock check 'relu | add(b)' --input 'f32[2,3]:cl' --input 'b=f32[1,3]' --engine cpu");
}

TEST(CaseFiles, RefuseWhatDoesNotRead) {
  EXPECT_EQ(refusal("\nrelu @ f32[2,3]\n"),
            "refused.cases:2: a case is written `name: block @ type`: relu @ f32[2,3]");
  EXPECT_NE(refusal("a: relu f32[2,3]").find("`name: block @ type`"), std::string::npos);
  EXPECT_NE(refusal("A b: relu @ f32[2,3]").find("the name of a case"), std::string::npos);
  EXPECT_NE(refusal("a: relu @ f32[2,3], f32[2,3]").find("expected `name=type`"), std::string::npos);
  const auto twice = write_file("twice.cases", "a: relu @ f32[2,3]\na: tanh @ f32[2,3]\n");
  EXPECT_THROW(cases::read_cases(std::vector{twice}), UserError);
}

TEST(CaseFiles, DtypeOverridesAllTypes) {
  const std::vector<Case> list = cases::read_cases(
      write_file("dtype.cases", "a: add(b) | cast(bf16) | linear(2) @ f16[2,3], b=f32[2,3]\n"));
  for (const NamedType& argument : list[0].typed(DType::kF64).arguments())
    EXPECT_EQ(argument.type.dtype, DType::kF64) << argument.name;
  EXPECT_EQ(list[0].typed(DType::kF64).outputs()[0].type.dtype, DType::kF64);
  EXPECT_EQ(list[0].typed().outputs()[0].type.dtype, DType::kBF16);
}

TEST(Cases, AreMany) { EXPECT_GE(all_cases().size(), 400U); }

TEST(Cases, MeetTheirTypes) {
  for (const Case& each : all_cases()) {
    EXPECT_NO_THROW(each.typed()) << each.location << ": " << each.name;
    EXPECT_NO_THROW(each.typed(DType::kF64)) << each.location << ": " << each.name;
  }
}

// So that the oracle and its gradients take milliseconds.
TEST(Cases, AreSmall) {
  constexpr double kLargest = 4e6;
  for (const Case& each : all_cases()) {
    const TypedBlock block = each.typed();
    double operations = 0;
    for (int node = 0; node < static_cast<int>(block.block().nodes().size()); ++node)
      operations += block.operation_count(node);
    EXPECT_LE(operations, kLargest) << each.location << ": " << each.name;
  }
}

TEST(Cases, UseEveryOperationWithEveryArgument) {
  // By operation: the arguments that differ from their defaults in some case.
  std::map<std::string, std::set<std::string>> changed;
  for (const Case& each : all_cases()) {
    const Block block = Block::parse(each.block);
    for (const Node& node : block.nodes()) {
      if (node.operation->code == OpCode::kFormula) continue;
      auto& names = changed[node.operation->name];
      for (std::size_t i = 0; i < node.arguments.size(); ++i) {
        const ArgumentSpec& spec = node.operation->arguments[i];
        if (spec.required || node.arguments[i] != spec.default_value) names.insert(spec.name);
      }
    }
  }
  for (const Operation* operation : operations()) {
    ASSERT_TRUE(changed.contains(operation->name)) << "no case uses " << operation->name;
    if (operation->adjoint) continue;
    for (const ArgumentSpec& spec : operation->arguments)
      EXPECT_TRUE(changed[operation->name].contains(spec.name))
          << "no case gives " << operation->name << " a value of its own for " << spec.name;
  }
}

void expect_reads_back(const Block& block, const std::string& what) {
  EXPECT_EQ(Block::parse(block.to_string()), block) << what << ": " << block.to_string();
  EXPECT_EQ(Block::parse(block.to_statements()), block) << what << ": " << block.to_statements();
  EXPECT_EQ(Block::from_json(block.to_json()), block) << what << ": " << block.to_json();
}

TEST(Cases, ReadBackAsPrinted) {
  for (const Case& each : all_cases()) {
    const TypedBlock forward = each.typed();
    expect_reads_back(forward.block(), each.name);
    expect_reads_back(forward.backward().block(), each.name + ", backward");
  }
}

TEST(Cases, HaveGradientsOfGradients) {
  for (const Case& each : all_cases()) {
    SCOPED_TRACE(each.location + ": " + each.name);
    const TypedBlock backward = each.typed().backward();
    EXPECT_NO_THROW(expect_reads_back(backward.backward().block(), each.name + ", backward twice"));
  }
}

TEST(CaseData, IsTheSameEveryTimeAndOfBothSigns) {
  const TypedBlock block = TypedBlock::infer(Block::parse("conv2d(4, k=3) | batch_norm | add(skip)"),
                                             TensorType::parse("f32[2,3,8,8]"));
  const cases::TensorMap first = cases::random_arguments(block, 7);
  const cases::TensorMap again = cases::random_arguments(block, 7);
  const cases::TensorMap other = cases::random_arguments(block, 8);
  for (const auto& [name, tensor] : first) {
    EXPECT_EQ(tensor.to_doubles(), again.at(name).to_doubles()) << name;
    EXPECT_NE(tensor.to_doubles(), other.at(name).to_doubles()) << name;
  }
  int negative = 0;
  for (double number : first.at("x").to_doubles()) negative += number < 0 ? 1 : 0;
  EXPECT_GT(negative, 100);
  EXPECT_LT(negative, 284);
  for (double number : first.at("batch_norm.running_var").to_doubles()) EXPECT_GE(number, 0.5);
}

}  // namespace
}  // namespace fuseblock
