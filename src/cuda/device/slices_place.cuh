// Rows of the kernel `slices`: which vectors of them a thread has (device/slices.cuh). Before this stand the constants.

constexpr int kSlots = kRowPositions * kUnitChannels;
constexpr int kColumns = kSlots / kVector;
constexpr int kRowWarps = (kColumns + 31) / 32;               // that share a row
constexpr int kWarpRows = kColumns < 32 ? 32 / kColumns : 1;  // of a warp in one piece
constexpr int kLists = kWarps / kRowWarps;   // rows, or sets of them, of a block at the same time
constexpr int kStride = kLists * kWarpRows;  // rows from one piece of a thread to its next
constexpr int kChunkRows = kPieces * kStride;
constexpr int kRowElements = kRowPositions * kChannels;  // from one row to the next in the tensors
constexpr int kStrideElements = kStride * kRowElements;
constexpr long long kChunkElements = (long long)kChunkRows * kRowElements;
static_assert(kSlots % kVector == 0 && kLists > 0, "a row is whole vectors of one block");

// A thread among those of its block.
struct Place {
  int column;    // of a row
  int list;      // of the block
  int warp_row;  // among the warp's
  bool active;

  // Of its vector's elements: the channel in the slice, the position in the row.
  __device__ int channel(int v) const {
    const int slot = column * kVector + v;
    return kRowPositions == 1 ? slot : slot % kUnitChannels;
  }
  __device__ int position(int v) const {
    return kRowPositions == 1 ? 0 : (column * kVector + v) / kUnitChannels;
  }
  __device__ int row() const { return list * kWarpRows + warp_row; }
};

__device__ inline Place place_of_thread() {
  const int lane = (int)threadIdx.x % 32;
  const int warp = (int)threadIdx.x / 32;
  Place place;
  place.list = warp / kRowWarps;
  place.column = kColumns < 32 ? lane % kColumns : warp % kRowWarps * 32 + lane;
  place.warp_row = kColumns < 32 ? lane / kColumns : 0;
  place.active = place.list < kLists && place.warp_row < kWarpRows && place.column < kColumns;
  if (!place.active) place.column = place.list = 0;
  return place;
}
