// What L2 should do with lines that pass through it: keep those that are read again, let go first of all others. A policy
// is a word that the hardware makes.

namespace thread {

struct Policies {
  unsigned long long keep, drop;
};

__device__ inline Policies policies() {
  Policies made;
  asm("createpolicy.fractional.L2::evict_last.b64 %0, 1.0;" : "=l"(made.keep));
  asm("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(made.drop));
  return made;
}

// Begins to copy one vector (device/copies.cuh) under a policy; those that are not of 16 bytes have none.
template <class Copied>
__device__ inline void copy_begin(Copied* shared, const Copied* memory, unsigned long long policy) {
  if (sizeof(Copied) % 16 != 0) return copy_begin(shared, memory);
  const unsigned int to = (unsigned int)__cvta_generic_to_shared(shared);
  const char* from = reinterpret_cast<const char*>(memory);
#pragma unroll
  for (int i = 0; i < (int)sizeof(Copied); i += 16)
    asm volatile("cp.async.cg.shared.global.L2::cache_hint [%0], [%1], 16, %2;" ::"r"(to + i), "l"(from + i),
                 "l"(policy)
                 : "memory");
}

}  // namespace thread

// Stores a vector (device/types.cuh) under a policy.
template <class Element>
__device__ inline void store_vector(Element* to, const real (&values)[kVector], unsigned long long policy) {
  if constexpr (Vector<Element>::kBytes % 16 != 0) {
    store_vector(to, values);
  } else {
    Vector<Element> packed;
    pack(packed, values);
#pragma unroll
    for (int i = 0; i < Vector<Element>::kBytes / 16; ++i)
      asm volatile("st.global.L2::cache_hint.v4.b32 [%0], {%1, %2, %3, %4}, %5;" ::"l"(
                       reinterpret_cast<char*>(to) + 16 * i),
                   "r"(packed.words[4 * i]), "r"(packed.words[4 * i + 1]), "r"(packed.words[4 * i + 2]),
                   "r"(packed.words[4 * i + 3]), "l"(policy)
                   : "memory");
  }
}
