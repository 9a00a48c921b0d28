// Loads, stores and atomics are taken apart by their modifiers; all other instructions stand in kInstructions.
#include "ptx.h"

#include <algorithm>
#include <array>
#include <map>
#include <stdexcept>
#include <string_view>

namespace fuseblock_emulated {
namespace {

struct Instruction {
  std::string_view name;  // of the whole instruction; one that ends with a * stands for all that begin so
  std::string_view cpp;   // $0, $1, ... are the operands
};

constexpr std::array kInstructions = {
    Instruction{"cvt.f32.f16", "$0 = fuseblock_emulated::f32_of_f16($1)"},
    Instruction{"cvt.rn.f16.f32", "$0 = fuseblock_emulated::f16_of_f32($1)"},
    Instruction{"cvt.rn.bf16.f32", "$0 = fuseblock_emulated::bf16_of_f32($1)"},
    Instruction{"cvt.rn.f16x2.f32",
                "$0 = (unsigned int)fuseblock_emulated::f16_of_f32($1) << 16 | "
                "fuseblock_emulated::f16_of_f32($2)"},
    Instruction{"cvt.rn.bf16x2.f32",
                "$0 = (unsigned int)fuseblock_emulated::bf16_of_f32($1) << 16 | "
                "fuseblock_emulated::bf16_of_f32($2)"},
    Instruction{"cvt.rna.tf32.f32", "$0 = fuseblock_emulated::tf32_of_f32($1)"},
    Instruction{"min.NaN.f32", "$0 = fuseblock_emulated::min_nan($1, $2)"},
    Instruction{"max.NaN.f32", "$0 = fuseblock_emulated::max_nan($1, $2)"},
    Instruction{"max.f16x2", "$0 = fuseblock_emulated::max_of_pairs($1, $2)"},
    Instruction{"abs.f16x2", "$0 = ($1) & 0x7fff7fffu"},
    Instruction{"add.rn.f16x2", "$0 = fuseblock_emulated::sum_of_pairs($1, $2)"},
    Instruction{"ex2.approx.f32", "$0 = exp2f($1)"},
    Instruction{"ex2.approx.ftz.f32", "$0 = fuseblock_emulated::without_subnormal(exp2f($1))"},
    Instruction{"lg2.approx.f32", "$0 = log2f($1)"},
    Instruction{"lg2.approx.ftz.f32", "$0 = log2f(fuseblock_emulated::without_subnormal($1))"},
    Instruction{"rcp.approx.f32", "$0 = 1.0f / ($1)"},
    Instruction{"rcp.approx.ftz.f32",
                "$0 = fuseblock_emulated::without_subnormal(1.0f / "
                "fuseblock_emulated::without_subnormal($1))"},
    Instruction{"rsqrt.approx.f32", "$0 = 1.0f / sqrtf($1)"},
    Instruction{"rsqrt.approx.ftz.f32", "$0 = 1.0f / sqrtf(fuseblock_emulated::without_subnormal($1))"},
    Instruction{"sqrt.approx.f32", "$0 = sqrtf($1)"},
    Instruction{"sqrt.approx.ftz.f32", "$0 = sqrtf(fuseblock_emulated::without_subnormal($1))"},
    Instruction{"tanh.approx.f32", "$0 = tanhf($1)"},
    Instruction{"fma.rn.f32", "$0 = fmaf($1, $2, $3)"},
    Instruction{"fma.rn.f64", "$0 = fma($1, $2, $3)"},
    Instruction{"mov.u32", "$0 = $1"},
    Instruction{"mov.b32", "fuseblock_emulated::set($0, $1)"},
    Instruction{"mov.u64", "$0 = $1"},
    Instruction{"mov.b64", "fuseblock_emulated::set($0, $1)"},
    Instruction{"cp.async.commit_group", "fuseblock_emulated_runtime->copy_commit()"},
    Instruction{"cp.async.wait_group", "fuseblock_emulated_runtime->copy_wait($0)"},
    Instruction{"cp.async.wait_all",
                "(fuseblock_emulated_runtime->copy_commit(), fuseblock_emulated_runtime->copy_wait(0))"},
    Instruction{"bar.sync", "fuseblock_emulated_runtime->sync_block($0, $1, __LINE__)"},
    Instruction{"bar.arrive", "fuseblock_emulated_runtime->arrive_block($0, $1, __LINE__)"},
    Instruction{"barrier.sync", "fuseblock_emulated_runtime->sync_block($0, $1, __LINE__)"},
    Instruction{"barrier.sync.aligned", "fuseblock_emulated_runtime->sync_block($0, $1, __LINE__)"},
    Instruction{"barrier.cluster.arrive*", "fuseblock_emulated_runtime->arrive_cluster(__LINE__)"},
    Instruction{"barrier.cluster.wait*", "fuseblock_emulated_runtime->wait_cluster(__LINE__)"},
    Instruction{"mapa.shared::cluster.u32", "$0 = fuseblock_emulated_runtime->map_shared($1, $2, __LINE__)"},
    Instruction{"setp.ne.b32", "$0 = ($1) != ($2)"},
    Instruction{"selp.b32", "$0 = ($3) ? ($1) : ($2)"},
    Instruction{"wgmma.fence*", "(void)0"},
    Instruction{"setmaxnreg*", "(void)0"},
    Instruction{"wgmma.commit_group*", "(void)0"},
    Instruction{"wgmma.wait_group*", "__syncwarp()"},
    Instruction{"fence.*", "(void)0"},
    Instruction{"membar.*", "(void)0"},
    Instruction{"prefetch.*", "(void)0"},
    Instruction{"griddepcontrol.*", "(void)0"},
    Instruction{"createpolicy.*", "$0 = 0"},
};

struct Register {
  std::string_view name;
  std::string_view cpp;
};

constexpr std::array kRegisters = {
    Register{"%cluster_ctarank", "fuseblock_emulated_thread->cluster_rank"},
    Register{"%cluster_nctarank", "fuseblock_emulated_thread->cluster_blocks"},
    Register{"%cluster_ctaid.x", "(blockIdx.x % fuseblock_emulated_thread->cluster_extent.x)"},
    Register{"%cluster_nctaid.x", "fuseblock_emulated_thread->cluster_extent.x"},
    Register{"%clusterid.x", "(blockIdx.x / fuseblock_emulated_thread->cluster_extent.x)"},
    Register{"%nclusterid.x", "(gridDim.x / fuseblock_emulated_thread->cluster_extent.x)"},
    Register{"%dynamic_smem_size", "fuseblock_emulated_thread->dynamic_bytes"},
    Register{"%laneid", "fuseblock_emulated_thread->lane"},
    Register{"%tid.x", "threadIdx.x"},
    Register{"%ntid.x", "blockDim.x"},
    Register{"%ctaid.x", "blockIdx.x"},
    Register{"%nctaid.x", "gridDim.x"},
};

std::string trimmed(std::string_view text) {
  const std::size_t begin = text.find_first_not_of(" \t\n\r");
  if (begin == std::string_view::npos) return "";
  return std::string(text.substr(begin, text.find_last_not_of(" \t\n\r") + 1 - begin));
}

// At the separators that stand in no bracket.
std::vector<std::string> split(std::string_view text, char separator) {
  std::vector<std::string> parts;
  int depth = 0;
  std::size_t begin = 0;
  for (std::size_t i = 0; i <= text.size(); ++i) {
    if (i < text.size() && (text[i] == '[' || text[i] == '{' || text[i] == '(')) ++depth;
    if (i < text.size() && (text[i] == ']' || text[i] == '}' || text[i] == ')')) --depth;
    if (i < text.size() && (text[i] != separator || depth > 0)) continue;
    parts.push_back(trimmed(text.substr(begin, i - begin)));
    begin = i + 1;
  }
  if (parts.size() == 1 && parts[0].empty()) parts.clear();
  return parts;
}

// An instruction: its name by its parts, and its operands as the text has them.
class Translator {
 public:
  Translator(std::string text, const std::vector<std::string>& operands)
      : text_(std::move(text)), given_(operands) {
    std::string rest = trimmed(text_);
    const std::size_t end = rest.find_first_of(" \t\n");
    name_ = rest.substr(0, end);
    parts_ = split(name_, '.');
    if (end != std::string::npos) operands_ = split(rest.substr(end), ',');
  }

