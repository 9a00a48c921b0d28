// The input of the kernel `conv_deep` on its way to shared memory (device/conv_deep_tile.cuh), by the
// stagers.
//
// An item is the cell of a position, or, with kPair = 2, the cells of two neighbouring positions that lie
// beside each other in memory at an even place: a load then brings both. Rows of positions and of the input
// are even there, and where the padding of columns is odd a row's first and last position are the halves of
// two items.
//
// Before this stand device/conv_deep_tile.cuh and input_steps.

constexpr int kShift = kPair > 1 ? kPadW % 2 : 0;
constexpr int kRowItems = kPitch / kPair + kShift;
// Of a cell's channels: all that a tile can meet in a plane.
constexpr int kBoxItems =
    (kBoxPositions + kPair - 1) / kPair + (kShift != 0 ? kBoxPositions / kPitch + 2 : 0);
constexpr int kThreadItems = (kChunkCells * kBoxItems + kStagers - 1) / kStagers;

namespace producers {

// Not to be worked out, with what follows from it, before it is asked for: consumers have no registers for
// that.
__device__ inline int thread() {
  unsigned int number;
  asm volatile("mov.u32 %0, %1;" : "=r"(number) : "r"(threadIdx.x));
  return (int)number - kConsumers;
}
// Of those who stage the input, the first of them.
__device__ inline void sync() { asm volatile("bar.sync 1, %0;" ::"n"(kStagers) : "memory"); }

}  // namespace producers

// Where an item of a tile's input lies behind the first element of its plane, kNowhere beyond the tensor; and
// its first position, four times, with a bit for each position that the tile has.
constexpr Offset kNowhere = -1;
struct Spot {
  Offset from;
  int position;
};
typedef Spot Spots[kBoxItems];

__device__ inline void find_spots(const Arguments& a, const Tile& tile, int thread, Spots& spots) {
  const InputSteps steps = input_steps(a);
  const int first_row = tile.first / kPitch, first_column = tile.first - first_row * kPitch;
  const int first = first_row * kRowItems + (first_column + kShift) / kPair;
#pragma unroll 1
  for (int i = thread; i < kBoxItems; i += kStagers) {
    const int row = (first + i) / kRowItems, column = (first + i - row * kRowItems) * kPair - kShift;
    const int position = row * kPitch + column - tile.first;
    unsigned int there = 0;
#pragma unroll
    for (int j = 0; j < kPair; ++j)
      if (column + j >= 0 && column + j < kPitch && position + j >= 0 && position + j < kBoxPositions)
        there |= 1u << j;
    const int h = row - kPadH, w = tile.w + column - kPadW;
    const bool inside = there != 0 && h >= 0 && h < (int)a.in_h && w >= 0 && w < (int)a.in_w;
    spots[i] = {inside ? h * steps.h + w * steps.w : kNowhere, position * 4 + (int)there};
  }
}

// What is staged next: the input of a tile that one depth of the filter meets, for one chunk of channels.
struct Source {
  const Element* from;  // the chunk's first channel in the plane
  const Spot* spots;
  int channel;  // in the group
  bool inside;  // the plane is there
};

__device__ inline Source source_of(const Arguments& a, const Tile& tile, const Spots& spots, int chunk,
                                   int depth) {
  const int channel = chunk * kChunkChannels, d = tile.d - kPadD + depth * kDilationD;
  const bool inside = d >= 0 && d < (int)a.in_d;
  return {input_data(a) + input_offset(a, sample_of(tile.span), input_channel_of(tile.span) + channel,
                                       inside ? d : 0, 0, 0),
          spots, channel, inside};
}

// An item by its channels and its number in the plane. Those of a stager are kStagers apart; neighbouring
// threads have neighbouring channels where these are neighbours in memory, else neighbouring positions.
struct Item {
  int quad, number;

