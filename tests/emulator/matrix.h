// Products of small matrices by a warp, mma.sync, and their way out of shared memory, ldmatrix, in the
// layouts that PTX documents for them. Sums are taken in double and rounded once an instruction, where a
// GPU's tensor cores cut off bits in an order that nobody documents. Included by kernels through
// cuda_language.h.
#pragma once

namespace fuseblock_emulated {

// What a lane brings: registers of both factors.
struct MatrixShare {
  unsigned int a[4];
  unsigned int b[2];
};

struct MatrixShares {
  MatrixShare of[32];
};

// The value of an operand: of 19 bits of an f32, or of one half of a register.
inline double tf32_value(unsigned int bits) {
  bits &= 0xffffe000u;
  float value;
  __builtin_memcpy(&value, &bits, sizeof value);
  return value;
}
inline double half_value(unsigned int bits, int k, bool is_bf16) {
  const auto half = (unsigned short)(k % 2 == 0 ? bits & 0xffffu : bits >> 16);
  if (!is_bf16) return f32_of_f16(half);
  const unsigned int whole = (unsigned int)half << 16;
  float value;
  __builtin_memcpy(&value, &whole, sizeof value);
  return value;
}

enum class MatrixKind { kTf32, kBf16, kF16 };

// A row by 16 columns of the first factor and b column by column of the second, each taken from the lane that
// has it.
inline double first_factor(const MatrixShares& shares, MatrixKind kind, int row, int k) {
  const int row_register = row / 8;
  if (kind == MatrixKind::kTf32)
    return tf32_value(shares.of[row % 8 * 4 + k % 4].a[row_register + k / 4 * 2]);
  return half_value(shares.of[row % 8 * 4 + k % 8 / 2].a[row_register + k / 8 * 2], k,
                    kind == MatrixKind::kBf16);
}
inline double second_factor(const MatrixShares& shares, MatrixKind kind, int k, int column) {
  if (kind == MatrixKind::kTf32) return tf32_value(shares.of[column * 4 + k % 4].b[k / 4]);
  return half_value(shares.of[column * 4 + k % 8 / 2].b[k / 8], k, kind == MatrixKind::kBf16);
}

// d = a * b + c, 16 x 8 with a depth of 8 (tf32) or 16. All lanes put their shares into a table of the first
// one's.
inline void multiply_matrices(MatrixKind kind, int line, float& d0, float& d1, float& d2, float& d3,
                              unsigned int a0, unsigned int a1, unsigned int a2, unsigned int a3,
                              unsigned int b0, unsigned int b1, float c0, float c1, float c2, float c3) {
  constexpr unsigned int kAll = 0xffffffffu;
  constexpr const char* kName = "mma.sync";
  const unsigned int lane = fuseblock_emulated_thread->lane;
  MatrixShares mine;
  auto* table =
      (MatrixShares*)fuseblock_emulated_runtime->exchange(kName, kAll, (unsigned long long)&mine, 0, line);
  table->of[lane] = {{a0, a1, a2, a3}, {b0, b1}};
  fuseblock_emulated_runtime->exchange(kName, kAll, 0, 0, line);
  const float before[4] = {c0, c1, c2, c3};
  float after[4];
  for (int i = 0; i < 4; ++i) {
    const int row = (int)lane / 4 + i / 2 * 8;
    const int column = (int)lane % 4 * 2 + i % 2;
    double sum = before[i];
    for (int k = 0; k < (kind == MatrixKind::kTf32 ? 8 : 16); ++k)
      sum += first_factor(*table, kind, row, k) * second_factor(*table, kind, k, column);
    after[i] = (float)sum;
  }
  // The first lane's table lives until all have read it.
  fuseblock_emulated_runtime->exchange(kName, kAll, 0, 0, line);
  d0 = after[0], d1 = after[1], d2 = after[2], d3 = after[3];
}

// A factor of a warpgroup's product in shared memory, without a swizzle: core matrices of eight rows of 16
// bytes.
struct MatrixPlace {
  unsigned int begin, along_depth, along_rows;

  explicit MatrixPlace(unsigned long long descriptor)
      : begin((unsigned int)(descriptor & 0x3fff) << 4),
        along_depth((unsigned int)(descriptor >> 16 & 0x3fff) << 4),
        along_rows((unsigned int)(descriptor >> 32 & 0x3fff) << 4) {}

  // Descriptors have no bits for the block's number in its cluster.
  static unsigned int own_block(int line) {
    return (unsigned int)fuseblock_emulated_runtime->shared_address(fuseblock_emulated_thread->static_shared,
                                                                    line) &
           ~0x3ffffu;
  }

