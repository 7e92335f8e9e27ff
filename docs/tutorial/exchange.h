// All steps of the tutorial make the same call: every rank sends a row to each rank, and receives
// one from each. The number of the call is added to a row before it is sent, and received rows are
// added up, so that a row that is missing, late or taken twice shows in the sum.
//
//   rank 0: send [ to 0 | to 1 | to 2 ]     rank 1: send [ to 0 | to 1 | to 2 ]     rank 2: ...
//                     |        \________________              |
//                     |                         \             |
//   rank 1: rows [ of 0 | of 1 | of 2 ]     rank 2: rows [ of 0 | of 1 | of 2 ]
//                   v  added by its owner
//           received [ of 0 | of 1 | of 2 ]
#ifndef OCTET_DOCS_TUTORIAL_EXCHANGE_H_
#define OCTET_DOCS_TUTORIAL_EXCHANGE_H_

#include <hip/hip_runtime.h>

#include <cstdint>

#include "octet/peers.h"
#include "runtime/device/call_epoch.h"
#include "runtime/device/failure_record.h"

namespace octet::tutorial {

inline constexpr int kRow = 1024;    // elements
inline constexpr int kThreads = 64;  // of a block: one wave of 64 lanes, or two of 32

// The waits of step 5, in the numbers that its Describe turns into words.
enum Site : uint32_t { kRowSite = 1, kCreditSite };

// The parameters of all kernels; each step uses some. A kernel has one block for each rank.
struct Params {
  device::PeerBases peers;  // where each rank's heap begins

  // In the heap: at the same offset on every rank.
  SymmetricPtr<int32_t> rows;      // [R][kRow]: by source rank, which writes them
  SymmetricPtr<uint64_t> flags;    // [R]: the last call whose row the source rank has written
  SymmetricPtr<uint64_t> credits;  // [R]: the last call whose row that rank has taken from its heap

  // Likewise, but nobody else writes there.
  SymmetricPtr<int32_t> send;            // [R][kRow]: the row for each rank
  SymmetricPtr<int32_t> received;        // [R][kRow]: the sum of each rank's rows
  SymmetricPtr<device::CallEpoch> call;  // step 5: the number of the call

  uint64_t epoch = 0;             // steps 1 to 4: the number of the call, from 1
  device::FailurePort port = {};  // step 5: how waits fail
};

// A kernel, for host code. It must be loaded on each rank before the first launch: a kernel that is
// loaded when it is launched can wait for kernels that run, and those for it.
struct Kernel {
  hipError_t (*load)();
  hipError_t (*launch)(const Params& params, hipStream_t stream);
};

extern const Kernel kStep1;
extern const Kernel kStep2Send;
extern const Kernel kStep2Take;
extern const Kernel kStep3;
extern const Kernel kStep4;
extern const Kernel kStep5;

}  // namespace octet::tutorial

#endif  // OCTET_DOCS_TUTORIAL_EXCHANGE_H_
