// HIP: capture of streams, and graphs. A graph holds what its streams were given, in the order of
// the calls; a launch gives it to as many streams.
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "hip/hip_internal.h"
#include "machine/capture.h"

namespace octet::emulation {

using Operations = std::vector<Capture::CapturedOperation>;

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

void Record(Stream* stream, const std::shared_ptr<Completion>& recording) {
  recording->device = stream->device;
  {
    std::lock_guard lock(stream->device->mutex);
    if (stream->capture != nullptr) {
      recording->captured = true;
      recording->capture = stream->capture;
      recording->before = stream->capture->LaneOf(stream).before;
    }
  }
  Operation operation;
  operation.kind = Operation::Kind::kRecord;
  operation.completion = recording;
  stream->device->Enqueue(stream, std::move(operation));
}

namespace {

hipError_t Invalidate(Capture& capture, hipError_t error) {
  capture.invalid = true;
  return error;
}

// Makes the capture of `stream`, which may begin with this call, wait for `recording`.
hipError_t WaitInCapture(Stream* stream, const Completion& recording) {
  std::lock_guard lock(stream->device->mutex);
  if (!recording.captured) {
    return Invalidate(*stream->capture, hipErrorStreamCaptureIsolation);
  }
  const std::shared_ptr<Capture> capture = recording.capture.lock();
  const bool goes_on = capture != nullptr && recording.device == stream->device &&
                       capture->lanes.front().stream != nullptr &&
                       capture->lanes.front().stream->capture == capture;
  if (!goes_on) {
    if (stream->capture != nullptr) stream->capture->invalid = true;
    return hipErrorCapturedEvent;
  }
  if (stream->is_null) return Invalidate(*capture, hipErrorStreamCaptureUnsupported);
  if (stream->capture == nullptr) {
    capture->lanes.push_back({.stream = stream, .before = {}});
    stream->capture = capture;
  } else if (stream->capture != capture) {
    stream->capture->invalid = true;
    return Invalidate(*capture, hipErrorStreamCaptureMerge);
  }
  Capture::Join(capture->LaneOf(stream), recording.before);
  return hipSuccess;
}

}  // namespace

hipError_t WaitFor(Stream* stream, std::shared_ptr<Completion> recording) {
  bool capturing = recording->captured;
  if (!capturing) {
    std::lock_guard lock(stream->device->mutex);
    capturing = stream->capture != nullptr;
  }
  if (capturing) {
    if (const hipError_t refused = WaitInCapture(stream, *recording); refused != hipSuccess) {
      return refused;
    }
  }
  Operation operation;
  recording->awaited = true;
  operation.kind = Operation::Kind::kWait;
  operation.completion = std::move(recording);
  stream->device->Enqueue(stream, std::move(operation));
  return hipSuccess;
}

void LeaveCapture(Stream* stream) {
  if (stream->capture == nullptr) return;
  const std::shared_ptr<Capture> capture = stream->capture;
  capture->invalid = true;
  Capture::Lane& lane = capture->LaneOf(stream);
  if (&lane == capture->lanes.data()) {
    capture->Release();  // nobody else can end it
  } else {
    stream->capture = nullptr;
  }
  lane.stream = nullptr;
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
  size_t lanes;
  std::shared_ptr<const octet::emulation::Operations> operations;
};

struct hipGraphExec : ihipGraph {
  std::vector<octet::emulation::Stream*> others;  // the streams of all lanes but the first
  // The last launch: its stream, and how many operations that had been given then.
  octet::emulation::Stream* launched_on = nullptr;
  uint64_t launched_until = 0;
};

namespace octet::emulation {
namespace {

hipError_t Replay(hipGraphExec& graph, Stream* stream) {
  std::map<const Completion*, std::shared_ptr<Completion>> recordings;  // by the captured one
  for (const auto& [lane, operation] : *graph.operations) {
    Stream* const target = lane == 0 ? stream : graph.others[lane - 1];
    hipError_t error = hipSuccess;
    if (operation.kind == Operation::Kind::kRecord) {
      const auto recording = std::make_shared<Completion>();
      recordings[operation.completion.get()] = recording;
      Record(target, recording);
    } else if (operation.kind == Operation::Kind::kWait) {
      error = WaitFor(target, recordings.at(operation.completion.get()));
    } else {
      stream->device->Enqueue(target, operation);
    }
    if (error != hipSuccess) return error;
  }
  std::lock_guard lock(stream->device->mutex);
  graph.launched_on = stream;
  graph.launched_until = stream->enqueued;
  return hipSuccess;
}

bool Runs(const hipGraphExec& graph) {
  if (graph.launched_on == nullptr || ResolveStream(graph.launched_on) == nullptr) return false;
  std::lock_guard lock(graph.device->mutex);
  return graph.launched_on->finished < graph.launched_until;
}

}  // namespace
}  // namespace octet::emulation

using octet::emulation::Capture;
using octet::emulation::Machine;
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
  stream->capture = std::make_shared<Capture>();
  stream->capture->mode = mode;
  stream->capture->thread = std::this_thread::get_id();
  stream->capture->lanes.push_back({.stream = stream, .before = {}});
  return hipSuccess;
}

hipError_t hipStreamEndCapture(hipStream_t stream_handle, hipGraph_t* graph) {
  OCTET_API_CALL();
  Stream* stream = ResolveStream(stream_handle);
  if (stream == nullptr) return Return(hipErrorInvalidHandle);
  if (graph == nullptr) return Return(hipErrorInvalidValue);
  *graph = nullptr;
  std::shared_ptr<Capture> capture;
  {
    std::lock_guard lock(stream->device->mutex);
    capture = stream->capture;
    if (capture == nullptr) return Return(hipErrorIllegalState);
    if (capture->lanes.front().stream != stream) {
      capture->invalid = true;
      return Return(hipErrorStreamCaptureUnmatched);
    }
    capture->Release();
  }
  if (capture->invalid) return Return(hipErrorStreamCaptureInvalidated);
  if (!capture->IsJoined()) return Return(hipErrorStreamCaptureUnjoined);
  *graph = new ihipGraph{stream->device, capture->lanes.size(),
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
  auto made = std::make_unique<hipGraphExec>(hipGraphExec{*graph, {}});
  while (made->others.size() + 1 < graph->lanes) {
    made->others.push_back(graph->device->NewStream(/*is_null=*/false, /*blocking=*/false));
  }
  *executable = made.release();
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
  for (const auto& [lane, operation] : *executable->operations) {
    if (!octet::emulation::IsAccessible(Machine::Get().memory, operation)) {
      return Return(hipErrorInvalidValue);
    }
  }
  return Return(octet::emulation::Replay(*executable, stream));
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
  if (octet::emulation::Runs(*executable)) {
    Machine::Get().AppendReport("hipGraphExecDestroy is called while the graph runs on device " +
                                std::to_string(executable->device->id) +
                                ": wait for the stream of its last launch first\n");
    return Return(hipErrorIllegalState);
  }
  for (Stream* const stream : executable->others) octet::emulation::Close(stream);
  delete executable;
  return hipSuccess;
}
