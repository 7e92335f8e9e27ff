// HIP: capture of a stream, and graphs. A graph is the sequence of operations given to one stream.
#include <memory>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "hip/hip_internal.h"

namespace octet::emulation {

using Operations = std::vector<Operation>;

hipError_t RefuseCapture(Stream* stream) {
  std::lock_guard lock(stream->device->mutex);
  if (stream->capture == nullptr) return hipSuccess;
  stream->capture->invalid = true;
  return hipErrorStreamCaptureUnsupported;
}

hipError_t RefuseWhileCapturing() {
  const auto forbids = [](const Capture& capture) {
    return capture.mode == hipStreamCaptureModeGlobal ||
           (capture.mode == hipStreamCaptureModeThreadLocal &&
            capture.thread == std::this_thread::get_id());
  };
  hipError_t error = hipSuccess;
  for (const auto& device : Machine::Get().devices) {
    std::lock_guard lock(device->mutex);
    for (const auto& stream : device->streams) {
      if (stream->capture == nullptr || !forbids(*stream->capture)) continue;
      stream->capture->invalid = true;
      error = hipErrorStreamCaptureUnsupported;
    }
  }
  return error;
}

namespace {

// Kernels need no check: their accesses are checked when they run.
bool IsAccessible(const Memory& memory, const Operation& operation) {
  return (operation.to == nullptr || memory.IsAccessible(operation.to, operation.bytes)) &&
         (operation.from == nullptr || memory.IsAccessible(operation.from, operation.bytes));
}

}  // namespace
}  // namespace octet::emulation

struct ihipGraph {
  octet::emulation::Device* device;
  std::shared_ptr<const octet::emulation::Operations> operations;
};

struct hipGraphExec : ihipGraph {};

using octet::emulation::Capture;
using octet::emulation::Machine;
using octet::emulation::Operation;
using octet::emulation::Operations;
using octet::emulation::ResolveStream;
using octet::emulation::Return;
using octet::emulation::Stream;

hipError_t hipStreamBeginCapture(hipStream_t stream_handle, hipStreamCaptureMode mode) {
  OCTET_API_CALL();
  Stream* stream = ResolveStream(stream_handle);
  if (stream == nullptr) return Return(hipErrorInvalidHandle);
  if (stream->is_null) return Return(hipErrorStreamCaptureUnsupported);
  if (mode < hipStreamCaptureModeGlobal || mode > hipStreamCaptureModeRelaxed) {
    return Return(hipErrorInvalidValue);
  }
  std::lock_guard lock(stream->device->mutex);
  if (stream->capture != nullptr) return Return(hipErrorIllegalState);
  stream->capture = std::make_unique<Capture>();
  stream->capture->mode = mode;
  stream->capture->thread = std::this_thread::get_id();
  return hipSuccess;
}

hipError_t hipStreamEndCapture(hipStream_t stream_handle, hipGraph_t* graph) {
  OCTET_API_CALL();
  Stream* stream = ResolveStream(stream_handle);
  if (stream == nullptr) return Return(hipErrorInvalidHandle);
  if (graph == nullptr) return Return(hipErrorInvalidValue);
  *graph = nullptr;
  std::unique_ptr<Capture> capture;
  {
    std::lock_guard lock(stream->device->mutex);
    capture = std::move(stream->capture);
  }
  if (capture == nullptr) return Return(hipErrorIllegalState);
  if (capture->invalid) return Return(hipErrorStreamCaptureInvalidated);
  *graph = new ihipGraph{stream->device,
                         std::make_shared<const Operations>(std::move(capture->operations))};
  return hipSuccess;
}

hipError_t hipStreamIsCapturing(hipStream_t stream_handle, hipStreamCaptureStatus* status) {
  Stream* stream = ResolveStream(stream_handle);
  if (stream == nullptr) return Return(hipErrorInvalidHandle);
  if (status == nullptr) return Return(hipErrorInvalidValue);
  std::lock_guard lock(stream->device->mutex);
  *status = stream->capture == nullptr ? hipStreamCaptureStatusNone
            : stream->capture->invalid ? hipStreamCaptureStatusInvalidated
                                       : hipStreamCaptureStatusActive;
  return hipSuccess;
}

hipError_t hipGraphInstantiate(hipGraphExec_t* executable, hipGraph_t graph,
                               hipGraph_t* /*error_node*/, char* /*log*/, size_t /*log_bytes*/) {
  OCTET_API_CALL();
  if (executable == nullptr || graph == nullptr) return Return(hipErrorInvalidValue);
  *executable = new hipGraphExec{*graph};
  return hipSuccess;
}

hipError_t hipGraphUpload(hipGraphExec_t executable, hipStream_t stream) {
  OCTET_API_CALL();
  if (ResolveStream(stream) == nullptr) return Return(hipErrorInvalidHandle);
  return Return(executable == nullptr ? hipErrorInvalidValue : hipSuccess);
}

hipError_t hipGraphLaunch(hipGraphExec_t executable, hipStream_t stream_handle) {
  OCTET_API_CALL();
  Stream* stream = ResolveStream(stream_handle);
  if (stream == nullptr) return Return(hipErrorInvalidHandle);
  if (executable == nullptr || executable->device != stream->device) {
    return Return(hipErrorInvalidValue);
  }
  if (stream->device->sticky_error() != hipSuccess) return Return(stream->device->sticky_error());
  for (const Operation& operation : *executable->operations) {
    if (!octet::emulation::IsAccessible(Machine::Get().memory, operation)) {
      return Return(hipErrorInvalidValue);
    }
  }
  for (const Operation& operation : *executable->operations) {
    stream->device->Enqueue(stream, operation);
  }
  return hipSuccess;
}

hipError_t hipGraphDestroy(hipGraph_t graph) {
  OCTET_API_CALL();
  if (graph == nullptr) return Return(hipErrorInvalidValue);
  delete graph;
  return hipSuccess;
}

hipError_t hipGraphExecDestroy(hipGraphExec_t executable) {
  OCTET_API_CALL();
  if (executable == nullptr) return Return(hipErrorInvalidValue);
  delete executable;
  return hipSuccess;
}
