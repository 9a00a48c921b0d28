#include "captures.h"

#include <algorithm>
#include <mutex>
#include <vector>

namespace fuseblock_emulated {
namespace {

using fuseblock::jit::CU_STREAM_CAPTURE_STATUS_ACTIVE;
using fuseblock::jit::CU_STREAM_CAPTURE_STATUS_INVALIDATED;
using fuseblock::jit::CU_STREAM_CAPTURE_STATUS_NONE;
using fuseblock::jit::CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
using fuseblock::jit::CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
using fuseblock::jit::CUDA_SUCCESS;
using fuseblock::jit::CUresult;
using fuseblock::jit::CUstream;
using fuseblock::jit::CUstreamCaptureStatus;

std::mutex mutex;
std::vector<CUstream> captured;

void break_captures(bool blocking_alone) {
  for (CUstream stream : captured)
    if (stream->blocking || !blocking_alone) stream->status = CU_STREAM_CAPTURE_STATUS_INVALIDATED;
}

bool waits_for_default(CUstream stream) { return stream->blocking; }

}  // namespace

Admission admit(CUstream stream) {
  const std::scoped_lock lock(mutex);
  if (stream == nullptr) {
    if (std::none_of(captured.begin(), captured.end(), waits_for_default)) return {};
    break_captures(true);
    return {CUDA_ERROR_STREAM_CAPTURE_IMPLICIT, "the default stream, while one that waits for it is captured",
            false};
  }
  if (stream->status == CU_STREAM_CAPTURE_STATUS_NONE) return {};
  if (stream->status == CU_STREAM_CAPTURE_STATUS_INVALIDATED)
    return {kCaptureInvalidated, "the capture of the stream was broken before", false};
  ++stream->nodes;
  return {CUDA_SUCCESS, "", false};
}

CUresult admit_outside_of_captures() {
  const std::scoped_lock lock(mutex);
  if (captured.empty()) return CUDA_SUCCESS;
  break_captures(false);
  return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
}

CUresult admit_waiting(CUstream stream) {
  const std::scoped_lock lock(mutex);
  const bool by_default =
      stream == nullptr && std::any_of(captured.begin(), captured.end(), waits_for_default);
  if (!by_default && (stream == nullptr || stream->status == CU_STREAM_CAPTURE_STATUS_NONE))
    return CUDA_SUCCESS;
  break_captures(by_default);
  return by_default ? CUDA_ERROR_STREAM_CAPTURE_IMPLICIT : CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
}

CUresult begin_capture(CUstream stream) {
  const std::scoped_lock lock(mutex);
  if (stream == nullptr || stream->status != CU_STREAM_CAPTURE_STATUS_NONE)
    return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  stream->status = CU_STREAM_CAPTURE_STATUS_ACTIVE;
  stream->nodes = 0;
  captured.push_back(stream);
  return CUDA_SUCCESS;
}

CUresult end_capture(CUstream stream, unsigned int& nodes) {
  const std::scoped_lock lock(mutex);
  const bool broken = stream->status != CU_STREAM_CAPTURE_STATUS_ACTIVE;
  nodes = broken ? 0 : stream->nodes;
  stream->status = CU_STREAM_CAPTURE_STATUS_NONE;
  captured.erase(std::remove(captured.begin(), captured.end(), stream), captured.end());
  return broken ? kCaptureInvalidated : CUDA_SUCCESS;
}

CUresult capture_status(CUstream stream, CUstreamCaptureStatus& status) {
  const std::scoped_lock lock(mutex);
  status = CU_STREAM_CAPTURE_STATUS_NONE;
  if (stream == nullptr)
    return std::any_of(captured.begin(), captured.end(), waits_for_default)
               ? CUDA_ERROR_STREAM_CAPTURE_IMPLICIT
               : CUDA_SUCCESS;
  status = stream->status;
  return CUDA_SUCCESS;
}

}  // namespace fuseblock_emulated
