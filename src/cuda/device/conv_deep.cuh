// conv_deep: a sweep over a convolution of stride 1 with many channels, by `wgmma`, tile by tile
// (device/conv_deep_tile.cuh).
//
// Rows of the products are output channels, 64 a warpgroup, columns kColumnsN positions; kGroupsM x kGroupsN
// warpgroups, the consumers, share a tile. Both factors lie in shared memory: the weights of a tap, copied
// some taps ahead into a ring of each row of warpgroups, and the input of a chunk of channels in one plane,
// which all taps of the filter's plane read at their offsets. A warpgroup more, the producers, stages the
// input, up to kImages chunks ahead, by three of its warps and copies the weights by the fourth, so that
// those who multiply do nothing else. Products of a tap are under way while the next one begins. The sums
// start at the bias, stay in registers and go through the sweep's program and sinks there. Producers go
// through a run without a stop; consumers meet where a span begins and ends.
//
// In strict mode a number is the sum of two tf32 numbers, and three of the four products count. Tensor cores
// cut sums off instead of rounding them: there the products of a tap, or of some taps of a small chunk, are
// summed by themselves, and added rounded.
//
// A lane has of its warp's 16 channels two, and all positions of a quarter. Statistics of each channel are
// kept by each thread over all tiles of a span (a sample with a block of channels); then merged lane by lane
// and warpgroup by warpgroup, and run by run of the sample by the block that comes last, in an order that
// depends on the shapes and the grid alone. Stores go through shared memory, so that neighbouring lanes have
// neighbouring positions.
//
// Before this stand device/conv_deep_tile.cuh and device/conv_deep_input.cuh, the products of warpgroups,
// Shared, device/conv_sums.cuh and device/conv_runs.cuh; behind it the program of the sweep, the finalise
// steps and `finish_sample`, which calls them; last the kernel, device/conv_deep.cu.

__device__ void finish_sample(const Arguments& a, const Unit& unit);

constexpr int kSums = kColumnsN / 2;              // of a lane
constexpr int kPieces32 = (kColumnsN + 31) / 32;  // of 32 positions, that the program takes at once
constexpr int kUnits = kImageBytes / 16, kSlotUnits = kSlotBytes / 16;  // as descriptors count

// Those who multiply, as who works statistics out.
struct Consumers {
  static constexpr int kCrewThreads = kConsumers, kCrewWarps = kConsumers / 32;
  static __device__ int thread() { return (int)threadIdx.x; }
  static __device__ int warp() { return (int)threadIdx.x / 32; }
  static __device__ void sync() { asm volatile("bar.sync 2, %0;" ::"n"(kConsumers) : "memory"); }
};

__device__ inline int warpgroup_row() { return (int)threadIdx.x / 128 % kGroupsM; }
__device__ inline int warpgroup_column() { return (int)threadIdx.x / 128 / kGroupsM; }
// A warp's first channel in its block of channels; a lane has two, eight apart.
__device__ inline int warp_channel() { return warpgroup_row() * 64 + (int)threadIdx.x / 32 % 4 * 16; }
__device__ inline int channel_of(int e) { return warp_channel() + (int)threadIdx.x % 32 / 4 + e * 8; }

__device__ inline bool has_channel(int block, int channel) {
  return kGroupOut % kBlockChannels == 0 || channel < channels_of(block);
}

// Begins the products of one tap. `weights` and `image` are places in shared memory; in strict mode the sums
// begin at 0 without `keep`.
__device__ inline void multiply_tap(unsigned int weights, unsigned int image, bool keep,
                                    float (&sums)[kSums]) {
  auto step = [&](int k, int part_of_weights, int part_of_image, bool keep_sums) {
    warpgroup::multiply(
        sums, matrix_at(weights + part_of_weights * kSlotCells + k * 2 * kRowChannels, kRowChannels),
        matrix_at(image + part_of_image * kPartCells + k * 2 * kQuad, kQuad), keep_sums ? 1 : 0);
  };
  if constexpr (kMode == kStrict) {
#pragma unroll
    for (int k = 0; k < kChunkSteps; ++k) {
      step(k, 1, 0, keep || k > 0);
      step(k, 0, 1, true);
    }
  }
#pragma unroll
  for (int k = 0; k < kChunkSteps; ++k) step(k, 0, 0, true);
}

