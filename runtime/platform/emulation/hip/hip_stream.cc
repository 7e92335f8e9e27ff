// HIP: streams and events.
#include <memory>
#include <utility>

#include "hip/hip_internal.h"

namespace octet::emulation {
namespace {

bool IsEvent(Machine& machine, hipEvent_t event) { return machine.live_events.contains(event); }

// Gets the event's last recording, nullptr if it has none.
hipError_t LastRecording(hipEvent_t event, std::shared_ptr<Completion>* last,
                         unsigned* flags = nullptr) {
  Machine& machine = Machine::Get();
  std::lock_guard lock(machine.handle_mutex);
  if (!IsEvent(machine, event)) return hipErrorInvalidHandle;
  *last = event->last;
  if (flags != nullptr) *flags = event->flags;
  return hipSuccess;
}

// Whether the event was last recorded into a graph, so that it says nothing outside.
bool IsCaptured(const std::shared_ptr<Completion>& last) {
  return last != nullptr && last->captured;
}

hipError_t Finished(Completion* completion) {
  TsanAcquire(&completion->tsan_sync);
  return completion->device->sticky_error();
}

}  // namespace

Stream* ResolveStream(hipStream_t stream) {
  if (stream == nullptr) return CurrentDevice().null_stream();
  Machine& machine = Machine::Get();
  std::lock_guard lock(machine.handle_mutex);
  return machine.live_streams.contains(stream) ? stream : nullptr;
}

void Close(Stream* stream) {
  {
    std::lock_guard lock(stream->device->mutex);
    LeaveCapture(stream);
    stream->closing = true;
  }
  Machine::Get().Kick();
}

}  // namespace octet::emulation

using octet::emulation::Completion;
using octet::emulation::CurrentDevice;
using octet::emulation::Device;
using octet::emulation::IsCaptured;
using octet::emulation::LastRecording;
using octet::emulation::Machine;
using octet::emulation::Operation;
using octet::emulation::RefuseCapture;
using octet::emulation::ResolveStream;
using octet::emulation::Return;
using octet::emulation::Stream;

hipError_t hipStreamCreate(hipStream_t* stream) {
  return hipStreamCreateWithFlags(stream, hipStreamDefault);
}

hipError_t hipStreamCreateWithFlags(hipStream_t* stream, unsigned flags) {
  OCTET_WAITING_CALL();
  if (stream == nullptr || (flags != hipStreamDefault && flags != hipStreamNonBlocking)) {
    return Return(hipErrorInvalidValue);
  }
  Machine& machine = Machine::Get();
  *stream = CurrentDevice().NewStream(/*is_null=*/false, flags == hipStreamDefault);
  std::lock_guard lock(machine.handle_mutex);
  machine.live_streams.insert(*stream);
  return hipSuccess;
}

hipError_t hipStreamDestroy(hipStream_t stream) {
  OCTET_WAITING_CALL();
  Machine& machine = Machine::Get();
  machine.HostGoesOn();  // the thread may have polled the stream
  {
    std::lock_guard lock(machine.handle_mutex);
    if (machine.live_streams.erase(stream) == 0) return Return(hipErrorInvalidHandle);
  }
  octet::emulation::Close(stream);
  return hipSuccess;
}

hipError_t hipStreamSynchronize(hipStream_t stream_handle) {
  OCTET_WAITING_CALL();
  Stream* stream = ResolveStream(stream_handle);
  if (stream == nullptr) return Return(hipErrorInvalidHandle);
  if (const hipError_t refused = RefuseCapture(stream); refused != hipSuccess) {
    return Return(refused);
  }
  return Return(stream->device->Synchronize(stream));
}

hipError_t hipStreamQuery(hipStream_t stream_handle) {
  Stream* stream = ResolveStream(stream_handle);
  if (stream == nullptr) return Return(hipErrorInvalidHandle);
  if (const hipError_t refused = RefuseCapture(stream); refused != hipSuccess) {
    return Return(refused);
  }
  Device* device = stream->device;
  if (!device->Poll([device, stream] { return device->IsIdleLocked(stream); })) {
    return hipErrorNotReady;
  }
  OCTET_API_CALL();
  octet::emulation::TsanAcquire(&stream->tsan_sync);
  return Return(device->sticky_error());
}

hipError_t hipStreamWaitEvent(hipStream_t stream_handle, hipEvent_t event, unsigned flags) {
  OCTET_API_CALL();
  Stream* stream = ResolveStream(stream_handle);
  std::shared_ptr<Completion> last;
  const hipError_t error = LastRecording(event, &last);
  if (stream == nullptr || error != hipSuccess) return Return(hipErrorInvalidHandle);
  if (flags != 0) return Return(hipErrorInvalidValue);
  if (last == nullptr) return hipSuccess;
  return Return(octet::emulation::WaitFor(stream, std::move(last)));
}

