// CUDA's language for a kernel's text that is compiled as C++: what NVRTC knows without an #include, and the functions that
// translated PTX calls. Includes no header of the system, so that its names are those of CUDA alone and it compiles soon.
#pragma once

#include "runtime.h"

extern "C" {
// Set by the emulator: the first when the module is loaded, the second whenever another thread goes on.
__attribute__((visibility("default"))) const fuseblock_emulated::Runtime* fuseblock_emulated_runtime =
    nullptr;
__attribute__((visibility("default"))) const fuseblock_emulated::Thread* fuseblock_emulated_thread = nullptr;
__attribute__((visibility("default"))) unsigned int fuseblock_emulated_static_bytes = 0;
}

#define __device__
#define __host__
#define __global__
#define __constant__ static
#define __grid_constant__
#define __forceinline__ inline
#define __noinline__
#define __launch_bounds__(...)
#define __cluster_dims__(...)
#define __align__(bytes) __attribute__((aligned(bytes)))
#define threadIdx (fuseblock_emulated_thread->thread_index)
#define blockIdx (fuseblock_emulated_thread->block_index)
#define blockDim (fuseblock_emulated_thread->block_extent)
#define gridDim (fuseblock_emulated_thread->grid_extent)
#define warpSize 32

typedef __SIZE_TYPE__ size_t;
typedef __UINTPTR_TYPE__ uintptr_t;

#define FUSEBLOCK_EMULATED_VECTORS(scalar, name, align2, align4)                    \
  struct __align__(align2) name##2 { scalar x, y; };                                \
  struct name##3 { scalar x, y, z; };                                               \
  struct __align__(align4) name##4 { scalar x, y, z, w; };                          \
  inline name##2 make_##name##2(scalar x, scalar y) { return {x, y}; }              \
  inline name##3 make_##name##3(scalar x, scalar y, scalar z) { return {x, y, z}; } \
  inline name##4 make_##name##4(scalar x, scalar y, scalar z, scalar w) { return {x, y, z, w}; }
FUSEBLOCK_EMULATED_VECTORS(unsigned char, uchar, 2, 4)
FUSEBLOCK_EMULATED_VECTORS(signed char, char, 2, 4)
FUSEBLOCK_EMULATED_VECTORS(unsigned short, ushort, 4, 8)
FUSEBLOCK_EMULATED_VECTORS(short, short, 4, 8)
FUSEBLOCK_EMULATED_VECTORS(unsigned int, uint, 8, 16)
FUSEBLOCK_EMULATED_VECTORS(int, int, 8, 16)
FUSEBLOCK_EMULATED_VECTORS(float, float, 8, 16)
FUSEBLOCK_EMULATED_VECTORS(double, double, 16, 16)
FUSEBLOCK_EMULATED_VECTORS(unsigned long long, ulonglong, 16, 16)
FUSEBLOCK_EMULATED_VECTORS(long long, longlong, 16, 16)

// Mathematics. What is approximate on a GPU is as exact here as the C library is.