  std::string cpp() const {
    if (parts_.empty()) return "";
    if (parts_[0] == "ld") return load();
    if (parts_[0] == "st") return store();
    if (parts_[0] == "atom" || parts_[0] == "red") return atomic();
    if (parts_[0] == "mma") return product();
    if (name_.starts_with("wgmma.mma_async")) return warpgroup_product();
    if (name_ == ".reg") return declared();
    if (name_ == "mov.b128") return halves();
    if (parts_[0] == "ldmatrix") return matrices();
    if (parts_[0] == "mbarrier") return barrier();
    if (name_ == "mov.b64" && operands_.size() == 2 && operands_[1].starts_with('{')) return joined();
    if (name_.starts_with("cp.async.bulk")) return bulk_copy();
    if (name_.starts_with("cp.async.ca") || name_.starts_with("cp.async.cg")) return copy();
    for (const Instruction& known : kInstructions) {
      const bool family = known.name.ends_with('*');
      if (family ? name_.starts_with(known.name.substr(0, known.name.size() - 1)) : name_ == known.name)
        return filled(known.cpp);
    }
    unknown("");
  }

 private:
  [[noreturn]] void unknown(const std::string& why) const {
    throw std::runtime_error("the emulator does not know the PTX instruction `" + trimmed(text_) + "`" + why +
                             "; see tests/emulator/ptx.cc");
  }

