// The seam through which faults get into the kernel of decode, as seam.h is that of the strategies:
// decode.hip is compiled with `-include tests/faults/decode_seam.h`, the real headers come first,
// then their names are replaced. With DecodeFault::kNone these are what they replace.
#ifndef OCTET_TESTS_FAULTS_DECODE_SEAM_H_
#define OCTET_TESTS_FAULTS_DECODE_SEAM_H_

#include <hip/hip_runtime.h>

#include <cstdint>
#include <source_location>
#include <string_view>

#include "box_copy.h"
#include "copy_ahead.h"
#include "device_ops.h"
#include "kernels/decode/layout.h"
#include "kernels/placement/table_device.h"
#include "runtime/device/epoch.h"
#include "tests/faults/decode_fault.h"

namespace octet::faults {

inline bool Planted(DecodeFault fault) { return planted_decode == fault; }

}  // namespace octet::faults

namespace octet::device {

inline void SeamSyncBlockStores(std::source_location where = std::source_location::current()) {
  const bool of_rows =
      std::string_view(where.function_name()).find("SendPart(") != std::string_view::npos;
  if (!of_rows || !faults::Planted(faults::DecodeFault::kFlagBeforeRows)) SyncBlockStores();
}

inline uint64_t SeamEpochOf(uint64_t flag) {
  return EpochOf(flag) + (faults::Planted(faults::DecodeFault::kStaleTokens) ? 1 : 0);
}

template <int groups, int most_copies>
class SeamCopyAhead : public CopyAhead<groups, most_copies> {
 public:
  template <int in_flight>
  void Wait() {
    if (faults::Planted(faults::DecodeFault::kRingOneSlotShort)) {
      CopyAhead<groups, most_copies>::template Wait<in_flight + 1>();
    } else {
      CopyAhead<groups, most_copies>::template Wait<in_flight>();
    }
  }
};

inline void SeamBoxWait(BoxBarrier* barrier, uint32_t round) {
  if (!faults::Planted(faults::DecodeFault::kRingOneSlotShort)) BoxWait(barrier, round);
}

}  // namespace octet::device

namespace octet::placement {

// As PhysicalOf, on rank `rank`, each of which has `slots`.
inline int32_t SeamPhysicalOf(int rank, int slots, const PlacementTable& table, int32_t expert,
                              const SourceToken& token) {
  const ReplicaRange range = RangeOf(table, token.rank, expert);
  for (int i = 0; i < range.count; ++i) {
    const int32_t replica = table.replicas[range.first + i];
    if (faults::Planted(faults::DecodeFault::kTwoReplicasTakeAToken) && replica / slots == rank) {
      return replica;
    }
  }
  return PhysicalOf(table, expert, token);
}

}  // namespace octet::placement

// The choice of experts has its parameters in p_.
#define PhysicalOf(...) SeamPhysicalOf(p_.peers.rank, p_.num_local_experts, __VA_ARGS__)
// The protocol, the rings and the kernel are included from here on.
#define SyncBlockStores SeamSyncBlockStores
#define EpochOf SeamEpochOf
#define CopyAhead SeamCopyAhead
#define BoxWait SeamBoxWait

#include "kernels/decode/chosen.h"
#include "kernels/decode/protocol.h"

namespace octet::decode {

class SeamProtocol : public Protocol {
 public:
  SeamProtocol(const DecodeParams& p, uint64_t epoch) : Protocol(p, epoch), state_(p.state) {}

  template <typename Meanwhile>
  bool SeamGridBarrier(int number, int barriers, Site site, Meanwhile meanwhile) const {
    const auto fault = site == Site::kLogits ? faults::DecodeFault::kNoLogitsBarrier
                                             : faults::DecodeFault::kNoProductsBarrier;
    if (!faults::Planted(fault)) return GridBarrier(number, barriers, site, meanwhile);
    __syncthreads();
    if (threadIdx.x == 0) device::AddRelease<device::Scope::kDevice>(&state_->arrived, uint64_t{1});
    meanwhile();
    return true;
  }
  bool SeamGridBarrier(int number, int barriers, Site site) const {
    return SeamGridBarrier(number, barriers, site, [] {});
  }
  bool SeamAwaitPartials() const {
    return faults::Planted(faults::DecodeFault::kPartialsNotAwaited) || AwaitPartials();
  }

 private:
  State* const state_;
};

template <bool dense>
class SeamChoice : public Choice<dense> {
 public:
  using Choice<dense>::Choice;

  int List() const {
    const int entries = Choice<dense>::List();
    return faults::Planted(faults::DecodeFault::kExpertLeftOut) ? entries - 1 : entries;
  }
};

// Returns the rank whose partial row is the `index`-th that rank `own` of `num_ranks` adds.
inline int SeamAddend(int index, int own, int num_ranks) {
  return faults::Planted(faults::DecodeFault::kSumFromOwnRank) ? (index + own) % num_ranks : index;
}

}  // namespace octet::decode

#define Protocol SeamProtocol
#define GridBarrier SeamGridBarrier
#define AwaitPartials SeamAwaitPartials
#define Choice SeamChoice
// The kernel calls its parameters p.
#define Partial(base, rank, token) \
  Partial(base, SeamAddend(rank, p.peers.rank, p.layout.num_ranks), token)

#endif  // OCTET_TESTS_FAULTS_DECODE_SEAM_H_
