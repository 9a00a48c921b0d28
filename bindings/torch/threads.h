// PyTorch's threads as the workers of a plan: torch.set_num_threads holds, and there is one pool of threads.
#pragma once

#include <memory>

#include "fuseblock/parallel.h"

namespace fuseblock::torch_binding {

// What torch.get_num_threads says on this thread.
int thread_count();

// Runs tasks on up to `count` of PyTorch's threads; the same object for the same count.
std::shared_ptr<const Workers> torch_workers(int count);

}  // namespace fuseblock::torch_binding
