// How a block's threads share the rows of the kernel `slices`: a warp has several of them, or several warps have one.
// device/slices_rows_packed.cuh has them without idle lanes. Before this stand the constants.

constexpr int kSlots = kRowPositions * kUnitChannels;
constexpr int kColumns = kSlots / kVector;
constexpr int kRowWarps = (kColumns + 31) / 32;               // that share a row
constexpr int kWarpRows = kColumns < 32 ? 32 / kColumns : 1;  // of a warp in one piece
constexpr int kLists = kWarps / kRowWarps;  // rows, or sets of them, of a block at the same time
