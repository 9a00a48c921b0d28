// Tiles of the kernel `columns`: which positions and channels a thread has. Before this stand the constants and Arguments.

constexpr int kSlots = kTeam * kLanes;
constexpr int kPlaces = kThreads / kSlots;
constexpr int kTile = kPlaces * kPositions;
constexpr int kPatch = kSlots * kElements;  // channels of one step
constexpr int kSteps = (kChannels + kPatch - 1) / kPatch;
constexpr int kLaneStep = kAlongChannels ? 1 : 32 / kLanes;  // from one of a position's lanes to the next
constexpr int kNowhere = 0, kInRegisters = 1, kInShared = 2;
constexpr int kUnroll = kResidency == kInRegisters ? kSteps : 1;

// This thread among those of its positions (`slot`), and its positions among those of the tile.
struct Place {
  int slot, group;
};

__device__ inline Place place_of_thread() {
  const int lane = (int)threadIdx.x % 32;
  const int warp = (int)threadIdx.x / 32;
  const int in_team = warp % kTeam * kLanes;
  const int first = warp / kTeam * (32 / kLanes);
  if (kAlongChannels) return {in_team + lane % kLanes, first + lane / kLanes};
  return {in_team + lane / kLaneStep, first + lane % kLaneStep};
}

__device__ inline int channel_of(const Place& place, int step, int e) {
  if (kAlongChannels)
    return ((step * (kElements / kVector) + e / kVector) * kSlots + place.slot) * kVector + e % kVector;
  return (step * kElements + e) * kSlots + place.slot;
}

__device__ inline bool has_channel(int channel) { return kChannels % kPatch == 0 || channel < kChannels; }

// The positions of a thread. Where vectors lie along channels, positions of all samples are numbered through by `row`;
// else a tile has positions of one sample, a thread's one behind the other.
struct Sites {
  Count row[kPositions];
  Count n[kPositions];
  Count position[kPositions];
  bool inside[kPositions];
};

__device__ inline Sites sites_of(const Arguments& a, const Place& place, Count tile) {
  Sites sites;
  const Count positions = (Count)a.positions;
  const Count sample = kAlongChannels ? 0 : tile / (Count)a.sample_tiles;
#pragma unroll
  for (int p = 0; p < kPositions; ++p) {
    if (kAlongChannels) {
      sites.row[p] = tile * kTile + p * kPlaces + place.group;
      sites.inside[p] = sites.row[p] < (Count)a.rows;
      sites.n[p] = sites.row[p] / positions;
      sites.position[p] = sites.row[p] - sites.n[p] * positions;
    } else {
      sites.n[p] = sample;
      sites.position[p] = (tile - sample * (Count)a.sample_tiles) * kTile + place.group * kPositions + p;
      sites.inside[p] = sites.position[p] < positions;
      sites.row[p] = sample * positions + sites.position[p];
    }
  }
  return sites;
}
