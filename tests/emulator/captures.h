// Streams, and which of them are captured into a graph. What a stream is given while it is captured counts as a node of
// the graph and does not run; graphs are not replayed. All captures are in the global mode: a call that may wait for the
// GPU or take memory from it is refused in every thread while there is one, and breaks all of them.
#pragma once

#include <string>

#include "cuda/jit/cuda_types.h"

namespace fuseblock::jit {

struct CUstream_st {
  bool blocking = true;  // waits for the default stream, and that one for it
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  unsigned int nodes = 0;
};

}  // namespace fuseblock::jit

namespace fuseblock_emulated {

inline constexpr auto kCaptureInvalidated = static_cast<fuseblock::jit::CUresult>(901);

// What is to be done with a launch, a copy or the like.
struct Admission {
  fuseblock::jit::CUresult result = fuseblock::jit::CUDA_SUCCESS;
  std::string words;  // of a refusal
  bool runs = true;   // false: it is a node of a graph
};

Admission admit(fuseblock::jit::CUstream stream);

// For a call that is not to be made while anything is captured: CUDA_SUCCESS where nothing is.
fuseblock::jit::CUresult admit_outside_of_captures();

// For a call that waits for the stream.
fuseblock::jit::CUresult admit_waiting(fuseblock::jit::CUstream stream);

fuseblock::jit::CUresult begin_capture(fuseblock::jit::CUstream stream);
// `nodes` of the graph.
fuseblock::jit::CUresult end_capture(fuseblock::jit::CUstream stream, unsigned int& nodes);

// CUDA_ERROR_STREAM_CAPTURE_IMPLICIT for the default stream while a stream that waits for it is captured.
fuseblock::jit::CUresult capture_status(fuseblock::jit::CUstream stream,
                                        fuseblock::jit::CUstreamCaptureStatus& status);

}  // namespace fuseblock_emulated
