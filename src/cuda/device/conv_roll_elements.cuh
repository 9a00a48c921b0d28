// What a thread of the kernel `conv_roll` has read of a row and not put yet, where strips have several rounds
// (device/conv_roll_rounds.cuh): every element by itself. Put together where they are read, elements of 16
// bits would be waited for there, and not a round later.

struct RowWords {
  unsigned int of[4];
};

struct RowElements {
  unsigned int bits[kRowElements];

  __device__ void clear() {
#pragma unroll
    for (int e = 0; e < kRowElements; ++e) bits[e] = 0;
  }
  __device__ RowWords words() const {
    RowWords words;
#pragma unroll
    for (int i = 0; i < 4; ++i)
      words.of[i] =
          kRowElements == 4 ? bits[i] : bits[2 * i % kRowElements] | bits[(2 * i + 1) % kRowElements] << 16;
    return words;
  }
};
