#include "cuda/launch/registers.h"

#include <algorithm>
#include <array>

namespace fuseblock::cuda {
namespace {

constexpr int kRegistersOfMultiprocessor = 65536;
constexpr int kMostRegisters = 255;
constexpr int kRegisterStep = 8;
constexpr int kGranule = 128;  // threads of a multiprocessor, a warp in each of its four parts
constexpr std::size_t kMostInputs = 5;

// A cluster lies in one part of a GPU. Multiprocessors of the parts of an H200, as its driver's counts of clusters have them; the others
// are pairs by themselves.
constexpr std::array<int, 8> kParts = {18, 18, 16, 16, 16, 16, 16, 8};
constexpr int kLonePairs = 4;
constexpr int kMultiprocessors = 132;

}  // namespace

bool has_measured_clusters(const Gpu& gpu) {
  return gpu.architecture->compute_major == 9 && gpu.multiprocessors >= kMultiprocessors;
}

int clusters_at_once(int cluster, int blocks) {
  if (cluster == 1) return kMultiprocessors * blocks;
  int count = cluster == 2 ? kLonePairs * blocks : 0;
  for (int part : kParts) count += part * blocks / cluster;
  return count;
}

int registers_of(std::int64_t threads, int blocks) {
  threads = (threads + kGranule - 1) / kGranule * kGranule;
  return static_cast<int>(std::min<std::int64_t>(
      kMostRegisters, kRegistersOfMultiprocessor / (threads * blocks) / kRegisterStep * kRegisterStep));
}

bool leaves_registers(const Sweep& sweep) {
  return sweep.inputs.size() <= kMostInputs &&
         std::none_of(sweep.steps.begin(), sweep.steps.end(), [](const Formula::Step& step) {
           return step.primitive >= Primitive::kSqrt && step.primitive != Primitive::kSigmoid;
         });
}

}  // namespace fuseblock::cuda
