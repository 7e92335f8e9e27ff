// Streams, events, and the operations enqueued on them.
#ifndef OCTET_RUNTIME_PLATFORM_EMULATION_MACHINE_STREAM_H_
#define OCTET_RUNTIME_PLATFORM_EMULATION_MACHINE_STREAM_H_

#include <hip/hip_runtime_api.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "scheduler/grid.h"
#include "scheduler/resource_pool.h"

namespace octet::emulation {

struct Capture;

// One recording of an event.
struct Completion {
  Device* device = nullptr;
  std::atomic<bool> done{false};
  std::atomic<bool> awaited{false};  // by a kWait, perhaps on a device of another worker
  uint64_t time_ns = 0;              // valid once done
  char tsan_sync = 0;

  // A recording that went into a graph is never done: each launch of the graph makes its own.
  bool captured = false;
  std::weak_ptr<Capture> capture;
  std::vector<size_t> before;  // what it waits for: Capture::Lane::before
};

struct Operation {
  enum class Kind { kKernel, kCopy, kFill, kRecord, kWait, kHostFunction };
  Kind kind = Kind::kKernel;
  uint64_t sequence = 0;                     // in order of enqueuing, over all devices
  std::shared_ptr<const GridLaunch> launch;  // kKernel
  void* to = nullptr;                        // kCopy, kFill
  const void* from = nullptr;                // kCopy
  size_t bytes = 0;                          // kCopy, kFill
  int value = 0;                             // kFill
  std::shared_ptr<Completion> completion;  // kRecord: completed by the operation; kWait: waited for
  hipHostFn_t function = nullptr;          // kHostFunction
  void* argument = nullptr;
};

}  // namespace octet::emulation

// Guarded by the device's mutex unless noted otherwise.
struct ihipStream_t {
  octet::emulation::Device* device = nullptr;
  bool is_null = false;   // the device's own stream
  bool blocking = false;  // takes turns with the null stream
  bool closing = false;   // is deleted once empty
  bool running = false;   // the first of `queue` has started
  std::deque<octet::emulation::Operation> queue;
  uint64_t enqueued = 0;  // operations, in total
  uint64_t finished = 0;
  const void* last_kernel = nullptr;             // the last one enqueued; null: none yet
  std::unique_ptr<octet::emulation::Grid> grid;  // of the first of `queue`; only for the worker
  std::shared_ptr<octet::emulation::Capture> capture;  // while operations go into a graph

  // ThreadSanitizer: the operations of a stream are ordered among themselves and with nothing else,
  // so each stream has its own context and stacks.
  void* tsan_context = nullptr;
  std::unique_ptr<octet::emulation::ResourcePool> tsan_resources;
  char tsan_sync = 0;
};

struct ihipEvent_t {
  unsigned flags = 0;
  std::shared_ptr<octet::emulation::Completion> last;  // guarded by the machine's handle mutex
};

#endif  // OCTET_RUNTIME_PLATFORM_EMULATION_MACHINE_STREAM_H_
