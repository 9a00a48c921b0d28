// Everything: include this one.
#pragma once

#include "fuseblock/block.h"             // IWYU pragma: export
#include "fuseblock/device.h"            // IWYU pragma: export
#include "fuseblock/device_memory.h"     // IWYU pragma: export
#include "fuseblock/error.h"             // IWYU pragma: export
#include "fuseblock/formula.h"           // IWYU pragma: export
#include "fuseblock/fresh_memory.h"      // IWYU pragma: export
#include "fuseblock/host.h"              // IWYU pragma: export
#include "fuseblock/kernel_cache.h"      // IWYU pragma: export
#include "fuseblock/operations.h"        // IWYU pragma: export
#include "fuseblock/parallel.h"          // IWYU pragma: export
#include "fuseblock/plan.h"              // IWYU pragma: export
#include "fuseblock/reference_blocks.h"  // IWYU pragma: export
#include "fuseblock/sources.h"           // IWYU pragma: export
#include "fuseblock/tensor.h"            // IWYU pragma: export
#include "fuseblock/tune.h"              // IWYU pragma: export
#include "fuseblock/type.h"              // IWYU pragma: export
#include "fuseblock/typed_block.h"       // IWYU pragma: export
#include "fuseblock/version.h"           // IWYU pragma: export
