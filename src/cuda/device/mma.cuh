// Products of small matrices by tensor cores, mma.sync: sums += a * b, f32 sums of 16 x 8. A warp holds the
// matrices together; with g = lane / 4 and t = lane % 4 a lane has
//   sums[0], sums[1]   (g, 2t), (g, 2t + 1)         sums[2], sums[3]   the same in row g + 8
//   tf32, depth 8      a: (g, t), (g + 8, t), (g, t + 4), (g + 8, t + 4)      b: (t, g), (t + 4, g)
//   16 bits, depth 16  a: (g, 2t), (g + 8, 2t), (g, 2t + 8), (g + 8, 2t + 8)  b: (2t, g), (2t + 8, g), each with the next
//                      of the depth in its upper half
// The hardware ignores the lower 13 bits of a tf32 operand.
//
// Four matrices of eight rows, 16 bytes each, are read out of shared memory at once (ldmatrix): lane i gives
// the address of row i % 8 of matrix i / 8, and gets word t of row g of each. Eight rows of a factor that are
// 16 bytes deep are such a matrix.

namespace warp {

__device__ inline void multiply_tf32(float (&sums)[4], const unsigned int (&a)[4], unsigned int b0,
                                     unsigned int b1) {
  asm("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, "
      "%1, %2, %3};"
      : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
__device__ inline void multiply_bf16(float (&sums)[4], const unsigned int (&a)[4], unsigned int b0,
                                     unsigned int b1) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
      "{%0, %1, %2, %3};"
      : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
__device__ inline void multiply_f16(float (&sums)[4], const unsigned int (&a)[4], unsigned int b0,
                                    unsigned int b1) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, "
      "%1, %2, %3};"
      : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

__device__ inline void read_matrices(unsigned int (&words)[4], unsigned int shared_row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(words[0]), "=r"(words[1]), "=r"(words[2]), "=r"(words[3])
               : "r"(shared_row)
               : "memory");
}

}  // namespace warp

// The nearest tf32, ties away from zero.
__device__ inline float to_tf32(float x) {
  unsigned int y;
  asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(y) : "f"(x));
  return __uint_as_float(y);
}

// What the nearest tf32 leaves out of x, rounded by the hardware's ignoring the lower bits. A NaN may become
// a number: `rounded` is one then.
__device__ inline unsigned int rest_of(float x, float rounded) {
  return __float_as_uint(x - rounded) + 0x1000;
}
