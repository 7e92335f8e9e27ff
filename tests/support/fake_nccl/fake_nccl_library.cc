// A fake of NCCL: what octet uses of it, between processes of one machine, for emulated GPUs whose
// memory the host can read and write. Bytes go through shared memory, a ring for each pair of
// ranks. Like NCCL it neither compares sizes nor has deadlines.
#include <fcntl.h>
#include <rccl/rccl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "runtime/base/backoff.h"
#include "tests/support/fake_nccl/fake_nccl_faults.h"

namespace octet::fake {
namespace {

constexpr size_t kRingBytes = 1 << 14;
constexpr size_t kWords = 1 << 14;  // of operations at a time

// From one rank to another; in shared memory, which begins as zeros.
struct Ring {
  std::atomic<uint64_t> written;
  std::atomic<uint64_t> read;
  char data[kRingBytes];

  // Both return how many bytes were possible.
  size_t Write(const char* from, size_t bytes) {
    const uint64_t at = written.load(std::memory_order_relaxed);
    const uint64_t room = kRingBytes - (at - read.load(std::memory_order_acquire));
    const size_t now = std::min<size_t>({bytes, room, kRingBytes - at % kRingBytes});
    std::memcpy(data + at % kRingBytes, from, now);
    written.store(at + now, std::memory_order_release);
    return now;
  }
  size_t Read(char* to, size_t bytes) {
    const uint64_t at = read.load(std::memory_order_relaxed);
    const uint64_t there = written.load(std::memory_order_acquire) - at;
    const size_t now = std::min<size_t>({bytes, there, kRingBytes - at % kRingBytes});
    std::memcpy(to, data + at % kRingBytes, now);
    read.store(at + now, std::memory_order_release);
    return now;
  }
};

struct Region {
  std::atomic<int> arrived;
  Ring rings[1];  // [from][to]
};

struct State {
  std::mutex mutex;
  NcclHooks hooks;
  NcclFaults faults;
  int64_t faults_told = 0;
  int ids = 0;
  std::vector<uint32_t*> words;  // pinned, unused
};

// Outlives all threads.
State& TheState() {
  static auto& state = *new State();
  return state;
}

NcclFaults Faults() {
  std::lock_guard lock(TheState().mutex);
  return TheState().faults;
}

// The faults of a communicator that has been made after `told_before` of them.
NcclFaults FaultsOf(int64_t told_before) {
  std::lock_guard lock(TheState().mutex);
  NcclFaults faults = TheState().faults;
  if (told_before == TheState().faults_told) faults.never_sends = faults.reports_error = false;
  return faults;
}

NcclHooks Hooks() {
  std::lock_guard lock(TheState().mutex);
  return TheState().hooks;
}

uint32_t* TakeWord() {
  State& state = TheState();
  std::lock_guard lock(state.mutex);
  if (state.words.empty()) {
    auto* const words =
        static_cast<uint32_t*>(state.hooks.allocate_pinned(kWords * sizeof(uint32_t)));
    for (size_t i = 0; i < kWords; ++i) state.words.push_back(words + i);
  }
  uint32_t* const word = state.words.back();
  state.words.pop_back();
  return word;
}

void ReturnWord(uint32_t* word) {
  std::lock_guard lock(TheState().mutex);
  TheState().words.push_back(word);
}

struct Transfer {
  const char* send = nullptr;  // else received
  char* recv = nullptr;
  size_t bytes = 0;
  int peer = 0;
  size_t done = 0;
};

// A group of transfers, perhaps in a graph.
struct Operation {
  ncclComm* comm = nullptr;
  std::vector<Transfer> transfers;
  uint32_t* word = nullptr;  // what the stream waits for
  bool captured = false;
};

}  // namespace
}  // namespace octet::fake

using octet::fake::Operation;
using octet::fake::Region;
using octet::fake::Ring;
using octet::fake::Transfer;

// Never deleted: graphs may still name it.
struct ncclComm {
  int ranks = 0;
  int rank = 0;
  int64_t faults_before = 0;  // told
  std::string name;
  Region* region = nullptr;
  size_t region_bytes = 0;