#define FUSEBLOCK_EMULATED_FUNCTION(name)   \
  extern "C" double name(double) noexcept;  \
  extern "C" float name##f(float) noexcept; \
  inline float name(float x) { return name##f(x); }
FUSEBLOCK_EMULATED_FUNCTION(exp)
FUSEBLOCK_EMULATED_FUNCTION(exp2)
FUSEBLOCK_EMULATED_FUNCTION(expm1)
FUSEBLOCK_EMULATED_FUNCTION(log)
FUSEBLOCK_EMULATED_FUNCTION(log2)
FUSEBLOCK_EMULATED_FUNCTION(log10)
FUSEBLOCK_EMULATED_FUNCTION(log1p)
FUSEBLOCK_EMULATED_FUNCTION(tanh)
FUSEBLOCK_EMULATED_FUNCTION(sin)
FUSEBLOCK_EMULATED_FUNCTION(cos)
FUSEBLOCK_EMULATED_FUNCTION(atan)
FUSEBLOCK_EMULATED_FUNCTION(erf)
FUSEBLOCK_EMULATED_FUNCTION(erfc)
FUSEBLOCK_EMULATED_FUNCTION(sqrt)
FUSEBLOCK_EMULATED_FUNCTION(cbrt)
FUSEBLOCK_EMULATED_FUNCTION(fabs)
FUSEBLOCK_EMULATED_FUNCTION(floor)
FUSEBLOCK_EMULATED_FUNCTION(ceil)
FUSEBLOCK_EMULATED_FUNCTION(trunc)
FUSEBLOCK_EMULATED_FUNCTION(round)
FUSEBLOCK_EMULATED_FUNCTION(rint)
#define FUSEBLOCK_EMULATED_FUNCTION2(name)         \
  extern "C" double name(double, double) noexcept; \
  extern "C" float name##f(float, float) noexcept; \
  inline float name(float x, float y) { return name##f(x, y); }
FUSEBLOCK_EMULATED_FUNCTION2(fmax)
FUSEBLOCK_EMULATED_FUNCTION2(fmin)
FUSEBLOCK_EMULATED_FUNCTION2(fmod)
FUSEBLOCK_EMULATED_FUNCTION2(pow)
FUSEBLOCK_EMULATED_FUNCTION2(copysign)
FUSEBLOCK_EMULATED_FUNCTION2(atan2)
extern "C" double fma(double, double, double) noexcept;
extern "C" float fmaf(float, float, float) noexcept;

inline float rsqrtf(float x) { return 1.0f / sqrtf(x); }
inline double rsqrt(double x) { return 1.0 / sqrt(x); }
inline float __fdividef(float a, float b) { return a / b; }
inline float __expf(float x) { return expf(x); }
inline float __logf(float x) { return logf(x); }
inline float __log2f(float x) { return log2f(x); }
inline float __frcp_rn(float x) { return 1.0f / x; }
inline float __fsqrt_rn(float x) { return sqrtf(x); }
inline float __frsqrt_rn(float x) { return 1.0f / sqrtf(x); }
// What the compiler must not make one rounding of with another operation.
#if defined(__x86_64__)
#define FUSEBLOCK_EMULATED_ROUNDED(value) asm("" : "+x"(value))
#elif defined(__aarch64__)
#define FUSEBLOCK_EMULATED_ROUNDED(value) asm("" : "+w"(value))
#else
#define FUSEBLOCK_EMULATED_ROUNDED(value) asm("" : "+m"(value))
#endif
inline float __fadd_rn(float a, float b) {
  float y = a + b;
  FUSEBLOCK_EMULATED_ROUNDED(y);
  return y;
}
inline float __fmul_rn(float a, float b) {
  float y = a * b;
  FUSEBLOCK_EMULATED_ROUNDED(y);
  return y;
}
inline float __fmaf_rn(float a, float b, float c) { return fmaf(a, b, c); }
inline double __dadd_rn(double a, double b) {
  double y = a + b;
  FUSEBLOCK_EMULATED_ROUNDED(y);
  return y;
}
inline double __dmul_rn(double a, double b) {
  double y = a * b;
  FUSEBLOCK_EMULATED_ROUNDED(y);
  return y;
}
inline float __saturatef(float x) { return x > 0 ? (x < 1 ? x : 1.0f) : 0.0f; }
inline bool isnan(float x) { return x != x; }
inline bool isnan(double x) { return x != x; }
inline bool isinf(float x) { return __builtin_isinf(x) != 0; }
inline bool isinf(double x) { return __builtin_isinf(x) != 0; }
inline bool isfinite(float x) { return __builtin_isfinite(x) != 0; }
inline bool isfinite(double x) { return __builtin_isfinite(x) != 0; }

#define FUSEBLOCK_EMULATED_ORDER(type)                      \
  inline type max(type a, type b) { return a < b ? b : a; } \
  inline type min(type a, type b) { return b < a ? b : a; }
FUSEBLOCK_EMULATED_ORDER(int)
FUSEBLOCK_EMULATED_ORDER(unsigned int)
FUSEBLOCK_EMULATED_ORDER(long)
FUSEBLOCK_EMULATED_ORDER(unsigned long)
FUSEBLOCK_EMULATED_ORDER(long long)
FUSEBLOCK_EMULATED_ORDER(unsigned long long)
inline float max(float a, float b) { return fmaxf(a, b); }
inline float min(float a, float b) { return fminf(a, b); }
inline double max(double a, double b) { return fmax(a, b); }
inline double min(double a, double b) { return fmin(a, b); }
inline int abs(int x) { return x < 0 ? -x : x; }

// Bits.

namespace fuseblock_emulated {
template <class To, class From>
inline To bits(const From& from) {
  To to{};
  __builtin_memcpy(&to, &from, sizeof(To) < sizeof(From) ? sizeof(To) : sizeof(From));
  return to;
}
}  // namespace fuseblock_emulated

inline float __int_as_float(int x) { return fuseblock_emulated::bits<float>(x); }
inline float __uint_as_float(unsigned int x) { return fuseblock_emulated::bits<float>(x); }
inline int __float_as_int(float x) { return fuseblock_emulated::bits<int>(x); }
inline unsigned int __float_as_uint(float x) { return fuseblock_emulated::bits<unsigned int>(x); }
inline double __longlong_as_double(long long x) { return fuseblock_emulated::bits<double>(x); }
inline long long __double_as_longlong(double x) { return fuseblock_emulated::bits<long long>(x); }
inline double __hiloint2double(int high, int low) {
  return fuseblock_emulated::bits<double>((unsigned long long)(unsigned int)high << 32 | (unsigned int)low);
}
inline int __double2loint(double x) { return (int)fuseblock_emulated::bits<unsigned long long>(x); }
inline int __double2hiint(double x) { return (int)(fuseblock_emulated::bits<unsigned long long>(x) >> 32); }
inline int __popc(unsigned int x) { return __builtin_popcount(x); }
inline int __popcll(unsigned long long x) { return __builtin_popcountll(x); }
inline int __clz(int x) { return x == 0 ? 32 : __builtin_clz((unsigned int)x); }
inline int __ffs(int x) { return __builtin_ffs(x); }
inline unsigned int __brev(unsigned int x) {
  unsigned int y = 0;
  for (int i = 0; i < 32; ++i) y |= (x >> i & 1u) << (31 - i);
  return y;
}
inline unsigned int __umulhi(unsigned int a, unsigned int b) {
  return (unsigned int)((unsigned long long)a * b >> 32);
}
inline int __mulhi(int a, int b) { return (int)((long long)a * b >> 32); }
inline unsigned long long __umul64hi(unsigned long long a, unsigned long long b) {
  return (unsigned long long)((unsigned __int128)a * b >> 64);
}
inline unsigned int __byte_perm(unsigned int a, unsigned int b, unsigned int selector) {
  const unsigned long long all = (unsigned long long)b << 32 | a;
  unsigned int result = 0;
  for (int i = 0; i < 4; ++i) result |= (unsigned int)(all >> (selector >> 4 * i & 7) * 8 & 0xff) << 8 * i;
  return result;
}

// Threads that wait for each other.

#define __syncthreads() (fuseblock_emulated_runtime->sync_block(0, 0, __LINE__))
#define __syncwarp(...) \
  ((void)fuseblock_emulated::vote("__syncwarp", __LINE__, fuseblock_emulated::mask_of(__VA_ARGS__), true))
#define __threadfence() ((void)0)
#define __threadfence_block() ((void)0)
#define __threadfence_system() ((void)0)
#define __nanosleep(time) (fuseblock_emulated_runtime->yield(__LINE__))
#define __shfl_sync(...) (fuseblock_emulated::shuffle(__LINE__, __VA_ARGS__))
#define __shfl_xor_sync(...) (fuseblock_emulated::shuffle_xor(__LINE__, __VA_ARGS__))
#define __shfl_down_sync(...) (fuseblock_emulated::shuffle_down(__LINE__, __VA_ARGS__))
#define __shfl_up_sync(...) (fuseblock_emulated::shuffle_up(__LINE__, __VA_ARGS__))
#define __ballot_sync(mask, value) (fuseblock_emulated::vote("__ballot_sync", __LINE__, mask, (value) != 0))
#define __any_sync(mask, value) (fuseblock_emulated::vote("__any_sync", __LINE__, mask, (value) != 0) != 0)
#define __all_sync(mask, value) \
  (fuseblock_emulated::vote("__all_sync", __LINE__, mask, (value) != 0) == (mask))

namespace fuseblock_emulated {

inline unsigned int mask_of(unsigned int mask = 0xffffffffu) { return mask; }

inline unsigned int vote(const char* function, int line, unsigned int mask, bool value) {
  return fuseblock_emulated_runtime->ballot(function, mask, value, line);
}

template <class Value>
inline Value exchange(const char* function, int line, unsigned int mask, Value value, unsigned int from) {
  static_assert(sizeof(Value) <= 8, "a number");
  return bits<Value>(
      fuseblock_emulated_runtime->exchange(function, mask, bits<unsigned long long>(value), from, line));
}
template <class Value>
inline Value shuffle(int line, unsigned int mask, Value value, int from, int width = 32) {
  const unsigned int lane = fuseblock_emulated_thread->lane;
  return exchange("__shfl_sync", line, mask, value, lane / width * width + (unsigned int)from % width);
}
template <class Value>
inline Value shuffle_xor(int line, unsigned int mask, Value value, int distance, int width = 32) {
  const unsigned int lane = fuseblock_emulated_thread->lane;
  const unsigned int from = lane ^ (unsigned int)distance;
  return exchange("__shfl_xor_sync", line, mask, value, from / width > lane / width ? lane : from);
}
template <class Value>
inline Value shuffle_down(int line, unsigned int mask, Value value, unsigned int distance, int width = 32) {
  const unsigned int lane = fuseblock_emulated_thread->lane;
  return exchange("__shfl_down_sync", line, mask, value,
                  lane % width + distance < (unsigned int)width ? lane + distance : lane);
}
template <class Value>
inline Value shuffle_up(int line, unsigned int mask, Value value, unsigned int distance, int width = 32) {
  const unsigned int lane = fuseblock_emulated_thread->lane;
  return exchange("__shfl_up_sync", line, mask, value, lane % width >= distance ? lane - distance : lane);
}

}  // namespace fuseblock_emulated

// Atomics: one thread runs at a time, so they are plain. Loops around them let others run.

namespace fuseblock_emulated {
template <class Number, class Function>
inline Number atomic(Number* place, Function&& changed) {
  fuseblock_emulated_runtime->yield(0);
  const Number before = *place;
  *place = changed(before);
  return before;
}
}  // namespace fuseblock_emulated

#define FUSEBLOCK_EMULATED_ATOMICS(type)                                                           \
  inline type atomicAdd(type* place, type value) {                                                 \
    return fuseblock_emulated::atomic(place, [&](type before) { return (type)(before + value); }); \
  }                                                                                                \
  inline type atomicExch(type* place, type value) {                                                \
    return fuseblock_emulated::atomic(place, [&](type) { return value; });                         \
  }
#define FUSEBLOCK_EMULATED_INTEGER_ATOMICS(type)                                                            \
  FUSEBLOCK_EMULATED_ATOMICS(type)                                                                          \
  inline type atomicCAS(type* place, type expected, type value) {                                           \
    return fuseblock_emulated::atomic(place,                                                                \
                                      [&](type before) { return before == expected ? value : before; });    \
  }                                                                                                         \
  inline type atomicMax(type* place, type value) {                                                          \
    return fuseblock_emulated::atomic(place, [&](type before) { return before < value ? value : before; }); \
  }                                                                                                         \
  inline type atomicMin(type* place, type value) {                                                          \
    return fuseblock_emulated::atomic(place, [&](type before) { return value < before ? value : before; }); \
  }                                                                                                         \
  inline type atomicOr(type* place, type value) {                                                           \
    return fuseblock_emulated::atomic(place, [&](type before) { return before | value; });                  \
  }
FUSEBLOCK_EMULATED_INTEGER_ATOMICS(int)
FUSEBLOCK_EMULATED_INTEGER_ATOMICS(unsigned int)
FUSEBLOCK_EMULATED_INTEGER_ATOMICS(unsigned long long)
inline unsigned int atomicInc(unsigned int* place, unsigned int last) {
  return fuseblock_emulated::atomic(place,
                                    [&](unsigned int before) { return before < last ? before + 1 : 0; });
}
FUSEBLOCK_EMULATED_ATOMICS(float)
FUSEBLOCK_EMULATED_ATOMICS(double)

template <class Value>
inline Value __ldg(const Value* from) {
  return *from;
}
template <class Value>
inline Value __ldcs(const Value* from) {
  return *from;
}
template <class Value>
inline Value __ldcg(const Value* from) {
  return *from;
}
template <class Value>
inline void __stcs(Value* to, const Value& value) {
  *to = value;
}
template <class Value>
inline void __stcg(Value* to, const Value& value) {
  *to = value;
}

// Shared memory.

#define __cvta_generic_to_shared(pointer) \
  ((size_t)fuseblock_emulated_runtime->shared_address((pointer), __LINE__))

namespace fuseblock_emulated {

inline unsigned int reserve_static(unsigned int bytes, unsigned int align) {
  const unsigned int begin = (fuseblock_emulated_static_bytes + align - 1) / align * align;
  fuseblock_emulated_static_bytes = begin + bytes;
  return begin;
}
// Where a variable of shared memory lies in that of its block; `Place` tells variables apart. Set when the module loads.
template <class Type, class Place>
struct Static {
  static inline const unsigned int kOffset = reserve_static(sizeof(Type), alignof(Type));
};
template <class Type, class Place>
inline Type& static_shared() {
  return *reinterpret_cast<Type*>(fuseblock_emulated_thread->static_shared + Static<Type, Place>::kOffset);
}

// What translated PTX calls.

template <class Pointed>
inline char* generic(Pointed* pointer, unsigned int, int) {
  return (char*)pointer;
}
inline char* generic(unsigned long long address, unsigned int, int) { return (char*)address; }
inline char* generic(long long address, unsigned int, int) { return (char*)address; }
inline char* generic(unsigned long address, unsigned int, int) { return (char*)address; }
inline char* of_block(unsigned int address, unsigned int bytes, int line) {
  return (char*)fuseblock_emulated_runtime->shared_pointer(address, bytes, false, line);
}
inline char* of_cluster(unsigned int address, unsigned int bytes, int line) {
  return (char*)fuseblock_emulated_runtime->shared_pointer(address, bytes, true, line);
}

inline void check_aligned(const char* address, unsigned int bytes, int line) {
  if ((uintptr_t)address % bytes != 0) fuseblock_emulated_runtime->fail("misaligned address", line);
}
template <class Type, int kCount>
struct Loaded {
  Type values[kCount];
};
template <class Type, int kCount>
inline Loaded<Type, kCount> load(const char* from, int line) {
  check_aligned(from, sizeof(Type) * kCount, line);
  Loaded<Type, kCount> loaded;
  __builtin_memcpy(loaded.values, from, sizeof(loaded.values));
  return loaded;
}
template <class Type, class... Values>
inline void store(char* to, int line, Values... values) {
  check_aligned(to, sizeof(Type) * sizeof...(Values), line);
  const Type all[] = {bits<Type>(values)...};
  __builtin_memcpy(to, all, sizeof(all));
}
template <class Type, class Function>
inline Type atomic_at(char* place, int line, Function&& changed) {
  check_aligned(place, sizeof(Type), line);
  return atomic(reinterpret_cast<Type*>(place), changed);
}
// A register takes the bits of a value that may be narrower.
template <class Register, class Value>
inline void set(Register& to, const Value& value) {
  to = bits<Register>(value);
}

inline float f32_of_f16(unsigned short x) {
  const unsigned int sign = (unsigned int)(x & 0x8000u) << 16, exponent = x >> 10 & 31u, fraction = x & 1023u;
  if (exponent == 31) return __uint_as_float(sign | 0x7f800000u | fraction << 13);
  if (exponent != 0) return __uint_as_float(sign | (exponent + 112) << 23 | fraction << 13);
  const float small = (float)fraction * (1.0f / 16777216.0f);
  return sign != 0 ? -small : small;
}
inline unsigned short f16_of_f32(float x) {
  const unsigned int word = __float_as_uint(x), sign = word >> 16 & 0x8000u, size = word & 0x7fffffffu;
  if (size > 0x7f800000u) return 0x7fff;
  if (size >= 0x477ff000u) return (unsigned short)(sign | 0x7c00u);
  if (size < 0x38800000u)
    return (unsigned short)(sign | (unsigned int)rintf(__uint_as_float(size) * 16777216.0f));
  return (unsigned short)(sign | ((size - 0x38000000u + 0xfffu + (size >> 13 & 1u)) >> 13));
}
inline unsigned short bf16_of_f32(float x) {
  const unsigned int word = __float_as_uint(x);
  if ((word & 0x7fffffffu) > 0x7f800000u) return 0x7fff;
  return (unsigned short)((word + 0x7fffu + (word >> 16 & 1u)) >> 16);
}
// Of each half; a NaN is not the larger.
inline unsigned int of_pairs(float (*one_of)(float, float), unsigned int one, unsigned int other) {
  unsigned int result = 0;
  for (int half = 0; half < 2; ++half) {
    const float first = f32_of_f16((unsigned short)(one >> half * 16));
    const float second = f32_of_f16((unsigned short)(other >> half * 16));
    result |= (unsigned int)f16_of_f32(one_of(first, second)) << half * 16;
  }
  return result;
}
inline unsigned int max_of_pairs(unsigned int one, unsigned int other) { return of_pairs(fmaxf, one, other); }
inline unsigned int sum_of_pairs(unsigned int one, unsigned int other) {
  return of_pairs([](float x, float y) { return x + y; }, one, other);
}
inline float without_subnormal(float x) { return fabsf(x) < 1.17549435e-38f ? copysignf(0.0f, x) : x; }
inline float min_nan(float a, float b) {
  return a != a || b != b ? __uint_as_float(0x7fffffffu) : fminf(a, b);
}
inline float max_nan(float a, float b) {
  return a != a || b != b ? __uint_as_float(0x7fffffffu) : fmaxf(a, b);
}

// Arguments of a launch, one pointer for each of the kernel's.
template <int... kIndices>
struct Indices {};
template <int kCount, int... kIndices>
struct MakeIndices : MakeIndices<kCount - 1, kCount - 1, kIndices...> {};
template <int... kIndices>
struct MakeIndices<0, kIndices...> {
  typedef Indices<kIndices...> type;
};
template <class Type>
struct Unqualified {
  typedef Type type;
};
template <class Type>
struct Unqualified<const Type> {
  typedef Type type;
};
template <class... Arguments, int... kIndices>
inline void call(void (*kernel)(Arguments...), void** parameters, Indices<kIndices...>) {
  kernel(*(typename Unqualified<Arguments>::type*)parameters[kIndices]...);
}
template <class... Arguments>
inline void call(void (*kernel)(Arguments...), void** parameters) {
  call(kernel, parameters, typename MakeIndices<sizeof...(Arguments)>::type());
}

}  // namespace fuseblock_emulated

#include "arrivals.h"
#include "matrix.h"

// The compiler's checks of alignment and of indices (-fsanitize) call these.
extern "C" {
struct fuseblock_emulated_location {
  const char* file;
  unsigned int line, column;
};
__attribute__((visibility("hidden"))) void __ubsan_handle_type_mismatch_v1(fuseblock_emulated_location* at,
                                                                           void*) {
  fuseblock_emulated_runtime->fail("misaligned address", (int)at->line);
}
__attribute__((visibility("hidden"))) void __ubsan_handle_type_mismatch_v1_abort(
    fuseblock_emulated_location* at, void*) {
  fuseblock_emulated_runtime->fail("misaligned address", (int)at->line);
}
__attribute__((visibility("hidden"))) void __ubsan_handle_out_of_bounds(fuseblock_emulated_location* at,
                                                                        void*) {
  fuseblock_emulated_runtime->fail("index out of bounds", (int)at->line);
}
__attribute__((visibility("hidden"))) void __ubsan_handle_out_of_bounds_abort(fuseblock_emulated_location* at,
                                                                              void*) {
  fuseblock_emulated_runtime->fail("index out of bounds", (int)at->line);
}
}
