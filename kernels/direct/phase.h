// What the phases of `direct` have in common: credits and the names of waits.
#ifndef OCTET_KERNELS_DIRECT_PHASE_H_
#define OCTET_KERNELS_DIRECT_PHASE_H_

#include "kernels/device/credits.h"
#include "kernels/direct/kernels.h"

namespace octet::direct {

using device::MakeSite;

// One block tells every peer that this rank has consumed all that it was sent in dispatches and
// combines up to these.
__device__ inline void ReturnCredits(const CommonParams& c, uint64_t dispatches,
                                     uint64_t combines) {
  device::GiveCredits(c, c.layout.dispatch_credits, dispatches);
  device::GiveCredits(c, c.layout.combine_credits, combines, /*fence=*/false);
}

}  // namespace octet::direct

#endif  // OCTET_KERNELS_DIRECT_PHASE_H_
