// Barriers in shared memory that count arrivals and bytes (mbarrier), and copies to shared memory that arrive
// at them (cp.async.bulk). What such a copy brings is there for whoever has waited for its phase, products of
// warpgroups too. Phases of a barrier are numbered 0, 1, ...; of a new one, phase -1 is over.

namespace arrivals {

typedef unsigned long long Barrier;

__device__ inline unsigned int address_of(const Barrier* barrier) {
  return (unsigned int)__cvta_generic_to_shared(barrier);
}

// A phase is over when so many have arrived, with all bytes they expect. By one thread; before the block's
// next barrier it publishes what it began.
__device__ inline void begin(Barrier* barrier, int count) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(address_of(barrier)), "r"(count) : "memory");
}
// What this thread has written is there for products of warpgroups that wait for its arrival.
__device__ inline void publish_rows() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }
__device__ inline void publish() { asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory"); }

__device__ inline void arrive(Barrier* barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(address_of(barrier)) : "memory");
}
__device__ inline void arrive_with(Barrier* barrier, int bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(address_of(barrier)), "r"(bytes)
               : "memory");
}

// Whether the phase of that parity is over; it is this one or the one before.
__device__ inline bool is_over(const Barrier* barrier, unsigned int parity) {
  unsigned int over;
  asm volatile(
      "{ .reg .pred p; mbarrier.test_wait.parity.shared::cta.b64 p, [%1], %2; selp.b32 %0, 1, 0, p; }"
      : "=r"(over)
      : "r"(address_of(barrier)), "r"(parity)
      : "memory");
  return over != 0;
}

// Until it is over.
__device__ inline void wait(const Barrier* barrier, unsigned int parity) {
  unsigned int over;
  do {
    asm volatile(
        "{ .reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2; selp.b32 %0, 1, 0, p; }"
        : "=r"(over)
        : "r"(address_of(barrier)), "r"(parity)
        : "memory");
  } while (over == 0);
}

// Begins to copy multiples of 16 bytes, which arrive at the barrier.
__device__ inline void copy_begin(void* to, const void* from, int bytes, const Barrier* barrier) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
          (unsigned int)__cvta_generic_to_shared(to)),
      "l"(from), "r"(bytes), "r"(address_of(barrier))
      : "memory");
}

}  // namespace arrivals