// Statistics of a lane's elements in 32 positions: `values` are its sums of one channel, `inside` has a bit
// for each.
template <class Sweep>
__device__ inline void take_statistics(const Arguments& a, const Unit& unit, const Tile& tile, int first,
                                       const typename Sweep::Channel& channel, int c,
                                       const float (&values)[kRows], unsigned int inside, bool begins,
                                       typename Sweep::Kept& kept) {
  const typename Sweep::Steps steps = Sweep::steps(a, c);
  typename Sweep::Results results[kRows];
#pragma unroll
  for (int i = 0; i < kRows; ++i) {
    const int position = first + i / 2 * 8 + (int)threadIdx.x % 4 * 2 + i % 2;
    results[i] =
        Sweep::program(channel, Sweep::places(a, unit, site_of(a, tile, position)), steps, values[i]);
  }
  if (begins) kept.begin(results, inside);
  kept.add(results, inside);
}

// The program and the sinks, for the sums of a tile.
template <class Sweep>
__device__ inline void take_sums(const Arguments& a, const Unit& unit, const Tile& tile, Shared& shared,
                                 const float (&sums)[kSums], typename Sweep::Kept (&kept)[2], int& count) {
  const int block = channel_block_of(tile.span), first_channel = first_channel_of(block);
  const int lane = (int)threadIdx.x % 32;
  const bool fresh = __any_sync(0xffffffffu, count == 0);  // seldom, and the same for all lanes
  float(&exchange)[8][kExchangePitch] = shared.exchange[kStores != 0 ? threadIdx.x / 32 : 0];
#pragma unroll
  for (int piece = 0; piece < kPieces32; ++piece) {
    const int first = warpgroup_column() * kColumnsN + piece * 32;
    Site site = site_of(a, tile, first + lane);
    if (kColumnsN % 32 != 0 && piece * 32 + lane >= kColumnsN) site.inside = false;
    const unsigned int all = __ballot_sync(0xffffffffu, site.inside);
    if (all == 0) continue;
    if constexpr (Sweep::kStatistics) {
      // The lane's own two bits of each byte, one behind the other.
      const unsigned int inside = (all >> lane % 4 * 2 & 0x03030303u) * 0x01041040u >> 24;
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        const int c = first_channel + (has_channel(block, channel_of(e)) ? channel_of(e) : 0);
        float values[kRows];
#pragma unroll
        for (int i = 0; i < kRows; ++i) {
          const int column = piece * 4 + i / 2;
          values[i] =
              column * 8 < kColumnsN ? sums[column * 8 < kColumnsN ? column * 4 + e * 2 + i % 2 : 0] : 0.0f;
        }
        take_statistics<Sweep>(a, unit, tile, first, unit.values->channels0[c], c, values, inside,
                               fresh && count == 0, kept[e]);
      }
      count += __popc(inside);
    }
    if constexpr (kStores != 0) {
      const int c = first_channel + warp_channel();
      const typename Sweep::Steps here = Sweep::steps(a, 0), step = Sweep::steps(a, 1);
      typename Sweep::Places places = Sweep::places(a, unit, site);
      Sweep::move(places, Sweep::steps(a, c));
#pragma unroll
      for (int e = 0; e < 2; ++e) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const int column = piece * 4 + i;
          if (column * 8 < kColumnsN) {
            const int sum = column * 8 < kColumnsN ? column * 4 + e * 2 : 0;
            *reinterpret_cast<float2*>(&exchange[lane / 4][i * 8 + lane % 4 * 2]) =
                make_float2(sums[sum], sums[sum + 1]);
          }
        }
        __syncwarp();
        // What the program reads is asked for before the first is stored.
        typename Sweep::Places each[8];
        typename Sweep::Results results[8];
#pragma unroll
        for (int i = 0; i < 8; ++i) {
          each[i] = places;
          if (site.inside && has_channel(block, warp_channel() + e * 8 + i))
            results[i] =
                Sweep::program(unit.values->channels0[c + e * 8 + i], places, here, exchange[i][lane]);
          Sweep::move(places, step);
        }
#pragma unroll
        for (int i = 0; i < 8; ++i)
          if (site.inside && has_channel(block, warp_channel() + e * 8 + i))
            Sweep::store(each[i], here, results[i]);
        __syncwarp();
      }
    }
  }
}

