// The rest of seam.h for the kernels of low_latency, whose names those of the others have as well.
#ifndef OCTET_TESTS_FAULTS_LOW_LATENCY_SEAM_H_
#define OCTET_TESTS_FAULTS_LOW_LATENCY_SEAM_H_

#include <cstdint>

#include "kernels/ep/device/call_end.h"
#include "kernels/ep/device/counts.h"
#include "kernels/ep/device/credits.h"
#include "kernels/low_latency/phase.h"
#include "octet/fp8_scale.h"
#include "runtime/device/mask.h"
#include "tests/faults/fault.h"

namespace octet::device {

inline bool OfSender() { return static_cast<int>(blockIdx.x) < faults::planted.send_blocks; }

// These kernels store flags relaxed, behind a fence.
template <Scope scope, typename T>
__device__ inline void SeamStoreFlag(T* p, T v, Where where = Where::current()) {
  if (Planted(faults::Fault::kFlagNobodySets)) return;
  SeamStoreRelaxed<scope>(p, v, where);
  if (!Planted(faults::Fault::kFlagBeforePayload)) return;
  for (int i = 0; i < 100; ++i) Pause();
  for (unsigned i = 0; i < blockDim.x; ++i) StoreLateVectors(LateVectorsOfBlock()[i]);
}

__device__ inline void SeamStoreCount(uint64_t* word, uint64_t epoch, int count) {
  const bool less = Planted(faults::Fault::kCountTooSmall) && count > 0;
  StoreCount(word, epoch, less ? count - 1 : count);
}

class SeamCredits : public Credits {
 public:
  using Credits::Credits;
  template <typename Enum>
  __device__ void Await(const CallParams& c, uint64_t epoch, Enum where, uint32_t* granted) const {
    Credits::Await(c, Planted(faults::Fault::kCreditIgnored) ? 0 : epoch, where, granted);
    const bool writer = threadIdx.x == blockDim.x - static_cast<unsigned>(kWaveSize);
    if (writer && Planted(faults::Fault::kMaskedIsSentTo) && *granted != 0) *granted = ~0U;
  }
};

__device__ inline void SeamTellLeftOut(const CallEndParams& end, uint32_t masked) {
  if (!Planted(faults::Fault::kLeftOutNotSet)) TellLeftOut(end, masked);
}

__device__ inline CallEnd SeamEndCall(const CallParams& c, CallEndParams end,
                                      const ReceivingBlocks& blocks) {
  if (Planted(faults::Fault::kLeftOutNotSet)) end.left_out = nullptr;
  const CallEnd result = EndCall(c, end, blocks);
  if (result == CallEnd::kAgain && Planted(faults::Fault::kNotDoneAgain)) return CallEnd::kLast;
  const int peer = static_cast<int>(threadIdx.x);
  if (result == CallEnd::kLast && Planted(faults::Fault::kMaskForgotten) && peer < kMaxRanks) {
    StoreRelaxed<Scope::kDevice>(c.failure.masks + peer, uint32_t{kCountedOn});
  }
  return result;
}

template <bool kPossible>
class SeamMaskedInCall : public MaskedInCall<kPossible> {
 public:
  using MaskedInCall<kPossible>::MaskedInCall;
  __device__ bool Has(int peer) const {
    return !Planted(faults::Fault::kMaskedIsAdded) && MaskedInCall<kPossible>::Has(peer);
  }
};

}  // namespace octet::device

namespace octet {

template <typename Fp8>
constexpr float SeamFp8Scale(float amax, ScaleFormat format) {
  if (amax == 0.0F && device::Planted(faults::Fault::kScaleOfZeros)) return 0.0F;
  return Fp8Scale<Fp8>(amax, format);
}

}  // namespace octet

namespace octet::low_latency {

__device__ inline int SeamSource(const Layout& layout, int source) {
  const bool wrong = device::Planted(faults::Fault::kWrongSource) && device::OfSender();
  return wrong ? (source + 1) % layout.num_ranks : source;
}

// A dropped choice becomes one of the first expert, for those who receive.
__device__ inline int32_t SeamId(int32_t id) {
  const bool wrong = device::Planted(faults::Fault::kDropIsAwaited) && !device::OfSender();
  return wrong && id < 0 ? 0 : id;
}

}  // namespace octet::low_latency

#define Credits SeamCredits
#define EndCall SeamEndCall
#define TellLeftOut SeamTellLeftOut
#define MaskedInCall SeamMaskedInCall
#undef StoreRelaxed
#define StoreRelaxed SeamStoreFlag
#define StoreCount SeamStoreCount
#define Fp8Scale SeamFp8Scale
#define KeptPacket(kept, source, slot) \
  KeptPacket(kept, ::octet::low_latency::SeamSource(layout, source), slot)
#define IsExpert(id) IsExpert(::octet::low_latency::SeamId(id))
#define RankOf(id) RankOf(::octet::low_latency::SeamId(id))

#endif  // OCTET_TESTS_FAULTS_LOW_LATENCY_SEAM_H_
