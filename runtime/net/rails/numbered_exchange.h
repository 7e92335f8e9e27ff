// Kernels before and after an exchange that something else carries, on the same stream: they number
// it, send the number and the size along, and compare what has come.
#ifndef OCTET_RUNTIME_NET_RAILS_NUMBERED_EXCHANGE_H_
#define OCTET_RUNTIME_NET_RAILS_NUMBERED_EXCHANGE_H_

#include <hip/hip_runtime.h>

#include <cstdint>

#include "runtime/device/failure_record.h"

namespace octet::device {

// Precedes the bytes that one node sends to another.
struct ExchangeHeader {
  uint64_t number;  // of the rank's exchanges since its rail was connected: 1, 2, ...
  uint64_t bytes;
};

// The state of one rank's rail in its GPU's memory.
struct ExchangeState {
  uint64_t number;    // of the last exchange that has begun
  uint64_t begun_at;  // when, by the GPU's clock
};

// In pinned host memory, so that the host can watch an exchange.
struct ExchangeWatch {
  uint64_t begun;    // the number of the last exchange that has begun, or
  uint64_t ended;    // ended
  uint32_t aborted;  // set by the host: what has come may be incomplete
};

// Sizes are parameters, for graphs; larger Worlds need several launches.
inline constexpr int kNodesOfLaunch = 64;

struct ExchangeParams {
  ExchangeState* state;
  ExchangeWatch* watch;
  int num_nodes;
  int node;   // this one, with which nothing is exchanged
  int first;  // of the nodes of this launch
  uint64_t bytes[kNodesOfLaunch];
};

// bytes: what is sent to each node. Writes the headers, [node].
struct BeginExchangeParams {
  ExchangeParams exchange;
  ExchangeHeader* headers;
};
hipError_t LaunchBeginExchange(const BeginExchangeParams& params, hipStream_t stream);

// The checks of an exchange; FailureRecord::index is the node.
enum ExchangeSite : uint32_t {
  kHeaderArrival = 0,  // kDeadline: nothing has come from the node. Seen: the last number
  kPartArrival = 1,    // kDeadline: its header has come, but perhaps not all of its bytes
  kNumberCheck = 2,    // kInput: it is ahead. Expected and seen: numbers
  kSizeCheck = 3,      // kInput. Expected and seen: bytes
};

// bytes: what is expected from each node. `headers`: what has come, [node].
struct EndExchangeParams {
  ExchangeParams exchange;
  const ExchangeHeader* headers;
  FailurePort port;
};
hipError_t LaunchEndExchange(const EndExchangeParams& params, hipStream_t stream);

// Loads the kernels on the current device (load_kernel.h).
hipError_t LoadExchangeKernels();

}  // namespace octet::device

#endif  // OCTET_RUNTIME_NET_RAILS_NUMBERED_EXCHANGE_H_