  bool has(std::string_view part) const { return std::ranges::find(parts_, part) != parts_.end(); }

  // An operand as a C++ expression: %0 of the statement, a register of the machine or a number.
  std::string expression(const std::string& operand) const {
    if (operand.starts_with("%%") || (operand.starts_with('%') && operand.size() > 1 &&
                                      std::isalpha(static_cast<unsigned char>(operand[1])) != 0)) {
      const std::string name = operand.starts_with("%%") ? operand.substr(1) : operand;
      for (const Register& known : kRegisters)
        if (known.name == name) return std::string(known.cpp);
      unknown(", by its register " + name);
    }
    if (!operand.starts_with('%')) return operand;
    const std::size_t number = std::stoul(operand.substr(1));
    if (number >= given_.size()) unknown(", whose operand " + operand + " is not there");
    return "(" + given_[number] + ")";
  }

  // $0, $1, ...; those that are missing are 0.
  std::string filled(std::string_view form) const {
    std::string result;
    for (std::size_t i = 0; i < form.size(); ++i) {
      if (form[i] != '$') {
        result += form[i];
        continue;
      }
      const auto number = static_cast<std::size_t>(form[++i] - '0');
      result += number < operands_.size() ? expression(operands_[number]) : "0";
    }
    return result + ";";
  }

  // The C++ type of the values.
  std::string type() const {
    static const std::map<std::string, std::string, std::less<>> kTypes = {{"b8", "unsigned char"},
                                                                           {"u8", "unsigned char"},
                                                                           {"s8", "signed char"},
                                                                           {"b16", "unsigned short"},
                                                                           {"u16", "unsigned short"},
                                                                           {"s16", "short"},
                                                                           {"b32", "unsigned int"},
                                                                           {"u32", "unsigned int"},
                                                                           {"s32", "int"},
                                                                           {"b64", "unsigned long long"},
                                                                           {"u64", "unsigned long long"},
                                                                           {"s64", "long long"},
                                                                           {"f32", "float"},
                                                                           {"f64", "double"},
                                                                           {"b128", "unsigned __int128"}};
    const auto found = kTypes.find(parts_.back());
    if (found == kTypes.end()) unknown(", by its type");
    return found->second;
  }

  int width() const { return has("v8") ? 8 : has("v4") ? 4 : has("v2") ? 2 : 1; }

