// Places in the rows of the kernel `slices` (device/slices.cuh). Before this stand the constants and how threads share rows.

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