  std::mutex mutex;
  std::condition_variable changed;
  std::deque<Operation*> queue;
  bool aborted = false;
  bool busy = false;   // with an operation
  bool polled = true;  // the last call has been "in progress" once
  int enqueued = 0;    // operations in the stream
  bool captured = false;
  bool blocking = false;
  bool calling = false;  // a thread waits in a call
  int splits = 0;
  std::thread thread;

  Ring& RingOf(int from, int to) const { return region->rings[from * ranks + to]; }
  bool IsAborted() {
    std::lock_guard lock(mutex);
    return aborted;
  }

  // Moves what can be moved now; transfers of a pair follow each other. Returns whether all is
  // done.
  bool Move(std::vector<Transfer>& transfers) const {
    bool all_done = true;
    std::vector<bool> sends_behind(ranks);
    std::vector<bool> receives_behind(ranks);
    for (Transfer& transfer : transfers) {
      const bool sends = transfer.send != nullptr;
      auto behind = (sends ? sends_behind : receives_behind)[transfer.peer];
      if (behind) continue;
      const size_t left = transfer.bytes - transfer.done;
      transfer.done += sends
                           ? RingOf(rank, transfer.peer).Write(transfer.send + transfer.done, left)
                           : RingOf(transfer.peer, rank).Read(transfer.recv + transfer.done, left);
      if (transfer.done < transfer.bytes) {
        behind = true;
        all_done = false;
      }
    }
    return all_done;
  }

  void Execute(const Operation& operation) {
    std::vector<Transfer> transfers = operation.transfers;
    octet::Backoff backoff(octet::Backoff::Cores::kFew);
    while (true) {
      const octet::fake::NcclFaults faults = octet::fake::FaultsOf(faults_before);
      if (!faults.never_ends) {
        if (IsAborted() || (!faults.never_sends && Move(transfers))) break;
      }
      backoff.Wait();
    }
    std::atomic_ref<uint32_t>(*operation.word).store(1, std::memory_order_release);
  }

  void Loop() {
    std::unique_lock lock(mutex);
    while (true) {
      changed.wait(lock, [this] { return aborted || !queue.empty(); });
      if (queue.empty()) return;
      const Operation* const operation = queue.front();
      queue.pop_front();
      busy = true;
      lock.unlock();
      Execute(*operation);
      lock.lock();
      busy = false;
      changed.notify_all();
    }
  }

  // Host functions of the stream.
  static void Post(void* data) {
    auto* const operation = static_cast<Operation*>(data);
    ncclComm& comm = *operation->comm;
    std::lock_guard lock(comm.mutex);
    const uint32_t over = comm.aborted ? 1 : 0;
    std::atomic_ref<uint32_t>(*operation->word).store(over, std::memory_order_release);
    if (over != 0) return;
    comm.queue.push_back(operation);
    comm.changed.notify_all();
  }
  static void Release(void* data) {
    auto* const operation = static_cast<Operation*>(data);
    if (operation->captured) return;
    {
      std::lock_guard lock(operation->comm->mutex);
      --operation->comm->enqueued;
      operation->comm->changed.notify_all();
    }
    octet::fake::ReturnWord(operation->word);
    delete operation;
  }
};

