// The record that a kernel writes when a wait expires or an input is refused. Plain records, shared
// by host and device; runtime/failure/failure.h turns them into a Status.
#ifndef OCTET_RUNTIME_DEVICE_FAILURE_RECORD_H_
#define OCTET_RUNTIME_DEVICE_FAILURE_RECORD_H_

#include <cstdint>

namespace octet::device {

enum class FailureKind : uint32_t {
  kNone = 0,
  kDeadline = 1,  // a wait expired
  kInput = 2,     // the device refused the caller's data
  kReleased = 3,  // not a failure: a wait was told to leave after a failure elsewhere
};

// In pinned host memory, two for each rank: its first failure, and its first wait that was told to
// leave. Later ones are dropped.
struct FailureRecord {
  uint32_t complete;  // 1, stored last with release at system scope
  FailureKind kind;
  uint32_t client;  // the client that launched the kernel (NodeClient::Register)
  uint32_t site;    // the wait or check, in the client's own numbering
  int32_t peer;     // the rank that was waited for; -1 if none
  uint32_t index;   // the flag of that peer, or the element of the input
  uint64_t expected;
  uint64_t seen;
  uint64_t waited_ticks;
  uint32_t caller = 0;  // FailurePort::caller
};

inline constexpr int kRecordsOfARank = 2;
constexpr int RecordIndex(FailureKind kind) { return kind == FailureKind::kReleased ? 1 : 0; }

// A kernel's access to the node's failure protocol. NodeClient::PortOf makes it; kernels take it as
// a parameter.
struct FailurePort {
  uint32_t* abort_word;    // pinned host memory, one for the node; not 0: every wait must leave
  FailureRecord* records;  // this rank's, by RecordIndex
  uint32_t* claimed;       // this GPU's memory, one for each record; the first writer sets it to 1
  uint64_t deadline_ticks;
  uint32_t client;
  int32_t rank = -1;
  // A Mask for each peer, [kMaxRanks] in this GPU's memory (mask.h). Null: a silent rank is not
  // masked but stops the node.
  uint32_t* masks = nullptr;
  bool measures_waits = false;  // wait.h: LongestWaitsOfBlock
  uint32_t caller = 0;  // what has made the call (runtime/node/caller.h): its name is reported
};

// How a rank treats a peer.
enum Mask : uint32_t {
  kCountedOn = 0,
  kMaskedInThisCall = 1,  // by a wait that expired after the last call that has received
  // Any other value: masked earlier. No rank waits for it or sends to it.
  kMasked = ~uint32_t{0},
};

enum class Awaited : uint32_t {
  kData,    // the data that the peer sends
  kCredit,  // permission to reuse: the peer has consumed what it was sent
};

// Identifies a wait or check.
struct Site {
  uint32_t site;
  int32_t peer;
  uint32_t index;
  Awaited awaited = Awaited::kData;
};

}  // namespace octet::device

#endif  // OCTET_RUNTIME_DEVICE_FAILURE_RECORD_H_
