// Statistics of many elements, taken in parts and merged. Each kind is a struct of numbers with
//   clear()            the statistic of nothing
//   add(values, taken) takes those of kElements elements whose bit of `taken` is set
//   merge(other)       joins two parts; the order of the calls is part of the result
//   merge_all(parts)   joins several, in a fixed order
//   merge_lanes()      joins the parts of a warp's lanes, which all get the result
// Moments also add(values, taken, weight), for many statistics that take equally many elements.
// A variance is never a difference of two large numbers: moments are taken around a value near to the mean, here that of a
// vector, and merged by Chan's formula.

namespace warp {

// Over the lanes that have parts of one statistic, the same in each of them: all of a warp (kFirstDistance is 1 and
// kEndDistance 32), or those that these constants say. Neighbours first, so that the order is fixed.
template <class Number>
__device__ inline Number sum(Number x) {
#pragma unroll
  for (int distance = kFirstDistance; distance < kEndDistance; distance *= 2)
    x += __shfl_xor_sync(0xffffffffu, x, distance);
  return x;
}
template <class Number>
__device__ inline Number largest(Number x) {
#pragma unroll
  for (int distance = kFirstDistance; distance < kEndDistance; distance *= 2)
    x = maximum(x, (Number)__shfl_xor_sync(0xffffffffu, x, distance));
  return x;
}
template <class Number>
__device__ inline Number smallest(Number x) {
#pragma unroll
  for (int distance = kFirstDistance; distance < kEndDistance; distance *= 2)
    x = minimum(x, (Number)__shfl_xor_sync(0xffffffffu, x, distance));
  return x;
}

}  // namespace warp

constexpr int kChains = kElements < 4 ? 1 : 2;

template <class Number>
__device__ inline Number sum_of(const Number (&chains)[kChains]) {
  return kChains == 1 ? chains[0] : chains[0] + chains[kChains - 1];
}

template <class Number>
struct Sum {
  Number first;

  __device__ void clear() { first = 0; }
  __device__ void add(const Number (&values)[kElements], unsigned int taken) {
    Number chains[kChains] = {};
#pragma unroll
    for (int i = 0; i < kElements; ++i)
      if (taken >> i & 1) chains[i % kChains] += values[i];
    first += sum_of(chains);
  }
  template <class Other>
  __device__ void merge(const Sum<Other>& other) {
    first += other.first;
  }
  template <int kParts>
  __device__ void merge_all(const Sum (&parts)[kParts]) {
    *this = parts[0];
#pragma unroll
    for (int i = 1; i < kParts; ++i) first += parts[i].first;
  }
  __device__ void merge_lanes() { first = warp::sum(first); }
};

template <class Number>
struct Largest {
  Number first;

  __device__ void clear() { first = -__int_as_float(0x7f800000); }
  __device__ void add(const Number (&values)[kElements], unsigned int taken) {
#pragma unroll
    for (int i = 0; i < kElements; ++i)
      if (taken >> i & 1) first = maximum(first, values[i]);
  }
  template <class Other>
  __device__ void merge(const Largest<Other>& other) {
    first = maximum(first, (Number)other.first);
  }
  template <int kParts>
  __device__ void merge_all(const Largest (&parts)[kParts]) {
    *this = parts[0];
#pragma unroll
    for (int i = 1; i < kParts; ++i) first = maximum(first, parts[i].first);
  }
  __device__ void merge_lanes() { first = warp::largest(first); }
};

template <class Number>
struct Smallest {
  Number first;

  __device__ void clear() { first = __int_as_float(0x7f800000); }
  __device__ void add(const Number (&values)[kElements], unsigned int taken) {
#pragma unroll
    for (int i = 0; i < kElements; ++i)
      if (taken >> i & 1) first = minimum(first, values[i]);
  }
  template <class Other>
  __device__ void merge(const Smallest<Other>& other) {
    first = minimum(first, (Number)other.first);
  }
  template <int kParts>
  __device__ void merge_all(const Smallest (&parts)[kParts]) {
    *this = parts[0];
#pragma unroll
    for (int i = 1; i < kParts; ++i) first = minimum(first, parts[i].first);
  }
  __device__ void merge_lanes() { first = warp::smallest(first); }
};

// How elements that come count beside those that are there.
template <class Number>
struct Weight {
  Number whole;   // elements with those that come
  Number each;    // one over those that come
  Number part;    // their share of all
  Number spread;  // what the square of the distance of the two means counts

  __device__ void come(unsigned int taken) {
    const Number before = whole;
    const Number coming = __popc(taken);
    if (taken == 0) return;
    whole = before + coming;
    each = share((Number)1, coming);
    part = share(coming, whole);
    spread = before * part;
  }
};

// first: the mean; second: the sum of squared deviations from it.
template <class Number>
struct Moments {
  Number first, second, count;