template <class Sweep>
__device__ inline void begin_span(const Arguments& a, const Unit& unit, int span) {
  const int block = channel_block_of(span);
  const int first = first_channel_of(block), channels = channels_of(block);
  Consumers::sync();
  for (int c = (int)threadIdx.x; c < channels; c += kConsumers)
    Sweep::read_channel(a, unit, first + c, unit.values->channels0[first + c]);
  Consumers::sync();
}

// Merges the block's statistics of a span, and those of the whole sample where it is the last to come.
template <class Sweep>
__device__ inline void end_span(const Arguments& a, const Unit& unit, int span, Shared& shared,
                                const typename Sweep::Kept (&kept)[2], int count) {
#pragma unroll
  for (int e = 0; e < 2; ++e) {
    const typename Sweep::Sums total = merge_lanes_at<1, 4>(kept[e].whole(count));
    if (threadIdx.x % 4 == 0) shared.list0[warpgroup_column()][channel_of(e)] = total;
  }
  if (join_runs<Consumers>(a, unit, span, shared.list0)) finish_sample(a, unit);
}

// Calls `each` for all that is staged of a tile, one after the other: chunk and depth of the filter.
template <class Each>
__device__ inline void for_stages(const Tile& tile, const Each& each) {
#pragma unroll 1
  for (int chunk = 0; chunk < kChunks; ++chunk)
#pragma unroll 1
    for (int depth = tile.depth; depth < tile.depth_end; ++depth) each(chunk, depth);
}

// Copies the weights of tiles `first` to `end` into the rings, one for each row of warpgroups, as soon as
// nobody reads what was there. By one thread, which looks at the rings in turn, since none waits for another.
__device__ inline void copy_weights(const Arguments& a, int first, int end, Shared& shared, char* rings) {
  Tap ahead[kGroupsM];
  Slot free[kGroupsM] = {};
#pragma unroll
  for (int row = 0; row < kGroupsM; ++row) ahead[row] = first_tap(a, first, row);
  bool left = true;
#pragma unroll 1
  while (left) {
    left = false;
#pragma unroll
    for (int row = 0; row < kGroupsM; ++row) {
      if (ahead[row].tile >= end) continue;
      left = true;
      const int slot = free[row].number;
      if (!arrivals::is_over(&shared.empty[row][slot], free[row].phase ^ 1)) continue;
      begin_weights(a, ahead[row], rings + (row * kStages + slot) * kSlotBytes, &shared.full[row][slot]);
      advance(a, end, row, ahead[row]);
      free[row] = free[row].next();
    }
  }
}

// What is staged, one after the other: chunks and depths of the filter of tiles up to `end`, in the order of
// for_stages.
struct Stage {
  int number, chunk, depth;
  Tile tile;

  __device__ bool is_last() const { return depth + 1 == tile.depth_end && chunk + 1 == kChunks; }
  // Within the tile.
  __device__ void advance() {
    if (++depth < tile.depth_end) return;
    depth = tile.depth;
    ++chunk;
  }
};

// The first stage of a tile, whose spots all stagers find.
__device__ inline Stage begin_stages(const Arguments& a, int number, Spots& spots) {
  const Tile tile = tile_of(a, number);
  producers::sync();
  find_spots(a, tile, producers::thread(), spots);
  producers::sync();
  return {number, 0, tile.depth, tile};
}

// Stages the input of tiles `first` to `end`, as soon as nobody reads what was there. The first items of a
// stage are on their way before those of the one before it are put.
__device__ inline void stage_input(const Arguments& a, int first, int end, Shared& shared, char* image) {
  const int thread = producers::thread();
  Cell* spare = &shared.spare[thread];
  Stage stage = begin_stages(a, first, shared.spots[0]);
  Source source = source_of(a, stage.tile, shared.spots[0], stage.chunk, stage.depth);
  Item next = Item::first(thread);
  Fetched fetched[kPieces];
#pragma unroll
  for (int i = 0; i < kPieces; ++i) fetched[i] = fetch(a, source, next);
  Staged staged = {};
#pragma unroll 1
  while (stage.number < end) {
    char* to = image + staged.number * kImageBytes;
    arrivals::wait(&shared.taken[staged.number], staged.phase ^ 1);
#pragma unroll 1
    for (int item = kPieces; item < kThreadItems; item += kPieces) {
#pragma unroll
      for (int i = 0; i < kPieces; ++i) {
        put(fetched[i], to, spare);
        fetched[i] = fetch(a, source, next);
      }
    }
    if (!stage.is_last())
      stage.advance();
    else if (stage.number + 1 < end)
      stage = begin_stages(a, stage.number + 1, shared.spots[(stage.number + 1 - first) % 2]);
    else
      stage.number = end;
    source = source_of(a, stage.tile, shared.spots[(stage.number - first) % 2], stage.chunk, stage.depth);
    next = Item::first(thread);
#pragma unroll
    for (int i = 0; i < kPieces; ++i) {
      put(fetched[i], to, spare);
      if (stage.number < end) fetched[i] = fetch(a, source, next);
    }
    arrivals::publish_rows();
    __syncwarp();
    if (threadIdx.x % 32 == 0) arrivals::arrive(&shared.staged[staged.number]);
    staged = staged.next();
  }
}

