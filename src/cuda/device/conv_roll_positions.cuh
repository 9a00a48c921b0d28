// What the kernel `conv_roll` does with a warp's sums of products where a sweep reduces over channels and
// strips have several rounds (device/conv_roll_rounds.cuh): the sweep's program and sinks. Of the four lanes
// that have a position's channels each ends a position.
//
// A sum of exponentials is taken around one number for all positions of a warp, so that nobody looks for the
// largest before. Where a sum is then not as exact as one around the largest of its own, the positions are
// taken again, each around that, and the first of these is the number from there on.
//
// Where all exponents are a polynomial of one tanh and a multiple of the convolution's value (`kTangents`),
//
//   kFirst * t + kSecond * t^2 + slope * value + constant,   t = tanh(scale * value + offset),
//
// sums around 0 are taken of that, with the bias and the factors of powers of two in what a channel has.

namespace branchless {

// Where results are rounded to 16 bits, or come of tf32 products, it is lg2.approx, whose error is 2^-22, and
// what is below 1e-38 is 0.
__device__ inline float logarithm(float x) {
  if (!k16Bit) return logf(x);
  float y;
  asm("lg2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y * 0.693147181f;
}

}  // namespace branchless

template <class Sweep>
__device__ constexpr bool has_tangents() {
  if constexpr (Sweep::kExponentials)
    return Sweep::kTangents;
  else
    return false;
}

constexpr float kPowerOfTwo = 1.44269504f;  // exp(x) is 2 to so many x
// It is t that is taken, by tanh.approx, whose error is 2^-11 of it, as is that of a number that is rounded to tf32 or f16;
// in strict mode 1 / (1 + exp(2 x)), which is (1 - t) / 2.
constexpr bool kTakesTangent = k16Bit != 0;

// The square root of a constant.
__device__ constexpr float root_of(float x) {
  float root = x < 1 ? 1 : x;
  for (int i = 0; i < 20; ++i) root = (root + x / root) / 2;
  return root;
}

// The polynomial of what is taken of tanh, by powers of two: kFirst * s + kSecond * s^2. Where little is lost
// by it this is a square, of kRoot * s + kShift, less that of kShift.
template <class Sweep>
struct Polynomial {
  static constexpr float kFirst =
      (kTakesTangent ? Sweep::kFirst : -2 * Sweep::kFirst - 4 * Sweep::kSecond) * kPowerOfTwo;
  static constexpr float kSecond = (kTakesTangent ? 1 : 4) * Sweep::kSecond * kPowerOfTwo;
  static constexpr float kSign = kSecond < 0 ? -1 : 1;
  static constexpr bool kSquare = !kTakesTangent && kSign * kSecond > 0.0625f && kSign* kSecond < 16 &&
                                  kFirst* kFirst < 64 * kSign* kSecond;
  static constexpr float kRoot = kSquare ? root_of(kSign * kSecond) : 1;
  static constexpr float kShift = kSquare ? kSign * kFirst / (2 * kRoot) : 0;

  // Of kRoot * s + kShift, and what is added.
  static __device__ float of(float x, float rest) {
    if (kSquare) return fmaf(kSign * x, x, rest);
    return kSecond == 0 ? fmaf(x, kFirst, rest) : fmaf(x, fmaf(x, kSecond, kFirst), rest);
  }
};

// Whether sums of products begin at the bias, so that scale and offset are all that channels have for
// themselves, which lanes keep in registers.
template <class Sweep>
__device__ constexpr bool keeps_forms() {
  if constexpr (has_tangents<Sweep>())
    return kStarts && kTakesTangent && Sweep::kSameRest;
  else
    return false;
}

// A channel's form, by powers of two, of a sum that is without its bias unless it begins at that.
template <class Sweep>
__device__ inline void prepare_tangent(const typename Sweep::Channel& channel, typename Sweep::Tangent& to) {
  typedef Polynomial<Sweep> Form;
  typename Sweep::Tangent form = Sweep::tangent(channel);
  if (!keeps_forms<Sweep>()) {
    form.offset += form.scale * Sweep::bias(channel);
    form.constant += form.slope * Sweep::bias(channel);
  }
  if (!kTakesTangent) form.constant += Sweep::kFirst + Sweep::kSecond;
  const float factor = kTakesTangent ? 1.0f : 2 * kPowerOfTwo;
  to = {form.scale * factor, form.offset * factor, form.slope * kPowerOfTwo,
        form.constant * kPowerOfTwo - Form::kSign * Form::kShift * Form::kShift};
}

// The forms of a lane's channels: where they lie, or what it keeps of them.
template <class Sweep, bool kKeeps>
struct Forms {
  const typename Sweep::Tangent* tangents;

  __device__ explicit Forms(const typename Sweep::Tangent* from) : tangents(from) {}
  __device__ typename Sweep::Tangent of(int e) const { return tangents[within(channel_of(e))]; }
};
template <class Sweep>
struct Forms<Sweep, true> {
  float scale[kColumns], offset[kColumns];

