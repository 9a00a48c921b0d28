// As device/slices_rows.cuh where rows follow each other through the warps of a block, so that no lane is idle but those behind the last
// row: 320 channels are 40 vectors, and 480 threads have 12 rows. Lanes of a warp are of several rows, which begin anywhere in it, so
// that nothing is merged in a warp but neighbouring vectors (device/slices_parts.cuh).

constexpr int kSlots = kRowPositions * kUnitChannels;
constexpr int kColumns = kSlots / kVector;
constexpr int kWarpRows = 1;
constexpr int kLists = kThreads / kColumns;