  // `[%0]` or `[%0 + 16]` as a pointer to `count` values.
  std::string address(const std::string& operand, const std::string& bytes, std::string_view space) const {
    if (!operand.starts_with('[') || !operand.ends_with(']')) unknown(", by its address " + operand);
    const std::vector<std::string> sum = split(operand.substr(1, operand.size() - 2), '+');
    std::string whole = expression(sum.at(0));
    const std::string place = space.empty() ? "generic" : std::string(space);
    std::string result = "fuseblock_emulated::" + place + "(" + whole;
    if (space.empty())
      result += ", " + bytes + ", __LINE__)" + (sum.size() > 1 ? " + " + expression(sum[1]) : "");
    else
      result += (sum.size() > 1 ? " + " + expression(sum[1]) : "") + ", " + bytes + ", __LINE__)";
    return result;
  }
  std::string_view space() const {
    if (has("shared::cluster")) return "of_cluster";
    if (has("shared") || has("shared::cta")) return "of_block";
    return "";
  }
  std::string bytes() const { return "sizeof(" + type() + ") * " + std::to_string(width()); }

  // The registers of `{a, b}` or of `a`.
  std::vector<std::string> registers(const std::string& operand) const {
    std::vector<std::string> names =
        operand.starts_with('{') ? split(operand.substr(1, operand.size() - 2), ',') : std::vector{operand};
    if (static_cast<int>(names.size()) != width()) unknown(", by the number of its registers");
    for (std::string& name : names) name = expression(name);
    return names;
  }

  // Two registers as one of 64 bits, the lower half first.
  std::string joined() const {
    const std::vector<std::string> halves = split(operands_[1].substr(1, operands_[1].size() - 2), ',');
    if (halves.size() != 2) unknown(", by the number of its registers");
    return expression(operands_[0]) + " = (unsigned long long)(unsigned int)" + expression(halves[1]) +
           " << 32 | (unsigned int)" + expression(halves[0]) + ";";
  }

  std::string load() const {
    if (operands_.size() < 2) unknown("");
    std::string result;
    if (has("relaxed"))
      result += "fuseblock_emulated_runtime->look(__LINE__); ";
    else if (has("acquire") || has("volatile"))
      result += "fuseblock_emulated_runtime->yield(__LINE__); ";
    result += "const auto fuseblock_loaded = fuseblock_emulated::load<" + type() + ", " +
              std::to_string(width()) + ">(" + address(operands_[1], bytes(), space()) + ", __LINE__);";
    const std::vector<std::string> names = registers(operands_[0]);
    for (std::size_t i = 0; i < names.size(); ++i)
      result +=
          " fuseblock_emulated::set(" + names[i] + ", fuseblock_loaded.values[" + std::to_string(i) + "]);";
    return "{ " + result + " }";
  }

  std::string store() const {
    if (operands_.size() < 2) unknown("");
    if (has("async")) return store_that_arrives();
    std::string result =
        "fuseblock_emulated::store<" + type() + ">(" + address(operands_[0], bytes(), space()) + ", __LINE__";
    for (const std::string& name : registers(operands_[1])) result += ", " + name;
    return result + ");";
  }

  // A store to the shared memory of a block of the cluster, whose bytes arrive at a barrier there.
  std::string store_that_arrives() const {
    if (!has("shared::cluster") || !has("mbarrier::complete_tx::bytes") || operands_.size() != 3) unknown("");
    std::string result = "fuseblock_emulated::store<" + type() + ">(" +
                         address(operands_[0], bytes(), "of_cluster") + ", __LINE__";
    for (const std::string& name : registers(operands_[1])) result += ", " + name;
    return result + "); fuseblock_emulated::bytes_arrive(" + address(operands_[2], "8", "of_cluster") + ", " +
           bytes() + ", __LINE__);";
  }

  std::string atomic() const {
    static const std::map<std::string, std::string, std::less<>> kChanges = {
        {"add", "before + (value)"},
        {"min", "(value) < before ? (value) : before"},
        {"max", "before < (value) ? (value) : before"},
        {"exch", "(value)"},
        {"or", "before | (value)"},
        {"and", "before & (value)"},
        {"xor", "before ^ (value)"},
        {"cas", "before == (value) ? (other) : before"}};
    const bool returns = parts_[0] == "atom";
    const std::size_t first = returns ? 1 : 0;
    if (operands_.size() < first + 2) unknown("");
    for (const auto& [name, change] : kChanges) {
      if (!has(name)) continue;
      std::string result = "{ const " + type() + " value = " + expression(operands_[first + 1]) + "; ";
      if (name == "cas")
        result += "const " + type() + " other = " + expression(operands_.at(first + 2)) + "; ";
      result += "const auto fuseblock_before = fuseblock_emulated::atomic_at<" + type() + ">(" +
                address(operands_[first], bytes(), space()) + ", __LINE__, [&](" + type() +
                " before) { return (" + type() + ")(" + change + "); });";
      if (returns) result += " fuseblock_emulated::set(" + expression(operands_[0]) + ", fuseblock_before);";
      return result + " }";
    }
    unknown("");
  }

