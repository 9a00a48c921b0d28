// Thread blocks that work on one unit together: where a block stands among them, and how they hand words to each other.
// All blocks of a team run at the same time. A small team is a cluster (kCluster blocks, where that is above 1): its blocks
// read each other's shared memory, behind the cluster's barrier. Other teams have lists in memory.
//
// A word in a team's list stands beside a tag, the number of the round, and both are written and read at once (8 bytes): who
// finds the tag has the word, without a barrier or a fence. Lists are zero at the start of the launch, so that no tag of
// another launch is taken for one of this.

struct Team {
  int size;           // blocks
  int member;         // this block among them
  int number, count;  // this team among all
};

__device__ inline Team team_of_block(int size) {
  Team team;
  team.size = size;
  team.number = (int)blockIdx.x / size;
  team.member = (int)blockIdx.x - team.number * size;
  team.count = (int)gridDim.x / size;
  return team;
}

namespace team {

template <class Value>
constexpr int kWordsOf = (int)(sizeof(Value) / 4);

// Lane 0's value, into its place of a list.
template <class Value>
__device__ inline void give(uint2* place, const Value& value, unsigned int tag) {
  const unsigned int* words = reinterpret_cast<const unsigned int*>(&value);
#pragma unroll
  for (int i = 0; i < kWordsOf<Value>; ++i)
    asm volatile("st.relaxed.gpu.global.v2.u32 [%0], {%1, %2};" ::"l"(place + i), "r"(words[i]), "r"(tag)
                 : "memory");
}

// Waits for values of other blocks, `count` of them and at most kCount, `stride` words apart. All words are asked for
// before the first is looked at.
template <class Value, int kCount>
__device__ inline void take(const uint2* place, int stride, int count, unsigned int tag,
                            Value (&values)[kCount]) {
  bool waiting = true;
  while (waiting) {
    unsigned int found[kCount][kWordsOf<Value>];
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      unsigned int* words = reinterpret_cast<unsigned int*>(&values[i]);
#pragma unroll
      for (int k = 0; k < kWordsOf<Value>; ++k)
        if (i < count)
          asm volatile("ld.relaxed.gpu.global.v2.u32 {%0, %1}, [%2];"
                       : "=r"(words[k]), "=r"(found[i][k])
                       : "l"(place + i * stride + k)
                       : "memory");
    }
    waiting = false;
#pragma unroll
    for (int i = 0; i < kCount; ++i)
#pragma unroll
      for (int k = 0; k < kWordsOf<Value>; ++k)
        if (i < count && found[i][k] != tag) waiting = true;
  }
}

}  // namespace team

namespace cluster {

// All threads of the cluster come here twice: `arrive` when they have written, `wait` before they read what others wrote.
template <class Nothing = void>
__device__ inline void arrive() {
  asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
}
template <class Nothing = void>
__device__ inline void wait() {
  asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
}

// Behind the last of all: others may still read this block's shared memory.
template <class Nothing = void>
__device__ inline void leave() {
  arrive();
  wait();
}

// What lies in another block's shared memory where `mine` lies in this one's.
template <class Value>
__device__ inline Value read(const Value* mine, int member) {
  Value value;
  unsigned int* words = reinterpret_cast<unsigned int*>(&value);
  unsigned int place;
  asm("mapa.shared::cluster.u32 %0, %1, %2;"
      : "=r"(place)
      : "r"((unsigned int)__cvta_generic_to_shared(mine)), "r"(member));
#pragma unroll
  for (int i = 0; i < (int)(sizeof(Value) / 4); ++i)
    asm volatile("ld.shared::cluster.u32 %0, [%1];" : "=r"(words[i]) : "r"(place + 4 * i) : "memory");
  return value;
}

}  // namespace cluster

namespace grid {

// True in the last of `count` blocks that comes here; it sees what all others have written before. `finished` is zero at
// the start of the launch.
__device__ inline bool is_last_of(unsigned int* finished, unsigned int count) {
  __shared__ bool last;
  __syncthreads();
  if (threadIdx.x == 0) {
    __threadfence();
    last = atomicAdd(finished, 1u) == count - 1;
    __threadfence();
  }
  __syncthreads();
  return last;
}

// Of the grid.
__device__ inline bool is_last_block(unsigned int* finished) { return is_last_of(finished, gridDim.x); }

}  // namespace grid
