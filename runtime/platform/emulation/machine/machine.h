// The emulated machine: its devices, its memory and the threads that run them.
#ifndef OCTET_RUNTIME_PLATFORM_EMULATION_MACHINE_MACHINE_H_
#define OCTET_RUNTIME_PLATFORM_EMULATION_MACHINE_MACHINE_H_

#include <hip/hip_runtime_api.h>

#include <array>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "machine/bounded_thread.h"
#include "machine/config.h"
#include "machine/hosts.h"
#include "machine/loaded_kernels.h"
#include "machine/stream.h"
#include "memory/memory.h"
#if defined(OCTET_EMULATION_WEAK_MEMORY)
#include "memory/weak_memory.h"
#endif

namespace octet::emulation {

class Machine;
class Worker;

class Device {
 public:
  Device(Machine* machine, int id, const Config& config);
  ~Device();

  // Any thread may call.
  Stream* null_stream() const { return null_stream_; }
  Stream* NewStream(bool is_null, bool blocking);
  // ThreadSanitizer: keeps the stacks of a stream that ends for a new one, whose lanes come after
  // those that have used them. Their pages would be new otherwise, and those of their shadow.
  void KeepTsanResourcesLocked(Stream* stream);
  // Enqueues into the graph while the stream is captured.
  void Enqueue(Stream* stream, Operation operation);
  bool IsIdleLocked(const Stream* stream) const { return stream->finished == stream->enqueued; }
  // Blocks until all work enqueued before has finished. Returns the device's error, if it has one.
  hipError_t Synchronize(Stream* stream);
  hipError_t SynchronizeAll();
  // Blocks until `done` returns true. Calls it with `mutex` held.
  void WaitUntil(const std::function<bool()>& done);
  // Returns whether `done` is true after a short wait. If not, assumes that the calling thread
  // continues to poll.
  bool Poll(const std::function<bool()>& done);
  // Ends the first operation of the stream. Any thread may call.
  void Finish(Stream* stream);
  hipError_t sticky_error() const { return error.load(std::memory_order_acquire); }

  Machine* const machine;
  const int id;
  Worker* worker = nullptr;
  std::atomic<hipError_t> error{hipSuccess};
  std::atomic<uint32_t> accessible;  // arenas that kernels of this device may access, as bits
  LoadedKernels loaded_kernels;

  std::mutex mutex;
  std::vector<std::unique_ptr<Stream>> streams;

  // Only for the worker.
  ResourcePool resources;
  std::vector<Grid*> grids;  // running; each is owned by its stream
  std::array<Allocation, kNumArenas> recent;
  uint64_t memory_epoch = 0;

 private:
  // Registers a thread that waits for `done`; needs `mutex`. Finish wakes no thread in vain, since
  // that would take longer than most operations.
  class Waiter {
   public:
    Waiter(Device* device, const std::function<bool()>* done);
    ~Waiter();
    Waiter(const Waiter&) = delete;
    Waiter& operator=(const Waiter&) = delete;

    const std::function<bool()>* const done;

   private:
    Device* const device_;
  };

  std::vector<const Waiter*> waiters_;
  std::condition_variable over_;  // what one of the waiters waits for
  Stream* null_stream_ = nullptr;
  std::vector<std::unique_ptr<ResourcePool>> spare_tsan_resources_;
  char spare_tsan_sync_ = 0;
};

// Runs host functions of streams. They may block, which the workers must not do.
class HostFunctionThread {
 public:
  // Before the first function. Returns false if there can be no thread.
  bool Start();
  // Waits until `latest` for the function in progress and drops all further ones. Returns the
  // device of a function that has not ended, which is left behind; null: none.
  const Device* StopBy(std::chrono::steady_clock::time_point latest);
  void Run(Device* device, Stream* stream, hipHostFn_t function, void* argument);

