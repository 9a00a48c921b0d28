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
  __device__ Element& at(long long at_n, long long at_c) const { return data[offset(at_n, at_c)]; }
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
__device__ inline long long offset_at(const Tensor<Element>& tensor, long long n, long long c,
                                      const Position& at) {
  return tensor.offset(n, c) + at.d * tensor.d + at.h * tensor.h + at.w * tensor.w;
}

// The words that a vector of so many bytes is made of.
template <int kBytes>
struct WordOf {
  typedef unsigned int type;
};
template <>
struct WordOf<2> {
  typedef unsigned short type;
};

// kVector neighbouring elements as they lie in memory, moved in pieces of up to 16 bytes.
template <class Element>
struct alignas(sizeof(Element) * kVector < 16 ? sizeof(Element) * kVector : 16) Vector {
  static constexpr int kBytes = sizeof(Element) * kVector;
  static constexpr int kWords = kBytes < 4 ? 1 : kBytes / 4;

  union {
    typename WordOf<kBytes>::type words[kWords];
    Element only;  // of a vector of one
  };
};

__device__ inline real element_at(const Vector<double>& vector, int i) {
  return (real)__hiloint2double((int)vector.words[2 * i + 1], (int)vector.words[2 * i]);
}
__device__ inline real element_at(const Vector<float>& vector, int i) {
  return __uint_as_float(vector.words[i]);
}
__device__ inline real element_at(const Vector<bf16>& vector, int i) {
  if (kVector == 1) return to_real(vector.only);
  const unsigned int word = vector.words[i / 2];
  return __uint_as_float(i % 2 == 0 ? word << 16 : word & 0xffff0000u);
}
__device__ inline real element_at(const Vector<f16>& vector, int i) {
  if (kVector == 1) return to_real(vector.only);
  const unsigned int word = vector.words[i / 2];
  return to_real(f16{(unsigned short)(i % 2 == 0 ? word & 0xffffu : word >> 16)});
}

// Rounds to the element's type; two of 16 bits at a time.
__device__ inline void pack(Vector<double>& to, const real (&values)[kVector]) {
#pragma unroll
  for (int i = 0; i < kVector; ++i) {
    to.words[2 * i] = (unsigned int)__double2loint(values[i]);
    to.words[2 * i + 1] = (unsigned int)__double2hiint(values[i]);
  }
}
__device__ inline void pack(Vector<float>& to, const real (&values)[kVector]) {
#pragma unroll
  for (int i = 0; i < kVector; ++i) to.words[i] = __float_as_uint((float)values[i]);
}
__device__ inline void pack(Vector<bf16>& to, const real (&values)[kVector]) {
  if (kVector == 1) return assign(to.only, values[0]);
#pragma unroll
  for (int i = 0; i + 1 < kVector; i += 2) {
    unsigned int word;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(word) : "f"((float)values[i + 1]), "f"((float)values[i]));
    to.words[i / 2] = word;
  }
}
__device__ inline void pack(Vector<f16>& to, const real (&values)[kVector]) {
  if (kVector == 1) return assign(to.only, values[0]);
#pragma unroll
  for (int i = 0; i + 1 < kVector; i += 2) {
    unsigned int word;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(word) : "f"((float)values[i + 1]), "f"((float)values[i]));
    to.words[i / 2] = word;
  }
}

template <class Element>
__device__ inline Vector<Element> load_vector(const Vector<Element>* from) {
  Vector<Element> to;
  if constexpr (Vector<Element>::kBytes % 16 == 0) {
#pragma unroll
    for (int i = 0; i < Vector<Element>::kBytes / 16; ++i) {
      const uint4 piece = reinterpret_cast<const uint4*>(from)[i];
      to.words[4 * i] = piece.x;
      to.words[4 * i + 1] = piece.y;
      to.words[4 * i + 2] = piece.z;
      to.words[4 * i + 3] = piece.w;
    }
  } else {
    to = *from;
  }
  return to;
}

template <class Element>
__device__ inline void store_vector(Element* to, const real (&values)[kVector]) {
  Vector<Element> packed;
  pack(packed, values);
  if constexpr (Vector<Element>::kBytes % 16 == 0) {
#pragma unroll
    for (int i = 0; i < Vector<Element>::kBytes / 16; ++i)
      asm volatile("st.global.v4.b32 [%0], {%1, %2, %3, %4};" ::"l"(reinterpret_cast<char*>(to) + 16 * i),
                   "r"(packed.words[4 * i]), "r"(packed.words[4 * i + 1]), "r"(packed.words[4 * i + 2]),
                   "r"(packed.words[4 * i + 3])
                   : "memory");
  } else {
    *reinterpret_cast<Vector<Element>*>(to) = packed;
  }
}
