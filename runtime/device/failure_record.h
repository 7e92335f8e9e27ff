// What a kernel writes down when a wait expires or an input is refused. Plain records, shared by
// host and device; runtime/failure.h turns them into a Status.
#ifndef OCTET_RUNTIME_DEVICE_FAILURE_RECORD_H_
#define OCTET_RUNTIME_DEVICE_FAILURE_RECORD_H_

#include <cstdint>

namespace octet::device {

enum class FailureKind : uint32_t {
  kNone = 0,
  kDeadline = 1,  // a wait expired
  kInput = 2,     // the caller's data was refused on the device
  kReleased = 3,  // no failure: a wait was told to leave, since something had failed elsewhere
};

// In pinned host memory, two for each rank: what failed first there, and the first wait that was
// told to leave. Whatever comes later is dropped.
struct FailureRecord {
  uint32_t complete;  // 1, stored last with release at system scope
  FailureKind kind;
  uint32_t client;  // who launched the kernel (NodeClient::Register)
  uint32_t site;    // which wait or check: the client's own numbering
  int32_t peer;     // the rank that was waited for, -1 if none
  uint32_t index;   // which flag of that peer, or which element of the input
  uint64_t expected;
  uint64_t seen;
  uint64_t waited_ticks;
};

inline constexpr int kRecordsOfARank = 2;
constexpr int RecordIndex(FailureKind kind) { return kind == FailureKind::kReleased ? 1 : 0; }

// How a kernel takes part in the node's failure protocol: a kernel parameter, made by
// NodeClient::PortOf.
struct FailurePort {
  uint32_t* abort_word;    // pinned host memory, one for the node: not 0 tells every wait to leave
  FailureRecord* records;  // this rank's, by RecordIndex
  uint32_t* claimed;       // this GPU's memory, one for each record: who comes first makes it 1
  uint64_t deadline_ticks;
  uint32_t client;
  int32_t rank = -1;
  // Where the node goes on without a rank that does not come (mask.h); null: it stops. This GPU's
  // memory, [kMaxRanks], a Mask each.
  uint32_t* masks = nullptr;
  bool measures_waits = false;  // wait.h: LongestWaitsOfBlock
};

// What the others think of a rank.
enum Mask : uint32_t {
  kCountedOn = 0,
  kMaskedInThisCall = 1,  // by a wait that has expired, since the last call that has received
  // Any other value: masked before. Nobody waits for the rank, and nothing is sent to it.
  kMasked = ~uint32_t{0},
};

enum class Awaited : uint32_t {
  kData,    // what the peer sends
  kCredit,  // that it has taken what it was sent
};

// Which wait or check this is.
struct Site {
  uint32_t site;
  int32_t peer;
  uint32_t index;
  Awaited awaited = Awaited::kData;
};

}  // namespace octet::device

#endif  // OCTET_RUNTIME_DEVICE_FAILURE_RECORD_H_