 private:
  struct Call {
    Device* device;
    Stream* stream;
    hipHostFn_t function;
    void* argument;
  };
  void Loop();

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Call> calls_;
  const Device* in_call_ = nullptr;  // of the function in progress
  bool stopping_ = false;
  BoundedThread thread_;
};

class Machine {
 public:
  // Starts the machine on first use.
  static Machine& Get();
  static Machine* IfStarted();
  // Stops the machine, ends all running work and drops all memory, streams and events; but see
  // Stop. No other thread may be using it. The next use starts a machine with `config`.
  static void Replace(const Config& config);

  explicit Machine(const Config& config);
  // Only after Stop has returned true.
  ~Machine();

  // Ends all running work. A kernel that never lets its worker go on, and a host function that
  // never returns, cannot be ended: after some seconds this prints a line about each to stderr and
  // returns false. Their threads then go on, so the machine must never be destroyed. Called once.
  bool Stop();

  // Nanoseconds since some start: real, or virtual with a seed.
  uint64_t Now() const;
  void AdvanceVirtualTime(uint64_t ns) { virtual_ns_.fetch_add(ns, std::memory_order_relaxed); }

  // The calling host thread's activity matters only under a schedule: HostThread.
  void HostGoesOn() const {
    if (config.seed != 0) HostThread::OfThread().GoOn(hosts);
  }
  void HostWaits(std::function<bool()> over) const {
    if (config.seed != 0) HostThread::OfThread().Wait(hosts, std::move(over));
  }

  // Tells the workers that there may be new work to start. The second wakes only the one that has
  // it if it is asleep: waking the others takes longer than most operations.
  void Kick();
  void Kick(Worker* worker);
  uint64_t TotalProgress() const;

  void AppendReport(const std::string& text);
  std::string report() const;
  void ClearErrors();

  const Config config;
  Memory memory;
#if defined(OCTET_EMULATION_WEAK_MEMORY)
  WeakMemory weak_memory{&memory};
#endif
  std::vector<std::unique_ptr<Device>> devices;
  // At most as many as the configuration says: those that the system has made threads for. With
  // none, every call of the API that can fail returns hipErrorOutOfMemory.
  std::vector<std::unique_ptr<Worker>> workers;
  std::atomic<bool> ready{false};  // each device has its worker
  HostFunctionThread host_functions;

  const std::shared_ptr<Hosts> hosts = std::make_shared<Hosts>();
  std::atomic<uint64_t> last_sequence{0};  // of all operations

  std::atomic<bool> stopping{false};
  std::atomic<uint64_t> kicks{0};
  // How often the machine was found to be stuck: claims by the first worker that sees it, reports
  // begun, and the number of workers' parts written.
  std::atomic<uint64_t> stuck_claims{0};
  std::atomic<uint64_t> stuck_epoch{0};
  std::atomic<uint64_t> stuck_reports{0};
  std::atomic<int> busy_operations{0};  // host functions in progress

  std::mutex handle_mutex;
  std::set<hipStream_t> live_streams;
  std::set<hipEvent_t> live_events;
  SpinLock function_mutex;
  std::map<const void*, size_t> static_shared;  // bytes per kernel, as seen so far

 private:
  std::atomic<uint64_t> virtual_ns_{1'000'000'000};
  mutable std::mutex report_mutex_;
  std::string report_;
};

uint64_t WallNs();

// While it lives, the calling host thread waits: Hosts.
class HostWait {
 public:
  HostWait(const Machine& machine, std::function<bool()> over) : machine_(machine) {
    machine_.HostWaits(std::move(over));
  }
  ~HostWait() { machine_.HostGoesOn(); }
  HostWait(const HostWait&) = delete;
  HostWait& operator=(const HostWait&) = delete;

 private:
  const Machine& machine_;
};

inline constexpr int kMaxThreadsPerBlock = 1024;
inline constexpr int kMaxBlocksPerUnit = 32;

// Returns how many blocks of that shape one compute unit can hold; 0 if none.
int BlocksPerUnit(const Config& config, int threads, size_t shared_bytes);

}  // namespace octet::emulation

#endif  // OCTET_RUNTIME_PLATFORM_EMULATION_MACHINE_MACHINE_H_
