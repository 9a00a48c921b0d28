// Tiles of the kernel `columns`: which positions and channels a thread has. Before this stand the constants and Arguments.

constexpr int kSlots = kTeam * kLanes;
constexpr int kPlaces = kThreads / kSlots;
constexpr int kTile = kPlaces * kPositions;
constexpr int kPatch = kSlots * kElements;  // channels of one step
constexpr int kSteps = (kChannels + kPatch - 1) / kPatch;
constexpr int kLaneStep = kAlongChannels ? 1 : 32 / kLanes;  // from one of a position's lanes to the next
constexpr int kNowhere = 0, kInRegisters = 1, kInShared = 2;
constexpr int kUnroll = kResidency == kInRegisters || (kSums > 0 && !kSumsInShared) ? kSteps : 1;

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

// The thread that has that place.
__device__ inline int thread_of_place(const Place& place) {
  const int in_warp = place.group % (32 / kLanes);
  const int lane =
      kAlongChannels ? in_warp * kLanes + place.slot % kLanes : place.slot % kLanes * kLaneStep + in_warp;
  return (place.group / (32 / kLanes) * kTeam + place.slot / kLanes) * 32 + lane;
}

__device__ inline int channel_of(const Place& place, int step, int e) {
  if (kAlongChannels)
    return ((step * (kElements / kVector) + e / kVector) * kSlots + place.slot) * kVector + e % kVector;
  return (step * kElements + e) * kSlots + place.slot;
}

__device__ inline bool has_channel(int channel) { return kChannels % kPatch == 0 || channel < kChannels; }

// The positions of a thread. Where vectors lie along channels, positions of all samples are numbered through by `row`, and
// a tile may have some of several samples; else, and with kBySample, a tile has positions of one sample. Where vectors lie
// along positions, a thread's are one behind the other, and all of them inside or none.
struct Sites {
  Count row[kPositions];
  Count n[kPositions];
  Count position[kPositions];
  bool inside[kPositions];
};

__device__ inline Sites sites_of(const Arguments& a, const Place& place, Count tile) {
  Sites sites;
  const Count positions = (Count)a.positions;
  const Count sample = kAlongChannels && !kBySample ? 0 : tile / (Count)a.sample_tiles;
  const Count first = (kAlongChannels && !kBySample ? tile : tile - sample * (Count)a.sample_tiles) * kTile;
#pragma unroll
  for (int p = 0; p < kPositions; ++p) {
    if (kAlongChannels && !kBySample) {
      sites.row[p] = first + p * kPlaces + place.group;
      sites.inside[p] = sites.row[p] < (Count)a.rows;
      sites.n[p] = sites.row[p] / positions;
      sites.position[p] = sites.row[p] - sites.n[p] * positions;
    } else {
      const Count group = first + (kAlongChannels ? p * kPlaces + place.group : place.group * kPositions);
      sites.n[p] = sample;
      sites.position[p] = kAlongChannels ? group : group + p;
      sites.inside[p] = group < positions;
      sites.row[p] = sample * positions + sites.position[p];
    }
  }
  return sites;
}