  __device__ void clear() { first = second = count = 0; }
  __device__ void add(const Number (&values)[kElements], unsigned int taken) {
    if (taken == 0) return;
    const Number number = __popc(taken);
    // In several chains, none of which waits for the others.
    Number chains[kChains] = {};
#pragma unroll
    for (int i = 0; i < kElements; ++i)
      if (taken >> i & 1) chains[i % kChains] += values[i];
    const Number mean = sum_of(chains) * share((Number)1, number);
#pragma unroll
    for (int i = 0; i < kChains; ++i) chains[i] = 0;
#pragma unroll
    for (int i = 0; i < kElements; ++i)
      if (taken >> i & 1) chains[i % kChains] += (values[i] - mean) * (values[i] - mean);
    merge(Moments{mean, sum_of(chains), number});
  }
  // The same for one of many statistics that take equally many elements: `weight` is the same for all of them.
  __device__ void add(const Number (&values)[kElements], unsigned int taken, const Weight<Number>& weight) {
    if (taken == 0) return;
    Number mean = 0;
#pragma unroll
    for (int i = 0; i < kElements; ++i)
      if (taken >> i & 1) mean += values[i];
    if (kElements > 1) mean *= weight.each;
#pragma unroll
    for (int i = 0; i < kElements; ++i)
      if (kElements > 1 && (taken >> i & 1)) second += (values[i] - mean) * (values[i] - mean);
    const Number distance = mean - first;
    second += distance * (distance * weight.spread);
    first += distance * weight.part;
    count = weight.whole;
  }
  template <class Other>
  __device__ void merge(const Moments<Other>& other) {
    if (other.count == 0) return;
    const Number whole = count + other.count;
    const Number part = share((Number)other.count, whole);
    const Number distance = other.first - first;
    second += other.second + distance * distance * (count * part);
    first = count == 0 ? other.first : first + distance * part;
    count = whole;
  }
  // Around the mean of all parts.
  template <int kParts>
  __device__ void merge_all(const Moments (&parts)[kParts]) {
    clear();
#pragma unroll
    for (int i = 0; i < kParts; ++i) count += parts[i].count;
    const Number each = share((Number)1, count);
#pragma unroll
    for (int i = 0; i < kParts; ++i)
      if (parts[i].count != 0) first += parts[i].first * (parts[i].count * each);
#pragma unroll
    for (int i = 0; i < kParts; ++i) {
      const Number distance = parts[i].first - first;
      if (parts[i].count != 0) second += parts[i].second + parts[i].count * distance * distance;
    }
  }
  // Around the mean of all lanes: the deviations of their means count as those of their elements do.
  __device__ void merge_lanes() {
    const Number whole = warp::sum(count);
    const Number mean = warp::sum(first * share(count, whole));
    const Number distance = first - mean;
    second = warp::sum(second + (count == 0 ? (Number)0 : count * distance * distance));
    first = mean;
    count = whole;
  }
};

// first: the largest; second: the sum of exp(x - largest).
template <class Number>
struct ExpSum {
  Number first, second;

  __device__ void clear() {
    first = -__int_as_float(0x7f800000);
    second = 0;
  }
  __device__ void add(const Number (&values)[kElements], unsigned int taken) {
    if (kElements == 1) {
      if (taken != 0) merge(ExpSum{values[0], 1});
      return;
    }
    Number largest = first;
#pragma unroll
    for (int i = 0; i < kElements; ++i)
      if (taken >> i & 1) largest = maximum(largest, values[i]);
    Number sum = first == largest ? second : second * exponential(first - largest);
#pragma unroll
    for (int i = 0; i < kElements; ++i)
      if (taken >> i & 1) sum += values[i] == largest ? (Number)1 : exponential(values[i] - largest);
    first = largest;
    second = sum;
  }
  template <class Other>
  __device__ void merge(const ExpSum<Other>& other) {
    const Number largest = maximum(first, (Number)other.first);
    // Equal maxima need no factor; that also keeps infinities out of exp(inf - inf).
    const Number mine = first == largest ? second : second * exponential(first - largest);
    const Number others = other.first == largest
                              ? (Number)other.second
                              : (Number)other.second * exponential((Number)other.first - largest);
    first = largest;
    second = mine + others;
  }
  template <int kParts>
  __device__ void merge_all(const ExpSum (&parts)[kParts]) {
    *this = parts[0];
#pragma unroll
    for (int i = 1; i < kParts; ++i) merge(parts[i]);
  }
  __device__ void merge_lanes() {
    const Number largest = warp::largest(first);
    second = warp::sum(first == largest ? second : second * exponential(first - largest));
    first = largest;
  }
};

constexpr unsigned int kAllElements = kElements == 32 ? 0xffffffffu : (1u << kElements % 32) - 1;

namespace warp {

// The statistics of all lanes, in each of them.
template <class Sums>
__device__ inline Sums merge(Sums sums) {
  sums.merge_lanes();
  return sums;
}

// The value of the lane `distance` further.
template <class Value>
__device__ inline Value shuffle_down(const Value& value, int distance) {
  static_assert(sizeof(Value) % 4 == 0, "whole words");
  Value result;
  const unsigned int* from = reinterpret_cast<const unsigned int*>(&value);
  unsigned int* to = reinterpret_cast<unsigned int*>(&result);
#pragma unroll
  for (int i = 0; i < (int)(sizeof(Value) / 4); ++i) to[i] = __shfl_down_sync(0xffffffffu, from[i], distance);
  return result;
}

// What lane 0 has.
template <class Value>
__device__ inline Value from_first(const Value& value) {
  Value result;
  const unsigned int* from = reinterpret_cast<const unsigned int*>(&value);
  unsigned int* to = reinterpret_cast<unsigned int*>(&result);
#pragma unroll
  for (int i = 0; i < (int)(sizeof(Value) / 4); ++i) to[i] = __shfl_sync(0xffffffffu, from[i], 0);
  return result;
}

// The statistics of all 32 lanes, whatever kFirstDistance and kEndDistance say.
template <class Sums>
__device__ inline Sums merge_whole(Sums sums) {
#pragma unroll
  for (int distance = 16; distance > 0; distance /= 2) sums.merge(shuffle_down(sums, distance));
  return from_first(sums);
}

}  // namespace warp