  __device__ explicit Forms(const typename Sweep::Tangent* from) {
#pragma unroll
    for (int e = 0; e < kColumns; ++e) {
      scale[e] = from[within(channel_of(e))].scale;
      offset[e] = from[within(channel_of(e))].offset;
    }
  }
  __device__ typename Sweep::Tangent of(int e) const {
    return {scale[e], offset[e], Sweep::kSlope * kPowerOfTwo, Sweep::kConstant * kPowerOfTwo};
  }
};
// Of a sweep without tangents.
struct NoForms {};

// What the polynomial takes of tanh, for two channels of a position: one reciprocal for both, of which the
// root of the polynomial's square is a part. A NaN becomes that of both, whose sum it is in any case.
template <class Form>
__device__ inline void take_tangents(float (&x)[2]) {
  if constexpr (kTakesTangent) {
#pragma unroll
    for (int j = 0; j < 2; ++j) asm("tanh.approx.f32 %0, %1;" : "=f"(x[j]) : "f"(x[j]));
  } else {
    // The product of two of these is finite, and a tanh of 1 by then.
    constexpr float kMost = 60, kUnit = 1 / Form::kRoot;
#pragma unroll
    for (int j = 0; j < 2; ++j) {
      float e;
      asm("min.NaN.f32 %0, %1, %2;" : "=f"(e) : "f"(x[j]), "f"(kMost));
      asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(x[j]) : "f"(e));
      x[j] = Form::kSquare ? fmaf(x[j], kUnit, kUnit) : x[j] + 1.0f;
    }
    float quotient;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(quotient) : "f"(x[0] * x[1]));
    const float other = x[0];
    x[0] = Form::kSquare ? fmaf(quotient, x[1], Form::kShift) : quotient * x[1];
    x[1] = Form::kSquare ? fmaf(quotient, other, Form::kShift) : quotient * other;
  }
}

// Adds up exp(x) over a lane's channels, for each position, of sums as the forms want them.
template <class Sweep, class AllForms>
__device__ inline void add_tangents(const AllForms& all, const float (&products)[kMTiles][kNTiles][4],
                                    float (&sums)[kRows]) {
  typedef Polynomial<Sweep> Form;
#pragma unroll
  for (int i = 0; i < kRows; ++i) sums[i] = 0;
#pragma unroll
  for (int e = 0; e < kColumns; e += 2) {
    const typename Sweep::Tangent forms[2] = {all.of(e), all.of(e + 1)};
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
      float x[2];
#pragma unroll
      for (int j = 0; j < 2; ++j)
        x[j] = fmaf(products[i / 2][e / 2][i % 2 * 2 + j], forms[j].scale, forms[j].offset);
      take_tangents<Form>(x);
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        const float rest = fmaf(products[i / 2][e / 2][i % 2 * 2 + j], forms[j].slope, forms[j].constant);
        float power;
        asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(power) : "f"(Form::of(x[j], rest)));
        sums[i] += kChannels % 8 == 0 || channel_of(e + j) < kChannels ? power : 0.0f;
      }
    }
  }
}

// Adds up exp(x - base) over a lane's channels, for each position around a base of its own. `kLargest`: the
// largest x are looked for, too.
template <class Sweep, bool kLargest>
__device__ inline void add_exponentials(const Arguments& a, const typename Sweep::Channel* channels,
                                        const Sites& sites, const typename Sweep::Places (&places)[kRows],
                                        const float (&products)[kMTiles][kNTiles][4],
                                        const branchless::ExpAbove<float> (&above)[kRows],
                                        float (&sums)[kRows], float (&largest)[kRows]) {
#pragma unroll
  for (int i = 0; i < kRows; ++i) {
    sums[i] = 0;
    largest[i] = -__int_as_float(0x7f800000);
  }
#pragma unroll
  for (int e = 0; e < kColumns; ++e) {
    const int c = within(channel_of(e));
    const typename Sweep::Channel channel = channels[c];
    const typename Sweep::Steps steps = Sweep::steps(a, c);
    const bool there = kChannels % 8 == 0 || channel_of(e) < kChannels;
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
      const typename Sweep::Results results =
          Sweep::program(channel, places[i], steps, products[i / 2][e / 2][i % 2 * 2 + e % 2]);
      const float power = above[i].of(Sweep::exponent(results));
      sums[i] += there ? power : 0.0f;
      if (kLargest && there) largest[i] = maximum(largest[i], Sweep::exponent(results));
      if (there && (sites.inside >> i & 1)) Sweep::store(places[i], steps, results);
    }
  }
}