  static __device__ Item first(int thread) {
    return kVectors != 0 ? Item{thread % kChunkCells, thread / kChunkCells}
                         : Item{thread / kBoxItems, thread % kBoxItems};
  }
  __device__ bool exists() const { return kVectors != 0 ? number < kBoxItems : quad < kChunkCells; }
  __device__ void advance() {
    constexpr int kFast = kVectors != 0 ? kChunkCells : kBoxItems;
    int& fast = kVectors != 0 ? quad : number;
    int& slow = kVectors != 0 ? number : quad;
    fast += kStagers % kFast;
    slow += kStagers / kFast;
    if (fast >= kFast) fast -= kFast, ++slow;
  }
};

// The elements of a channel that a load brings; with 16 bytes those of all channels of a cell.
template <int kBytes>
struct Words;
template <>
struct Words<2> {
  typedef unsigned short Type;
};
template <>
struct Words<4> {
  typedef unsigned int Type;
};
template <>
struct Words<8> {
  typedef uint2 Type;
};
typedef Words<kPair*(int)sizeof(Element)>::Type Load;

__device__ inline void set_element(float& element, unsigned short, int) { element = 0; }
__device__ inline void set_element(float& element, unsigned int load, int) {
  element = __uint_as_float(load);
}
__device__ inline void set_element(float& element, uint2 load, int number) {
  element = __uint_as_float(number == 0 ? load.x : load.y);
}
template <class Element16>
__device__ inline void set_element(Element16& element, unsigned int load, int number) {
  element.bits = (unsigned short)(load >> 16 * number);
}

// An item on its way from memory to shared memory.
struct Fetched {
  Load loads[kCellElements];
  int cell;  // the first, four times, with a bit for each that there is
};

// The item at `next`, which goes on to the stager's next one.
__device__ inline Fetched fetch(const Arguments& a, const Source& source, Item& next) {
  const int quad = next.quad;
  const bool exists = next.exists();
  const Spot spot = source.spots[exists ? next.number : 0];
  next.advance();
  Fetched item;
  item.cell = exists ? quad * kQuad * 4 + spot.position : 0;
  const int c = source.channel + quad * kCellElements;
  const bool inside =
      source.inside && exists && spot.from != kNowhere && (kGroupIn % kChunkChannels == 0 || c < kGroupIn);
  const InputSteps steps = input_steps(a);
  const Element* from = source.from + (spot.from + quad * kCellElements * steps.c);
  if constexpr (kVectors != 0) {
    uint4 found = {0, 0, 0, 0};
    if (inside) found = *reinterpret_cast<const uint4*>(from);
    *reinterpret_cast<uint4*>(item.loads) = found;
  } else {
#pragma unroll
    for (int j = 0; j < kCellElements; ++j) {
      item.loads[j] = Load{};
      if (inside && (kGroupIn % kCellElements == 0 || c + j < kGroupIn))
        item.loads[j] = *reinterpret_cast<const Load*>(from + j * steps.c);
    }
  }
  return item;
}

// The values of a cell, rounded to tf32 in that mode; of its bits tensor cores ignore those that tf32 does
// not have.
__device__ inline Cell staged_cell(const Element (&values)[kCellElements]) {
  if constexpr (kMode != kTf32) return packed(values, 0);
  Cell cell;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const unsigned int bits = bits_of(values[i]);
    cell.words[i] = fabsf(__uint_as_float(bits)) < __int_as_float(0x7f800000) ? bits + 0x1000 : bits;
  }
  return cell;
}

// What is not there goes to the stager's own cell `spare`: a branch would take longer.
__device__ inline void put(const Fetched& item, char* image, Cell* spare) {
  Cell* cells = reinterpret_cast<Cell*>(image);
#pragma unroll
  for (int i = 0; i < kPair; ++i) {
    Element values[kCellElements];
#pragma unroll
    for (int j = 0; j < kCellElements; ++j) set_element(values[j], item.loads[j], i);
    const bool there = (item.cell >> i & 1) != 0;
    Cell* cell = cells + (item.cell >> 2) + i;
    *(there ? cell : spare) = staged_cell(values);
    if constexpr (kParts > 1)
      if (there) cell[kPartCells] = packed(values, 1);
  }
}
