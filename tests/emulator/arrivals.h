// Barriers in shared memory (mbarrier), and copies whose bytes arrive at them. Included by kernels through
// cuda_language.h.
#pragma once

namespace fuseblock_emulated {

// The eight bytes of a barrier.
struct ArrivalBarrier {
  unsigned short expected, missing;  // arrivals of a phase
  int bytes : 31;                    // that are on their way
  unsigned int phase : 1;
};
static_assert(sizeof(ArrivalBarrier) == 8);

inline ArrivalBarrier& barrier_at(char* place, int line) {
  check_aligned(place, 8, line);
  auto& barrier = *reinterpret_cast<ArrivalBarrier*>(place);
  if (barrier.expected == 0 || barrier.missing > barrier.expected)
    fuseblock_emulated_runtime->fail("mbarrier: eight bytes that are no barrier", line);
  return barrier;
}

inline void end_phase(ArrivalBarrier& barrier) {
  if (barrier.missing != 0 || barrier.bytes != 0) return;
  barrier.missing = barrier.expected;
  barrier.phase = barrier.phase == 0 ? 1 : 0;
}

inline void begin_barrier(char* place, unsigned int count, int line) {
  check_aligned(place, 8, line);
  if (count == 0 || count > 0xfff) fuseblock_emulated_runtime->fail("mbarrier.init of no such count", line);
  *reinterpret_cast<ArrivalBarrier*>(place) = {(unsigned short)count, (unsigned short)count, 0, 0};
}

inline void arrive_at_barrier(char* place, int bytes, int line) {
  ArrivalBarrier& barrier = barrier_at(place, line);
  if (barrier.missing == 0)
    fuseblock_emulated_runtime->fail("mbarrier.arrive: more arrivals than its count", line);
  barrier.bytes += bytes;
  --barrier.missing;
  end_phase(barrier);
}

// Whether the phase of that parity is over.
inline bool is_over(char* place, unsigned int parity, int line) {
  fuseblock_emulated_runtime->yield(line);
  return barrier_at(place, line).phase != (parity & 1);
}

// Of a copy, or of a store to another block.
inline void bytes_arrive(char* place, int bytes, int line) {
  ArrivalBarrier& barrier = barrier_at(place, line);
  barrier.bytes -= bytes;
  end_phase(barrier);
}

// The bytes arrive at once: what is still read there is overwritten.
inline void copy_in_bulk(char* to, const char* from, int bytes, char* place, int line) {
  check_aligned(to, 16, line);
  check_aligned(from, 16, line);
  if (bytes % 16 != 0)
    fuseblock_emulated_runtime->fail("cp.async.bulk of bytes that are no multiple of 16", line);
  __builtin_memcpy(to, from, (unsigned long)bytes);
  bytes_arrive(place, bytes, line);
}

}  // namespace fuseblock_emulated
