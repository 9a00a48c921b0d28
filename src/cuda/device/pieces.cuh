// A chunk of a warp: kPieces vectors of each lane, the lanes' beside each other, piece behind piece. The first of this lane is
// `element` of a unit that has `elements`; vectors behind the unit are left out.

// Begins to copy to this thread's column of shared memory, at `slot`.
template <class Element>
__device__ inline void copy_pieces(unsigned int slot, const Element* from, Count element, Count elements) {
#pragma unroll
  for (int i = 0; i < kPieces; ++i)
    if (kWhole || element + i * 32 * kVector < elements)
      thread::copy_begin_at(slot + (i * kThreads + threadIdx.x) * (unsigned int)sizeof(Vector<Element>),
                            reinterpret_cast<const Vector<Element>*>(from + i * 32 * kVector));
}

// What was copied there.
template <class Element>
__device__ inline void ring_pieces(unsigned int slot, Vector<Element> (&pieces)[kPieces]) {
#pragma unroll
  for (int i = 0; i < kPieces; ++i)
    pieces[i] = thread::read_shared<Vector<Element>>(slot + (i * kThreads + threadIdx.x) *
                                                                (unsigned int)sizeof(Vector<Element>));
}

// The same from memory.
template <class Element>
__device__ inline void read_pieces(const Element* from, Count element, Count elements,
                                   Vector<Element> (&pieces)[kPieces]) {
#pragma unroll
  for (int i = 0; i < kPieces; ++i)
    if (kWhole || element + i * 32 * kVector < elements)
      pieces[i] = load_vector(reinterpret_cast<const Vector<Element>*>(from + i * 32 * kVector));
}
