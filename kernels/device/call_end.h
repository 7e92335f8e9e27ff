// The end of a call that receives, where ranks may be masked (runtime/device/mask.h) or waits are
// measured: what is known only when all blocks have done their part. Nothing otherwise.
//
// A rank is in a call or out of it as a whole. So when one is masked in the middle of a call, when
// some blocks may already have counted it in, the last block does everything again without it: all
// that came is still there, since no credit has been given yet.
#ifndef OCTET_KERNELS_DEVICE_CALL_END_H_
#define OCTET_KERNELS_DEVICE_CALL_END_H_

#include <cstdint>

#include "device_ops.h"
#include "kernels/device/call_end_params.h"
#include "kernels/device/call_params.h"
#include "runtime/device/block_counter.h"
#include "runtime/device/mask.h"

namespace octet::device {

enum class CallEnd {
  kNotLast,  // another block sees to the rest, or there is none
  kAgain,    // this block is the last, and must do the parts of all blocks again
  kLast,     // this block is the last: all is as it should be
};

// Called by all threads of each of the `num_blocks` blocks that receive, after their part.
__device__ inline CallEnd EndCall(const CallParams& c, const CallEndParams& end,
                                  uint32_t num_blocks) {
  __shared__ int32_t again;
  if (end.blocks_done == nullptr || !LastBlock(end.blocks_done, num_blocks)) {
    return CallEnd::kNotLast;
  }
  if (Wave() == 0) {
    const int peer = Lane();
    uint32_t mask = kCountedOn;
    if (peer < c.peers.num_ranks && c.failure.masks != nullptr) {
      mask = LoadRelaxed<Scope::kDevice>(c.failure.masks + peer);
      if (mask == kMaskedInThisCall) {
        StoreRelaxed<Scope::kDevice>(c.failure.masks + peer, uint32_t{kMasked});
      }
    }
    if (peer < c.peers.num_ranks && end.wait_ticks != nullptr) {
      const uint64_t longest =
          ExchangeRelaxed<Scope::kDevice>(c.failure.longest_waits + peer, uint64_t{0});
      end.wait_ticks[peer] += longest;
    }
    const auto masked = static_cast<uint32_t>(Ballot(mask != kCountedOn));
    const uint64_t fresh = Ballot(mask == kMaskedInThisCall);
    if (peer == 0) {
      if (end.left_out != nullptr) *end.left_out = masked;
      again = fresh != 0 ? 1 : 0;
    }
  }
  __syncthreads();
  const CallEnd result = again != 0 ? CallEnd::kAgain : CallEnd::kLast;
  __syncthreads();  // `again` may be written again
  return result;
}

}  // namespace octet::device

#endif  // OCTET_KERNELS_DEVICE_CALL_END_H_