// What a consumer is at in the run.
struct Progress {
  Slot slot;
  Staged staged;
};

// Nobody reads the weights of a tap any more, and with its plane's last tap the input: by each warp of those
// who did.
__device__ inline void release(Shared& shared, const Slot& slot, const Staged& staged, bool last_of_plane) {
  if (threadIdx.x % 32 != 0) return;
  arrivals::arrive(&shared.empty[warpgroup_row()][slot.number]);
  if (last_of_plane) arrivals::arrive(&shared.taken[staged.number]);
}

// Calls `each` for all taps of a tile, with the places of the tap's weights and input in shared memory once
// they are there.
template <class Each>
__device__ inline void for_taps(const Tile& tile, Shared& shared, unsigned int images, unsigned int weights,
                                Progress& progress, const Each& each) {
  for_stages(tile, [&](int, int) {
    const unsigned int image = images + progress.staged.number * kUnits;
    arrivals::wait(&shared.staged[progress.staged.number], progress.staged.phase);
#pragma unroll 1
    for (int row = 0; row < kFilterH; ++row)
#pragma unroll 1
      for (int column = 0; column < kFilterW; ++column) {
        const Slot slot = progress.slot;
        arrivals::wait(&shared.full[warpgroup_row()][slot.number], slot.phase);
        each(weights + slot.number * kSlotUnits, image + row * kDilationH * kPitch + column * kDilationW,
             row * kFilterW + column);
        progress.slot = slot.next();
      }
    progress.staged = progress.staged.next();
  });
}

// The products of a tile into `sums`; those of two taps are under way.
__device__ inline void multiply_tile(const Tile& tile, Shared& shared, unsigned int images,
                                     unsigned int weights, Progress& progress, float (&sums)[kSums]) {
  bool begun = false;  // there was a tap of this tile before
  for_taps(tile, shared, images, weights, progress, [&](unsigned int slot, unsigned int image, int tap) {
    warpgroup::hold(sums);
    warpgroup::begin();
    multiply_tap(slot, image, true, sums);
    warpgroup::commit();
    // The products of the tap before are done.
    warpgroup::wait(1);
    warpgroup::hold(sums);
    if (begun) release(shared, progress.slot.before(), progress.staged.before(), tap == 0);
    begun = true;
  });
  warpgroup::wait(0);
  warpgroup::hold(sums);
  release(shared, progress.slot.before(), progress.staged.before(), true);
}

// The same in strict mode: the sums of kTogether taps are added when they are done, beside the products of
// the other consumer. Taps of fewer than four steps are too short to hide that, and some go together, six
// steps at most: the more products between two roundings, the more is cut off.
constexpr int kTogether = kChunkSteps > 3 ? 1 : 6 / kChunkSteps;

__device__ inline void multiply_tile_rounding(const Tile& tile, Shared& shared, unsigned int images,
                                              unsigned int weights, Progress& progress,
                                              float (&sums)[kSums]) {
  float some[kSums] = {};
  for_taps(tile, shared, images, weights, progress, [&](unsigned int slot, unsigned int image, int tap) {
    const bool begins = tap % kTogether == 0, last = tap + 1 == kPlaneTaps;
    warpgroup::hold(some);
    warpgroup::begin();
    multiply_tap(slot, image, !begins, some);
    warpgroup::commit();
    if (!begins) {
      // The products of the tap before are done.
      warpgroup::wait(1);
      warpgroup::hold(some);
      release(shared, progress.slot.before(), progress.staged, false);
    }
    if ((tap + 1) % kTogether != 0 && !last) return;
    warpgroup::wait(0);
    warpgroup::hold(some);
    release(shared, progress.slot, progress.staged, last);
#pragma unroll
    for (int i = 0; i < kSums; ++i) sums[i] += some[i];
  });
}

