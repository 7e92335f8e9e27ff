// The end of a call that receives, where ranks may be masked (runtime/device/mask.h).
//
// A rank is in a call or out of it as a whole. So when one is masked in the middle of a call, when
// some blocks may already have counted it in, the last block does everything again without it: all
// that came is still there, since no credit has been given yet.
//
// Everything that the blocks tell each other here is in this GPU's own memory, so device scope is
// enough: a fence at system scope would wait for the links.
#ifndef OCTET_KERNELS_DEVICE_CALL_END_H_
#define OCTET_KERNELS_DEVICE_CALL_END_H_

#include <cstdint>

#include "device_ops.h"
#include "kernels/device/call_end_params.h"
#include "kernels/device/call_params.h"
#include "runtime/device/mask.h"

namespace octet::device {

enum class CallEnd {
  kNotLast,  // another block sees to the rest
  kAgain,    // this block is the last, and must do the parts of all blocks again
  kLast,     // this block is the last, and the call is complete
};

// The blocks that receive: the last `count` of the grid. `again`: one of them does it all again.
struct ReceivingBlocks {
  int count;
  bool again;
};

// Tells the host which ranks the call excludes. Called by one thread early in the call, so that the
// store's way to the host is not at its end, and by EndCall if a rank has been masked since.
__device__ inline void TellLeftOut(const CallEndParams& end, uint32_t masked) {
  if (end.left_out != nullptr) *end.left_out = masked;
}

// Called by all threads of each of the receiving blocks, after their part.
__device__ inline CallEnd EndCall(const CallParams& c, const CallEndParams& end,
                                  const ReceivingBlocks& blocks) {
  // What the blocks add to the counter: one each, and this if they know of a rank that has been
  // masked in this call. So the last block need not look at the masks again.
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

#endif  // OCTET_KERNELS_DEVICE_CALL_END_H_