  const char* row(int number, int half, int line) const {
    return of_block(own_block(line) + begin + (unsigned int)(number / 8) * along_rows +
                        (unsigned int)(number % 8) * 16 + (unsigned int)half * along_depth,
                    16, line);
  }
};

inline double matrix_value(MatrixKind kind, const char* row, int k) {
  unsigned int bits = 0;
  if (kind == MatrixKind::kTf32) {
    __builtin_memcpy(&bits, row + 4 * k, 4);
    return tf32_value(bits);
  }
  __builtin_memcpy(&bits, row + 2 * k, 2);
  return half_value(bits, 0, kind == MatrixKind::kBf16);
}

// sums = a * b + (keep ? sums : 0), 64 x N: a lane takes its own, straight out of shared memory. Copies that
// are not published by a barrier are found as threads run in different orders.
template <int kSums>
inline void multiply_by_warpgroup(MatrixKind kind, int line, float* const (&sums)[kSums],
                                  unsigned long long a, unsigned long long b, bool keep) {
  const int lane = (int)fuseblock_emulated_thread->lane;
  const int warp = (int)threadIdx.x / 32 % 4;
  const int half = kind == MatrixKind::kTf32 ? 4 : 8;
  const MatrixPlace rows(a), columns(b);
  for (int i = 0; i < kSums; ++i) {
    const int row = warp * 16 + lane / 4 + i / 2 % 2 * 8;
    const int column = i / 4 * 8 + lane % 4 * 2 + i % 2;
    double sum = keep ? *sums[i] : 0;
    for (int h = 0; h < 2; ++h) {
      const char* first = rows.row(row, h, line);
      const char* second = columns.row(column, h, line);
      for (int k = 0; k < half; ++k) sum += matrix_value(kind, first, k) * matrix_value(kind, second, k);
    }
    *sums[i] = (float)sum;
  }
}

// The same with the first factor in registers, pairs of 16-bit numbers: a lane has of its warp's 16 rows what it
// has of a product by mma.sync.
template <int kSums>
inline void multiply_taken_by_warpgroup(MatrixKind kind, int line, float* const (&sums)[kSums],
                                        unsigned int a0, unsigned int a1, unsigned int a2, unsigned int a3,
                                        unsigned long long b, bool keep) {
  constexpr unsigned int kAll = 0xffffffffu;
  constexpr const char* kName = "wgmma";
  const unsigned int lane = fuseblock_emulated_thread->lane;
  MatrixShares all;
  auto* table =
      (MatrixShares*)fuseblock_emulated_runtime->exchange(kName, kAll, (unsigned long long)&all, 0, line);
  table->of[lane] = {{a0, a1, a2, a3}, {0, 0}};
  fuseblock_emulated_runtime->exchange(kName, kAll, 0, 0, line);
  const MatrixPlace columns(b);
  for (int i = 0; i < kSums; ++i) {
    const int row = (int)lane / 4 + i / 2 % 2 * 8;
    const int column = i / 4 * 8 + (int)lane % 4 * 2 + i % 2;
    double sum = keep ? *sums[i] : 0;
    for (int half = 0; half < 2; ++half) {
      const char* factors = columns.row(column, half, line);
      for (int k = 0; k < 8; ++k)
        sum += first_factor(*table, kind, row, half * 8 + k) * matrix_value(kind, factors, k);
    }
    *sums[i] = (float)sum;
  }
  // The first lane's table lives until all have read it.
  fuseblock_emulated_runtime->exchange(kName, kAll, 0, 0, line);
}

// Eight rows of 16 bytes for each of four matrices, the address of one from each lane: word lane % 4 of row
// lane / 4 of each.
inline void read_matrices(int line, const unsigned int* row, unsigned int& d0, unsigned int& d1,
                          unsigned int& d2, unsigned int& d3) {
  constexpr unsigned int kAll = 0xffffffffu;
  constexpr const char* kName = "ldmatrix";
  if ((unsigned long long)row % 16 != 0)
    fuseblock_emulated_runtime->fail("ldmatrix: an address that is no multiple of 16", line);
  const unsigned int lane = fuseblock_emulated_thread->lane;
  const unsigned int* mine[32];
  auto** table = (const unsigned int**)fuseblock_emulated_runtime->exchange(
      kName, kAll, (unsigned long long)mine, 0, line);
  table[lane] = row;
  fuseblock_emulated_runtime->exchange(kName, kAll, 0, 0, line);
  unsigned int words[4];
  for (unsigned int i = 0; i < 4; ++i) words[i] = table[i * 8 + lane / 4][lane % 4];
  // The first lane's table lives until all have read it.
  fuseblock_emulated_runtime->exchange(kName, kAll, 0, 0, line);
  d0 = words[0], d1 = words[1], d2 = words[2], d3 = words[3];
}

// The nearest tf32, ties away from zero.
inline unsigned int tf32_of_f32(float x) {
  unsigned int bits;
  __builtin_memcpy(&bits, &x, sizeof bits);
  if ((bits & 0x7f800000u) == 0x7f800000u) return bits;
  return (bits + 0x1000u) & 0xffffe000u;
}

}  // namespace fuseblock_emulated