// The program and the sinks of a sweep that takes sums of exponentials over channels and nothing else. Sums
// of products are without their bias where there are tangents, unless they begin at it. `base` is what they
// are taken around first, `own` the position that a lane ends.
template <class Sweep, class AllForms>
__device__ inline void take_exponentials(const Arguments& a, const Unit& unit,
                                         const typename Sweep::Channel* channels, const AllForms& forms,
                                         const Sites& sites, const Site& own,
                                         float (&products)[kMTiles][kNTiles][4], float& base) {
  constexpr bool kWithoutBias = has_tangents<Sweep>() && !keeps_forms<Sweep>();
  static_assert(kRows == 2, "neighbouring lanes end a position each");
  const bool second = threadIdx.x % 2 != 0;
  const bool ends = threadIdx.x % 4 < kRows && own.inside;
  typename Sweep::Places places[kRows];
#pragma unroll
  for (int i = 0; i < kRows; ++i) places[i] = Sweep::places(a, unit, sites.at[i]);
  // Of the lane's own position, over all its channels.
  auto whole = [&](const float(&sums)[kRows]) {
    float sum = second ? sums[1] : sums[0];
    sum += __shfl_xor_sync(0xffffffffu, second ? sums[0] : sums[1], 1);
    return sum + __shfl_xor_sync(0xffffffffu, sum, 2);
  };
  auto add_bias = [&] {
#pragma unroll
    for (int i = 0; i < kNTiles * 4; ++i) products[0][i / 4][i % 4] += bias_of<Sweep>(channels, i);
  };
  float sums[kRows], largest[kRows];
  const bool around_zero = base == 0;
  if (has_tangents<Sweep>() && around_zero) {
    if constexpr (has_tangents<Sweep>()) add_tangents<Sweep>(forms, products, sums);
  } else {
    if (kWithoutBias) add_bias();
    const branchless::ExpAbove<float> above(base);
    const branchless::ExpAbove<float> same[kRows] = {above, above};
    add_exponentials<Sweep, false>(a, channels, sites, places, products, same, sums, largest);
  }
  float sum = whole(sums);
  // What is below 1e-38 was 0, which is then nothing beside the sum.
  if (__all_sync(0xffffffffu, sum > 1e-28f && sum < 1e37f)) {
    if (ends) Sweep::end(a, unit, own.at, Sweep::exponential_sum(base, sum));
    return;
  }
  // Twice, the second time around the largest. A zero that the compiler does not know keeps it from keeping
  // anything for what is seldom.
  const float zero = a.items < 0 ? 1.0f : 0.0f;
#pragma unroll
  for (int i = 0; i < kNTiles * 4; ++i) products[0][i / 4][i % 4] += zero;
  if (kWithoutBias && around_zero) add_bias();
  largest[0] = largest[1] = 0;
#pragma unroll 1
  for (int time = 0; time < 2; ++time) {
    // Infinities are not subtracted from each other: beside one the sum is infinite, or nothing.
    auto finite = [](float x) { return fabsf(x) == __int_as_float(0x7f800000) ? 0.0f : x; };
    const branchless::ExpAbove<float> above[kRows] = {branchless::ExpAbove<float>(finite(largest[0])),
                                                      branchless::ExpAbove<float>(finite(largest[1]))};
    add_exponentials<Sweep, true>(a, channels, sites, places, products, above, sums, largest);
#pragma unroll
    for (int i = 0; i < kRows; ++i) largest[i] = warp::largest(largest[i]);
  }
  sum = whole(sums);
  if (ends) Sweep::end(a, unit, own.at, Sweep::exponential_sum(second ? largest[1] : largest[0], sum));
  const float first = __shfl_sync(0xffffffffu, largest[0], 0);
  base = fabsf(first) < 1e37f ? first : 0.0f;
}

// The program and the sinks of any other sweep.
template <class Sweep>
__device__ inline void take_positions(const Arguments& a, const Unit& unit,
                                      const typename Sweep::Channel* channels, const Sites& sites,
                                      const float (&products)[kMTiles][kNTiles][4]) {
  static_assert(kRows <= 4, "a lane ends one position");
  typename Sweep::Places places[kRows];
#pragma unroll
  for (int i = 0; i < kRows; ++i) places[i] = Sweep::places(a, unit, sites.at[i]);
  unsigned int there = kAllElements;
  if constexpr (kChannels % 8 != 0) {
    there = 0;
#pragma unroll
    for (int e = 0; e < kColumns; ++e)
      if (channel_of(e) < kChannels) there |= 1u << e;
  }
  typename Sweep::Results results[kRows][kColumns];
#pragma unroll
  for (int e = 0; e < kColumns; ++e) {
    const int c = within(channel_of(e));
    const typename Sweep::Channel channel = channels[c];
    const typename Sweep::Steps steps = Sweep::steps(a, c);
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
      results[i][e] = Sweep::program(channel, places[i], steps, products[i / 2][e / 2][i % 2 * 2 + e % 2]);
      if ((there >> e & 1) && (sites.inside >> i & 1)) Sweep::store(places[i], steps, results[i][e]);
    }
  }
  const int own = (int)threadIdx.x % 4;
  typename Sweep::Sums total;
  Corner at = sites.at[0];
#pragma unroll
  for (int i = 0; i < kRows; ++i) {
    typename Sweep::Sums each;
    each.clear();
    each.add(results[i], there);
    each.merge_lanes();
    if (i == 0 || own == i) total = each, at = sites.at[i];
  }
  if (own < kRows && (sites.inside >> own & 1)) Sweep::end(a, unit, at, total);
}
