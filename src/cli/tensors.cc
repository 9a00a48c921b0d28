#include "tensors.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <limits>

#include "table.h"

namespace fuseblock::cli {
namespace {

class Fnv1a {
 public:
  void add(const std::byte* bytes, std::size_t count) {
    for (std::size_t i = 0; i < count; ++i) {
      hash_ ^= static_cast<std::uint64_t>(bytes[i]);
      hash_ *= 0x100000001b3ULL;
    }
  }
  std::uint64_t hash() const { return hash_; }

 private:
  std::uint64_t hash_ = 0xcbf29ce484222325ULL;
};

// Bytes this process may still allocate, infinite where the system does not say.
double available_memory() {
  double available = std::numeric_limits<double>::infinity();
  std::ifstream meminfo("/proc/meminfo");
  std::string key;
  double kilobytes = 0;
  std::string rest;
  while (meminfo >> key >> kilobytes && std::getline(meminfo, rest))
    if (key == "MemAvailable:") available = kilobytes * 1024;
  double limit = 0;
  double used = 0;
  std::ifstream limit_file("/sys/fs/cgroup/memory.max");
  std::ifstream used_file("/sys/fs/cgroup/memory.current");
  if (limit_file >> limit && used_file >> used) available = std::min(available, limit - used);
  return available;
}

}  // namespace

Tensor converted(const Tensor& tensor, const TensorType& type) {
  if (tensor.type().extents != type.extents)
    throw InternalError("a tensor " + to_string(tensor.type()) + " cannot become " + to_string(type));
  Tensor result(type);
  for_each_element(type, [&](std::int64_t index, std::int64_t offset) {
    store_element(result.data(), type.dtype, offset, tensor.get(index));
  });
  return result;
}

Statistics statistics(const Tensor& tensor) {
  const TensorType& type = tensor.type();
  const auto size = static_cast<std::size_t>(byte_size(type.dtype));
  Statistics result;
  Fnv1a digest;
  std::int64_t finite = 0;
  double m2 = 0;
  result.min = std::numeric_limits<double>::infinity();
  result.max = -result.min;
  for_each_element(type, [&](std::int64_t, std::int64_t offset) {
    digest.add(tensor.data() + static_cast<std::size_t>(offset) * size, size);
    const double value = load_element(tensor.data(), type.dtype, offset);
    if (std::isnan(value)) {
      ++result.nan_count;
    } else if (std::isinf(value)) {
      ++result.inf_count;
    } else {
      ++finite;
      const double delta = value - result.mean;
      result.mean += delta / static_cast<double>(finite);
      m2 += delta * (value - result.mean);
      result.min = std::min(result.min, value);
      result.max = std::max(result.max, value);
    }
  });
  result.digest = digest.hash();
  result.std = std::sqrt(m2 / static_cast<double>(finite));
  if (finite == 0)
    result.mean = result.std = result.min = result.max = std::numeric_limits<double>::quiet_NaN();
  return result;
}

std::string digest_text(std::uint64_t digest) {
  std::array<char, 17> buffer{};
  std::snprintf(buffer.data(), buffer.size(), "%016llx", static_cast<unsigned long long>(digest));
  return buffer.data();
}

void require_memory(double bytes, const std::string& what) {
  const double available = available_memory();
  if (bytes <= available) return;
  throw UserError("not enough memory for " + what + ": " + bytes_text(bytes) + " needed, " +
                  bytes_text(available) + " available");
}

double total_bytes(const std::vector<NamedType>& tensors) {
  double bytes = 0;
  for (const NamedType& tensor : tensors) bytes += static_cast<double>(tensor.type.byte_count());
  return bytes;
}

}  // namespace fuseblock::cli
