// What sums of products begin at in the kernel `conv_roll` where strips have several rounds
// (device/conv_roll_rounds.cuh), elements are of 16 bits, and the last step of the products has but one chunk: ones
// stand in place of the rows of its other chunk, and numbers of each channel in place of their weights. So sums
// begin at these without an instruction.

constexpr bool kStarts = kMode == k16Bits && kChunks % 2 != 0;

namespace starts {

constexpr int kNumbers = kRowElements;  // of a channel: eight

// The numbers of a channel, two in each word.
__device__ inline void put_words(Prepared& prepared, int channel, unsigned int first, unsigned int others) {
  *reinterpret_cast<uint4*>(prepared.weights[0][2 * kSteps - 1][channel]) =
      make_uint4(first, others, others, others);
}
__device__ inline unsigned int bits_of_nearest(float x) {
  Element element;
  assign(element, x);
  return bits_of(element);
}

// Rows of ones; by all threads, before they publish rows.
__device__ inline void begin(Prepared& prepared) {
  for (int i = (int)threadIdx.x; i < kZeros * kNumbers; i += kThreads)
    assign(reinterpret_cast<Element*>(prepared.zeros)[i], 1.0f);
}
// A number of 16 bits.
__device__ inline void put(Prepared& prepared, int channel, float start) {
  put_words(prepared, channel, bits_of_nearest(start), 0);
}
// One near to any other, as the sum of equal ones, so that f16 has it, too: returns which, or 0 where it is
// not finite.
__device__ inline float put_near(Prepared& prepared, int channel, float start) {
  Element part;
  assign(part, start / kNumbers);
  if (!(fabsf(to_real(part)) < __int_as_float(0x7f800000))) assign(part, 0.0f);
  const unsigned int word = bits_of(part) * 0x10001u;
  put_words(prepared, channel, word, word);
  return to_real(part) * kNumbers;
}

}  // namespace starts
