// Stored values in the memory of outputs: a value that the sweep which writes an output, and nothing else, reads for the
// last time, element by element, can lie where that output will be.
#pragma once

#include "plan/schedule.h"

namespace fuseblock {

// Moves stored values, which are of type `stored`, into outputs of that type where nothing else is there yet.
void borrow_outputs(Schedule& schedule, DType stored);
// Whether an input of the sweep's program lies in the memory of the output that a slot is.
bool lies_over_an_input(const Schedule& schedule, const Sweep& sweep, int slot);

}  // namespace fuseblock
