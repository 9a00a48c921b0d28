// Chunks as in device/pieces.cuh that are fetched into L2.

// Begins to fetch them into L2, a line of 128 bytes by the lane that has its first vector.
template <class Element>
__device__ inline void fetch_pieces(const Element* from, Count element, Count elements) {
#pragma unroll
  for (int i = 0; i < kPieces; ++i)
    if ((kWhole || element + i * 32 * kVector < elements) &&
        threadIdx.x * (unsigned int)sizeof(Vector<Element>) % 128 == 0)
#ifdef FUSEBLOCK_EVICT_LAST
      asm volatile("prefetch.global.L2::evict_last [%0];" ::"l"(from + i * 32 * kVector));
#else
      asm volatile("prefetch.global.L2 [%0];" ::"l"(from + i * 32 * kVector));
#endif
}
