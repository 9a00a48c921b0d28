#include "cuda/jit/cubin_file.h"

#include <algorithm>
#include <charconv>

#include "cuda/jit/sha256.h"

namespace fuseblock::jit {
namespace {

constexpr std::string_view kMagic = "fuseblock kernel 1 ";  // the number is the format's
constexpr std::size_t kDigestLength = 64;

void put(std::string& body, std::string_view field) {
  body += std::to_string(field.size()) + "\n";
  body += field;
}

void put(std::string& body, int number) { put(body, std::to_string(number)); }

// Takes fields from the front of a text.
class Fields {
 public:
  explicit Fields(std::string_view body) : rest_(body) {}

  std::string_view next() {
    const std::size_t end = rest_.find('\n');
    const std::size_t length = number(rest_.substr(0, end));
    if (end == std::string_view::npos || length > rest_.size() - end - 1) {
      good_ = false;
      return {};
    }
    const std::string_view field = rest_.substr(end + 1, length);
    rest_.remove_prefix(end + 1 + length);
    return field;
  }

  int next_number() { return static_cast<int>(number(next())); }

  // All fields were there and nothing is left.
  bool complete() const { return good_ && rest_.empty(); }
  bool good() const { return good_; }

 private:
  std::size_t number(std::string_view digits) {
    std::size_t value = 0;
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
    if (error != std::errc() || end != digits.data() + digits.size()) good_ = false;
    return value;
  }

  std::string_view rest_;
  bool good_ = true;
};

}  // namespace

std::string to_file(const Cubin& cubin) {
  std::string body;
  for (const std::string* field : {&cubin.identity, &cubin.name, &cubin.entry, &cubin.architecture,
                                   &cubin.compiler, &cubin.log, &cubin.image})
    put(body, *field);
  put(body, static_cast<int>(cubin.kernels.size()));
  for (const KernelResources& kernel : cubin.kernels) {
    put(body, kernel.entry);
    for (const int number : {kernel.registers, kernel.shared_bytes, kernel.local_bytes,
                             kernel.spill_store_bytes, kernel.spill_load_bytes})
      put(body, number);
  }
  return std::string(kMagic) + sha256(body) + " " + std::to_string(body.size()) + "\n" + body;
}

std::optional<Cubin> from_file(std::string_view bytes) {
  if (!bytes.starts_with(kMagic)) return std::nullopt;
  bytes.remove_prefix(kMagic.size());
  const std::size_t end = bytes.find('\n');
  if (end == std::string_view::npos || end < kDigestLength + 2) return std::nullopt;
  const std::string_view body = bytes.substr(end + 1);
  if (bytes.substr(0, end) != sha256(body) + " " + std::to_string(body.size())) return std::nullopt;

  Fields fields(body);
  Cubin cubin;
  for (std::string* field : {&cubin.identity, &cubin.name, &cubin.entry, &cubin.architecture, &cubin.compiler,
                             &cubin.log, &cubin.image})
    *field = fields.next();
  const int kernels = fields.next_number();
  for (int i = 0; i < kernels && fields.good(); ++i) {
    KernelResources& kernel = cubin.kernels.emplace_back();
    kernel.entry = fields.next();
    for (int* number : {&kernel.registers, &kernel.shared_bytes, &kernel.local_bytes,
                        &kernel.spill_store_bytes, &kernel.spill_load_bytes})
      *number = fields.next_number();
  }
  if (!fields.complete()) return std::nullopt;
  return cubin;
}

}  // namespace fuseblock::jit
