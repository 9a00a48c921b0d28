// The kernel `pool`: max_pool, avg_pool and their adjoints, one thread an element of the result. Each thread gathers what
// it needs in scan order: windows of an output position, or the windows that hold an input position.
//
// Before this stand the window (kWindow, kStride, kPad, kDilation, each by D, H, W), kKind, Arguments with the extents of
// the pool's input and output, and the tensors as first_at, judge_at and set_result.

constexpr int kMaxPool = 0, kMaxPoolTake = 1, kMaxPoolPut = 2, kAvgPool = 3, kAvgPoolGrad = 4;
constexpr bool kOverInput =
    kKind == kMaxPoolPut || kKind == kAvgPoolGrad;  // the result is like the pool's input

// The input position that a tap of the window at an output position reads; false outside of the input.
__device__ inline bool input_of(const Arguments& a, const Spatial& out, const Spatial& tap, Spatial& in) {
  in.d = out.d * kStrideD - kPadD + tap.d * kDilationD;
  in.h = out.h * kStrideH - kPadH + tap.h * kDilationH;
  in.w = out.w * kStrideW - kPadW + tap.w * kDilationW;
  return in.d >= 0 && in.d < (int)a.in_d && in.h >= 0 && in.h < (int)a.in_h && in.w >= 0 &&
         in.w < (int)a.in_w;
}

// The output position, on one axis, whose window reads `in` at a tap; -1 for none.
__device__ inline int window_of(int in, int tap, int stride, int pad, int dilation, int outs) {
  const int start = in + pad - tap * dilation;
  if (start < 0 || start % stride != 0 || start / stride >= outs) return -1;
  return start / stride;
}

// The first of the largest elements of a window, but the last NaN if there is one; false where no element lies inside.
__device__ inline bool find_largest(const Arguments& a, long long n, long long c, const Spatial& out,
                                    Spatial& place) {
  bool found = false;
  real largest = 0;
  for (int d = 0; d < kWindowD; ++d)
    for (int h = 0; h < kWindowH; ++h)
#pragma unroll 4
      for (int w = 0; w < kWindowW; ++w) {
        Spatial in;
        if (!input_of(a, out, {d, h, w}, in)) continue;
        const real value = judge_at(a, n, c, in);
        if (found && !(value > largest) && value == value) continue;
        found = true;
        place = in;
        largest = value;
      }
  return found;
}

__device__ inline int smaller(int a, int b) { return a < b ? a : b; }
__device__ inline int larger(int a, int b) { return a > b ? a : b; }

// The elements that an average at an output position is taken of.
__device__ inline real divisor(const Arguments& a, const Spatial& out) {
  if (kDivisor > 0) return kDivisor;
  const int begin_d = out.d * kStrideD - kPadD, begin_h = out.h * kStrideH - kPadH,
            begin_w = out.w * kStrideW - kPadW;
  const int end_d = smaller(begin_d + kWindowD, (int)a.in_d + kPadD);
  const int end_h = smaller(begin_h + kWindowH, (int)a.in_h + kPadH);
  const int end_w = smaller(begin_w + kWindowW, (int)a.in_w + kPadW);
  const int inside = larger(smaller(end_d, (int)a.in_d) - larger(begin_d, 0), 0) *
                     larger(smaller(end_h, (int)a.in_h) - larger(begin_h, 0), 0) *
                     larger(smaller(end_w, (int)a.in_w) - larger(begin_w, 0), 0);
  if (inside == 0) return 1;
  return kCountPad ? (end_d - begin_d) * (end_h - begin_h) * (end_w - begin_w) : inside;
}

__device__ inline real value_over_output(const Arguments& a, long long n, long long c, const Spatial& out) {
  if (kKind != kAvgPool) {
    Spatial place;
    if (find_largest(a, n, c, out, place)) return first_at(a, n, c, place);
    return kKind == kMaxPool ? -__int_as_float(0x7f800000) : 0.0f;
  }
  real total = 0;
  for (int d = 0; d < kWindowD; ++d)
    for (int h = 0; h < kWindowH; ++h)
#pragma unroll 4
      for (int w = 0; w < kWindowW; ++w) {
        Spatial in;
        if (input_of(a, out, {d, h, w}, in)) total += first_at(a, n, c, in);
      }
  return total / divisor(a, out);
}

__device__ inline real value_over_input(const Arguments& a, long long n, long long c, const Spatial& in) {
  real total = 0;
  for (int d = kWindowD - 1; d >= 0; --d)
    for (int h = kWindowH - 1; h >= 0; --h)
      for (int w = kWindowW - 1; w >= 0; --w) {
        const Spatial out = {window_of(in.d, d, kStrideD, kPadD, kDilationD, (int)a.out_d),
                             window_of(in.h, h, kStrideH, kPadH, kDilationH, (int)a.out_h),
                             window_of(in.w, w, kStrideW, kPadW, kDilationW, (int)a.out_w)};
        if (out.d < 0 || out.h < 0 || out.w < 0) continue;
        if (kKind == kAvgPoolGrad) {
          total += first_at(a, n, c, out) / divisor(a, out);
        } else {
          Spatial place;
          if (find_largest(a, n, c, out, place) && place.d == in.d && place.h == in.h && place.w == in.w)
            total += first_at(a, n, c, out);
        }
      }
  return total;
}

extern "C" __global__ void __launch_bounds__(256, 3) pool(const __grid_constant__ Arguments a) {
  const int depth = (int)(kOverInput ? a.in_d : a.out_d);
  const int height = (int)(kOverInput ? a.in_h : a.out_h);
  const int width = (int)(kOverInput ? a.in_w : a.out_w);
  for (long long i = (long long)blockIdx.x * 256 + threadIdx.x; i < a.elements;
       i += (long long)gridDim.x * 256) {
    // The axis that lies densest in memory varies fastest.
    Count rest = (Count)i;
    Count c = 0;
    if (kChannelsFirst) {
      c = rest % kChannels;
      rest /= kChannels;
    }
    Spatial at;
    at.w = (int)(rest % width);
    rest /= width;
    at.h = (int)(rest % height);
    rest /= height;
    at.d = (int)(rest % depth);
    rest /= depth;
    if (!kChannelsFirst) {
      c = rest % kChannels;
      rest /= kChannels;
    }
    set_result(a, rest, c, at,
               kOverInput ? value_over_input(a, rest, c, at) : value_over_output(a, rest, c, at));
  }
}
