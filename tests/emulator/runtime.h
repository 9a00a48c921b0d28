// What a translated kernel and the emulator know of each other. Included by kernels, so it includes nothing.
#pragma once

namespace fuseblock_emulated {

struct Extent3 {
  unsigned int x, y, z;
};

// One thread of a grid, as its kernel sees it.
struct Thread {
  Extent3 thread_index;
  Extent3 block_index;
  Extent3 block_extent;
  Extent3 grid_extent;
  Extent3 cluster_extent;
  unsigned int lane;
  unsigned int cluster_rank;  // of its block among those of its cluster
  unsigned int cluster_blocks;
  unsigned int dynamic_bytes;
  char* static_shared;
  char* dynamic_shared;
};

// What kernels call. `line` is that of the kernel's text, for messages.
struct Runtime {
  // Waits for `count` threads of the block at a barrier of that number; 0: for all that have not ended.
  void (*sync_block)(unsigned int barrier, unsigned int count, int line);
  // Counts there as a thread that waits, and goes on.
  void (*arrive_block)(unsigned int barrier, unsigned int count, int line);
  // Waits for the lanes of `mask`, all at the same function, and gives each of them the value of another.
  unsigned long long (*exchange)(const char* function, unsigned int mask, unsigned long long value,
                                 unsigned int from_lane, int line);
  // The same, and gives each the lanes whose value is not 0.
  unsigned int (*ballot)(const char* function, unsigned int mask, bool value, int line);
  void (*arrive_cluster)(int line);
  void (*wait_cluster)(int line);
  // Others may run: a thread that waits for memory to change calls it between two looks.
  void (*yield)(int line);
  // The same for a look that may come before what others write.
  void (*look)(int line);

  // Addresses of shared memory in 32 bits hold the block's rank in its cluster and the place in its memory.
  unsigned int (*shared_address)(const void* pointer, int line);
  void* (*shared_pointer)(unsigned int address, unsigned int bytes, bool of_cluster, int line);
  unsigned int (*map_shared)(unsigned int address, unsigned int rank, int line);

  // cp.async: what is copied arrives when it is waited for.
  void (*copy_begin)(void* to, const void* from, unsigned int bytes, unsigned int taken, int line);
  void (*copy_commit)();
  void (*copy_wait)(unsigned int pending);

  // Ends the launch with a message.
  void (*fail)(const char* text, int line);
};

}  // namespace fuseblock_emulated