// The products of tiles `first` to `end` of a span, and their sums' way through the program. By the
// consumers.
template <class Sweep>
__device__ inline void consume(const Arguments& a, const Unit& unit, int first, int end, Shared& shared,
                               unsigned int images, unsigned int weights, Progress& progress,
                               typename Sweep::Kept (&kept)[2], int& count) {
#pragma unroll 1
  for (int number = first; number < end; ++number) {
    const Tile tile = tile_of(a, number);
    float sums[kSums];
    {
      const int block = channel_block_of(tile.span);
      float bias[2];
#pragma unroll
      for (int e = 0; e < 2; ++e)
        bias[e] = has_channel(block, channel_of(e))
                      ? Sweep::bias(unit.values->channels0[first_channel_of(block) + channel_of(e)])
                      : 0.0f;
#pragma unroll
      for (int i = 0; i < kSums; ++i) sums[i] = bias[i / 2 % 2];
    }
    if constexpr (kMode == kStrict)
      multiply_tile_rounding(tile, shared, images, weights, progress, sums);
    else
      multiply_tile(tile, shared, images, weights, progress, sums);
    take_sums<Sweep>(a, unit, tile, shared, sums, kept, count);
  }
}

// All tiles of a run, span by span, by the consumers.
template <class Sweep>
__device__ inline void consume_run(const Arguments& a, int begin, int end, Shared& shared,
                                   unsigned int images, unsigned int weights) {
  Progress progress = {};
#pragma unroll 1
  for (int number = begin; number < end;) {
    const int span = number / (int)a.tiles;
    const int stop = min(end, (span + 1) * (int)a.tiles);
    const Unit unit = {sample_of(span), 0, &shared.values};
    begin_span<Sweep>(a, unit, span);
    typename Sweep::Kept kept[2];
    kept[0].clear();
    kept[1].clear();
    int count = 0;
    consume<Sweep>(a, unit, number, stop, shared, images, weights, progress, kept, count);
    if constexpr (Sweep::kStatistics) end_span<Sweep>(a, unit, span, shared, kept, count);
    number = stop;
  }
}

// All tiles of a block's run. `image` has room for kImages staged chunks, `ring` for the weights of kStages
// taps for each row of warpgroups.
template <class Sweep>
__device__ inline void sweep_run(const Arguments& a, Shared& shared, char* image, char* ring) {
  if (threadIdx.x < 64) {
    const int edge = (int)threadIdx.x / 32, place = run_begin(a, (int)blockIdx.x + edge);
    if (threadIdx.x % 32 == 0) shared.run[edge] = place;
  }
  if (threadIdx.x == 0) {
    for (int row = 0; row < kGroupsM; ++row)
      for (int i = 0; i < kStages; ++i) {
        arrivals::begin(&shared.full[row][i], 1);
        arrivals::begin(&shared.empty[row][i], kConsumers / kGroupsM / 32);
      }
    for (int i = 0; i < kImages; ++i) {
      arrivals::begin(&shared.staged[i], kStagers / 32);
      arrivals::begin(&shared.taken[i], kConsumers / 32);
    }
    arrivals::publish();
  }
  __syncthreads();
  const int begin = shared.run[0], end = shared.run[1];
  if (begin >= end) return;
  const int warp = warp::from_first((int)threadIdx.x / 32);
  if (warp >= kConsumers / 32) {
    warpgroup::set_registers<kProducerRegisters, false>();
    if (warp < (kConsumers + kStagers) / 32)
      stage_input(a, begin, end, shared, image);
    else if (threadIdx.x % 32 == 0)
      copy_weights(a, begin, end, shared, ring);
    __syncwarp();
    if constexpr (kTail != 0) warpgroup::set_registers<kLaunchRegisters, true>();
  } else {
    warpgroup::set_registers<kConsumerRegisters, true>();
    consume_run<Sweep>(a, begin, end, shared, place_of(image) + warpgroup_column() * kColumnsN,
                       place_of(ring) + warpgroup_row() * kStages * kSlotUnits);
    if constexpr (kTail != 0) warpgroup::set_registers<kLaunchRegisters, false>();
  }
}
