// Element types of tensors, and the arithmetic's type. Before this stands `typedef float real;`, or double where a
// tensor of the block is f64. Nothing is included: 16-bit types are bits, converted by PTX.

struct bf16 {
  unsigned short bits;
};
struct f16 {
  unsigned short bits;
};

__device__ inline real to_real(bf16 x) { return __uint_as_float((unsigned int)x.bits << 16); }
__device__ inline real to_real(f16 x) {
  float y;
  asm("cvt.f32.f16 %0, %1;" : "=f"(y) : "h"(x.bits));
  return y;
}
__device__ inline real to_real(float x) { return x; }
__device__ inline real to_real(double x) { return (real)x; }

// An element for the arithmetic of statistics.
__device__ inline double number(double x) { return x; }
__device__ inline double number(float x) { return x; }
__device__ inline double number(bf16 x) { return to_real(x); }
__device__ inline double number(f16 x) { return to_real(x); }

// Rounds to nearest, ties to even.
__device__ inline void assign(bf16& to, real x) {
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(to.bits) : "f"((float)x));
}
__device__ inline void assign(f16& to, real x) {
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(to.bits) : "f"((float)x));
}
__device__ inline void assign(float& to, real x) { to = (float)x; }
__device__ inline void assign(double& to, double x) { to = x; }

// A tensor at the border of a kernel: elements `n`, `c`, `d`, `h`, `w` apart along the axes, 0 where it does not vary.
template <class Element>
struct Tensor {
  Element* data;
  long long n, c, d, h, w;

  __device__ long long offset(long long at_n, long long at_c) const { return at_n * n + at_c * c; }
};

// A position of a sample by its coordinates.
struct Position {
  long long d, h, w;
};

__device__ inline Position position_at(long long number, long long height, long long width) {
  const long long row = number / width;
  return {row / height, row % height, number - row * width};
}

template <class Element>
__device__ inline long long offset_at(const Tensor<Element>& tensor, long long n, long long c, const Position& at) {
  return tensor.offset(n, c) + at.d * tensor.d + at.h * tensor.h + at.w * tensor.w;
}

// kVector neighbouring elements, moved in pieces of up to 16 bytes.
template <class Element>
struct alignas(sizeof(Element) * kVector < 16 ? sizeof(Element) * kVector : 16) Vector {
  Element at[kVector];
};

template <class Element>
__device__ inline void store_vector(Element* to, const real (&values)[kVector]) {
  Vector<Element> packed;
#pragma unroll
  for (int i = 0; i < kVector; ++i) assign(packed.at[i], values[i]);
  *reinterpret_cast<Vector<Element>*>(to) = packed;
}