hipError_t hipLaunchHostFunc(hipStream_t stream_handle, hipHostFn_t function, void* argument) {
  OCTET_API_CALL();
  Stream* stream = ResolveStream(stream_handle);
  if (stream == nullptr) return Return(hipErrorInvalidHandle);
  if (function == nullptr) return Return(hipErrorInvalidValue);
  if (!stream->device->machine->host_functions.Start()) return Return(hipErrorOutOfMemory);
  Operation operation;
  operation.kind = Operation::Kind::kHostFunction;
  operation.function = function;
  operation.argument = argument;
  stream->device->Enqueue(stream, std::move(operation));
  return hipSuccess;
}

hipError_t hipEventCreate(hipEvent_t* event) {
  return hipEventCreateWithFlags(event, hipEventDefault);
}

hipError_t hipEventCreateWithFlags(hipEvent_t* event, unsigned flags) {
  OCTET_API_CALL();
  if (event == nullptr || (flags & ~(hipEventBlockingSync | hipEventDisableTiming)) != 0) {
    return Return(hipErrorInvalidValue);
  }
  Machine& machine = Machine::Get();
  auto created = std::make_unique<ihipEvent_t>();
  created->flags = flags;
  std::lock_guard lock(machine.handle_mutex);
  machine.live_events.insert(created.get());
  *event = created.release();
  return hipSuccess;
}

hipError_t hipEventDestroy(hipEvent_t event) {
  OCTET_API_CALL();
  Machine& machine = Machine::Get();
  std::lock_guard lock(machine.handle_mutex);
  if (machine.live_events.erase(event) == 0) return Return(hipErrorInvalidHandle);
  delete event;
  return hipSuccess;
}

hipError_t hipEventRecord(hipEvent_t event, hipStream_t stream_handle) {
  OCTET_API_CALL();
  Stream* stream = ResolveStream(stream_handle);
  if (stream == nullptr) return Return(hipErrorInvalidHandle);
  Machine& machine = Machine::Get();
  {
    std::lock_guard lock(machine.handle_mutex);
    if (!octet::emulation::IsEvent(machine, event)) return Return(hipErrorInvalidHandle);
  }
  const auto recording = std::make_shared<Completion>();
  octet::emulation::Record(stream, recording);
  std::lock_guard lock(machine.handle_mutex);
  event->last = recording;
  return hipSuccess;
}

hipError_t hipEventQuery(hipEvent_t event) {
  std::shared_ptr<Completion> last;
  const hipError_t error = LastRecording(event, &last);
  if (error != hipSuccess) return Return(error);
  if (last == nullptr) return hipSuccess;
  if (IsCaptured(last)) return Return(hipErrorCapturedEvent);
  if (!last->device->Poll([last] { return last->done.load(std::memory_order_acquire); })) {
    return hipErrorNotReady;
  }
  OCTET_API_CALL();
  return Return(octet::emulation::Finished(last.get()));
}

hipError_t hipEventSynchronize(hipEvent_t event) {
  OCTET_WAITING_CALL();
  std::shared_ptr<Completion> last;
  const hipError_t error = LastRecording(event, &last);
  if (error != hipSuccess) return Return(error);
  if (last == nullptr) return hipSuccess;
  if (IsCaptured(last)) return Return(hipErrorCapturedEvent);
  last->device->WaitUntil([&] { return last->done.load(std::memory_order_acquire); });
  return Return(octet::emulation::Finished(last.get()));
}

hipError_t hipEventElapsedTime(float* milliseconds, hipEvent_t start, hipEvent_t stop) {
  OCTET_API_CALL();
  if (milliseconds == nullptr) return Return(hipErrorInvalidValue);
  std::shared_ptr<Completion> recordings[2];
  const hipEvent_t events[2] = {start, stop};
  for (int i = 0; i < 2; ++i) {
    unsigned flags = 0;
    const hipError_t error = LastRecording(events[i], &recordings[i], &flags);
    if (error != hipSuccess) return Return(error);
    if (recordings[i] == nullptr || (flags & hipEventDisableTiming) != 0) {
      return Return(hipErrorInvalidHandle);
    }
  }
  for (const auto& recording : recordings) {
    if (IsCaptured(recording)) return Return(hipErrorCapturedEvent);
    if (!recording->done.load(std::memory_order_acquire)) return hipErrorNotReady;
  }
  const auto ns = static_cast<int64_t>(recordings[1]->time_ns - recordings[0]->time_ns);
  *milliseconds = static_cast<float>(static_cast<double>(ns) / 1e6);
  return hipSuccess;
}