namespace octet::fake {
namespace {

// The group that the calling thread has begun.
struct Group {
  bool open = false;
  ncclComm* comm = nullptr;
  void* stream = nullptr;
  std::vector<Transfer> transfers;
};

Group& TheGroup() {
  thread_local Group group;
  return group;
}

ncclResult_t Add(const Transfer& transfer, ncclComm* comm, void* stream) {
  Group& group = TheGroup();
  const bool other = group.comm != nullptr && (group.comm != comm || group.stream != stream);
  if (!group.open || other || transfer.peer < 0 || transfer.peer >= comm->ranks) {
    return ncclInvalidUsage;
  }
  group.comm = comm;
  group.stream = stream;
  group.transfers.push_back(transfer);
  return ncclSuccess;
}

ncclResult_t Enqueue(Group& group) {
  const NcclHooks hooks = Hooks();
  auto* const operation = new Operation{.comm = group.comm,
                                        .transfers = std::move(group.transfers),
                                        .word = TakeWord(),
                                        .captured = hooks.is_capturing(group.stream)};
  {
    std::lock_guard lock(group.comm->mutex);
    if (operation->captured) {
      group.comm->captured = true;
    } else {
      ++group.comm->enqueued;
    }
    group.comm->polled = false;
  }
  const bool failed = hooks.enqueue(group.stream, ncclComm::Post, operation) != 0 ||
                      hooks.enqueue_wait(group.stream, operation->word) != 0 ||
                      hooks.enqueue(group.stream, ncclComm::Release, operation) != 0;
  if (failed) return ncclUnhandledCudaError;
  return group.comm->blocking ? ncclSuccess : ncclInProgress;
}

// Like the library, makes the first operation of a blocking communicator wait for all ranks.
ncclResult_t AwaitRanks(ncclComm& comm) {
  std::unique_lock lock(comm.mutex);
  comm.calling = true;
  while (!comm.aborted && comm.region->arrived.load() < comm.ranks) {
    comm.changed.wait_for(lock, std::chrono::milliseconds(1));
  }
  comm.calling = false;
  comm.changed.notify_all();
  if (comm.aborted) return ncclInternalError;
  if (comm.rank == 0) shm_unlink(comm.name.c_str());  // all have it now
  return ncclSuccess;
}

bool Map(ncclComm& comm) {
  comm.region_bytes = sizeof(Region) + static_cast<size_t>(comm.ranks) * comm.ranks * sizeof(Ring);
  const int file = shm_open(comm.name.c_str(), O_CREAT | O_RDWR, 0600);
  if (file < 0) return false;
  void* memory = MAP_FAILED;
  if (ftruncate(file, static_cast<off_t>(comm.region_bytes)) == 0) {
    memory = mmap(nullptr, comm.region_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  }
  close(file);
  if (memory == MAP_FAILED) return false;
  comm.region = static_cast<Region*>(memory);
  return true;
}

}  // namespace
}  // namespace octet::fake

using octet::fake::Faults;
using octet::fake::Group;
using octet::fake::NcclFaults;
using octet::fake::NcclHooks;
using octet::fake::TheGroup;
using octet::fake::TheState;

extern "C" {

void octet_fake_nccl_set_hooks(const NcclHooks& hooks) {
  std::lock_guard lock(TheState().mutex);
  TheState().hooks = hooks;
}

void octet_fake_nccl_set_faults(const NcclFaults& faults) {
  std::lock_guard lock(TheState().mutex);
  TheState().faults = faults;
  ++TheState().faults_told;
}

ncclResult_t ncclGetVersion(int* version) {
  *version = Faults().version;
  return ncclSuccess;
}

ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  std::lock_guard lock(TheState().mutex);
  std::snprintf(id->internal, sizeof(id->internal), "/octet_fake_nccl.%d.%d",
                static_cast<int>(getpid()), ++TheState().ids);
  return ncclSuccess;
}

ncclResult_t ncclCommInitRank(ncclComm_t* /*comm*/, int /*ranks*/, ncclUniqueId /*id*/,
                              int /*rank*/) {
  return ncclInvalidUsage;  // it would wait
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t* comm, int ranks, ncclUniqueId id, int rank,
                                    ncclConfig_t* config) {
  if (config == nullptr || config->blocking != 0) return ncclInvalidUsage;
  auto* const made = new ncclComm();
  made->ranks = ranks;
  made->rank = rank;
  made->name = id.internal;
  {
    std::lock_guard lock(TheState().mutex);
    made->faults_before = TheState().faults_told;
  }
  *comm = made;
  const NcclFaults faults = Faults();
  if (faults.init_fails || faults.init_hangs) return ncclInProgress;
  if (!octet::fake::Map(*made)) return ncclSystemError;
  made->thread = std::thread([made] { made->Loop(); });
  made->region->arrived.fetch_add(1);
  return ncclInProgress;
}

// All ranks stay together.
ncclResult_t ncclCommSplit(ncclComm_t comm, int color, int key, ncclComm_t* new_comm,
                           ncclConfig_t* config) {
  if (color != 0 || key != comm->rank || config == nullptr || config->blocking != 1) {
    return ncclInvalidUsage;
  }
  auto* const made = new ncclComm();
  made->ranks = comm->ranks;
  made->rank = comm->rank;
  made->faults_before = comm->faults_before;
  made->name = comm->name + "." + std::to_string(++comm->splits);
  made->blocking = true;
  *new_comm = made;
  if (!octet::fake::Map(*made)) return ncclSystemError;
  made->thread = std::thread([made] { made->Loop(); });
  if (!Faults().connect_hangs) made->region->arrived.fetch_add(1);
  std::lock_guard lock(comm->mutex);
  comm->polled = false;
  return ncclInProgress;
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* error) {
  const NcclFaults faults = octet::fake::FaultsOf(comm->faults_before);
  std::lock_guard lock(comm->mutex);
  const bool joins = comm->region == nullptr || comm->region->arrived.load() < comm->ranks;
  *error = ncclSuccess;
  if (comm->region == nullptr && faults.init_fails) {
    *error = ncclSystemError;
  } else if (faults.reports_error && comm->busy) {
    *error = ncclRemoteError;
  } else if (joins || !std::exchange(comm->polled, true)) {
    *error = ncclInProgress;
  }
  // All have it now.
  if (*error == ncclSuccess && comm->rank == 0) shm_unlink(comm->name.c_str());
  return ncclSuccess;
}

ncclResult_t ncclCommAbort(ncclComm_t comm) {
  bool captured = false;
  {
    std::unique_lock lock(comm->mutex);
    comm->aborted = true;
    comm->changed.notify_all();
    comm->changed.wait(lock, [comm] { return comm->enqueued == 0 && !comm->calling; });
    captured = comm->captured;
  }
  while (captured && Faults().graphs_are_alive) usleep(1000);
  if (comm->thread.joinable()) comm->thread.join();
  if (comm->region != nullptr) munmap(comm->region, comm->region_bytes);
  shm_unlink(comm->name.c_str());
  return ncclSuccess;
}

ncclResult_t ncclGroupStart() {
  if (TheGroup().open) return ncclInvalidUsage;
  TheGroup() = Group{.open = true, .comm = nullptr, .stream = nullptr, .transfers = {}};
  return ncclSuccess;
}

ncclResult_t ncclGroupEnd() {
  Group group = std::exchange(TheGroup(), Group());
  if (!group.open) return ncclInvalidUsage;
  if (group.comm == nullptr) return ncclSuccess;
  if (group.comm->blocking) {
    const ncclResult_t arrived = octet::fake::AwaitRanks(*group.comm);
    if (arrived != ncclSuccess) return arrived;
  }
  return octet::fake::Enqueue(group);
}

ncclResult_t ncclSend(const void* data, size_t count, ncclDataType_t type, int peer,
                      ncclComm_t comm, hipStream_t stream) {
  if (type != ncclInt8) return ncclInvalidArgument;
  return octet::fake::Add(
      {.send = static_cast<const char*>(data), .recv = nullptr, .bytes = count, .peer = peer}, comm,
      stream);
}

ncclResult_t ncclRecv(void* data, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      hipStream_t stream) {
  if (type != ncclInt8) return ncclInvalidArgument;
  return octet::fake::Add(
      {.send = nullptr, .recv = static_cast<char*>(data), .bytes = count, .peer = peer}, comm,
      stream);
}

const char* ncclGetErrorString(ncclResult_t result) {
  switch (result) {
    case ncclSuccess:
      return "no error";
    case ncclSystemError:
      return "unhandled system error";
    case ncclRemoteError:
      return "remote process exited or there was a network error";
    default:
      return "an error of the fake";
  }
}

const char* ncclGetLastError(ncclComm_t /*comm*/) { return ""; }

}  // extern "C"
