#include "machine/machine.h"

#include <time.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <optional>
#include <utility>
#include <vector>

#include "emulation.h"
#include "machine/capture.h"
#include "machine/report.h"
#include "scheduler/worker.h"

namespace octet::emulation {
namespace {

// How long a query waits before it returns "not ready". Host threads that poll would otherwise take
// the cores from the workers.
constexpr std::chrono::microseconds kQueryWait{5000};

// How long a machine that stops waits for its threads. A wave that is told to stop in the midst of
// its work does so at its next wait, which may take a while on a busy computer.
constexpr std::chrono::seconds kStopWait{5};

std::mutex machine_mutex;
std::atomic<Machine*> machine_pointer{nullptr};

// Stops the machine at the end of the process, whatever still runs on it.
class MachineHolder {
 public:
  ~MachineHolder() {
    Reset();
    const StaleReads stale = TakeStaleReads();
    if (stale.count == 0) return;
    std::fprintf(stderr, "%llu stale reads\n%s", static_cast<unsigned long long>(stale.count),
                 stale.text.c_str());
  }
  void Reset() {
    TsanIgnoreScope ignore;  // lanes that never ended have released nothing
    machine_pointer.store(nullptr, std::memory_order_release);
    if (machine_ == nullptr || machine_->Stop()) {
      machine_.reset();
    } else {
      // Never destroyed, and reachable: not a leak to tell of.
      static auto* const kLeftBehind = new std::vector<Machine*>();
      kLeftBehind->push_back(machine_.release());
    }
  }
  void Start(const Config& config) {
    machine_ = std::make_unique<Machine>(config);
    machine_pointer.store(machine_.get(), std::memory_order_release);
  }

 private:
  std::unique_ptr<Machine> machine_;
};
MachineHolder holder;

}  // namespace

uint64_t WallNs() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(now.tv_nsec);
}

int BlocksPerUnit(const Config& config, int threads, size_t shared_bytes) {
  if (threads <= 0 || threads > kMaxThreadsPerBlock || shared_bytes > config.shared_bytes) {
    return 0;
  }
  const int wave = config.wave_size;
  const int whole_waves = (threads + wave - 1) / wave * wave;
  int blocks = std::min(kMaxBlocksPerUnit, config.threads_per_unit / whole_waves);
  if (shared_bytes > 0) {
    blocks = std::min(blocks, static_cast<int>(config.shared_bytes / shared_bytes));
  }
  return blocks;
}

// ---- Device

Device::Device(Machine* machine_in, int id_in, const Config& config)
    : machine(machine_in),
      id(id_in),
      accessible((1U << id_in) | (1U << kHostArena)),
      resources(config.stack_bytes) {
  null_stream_ = NewStream(/*is_null=*/true, /*blocking=*/false);
}

Device::~Device() {
  for (const auto& stream : streams) {
    if (stream->tsan_context != nullptr) TsanDestroyContext(stream->tsan_context);
  }
}

Stream* Device::NewStream(bool is_null, bool blocking) {
  auto stream = std::make_unique<Stream>();
  stream->device = this;
  stream->is_null = is_null;
  stream->blocking = blocking;
  if (kTsan) {
    stream->tsan_context = TsanCreateContext();
  }
  std::lock_guard lock(mutex);
  if (kTsan && spare_tsan_resources_.empty()) {
    stream->tsan_resources = std::make_unique<ResourcePool>(resources.stack_bytes());
  } else if (kTsan) {
    TsanAcquire(&spare_tsan_sync_);
    stream->tsan_resources = std::move(spare_tsan_resources_.back());
    spare_tsan_resources_.pop_back();
  }
  streams.push_back(std::move(stream));
  return streams.back().get();
}

void Device::KeepTsanResourcesLocked(Stream* stream) {
  {
    TsanContextScope scope(stream->tsan_context);
    TsanRelease(&spare_tsan_sync_);
  }
  TsanDestroyContext(stream->tsan_context);
  stream->tsan_resources->DestroyTsanContexts();
  spare_tsan_resources_.push_back(std::move(stream->tsan_resources));
}

