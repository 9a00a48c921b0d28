// Words that blocks of a team hand to each other through memory that nobody has cleared.
//
// Two words of a value stand beside a tag of 64 bits, and all 16 bytes are written and read at once: who finds the tag has
// the words, without a barrier or a fence. A launch's tags are numbers that no launch before it has had, so that nothing that
// lies there from before is taken for what is wanted. A launch that is replayed has the same tags each time: the
// memory is then zero before it, which no tag is.

namespace tagged {

struct alignas(16) Words {
  unsigned int first, second;
  unsigned long long tag;
};

__device__ inline void store(Words* place, const Words& words) {
  const unsigned long long both = (unsigned long long)words.second << 32 | words.first;
  asm volatile(
      "{\n"
      ".reg .b128 whole;\n"
      "mov.b128 whole, {%1, %2};\n"
      "st.relaxed.gpu.global.b128 [%0], whole;\n"
      "}" ::"l"(place),
      "l"(both), "l"(words.tag)
      : "memory");
}

__device__ inline Words load(const Words* place) {
  unsigned long long both, tag;
  asm volatile(
      "{\n"
      ".reg .b128 whole;\n"
      "ld.relaxed.gpu.global.b128 whole, [%2];\n"
      "mov.b128 {%0, %1}, whole;\n"
      "}"
      : "=l"(both), "=l"(tag)
      : "l"(place)
      : "memory");
  return {(unsigned int)both, (unsigned int)(both >> 32), tag};
}

// How many of them a value takes.
template <class Value>
constexpr int kCount = (int)(sizeof(Value) / 4 + 1) / 2;

template <class Value>
__device__ inline void give(Words* place, const Value& value, unsigned long long tag) {
  constexpr int kWords = (int)(sizeof(Value) / 4);
  const unsigned int* words = reinterpret_cast<const unsigned int*>(&value);
#pragma unroll
  for (int i = 0; i < kCount<Value>; ++i)
    store(place + i, {words[2 * i], 2 * i + 1 < kWords ? words[2 * i + 1] : 0, tag});
}

// A value as it was loaded.
template <class Value>
struct Loaded {
  Words words[kCount<Value>];

  __device__ void load(const Words* place) {
#pragma unroll
    for (int i = 0; i < kCount<Value>; ++i) words[i] = tagged::load(place + i);
  }
  // By arithmetic alone: comparisons would stand between the loads of several values.
  __device__ bool is_there(unsigned long long tag) const {
    unsigned long long differs = 0;
#pragma unroll
    for (int i = 0; i < kCount<Value>; ++i) differs |= words[i].tag ^ tag;
    return differs == 0;
  }
  __device__ Value value() const {
    Value result;
    unsigned int* parts = reinterpret_cast<unsigned int*>(&result);
#pragma unroll
    for (int i = 0; i < (int)(sizeof(Value) / 4); ++i)
      parts[i] = i % 2 == 0 ? words[i / 2].first : words[i / 2].second;
    return result;
  }
};

}  // namespace tagged
