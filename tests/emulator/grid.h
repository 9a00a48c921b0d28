// Runs the threads of a grid, one at a time, each on a stack of its own.
//
// A thread runs until it waits for others: at a barrier, at a shuffle, or between two looks at memory. Blocks that may wait
// for each other, those of a cluster and those of a cooperative launch, run in turn; others one after the other. Where
// threads begin is another one in every launch, so that a barrier that is missing shows.
#pragma once

#include <cstddef>
#include <string>

#include "runtime.h"

namespace fuseblock_emulated {

// A kernel that is loaded.
struct KernelCode {
  std::string name;
  std::string text;  // as the compiler was given it, for messages
  void (*call)(void** parameters) = nullptr;
  const Thread** current = nullptr;  // where its module keeps the thread that runs
  std::size_t static_bytes = 0;
};

struct LaunchShape {
  Extent3 grid = {1, 1, 1};
  Extent3 block = {1, 1, 1};
  Extent3 cluster = {1, 1, 1};
  std::size_t dynamic_bytes = 0;
  bool cooperative = false;
};

const Runtime& runtime();

// What went wrong, with the block and the thread; empty where nothing did.
std::string run_grid(const KernelCode& kernel, const LaunchShape& shape, void** parameters);

}  // namespace fuseblock_emulated