void Device::Enqueue(Stream* stream, Operation operation) {
  machine->HostGoesOn();
  {
    std::lock_guard lock(mutex);
    if (stream->capture != nullptr) {
      stream->capture->Append(stream, std::move(operation));
      return;
    }
    if (operation.kind == Operation::Kind::kKernel) stream->last_kernel = operation.launch->kernel;
    operation.sequence = machine->last_sequence.fetch_add(1, std::memory_order_acq_rel) + 1;
    TsanRelease(&stream->tsan_sync);
    stream->queue.push_back(std::move(operation));
    ++stream->enqueued;
  }
  machine->Kick(worker);
}

Device::Waiter::Waiter(Device* device, const std::function<bool()>* done_in)
    : done(done_in), device_(device) {
  device_->waiters_.push_back(this);
}

Device::Waiter::~Waiter() { std::erase(device_->waiters_, this); }

void Device::WaitUntil(const std::function<bool()>& done) {
  const HostWait wait(*machine, [&] {
    std::lock_guard lock(mutex);
    return done();
  });
  std::unique_lock lock(mutex);
  const Waiter waiter(this, &done);
  over_.wait(lock, done);
}

bool Device::Poll(const std::function<bool()>& done) {
  bool is_done = false;
  {
    std::lock_guard lock(mutex);
    is_done = done();
  }
  if (!is_done) {
    // Before it waits: the workers go on at once then. It counts as waiting until its next call.
    machine->HostWaits([this, done] {
      std::lock_guard lock(mutex);
      return done();
    });
    std::unique_lock lock(mutex);
    const Waiter waiter(this, &done);
    is_done = over_.wait_for(lock, kQueryWait, done);
  }
  if (is_done) machine->HostGoesOn();
  return is_done;
}

void Device::Finish(Stream* stream) {
  Operation finished;
  std::unique_ptr<Grid> grid;
  bool is_over = false;
  {
    std::lock_guard lock(mutex);
    finished = std::move(stream->queue.front());
    stream->queue.pop_front();
    grid = std::move(stream->grid);
    stream->running = false;
    ++stream->finished;
    is_over = std::ranges::any_of(waiters_, [](const Waiter* waiter) { return (*waiter->done)(); });
  }
  if (is_over) over_.notify_all();
  // Either this sees that a kWait has come, or the worker that its Enqueue wakes sees `done`: all
  // four accesses are sequentially consistent.
  if (finished.kind == Operation::Kind::kRecord && finished.completion->awaited.load()) {
    machine->Kick();
  } else {
    machine->Kick(worker);
  }
}

hipError_t Device::Synchronize(Stream* stream) {
  uint64_t target = 0;
  {
    std::lock_guard lock(mutex);
    target = stream->enqueued;
  }
  WaitUntil([&] { return stream->finished >= target; });
  TsanAcquire(&stream->tsan_sync);
  return sticky_error();
}

hipError_t Device::SynchronizeAll() {
  const uint64_t last = machine->last_sequence.load(std::memory_order_acquire);
  WaitUntil([&] {
    return std::ranges::all_of(streams, [&](const auto& stream) {
      return stream->queue.empty() || stream->queue.front().sequence > last;
    });
  });
  std::lock_guard lock(mutex);
  for (const auto& stream : streams) TsanAcquire(&stream->tsan_sync);
  return sticky_error();
}

// ---- HostFunctionThread

const Device* HostFunctionThread::StopBy(std::chrono::steady_clock::time_point latest) {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  if (thread_.EndsBy(latest)) return nullptr;
  std::lock_guard lock(mutex_);
  return in_call_;
}

bool HostFunctionThread::Start() {
  std::lock_guard lock(mutex_);
  return thread_.started() || thread_.Start([this] { Loop(); });
}

void HostFunctionThread::Run(Device* device, Stream* stream, hipHostFn_t function, void* argument) {
  std::lock_guard lock(mutex_);
  calls_.push_back({device, stream, function, argument});
  changed_.notify_all();
}