  // A product of matrices: d, a, b, c.
  std::string product() const {
    static const std::map<std::string, std::string, std::less<>> kKinds = {
        {"mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32", "kTf32"},
        {"mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32", "kBf16"},
        {"mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32", "kF16"}};
    const auto kind = kKinds.find(name_);
    if (kind == kKinds.end() || operands_.size() != 4) unknown("");
    std::string result =
        "fuseblock_emulated::multiply_matrices(fuseblock_emulated::MatrixKind::" + kind->second +
        ", __LINE__";
    for (const std::string& operand : operands_) {
      if (!operand.starts_with('{')) unknown(", by its operand " + operand);
      for (const std::string& name : split(operand.substr(1, operand.size() - 2), ','))
        result += ", " + expression(name);
    }
    return result + ");";
  }

  // A product by a warpgroup: sums, the descriptors of both factors or registers of the first, whether the
  // sums are kept, and signs.
  std::string warpgroup_product() const {
    const std::size_t columns = name_.find("m64n");
    const std::size_t depth = name_.find('k', columns);
    const std::string types =
        columns == std::string::npos || depth == std::string::npos ? "" : name_.substr(depth);
    static const std::map<std::string, std::string, std::less<>> kKinds = {
        {"k8.f32.tf32.tf32", "kTf32"}, {"k16.f32.bf16.bf16", "kBf16"}, {"k16.f32.f16.f16", "kF16"}};
    const auto kind = kKinds.find(types);
    if (kind == kKinds.end() || operands_.size() < 6 || operands_[4] != "1" || operands_[5] != "1")
      unknown("");
    std::string sums;
    for (const std::string& name : split(operands_[0].substr(1, operands_[0].size() - 2), ','))
      sums += (sums.empty() ? "&" : ", &") + expression(name);
    if (operands_[1].starts_with('{')) {
      if (kind->second == "kTf32") unknown(", by its registers");
      std::string factors;
      for (const std::string& name : split(operands_[1].substr(1, operands_[1].size() - 2), ','))
        factors += ", " + expression(name);
      return "{ float* fuseblock_sums[] = {" + sums +
             "}; fuseblock_emulated::multiply_taken_by_warpgroup(fuseblock_emulated::MatrixKind::" +
             kind->second + ", __LINE__, fuseblock_sums" + factors + ", " + expression(operands_[2]) + ", " +
             expression(operands_[3]) + "); }";
    }
    return "{ float* fuseblock_sums[] = {" + sums +
           "}; fuseblock_emulated::multiply_by_warpgroup(fuseblock_emulated::MatrixKind::" + kind->second +
           ", __LINE__, fuseblock_sums, " + expression(operands_[1]) + ", " + expression(operands_[2]) +
           ", " + expression(operands_[3]) + "); }";
  }

  // `.reg .pred p`, `.reg .b128 whole`
  std::string declared() const {
    static const std::map<std::string, std::string, std::less<>> kTypes = {{".pred", "bool"},
                                                                           {".b128", "unsigned __int128"}};
    if (operands_.size() != 1) unknown("");
    const std::size_t end = operands_[0].find(' ');
    const auto found = kTypes.find(operands_[0].substr(0, end));
    if (end == std::string::npos || found == kTypes.end()) unknown("");
    return found->second + " " + trimmed(operands_[0].substr(end)) + " = 0;";
  }

