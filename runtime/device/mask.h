// Masking: calls continue without unresponsive peers. If FailurePort::masks is set, a wait that
// expires masks the rank that it waited for instead of stopping the node: all waits for that rank
// then end, and later calls neither wait for it nor send to it. If it is not set, no rank is ever
// masked, and masking costs nothing.
//
// Each rank has its own masks. Ranks never exchange them.
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

// Returns whether the bit of `rank` is set in `ranks`.
__device__ __forceinline__ bool HasRank(uint32_t ranks, int rank) {
  return ((ranks >> rank) & 1) != 0;
}

// Returns all masked ranks as bits. All lanes of a wave must call it.
__device__ inline uint32_t MaskedRanks(const FailurePort& port) {
  if (port.masks == nullptr) return 0;
  return static_cast<uint32_t>(Ballot(Lane() < kMaxRanks && IsMasked(port, Lane())));
}

// Masks `peer` after a wait for it has expired. Returns false if it cannot be masked: no rank masks
// itself.
__device__ inline bool MaskRank(const FailurePort& port, int peer) {
  if (port.masks == nullptr || peer < 0 || peer == port.rank) return false;
  if (!IsMasked(port, peer)) {
    StoreRelaxed<Scope::kDevice>(port.masks + peer, uint32_t{kMaskedInThisCall});
  }
  return true;
}

// The masked ranks that a wave knows of. kPossible: ranks can be masked.
template <bool kPossible>
class MaskedInCall {
 public:
  __device__ explicit MaskedInCall(uint32_t ranks = 0) : ranks_(ranks) {}
  __device__ __forceinline__ bool Has(int peer) const { return HasRank(ranks_, peer); }
  // Returns whether a wait for `peer` failed because the peer is masked. All lanes of the wave must
  // call it.
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
