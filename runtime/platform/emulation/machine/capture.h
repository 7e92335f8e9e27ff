// What streams receive while a graph is captured.
#ifndef OCTET_RUNTIME_PLATFORM_EMULATION_MACHINE_CAPTURE_H_
#define OCTET_RUNTIME_PLATFORM_EMULATION_MACHINE_CAPTURE_H_

#include <hip/hip_runtime_api.h>

#include <cstddef>
#include <thread>
#include <vector>

#include "machine/stream.h"

namespace octet::emulation {

// What streams have received since hipStreamBeginCapture on the first of them. Another stream joins
// when it waits for an event that was recorded in the capture. Guarded by the device's mutex.
struct Capture {
  struct Lane {
    Stream* stream = nullptr;  // null: destroyed during the capture
    // By lane: how many of its operations come before whatever this lane receives next. Records and
    // waits do not count.
    std::vector<size_t> before;
  };
  struct CapturedOperation {
    size_t lane = 0;
    Operation operation;
  };

  // `stream` must be one of the capture's.
  Lane& LaneOf(const Stream* stream);
  void Append(const Stream* stream, Operation operation);
  // Makes `lane` wait for everything that comes before `before`.
  static void Join(Lane& lane, const std::vector<size_t>& before);
  // Returns whether the first lane waits for all others.
  bool IsJoined() const;
  // Lets go of the streams: what they receive next is executed.
  void Release();

  hipStreamCaptureMode mode = hipStreamCaptureModeGlobal;
  std::thread::id thread;   // the thread that began the capture
  std::vector<Lane> lanes;  // the first is of the stream on which the capture began
  std::vector<CapturedOperation> operations;  // in order of enqueuing
  bool invalid = false;                       // an operation was requested that cannot be captured
};

}  // namespace octet::emulation

#endif  // OCTET_RUNTIME_PLATFORM_EMULATION_MACHINE_CAPTURE_H_