  // Two registers of 64 bits as one of 128, the lower half first, or the other way round.
  std::string halves() const {
    const bool joins = operands_.size() == 2 && operands_[1].starts_with('{');
    if (operands_.size() != 2 || joins == operands_[0].starts_with('{')) unknown("");
    const std::string& pair = operands_[joins ? 1 : 0];
    const std::vector<std::string> both = split(pair.substr(1, pair.size() - 2), ',');
    if (both.size() != 2) unknown(", by the number of its registers");
    const std::string low = expression(both[0]), high = expression(both[1]);
    if (joins) return operands_[0] + " = (unsigned __int128)" + high + " << 64 | " + low + ";";
    return low + " = (unsigned long long)" + operands_[1] + "; " + high + " = (unsigned long long)(" +
           operands_[1] + " >> 64);";
  }

  // Four matrices of 16-byte rows out of shared memory: registers, the address of the lane's row.
  std::string matrices() const {
    if (name_ != "ldmatrix.sync.aligned.m8n8.x4.shared.b16" || operands_.size() != 2) unknown("");
    std::string result = "fuseblock_emulated::read_matrices(__LINE__, (const unsigned int*)" +
                         address(operands_[1], "16", "of_block");
    for (const std::string& name : split(operands_[0].substr(1, operands_[0].size() - 2), ','))
      result += ", " + expression(name);
    return result + ");";
  }

  // A barrier in shared memory.
  std::string barrier() const {
    static const std::map<std::string, std::string, std::less<>> kFunctions = {
        {"mbarrier.init.shared::cta.b64", "begin_barrier"},
        {"mbarrier.inval.shared::cta.b64", "end_barrier"},
        {"mbarrier.arrive.shared::cta.b64", "arrive_at_barrier"},
        {"mbarrier.arrive.expect_tx.shared::cta.b64", "arrive_at_barrier"},
        {"mbarrier.try_wait.parity.shared::cta.b64", "is_over"},
        {"mbarrier.test_wait.parity.shared::cta.b64", "is_over"}};
    const auto function = kFunctions.find(name_);
    if (function == kFunctions.end()) unknown("");
    const bool waits = function->second == "is_over";
    const std::size_t place =
        function->second == "begin_barrier" || function->second == "end_barrier" ? 0 : 1;
    if (operands_.size() <= place || (place == 1 && !waits && operands_[0] != "_")) unknown("");
    return (waits ? expression(operands_[0]) + " = " : "") + "fuseblock_emulated::" + function->second + "(" +
           address(operands_[place], "8", "of_block") + ", " +
           (operands_.size() > place + 1 ? expression(operands_[place + 1]) : "0") + ", __LINE__);";
  }

  // A copy to shared memory whose bytes arrive at a barrier.
  std::string bulk_copy() const {
    if (name_ != "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes" || operands_.size() != 4)
      unknown("");
    const std::string size = expression(operands_[2]);
    return "fuseblock_emulated::copy_in_bulk(" + address(operands_[0], size, "of_block") + ", " +
           address(operands_[1], size, "") + ", " + size + ", " + address(operands_[3], "8", "of_block") +
           ", __LINE__);";
  }

  std::string copy() const {
    if (operands_.size() < 3) unknown("");
    const std::string size = expression(operands_[2]);
    const std::string taken =
        operands_.size() > 3 && !has("L2::cache_hint") ? expression(operands_[3]) : size;
    return "fuseblock_emulated_runtime->copy_begin(" + address(operands_[0], size, "of_block") + ", " +
           address(operands_[1], size, "") + ", " + size + ", " + taken + ", __LINE__);";
  }

  std::string text_;
  const std::vector<std::string>& given_;
  std::string name_;
  std::vector<std::string> parts_;
  std::vector<std::string> operands_;
};

}  // namespace

std::string cpp_of_ptx(const std::string& instructions, const std::vector<std::string>& operands) {
  // A scope of its own, for registers.
  const std::string whole = trimmed(instructions);
  if (whole.starts_with('{') && whole.ends_with('}'))
    return "{ " + cpp_of_ptx(whole.substr(1, whole.size() - 2), operands) + "} ";
  std::string result;
  for (const std::string& instruction : split(instructions, ';'))
    if (!instruction.empty()) result += Translator(instruction, operands).cpp() + " ";
  return result;
}

}  // namespace fuseblock_emulated