void HostFunctionThread::Loop() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return stopping_ || !calls_.empty(); });
    if (stopping_) return;
    const Call call = calls_.front();
    calls_.pop_front();
    in_call_ = call.device;
    lock.unlock();
    TsanAcquire(&call.stream->tsan_sync);
    call.function(call.argument);
    TsanRelease(&call.stream->tsan_sync);
    call.device->machine->busy_operations.fetch_sub(1, std::memory_order_acq_rel);
    call.device->Finish(call.stream);
    lock.lock();
    in_call_ = nullptr;
  }
}

// ---- Machine

Machine& Machine::Get() {
  Machine* machine = machine_pointer.load(std::memory_order_acquire);
  if (machine != nullptr) [[likely]] {
    return *machine;
  }
  std::lock_guard lock(machine_mutex);
  if (machine_pointer.load(std::memory_order_acquire) == nullptr) {
    holder.Start(Config::FromEnvironment());
  }
  return *machine_pointer.load(std::memory_order_acquire);
}

Machine* Machine::IfStarted() { return machine_pointer.load(std::memory_order_acquire); }

void Machine::Replace(const Config& config) {
  std::lock_guard lock(machine_mutex);
  holder.Reset();
  holder.Start(config.Normalized());
}

Machine::Machine(const Config& config_in) : config(config_in), memory(config_in) {
  wave_size = config.wave_size;
  for (int i = 0; i < config.devices; ++i) {
    devices.push_back(std::make_unique<Device>(this, i, config));
  }
  for (int i = 0; i < config.workers; ++i) {
    auto worker = std::make_unique<Worker>(this, i);
    if (!worker->Start()) break;
    workers.push_back(std::move(worker));
  }
  for (size_t i = 0; i < devices.size() && !workers.empty(); ++i) {
    workers[i % workers.size()]->Adopt(devices[i].get());
  }
  ready = true;
  ready.notify_all();
}

Machine::~Machine() {
  for (hipEvent_t event : live_events) delete event;
}

bool Machine::Stop() {
  stopping.store(true, std::memory_order_release);
  Kick();
  const auto latest = std::chrono::steady_clock::now() + kStopWait;
  bool ended = true;
  for (const auto& worker : workers) {
    if (worker->EndsBy(latest)) continue;
    ended = false;
    const std::optional<Turn> turn = worker->turn();
    std::fprintf(stderr, "emulation: %s; its thread is left behind\n",
                 turn.has_value() ? DescribeTurn(*turn).c_str() : "a worker does not end");
  }
  if (const Device* device = host_functions.StopBy(latest); device != nullptr) {
    ended = false;
    std::fprintf(stderr,
                 "emulation: device %d, a host function of a stream does not return; its thread is "
                 "left behind\n",
                 device->id);
  }
  return ended;
}

uint64_t Machine::Now() const {
  return config.seed != 0 ? virtual_ns_.load(std::memory_order_relaxed) : WallNs();
}

void Machine::Kick() {
  kicks.fetch_add(1, std::memory_order_seq_cst);
  for (const auto& worker : workers) worker->Wake();
}

void Machine::Kick(Worker* worker) {
  kicks.fetch_add(1, std::memory_order_seq_cst);
  if (worker != nullptr) worker->Wake();
}

uint64_t Machine::TotalProgress() const {
  uint64_t total = 0;
  for (const auto& worker : workers) total += worker->progress();
  return total;
}

void Machine::AppendReport(const std::string& text) {
  constexpr size_t kMaxReport = 64 << 10;
  std::lock_guard lock(report_mutex_);
  if (report_.size() < kMaxReport) report_ += text;
}

std::string Machine::report() const {
  std::lock_guard lock(report_mutex_);
  return report_;
}

void Machine::ClearErrors() {
  for (const auto& device : devices) device->error.store(hipSuccess, std::memory_order_release);
  std::lock_guard lock(report_mutex_);
  report_.clear();
}

}  // namespace octet::emulation
