#include "cuda/emit/warpgroup_text.h"

#include <string>

namespace fuseblock::cuda {
namespace {

std::string number_text(int number) { return std::to_string(number); }

// `sums[0], sums[1], ...` in the form that `each` gives them.
template <class Each>
std::string listed(int count, const Each& each) {
  std::string list;
  for (int i = 0; i < count; ++i) list += (i == 0 ? "" : ", ") + each(i);
  return list;
}

void write_hold(Text& text, int sums) {
  text.open("__device__ inline void hold(float (&sums)[" + number_text(sums) + "]) {");
  text.line("asm volatile(\"\" : " +
            listed(sums, [](int i) { return "\"+f\"(sums[" + number_text(i) + "])"; }) + "::\"memory\");");
  text.close();
}

}  // namespace

void write_warpgroup_products_taken(Text& text, int sums, DType dtype, bool holds) {
  const std::string type = dtype == DType::kBF16 ? "bf16" : "f16";
  const std::string registers = listed(sums, [](int i) { return "%" + number_text(i); });
  const std::string numbers = listed(sums, [](int i) { return "\"+f\"(sums[" + number_text(i) + "])"; });
  text.open("namespace warpgroup {");
  text.line("// The rows are in registers, pairs of numbers as a lane has them of a product by mma.sync.");
  text.open("__device__ inline void multiply_taken(float (&sums)[" + number_text(sums) +
            "], unsigned int a0, unsigned int a1, unsigned int a2, unsigned int a3, unsigned long long b, "
            "int keep) {");
  auto operand = [&](int i) { return "%" + number_text(sums + i); };
  text.line("asm volatile(\"{ .reg .pred p; setp.ne.b32 p, " + operand(5) +
            ", 0; wgmma.mma_async.sync.aligned.m64n" + number_text(2 * sums) + "k16.f32." + type + "." +
            type + " \"");
  text.line("             \"{" + registers + "}, \"");
  text.line("             \"{" + operand(0) + ", " + operand(1) + ", " + operand(2) + ", " + operand(3) +
            "}, " + operand(4) + ", p, 1, 1, 0; }\"");
  text.line("             : " + numbers);
  text.line("             : \"r\"(a0), \"r\"(a1), \"r\"(a2), \"r\"(a3), \"l\"(b), \"r\"(keep));");
  text.close();
  if (holds) write_hold(text, sums);
  text.close("}  // namespace warpgroup");
}

void write_warpgroup_products(Text& text, int sums, DType dtype, bool keeps) {
  const bool narrow = dtype != DType::kF32;
  const std::string type = !narrow ? "tf32" : dtype == DType::kBF16 ? "bf16" : "f16";
  const std::string registers = listed(sums, [](int i) { return "%" + number_text(i); });
  const std::string numbers = listed(sums, [](int i) { return "\"+f\"(sums[" + number_text(i) + "])"; });
  text.open("namespace warpgroup {");
  text.open("__device__ inline void multiply(float (&sums)[" + number_text(sums) +
            "], unsigned long long a, unsigned long long b" + (keeps ? ", int keep" : "") + ") {");
  const std::string keep = keeps ? "%" + number_text(sums + 2) : "1";
  text.line("asm volatile(\"{ .reg .pred p; setp.ne.b32 p, " + keep +
            ", 0; wgmma.mma_async.sync.aligned.m64n" + number_text(2 * sums) + (narrow ? "k16" : "k8") +
            ".f32." + type + "." + type + " \"");
  text.line("             \"{" + registers + "}, \"");
  text.line("             \"%" + number_text(sums) + ", %" + number_text(sums + 1) + ", p, 1, 1" +
            (narrow ? ", 0, 0" : "") + "; }\"");
  text.line("             : " + numbers);
  text.line(std::string("             : \"l\"(a), \"l\"(b)") + (keeps ? ", \"r\"(keep)" : "") + ");");
  text.close();
  text.line("// Between instructions and products that have the sums.");
  write_hold(text, sums);
  text.close("}  // namespace warpgroup");
}

}  // namespace fuseblock::cuda
