// Copies from memory to shared memory that go on beside the arithmetic (cp.async). A thread waits for its own copies
// alone, and reads nothing but what it has copied itself, so that no barrier is needed.

namespace thread {

// Begins to copy one vector of four bytes and more to an address in shared memory.
template <class Copied>
__device__ inline void copy_begin_at(unsigned int shared, const Copied* memory) {
  constexpr int kPiece = sizeof(Copied) < 16 ? (int)sizeof(Copied) : 16;
  const char* from = reinterpret_cast<const char*>(memory);
#pragma unroll
  for (int i = 0; i < (int)sizeof(Copied); i += kPiece) {
    if (kPiece == 16)
      asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(shared + i), "l"(from + i) : "memory");
    else
      asm volatile("cp.async.ca.shared.global [%0], [%1], %2;" ::"r"(shared + i), "l"(from + i),
                   "n"(kPiece < 4 ? 4 : kPiece)
                   : "memory");
  }
}

// The same, by a pointer. Vectors of less than four bytes are copied at once.
template <class Copied>
__device__ inline void copy_begin(Copied* shared, const Copied* memory) {
  if (sizeof(Copied) < 4)
    *shared = *memory;
  else
    copy_begin_at((unsigned int)__cvta_generic_to_shared(shared), memory);
}

// What lies at an address in shared memory.
template <class Copied>
__device__ inline Copied read_shared(unsigned int shared) {
  constexpr int kBytes = (int)sizeof(Copied);
  Copied copied;
  if constexpr (kBytes % 16 == 0) {
#pragma unroll
    for (int i = 0; i < kBytes / 16; ++i)
      asm volatile("ld.shared.v4.b32 {%0, %1, %2, %3}, [%4];"
                   : "=r"(copied.words[4 * i]), "=r"(copied.words[4 * i + 1]), "=r"(copied.words[4 * i + 2]),
                     "=r"(copied.words[4 * i + 3])
                   : "r"(shared + 16 * i)
                   : "memory");
  } else {
#pragma unroll
    for (int i = 0; i < kBytes / 4; ++i)
      asm volatile("ld.shared.b32 %0, [%1];" : "=r"(copied.words[i]) : "r"(shared + 4 * i) : "memory");
  }
  return copied;
}

// Ends a group of copies.
__device__ inline void copy_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }

template <int kPending>
__device__ inline void copy_wait_constant() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kPending) : "memory");
}

// Waits until at most `pending` of the groups that were committed last are under way, or fewer.
__device__ inline void copy_wait(int pending) {
  if (pending >= 8)
    copy_wait_constant<8>();
  else if (pending >= 4)
    copy_wait_constant<4>();
  else if (pending >= 2)
    copy_wait_constant<2>();
  else
    copy_wait_constant<0>();
}

}  // namespace thread
