// What kernels call.
#include "runtime.h"

#include <algorithm>
#include <cstring>
#include <string>

#include "scheduler.h"

namespace fuseblock_emulated {
namespace {

Barrier& barrier_of(Block& block, unsigned int number, int line) {
  if (number >= kBarriers) scheduler().fail("there is no barrier " + std::to_string(number), line);
  return block.barriers[number];
}

// Whether all are there; who waits then goes on.
bool is_complete(Barrier& barrier, std::size_t needed) {
  if (barrier.waiting.size() + barrier.arrived < needed) return false;
  barrier.arrived = 0;
  return true;
}

void sync_block(unsigned int number, unsigned int count, int line) {
  Fibre& fibre = scheduler().current();
  Barrier& barrier = barrier_of(*fibre.block, number, line);
  barrier.waiting.push_back(&fibre);
  if (is_complete(barrier, count == 0 ? fibre.block->alive : count)) {
    barrier.waiting.pop_back();
    scheduler().release(barrier.waiting);
    return;
  }
  scheduler().wait("a barrier of the block", line);
}

void arrive_block(unsigned int number, unsigned int count, int line) {
  Barrier& barrier = barrier_of(*scheduler().current().block, number, line);
  ++barrier.arrived;
  if (is_complete(barrier, count)) scheduler().release(barrier.waiting);
}

// Arrives at the meeting of the mask's lanes; true for all of them once they are there.
Meeting& meet(const char* function, unsigned int mask, unsigned long long value, bool vote, int line,
              unsigned int& turn) {
  Fibre& fibre = scheduler().current();
  const unsigned int lane = fibre.thread.lane;
  if ((mask >> lane & 1) == 0)
    scheduler().fail(std::string(function) + ": the mask leaves out the lane that calls it", line);
  Warp& warp = fibre.block->warps[fibre.number / kLanes];
  if (warp.last == nullptr || warp.last_mask != mask) {
    warp.last = &warp.meetings[mask];
    warp.last_mask = mask;
  }
  Meeting& meeting = *warp.last;
  if (meeting.arrived == 0) {
    meeting.function = function;
    meeting.votes[meeting.turn % 2] = 0;
  } else if (meeting.function != function && std::strcmp(meeting.function, function) != 0) {
    scheduler().fail(
        std::string("lanes of a warp meet at different functions: ") + meeting.function + " and " + function,
        line);
  }
  turn = meeting.turn % 2;
  meeting.values[turn][lane] = value;
  if (vote) meeting.votes[turn] |= 1U << lane;
  meeting.arrived |= 1U << lane;
  if (meeting.arrived == mask) {
    meeting.arrived = 0;
    ++meeting.turn;
    scheduler().release(meeting.waiting);
  } else {
    meeting.waiting.push_back(&fibre);
    scheduler().wait(function, line);
  }
  return meeting;
}

unsigned long long exchange(const char* function, unsigned int mask, unsigned long long value,
                            unsigned int from_lane, int line) {
  if (from_lane >= kLanes || (mask >> from_lane & 1) == 0)
    scheduler().fail(std::string(function) + ": the mask leaves out the lane that is read", line);
  unsigned int turn = 0;
  const Meeting& meeting = meet(function, mask, value, false, line, turn);
  return meeting.values[turn][from_lane];
}

unsigned int ballot(const char* function, unsigned int mask, bool value, int line) {
  unsigned int turn = 0;
  const Meeting& meeting = meet(function, mask, 0, value, line, turn);
  return meeting.votes[turn];
}

void arrive_cluster(int /*line*/) {
  Fibre& fibre = scheduler().current();
  Cluster& cluster = *fibre.block->cluster;
  fibre.cluster_phase = cluster.phase;
  if (++cluster.arrived < cluster.alive) return;
  scheduler().end_phase(cluster);
}

void wait_cluster(int line) {
  Fibre& fibre = scheduler().current();
  Cluster& cluster = *fibre.block->cluster;
  if (cluster.phase != fibre.cluster_phase) return;
  cluster.waiting.push_back(&fibre);
  scheduler().wait("a barrier of the cluster", line);
}

void yield(int line) { scheduler().yield(line); }
void look(int line) { scheduler().look(line); }

unsigned int shared_address(const void* pointer, int line) {
  const Fibre& fibre = scheduler().current();
  const Block& block = *fibre.block;
  const auto* place = static_cast<const char*>(pointer);
  if (place < block.shared || place > block.shared + block.shared_bytes)
    scheduler().fail("an address that is not in the block's shared memory", line);
  return ((fibre.thread.cluster_rank + 1) << kRankShift) + static_cast<unsigned int>(place - block.shared);
}

void* shared_pointer(unsigned int address, unsigned int bytes, bool of_cluster, int line) {
  const Fibre& fibre = scheduler().current();
  const unsigned int rank = (address >> kRankShift) - 1;
  const Cluster& cluster = *fibre.block->cluster;
  if (rank >= cluster.blocks.size() || (!of_cluster && rank != fibre.thread.cluster_rank))
    scheduler().fail("an address of shared memory that is not this block's", line);
  const Block& block = *cluster.blocks[rank];
  const std::size_t offset = address & ((1U << kRankShift) - 1);
  if (offset + bytes > block.shared_bytes)
    scheduler().fail("an address behind the block's shared memory", line);
  if (block.alive == 0) scheduler().fail("shared memory of a block that has ended", line);
  return block.shared + offset;
}

unsigned int map_shared(unsigned int address, unsigned int rank, int line) {
  const Fibre& fibre = scheduler().current();
  if (rank >= fibre.thread.cluster_blocks)
    scheduler().fail("the cluster has no block " + std::to_string(rank), line);
  return (address & ((1U << kRankShift) - 1)) + ((rank + 1) << kRankShift);
}

void copy_begin(void* to, const void* from, unsigned int bytes, unsigned int taken, int line) {
  if (bytes != 4 && bytes != 8 && bytes != 16)
    scheduler().fail("cp.async of " + std::to_string(bytes) + " bytes", line);
  if (reinterpret_cast<std::uintptr_t>(to) % bytes != 0 ||
      reinterpret_cast<std::uintptr_t>(from) % bytes != 0)
    scheduler().fail("misaligned address", line);
  scheduler().current().copies.begin({to, from, bytes, std::min(bytes, taken), 0});
  std::memset(to, kPoison, bytes);
}

void copy_commit() { scheduler().current().copies.commit(); }
void copy_wait(unsigned int pending) { scheduler().current().copies.wait(pending); }

void fail(const char* text, int line) { scheduler().fail(text, line); }

}  // namespace

const Runtime& runtime() {
  static constexpr Runtime kRuntime = {
      .sync_block = sync_block,
      .arrive_block = arrive_block,
      .exchange = exchange,
      .ballot = ballot,
      .arrive_cluster = arrive_cluster,
      .wait_cluster = wait_cluster,
      .yield = yield,
      .look = look,
      .shared_address = shared_address,
      .shared_pointer = shared_pointer,
      .map_shared = map_shared,
      .copy_begin = copy_begin,
      .copy_commit = copy_commit,
      .copy_wait = copy_wait,
      .fail = fail,
  };
  return kRuntime;
}

}  // namespace fuseblock_emulated
