// The end of a receiving call in which ranks may be masked (runtime/device/mask.h).
//
// A call either includes a rank or excludes it as a whole. When a rank is masked during a call,
// some blocks may already have included it. The last block then repeats all work without that rank:
// all received data is still there, since no credit has been given yet.
//
// The blocks communicate through this GPU's own memory, so device scope is enough here. A fence at
// system scope would wait for the links.
#ifndef OCTET_KERNELS_EP_DEVICE_CALL_END_H_
#define OCTET_KERNELS_EP_DEVICE_CALL_END_H_

#include <cstdint>

#include "device_ops.h"
#include "kernels/ep/device/call_end_params.h"
#include "kernels/ep/device/call_params.h"
#include "runtime/device/mask.h"

namespace octet::device {

enum class CallEnd {
  kNotLast,  // another block completes the call
  kAgain,    // this block is the last and must repeat the work of all blocks
  kLast,     // this block is the last, and the call is complete
};

// The receiving blocks: the last `count` of the grid. `again`: one of them repeats all work.
struct ReceivingBlocks {
  int count;
  bool again;
};

// Tells the host which ranks the call excludes. One thread calls it early in the call, so that the
// store to the host does not delay the end; EndCall calls it again if a rank has been masked since.
__device__ inline void TellLeftOut(const CallEndParams& end, uint32_t masked) {
  if (end.left_out != nullptr) *end.left_out = masked;
}

// Called by all threads of each receiving block after the block's part.
__device__ inline CallEnd EndCall(const CallParams& c, const CallEndParams& end,
                                  const ReceivingBlocks& blocks) {
  // Each block adds 1 to the counter, and kSawMask if it saw a rank that was masked in this call.
  // The last block therefore need not read the masks again.
  constexpr uint32_t kSawMask = 1U << 16;
  constexpr uint32_t kBlocks = kSawMask - 1;
  __shared__ uint32_t before;
  SyncBlockStores();
  if (Wave() == 0) {
    uint32_t mask = kCountedOn;
    if (Lane() < c.peers.num_ranks) mask = LoadRelaxed<Scope::kDevice>(c.failure.masks + Lane());
    if (Lane() == 0) FenceRelease<Scope::kDevice>();
    const bool saw_mask = Ballot(mask == kMaskedInThisCall) != 0;
    if (Lane() == 0) {
      before = FetchAddRelaxed<Scope::kDevice>(end.blocks_done, saw_mask ? 1 + kSawMask : 1);
      before += saw_mask ? kSawMask : 0;
    }
  }
  __syncthreads();
  const uint32_t done = before;
  const uint32_t parts = blocks.again ? 1 : static_cast<uint32_t>(blocks.count);
  if ((done & kBlocks) + 1 != parts) return CallEnd::kNotLast;
  if (threadIdx.x == 0) StoreRelaxed<Scope::kDevice>(end.blocks_done, 0U);
  if (done <= kBlocks && !blocks.again) return CallEnd::kLast;
  FenceAcquire<Scope::kDevice>();
  __syncthreads();  // one thread has seen the other blocks; now all have
  if (Wave() == 0) {
    uint32_t mask = kCountedOn;
    if (Lane() < c.peers.num_ranks) {
      mask = LoadRelaxed<Scope::kDevice>(c.failure.masks + Lane());
      if (mask == kMaskedInThisCall) {
        StoreRelaxed<Scope::kDevice>(c.failure.masks + Lane(), uint32_t{kMasked});
      }
    }
    const auto masked = static_cast<uint32_t>(Ballot(mask != kCountedOn));
    if (Lane() == 0) TellLeftOut(end, masked);
  }
  __syncthreads();  // `before` may be written again
  return done > kBlocks ? CallEnd::kAgain : CallEnd::kLast;
}

}  // namespace octet::device

#endif  // OCTET_KERNELS_EP_DEVICE_CALL_END_H_
