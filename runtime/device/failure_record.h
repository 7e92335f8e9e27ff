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
};

// One per rank, in pinned host memory. The first failure of a rank fills it; later ones are
// dropped.
struct FailureRecord {
  uint32_t complete;  // 1, stored last with release at system scope
  FailureKind kind;
  uint32_t client;  // who launched the kernel (Node::AddClient)
  uint32_t site;    // which wait or check: the client's own numbering
  int32_t peer;     // the rank that was waited for, -1 if none
  uint32_t index;   // which flag of that peer, or which element of the input
  uint64_t expected;
  uint64_t seen;
  uint64_t waited_ticks;
};

// How a kernel takes part in the node's failure protocol: a kernel parameter, made by
// Rank::failure_port().
struct FailurePort {
  uint32_t* abort_word;   // pinned host memory, one for the node: not 0 tells every wait to leave
  FailureRecord* record;  // this rank's
  uint32_t* claimed;      // this GPU's memory: the first failure exchanges 0 for 1
  uint64_t deadline_ticks;
  uint32_t client;
};

// Which wait or check this is.
struct Site {
  uint32_t site;
  int32_t peer;
  uint32_t index;
};

}  // namespace octet::device

#endif  // OCTET_RUNTIME_DEVICE_FAILURE_RECORD_H_
