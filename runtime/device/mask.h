// Ranks whose absence is put up with. Where FailurePort::masks is set, a wait that expires masks
// the rank that it was for, instead of stopping the node: whoever waits for that rank then leaves,
// and later calls neither wait for it nor send to it. Where it is not set, no rank is ever masked,
// and all of this costs nothing.
//
// Each rank has masks of its own, for itself: what ranks think of each other is never exchanged.
#ifndef OCTET_RUNTIME_DEVICE_MASK_H_
#define OCTET_RUNTIME_DEVICE_MASK_H_

#include <cstdint>

#include "device_ops.h"
#include "octet/peers.h"
#include "runtime/device/failure_record.h"

namespace octet::device {

__device__ inline bool IsMasked(const FailurePort& port, int peer) {
  return port.masks != nullptr && peer >= 0 &&
         LoadRelaxed<Scope::kDevice>(port.masks + peer) != kCountedOn;
}

// Whether `ranks`, a bit each, has `rank`.
__device__ __forceinline__ bool HasRank(uint32_t ranks, int rank) {
  return ((ranks >> rank) & 1) != 0;
}

// All masked ranks, a bit each. Called by all lanes of a wave.
__device__ inline uint32_t MaskedRanks(const FailurePort& port) {
  if (port.masks == nullptr) return 0;
  return static_cast<uint32_t>(Ballot(Lane() < kMaxRanks && IsMasked(port, Lane())));
}

// A wait for `peer` has expired. False if the peer cannot be masked, which nobody is for himself.
__device__ inline bool MaskRank(const FailurePort& port, int peer) {
  if (port.masks == nullptr || peer < 0 || peer == port.rank) return false;
  if (!IsMasked(port, peer)) {
    StoreRelaxed<Scope::kDevice>(port.masks + peer, uint32_t{kMaskedInThisCall});
  }
  return true;
}

// The masked ranks that a wave knows of. kPossible: whether any can be.
template <bool kPossible>
class MaskedInCall {
 public:
  __device__ explicit MaskedInCall(uint32_t ranks = 0) : ranks_(ranks) {}
  __device__ __forceinline__ bool Has(int peer) const { return HasRank(ranks_, peer); }
  // A wait for `peer` has failed: whether because it is masked. Called by all lanes of the wave.
  __device__ __forceinline__ bool Look(const FailurePort& port, int peer) {
    ranks_ = MaskedRanks(port);
    return Has(peer);
  }

 private:
  uint32_t ranks_;
};
template <>
class MaskedInCall<false> {
 public:
  __device__ explicit MaskedInCall(uint32_t /*ranks*/ = 0) {}
  __device__ __forceinline__ bool Has(int /*peer*/) const { return false; }
  __device__ __forceinline__ bool Look(const FailurePort& /*port*/, int /*peer*/) { return false; }
};

}  // namespace octet::device

#endif  // OCTET_RUNTIME_DEVICE_MASK_H_
