// A placement in GPU memory, and the kernel that turns logical experts into physical ones ahead of
// a dispatch. Shared by host and device.
#ifndef OCTET_KERNELS_PLACEMENT_KERNELS_H_
#define OCTET_KERNELS_PLACEMENT_KERNELS_H_

#include <hip/hip_runtime.h>

#include <cstddef>
#include <cstdint>

#include "octet/peers.h"
#include "runtime/device/failure_record.h"
#include "runtime/device/launch_shape.h"

namespace octet::placement {

// The replicas of an expert that a rank sends to, among PlacementTable::replicas.
struct ReplicaRange {
  int32_t first;
  int32_t count;
};

// A placement in the memory of a GPU, for the tokens of one source rank or of several.
struct PlacementTable {
  // [source ranks][num_experts]; of an expert on the source rank, that one replica. nullptr: there
  // is no placement.
  const ReplicaRange* ranges = nullptr;
  const int32_t* replicas = nullptr;  // physical ids by expert
  int num_experts = 0;                // logical ones
  int first_source = 0;               // the rank that ranges[0] is of
};

struct TranslateParams {
  device::FailurePort failure;
  PlacementTable table;
  int source_rank;
  const int32_t* topk_idx;  // [num_tokens][topk]
  int num_tokens;
  int topk;
  int32_t* physical;  // [num_tokens][topk]; -1 for what is dropped, and for what is refused
};

// Load the kernel on the current device, and enqueue it: each choice becomes the physical id of the
// replica that takes the token. Refuses ids as every dispatch does (routing_device.h).
hipError_t LoadTranslate();
hipError_t LaunchTranslate(const TranslateParams& params, const LaunchShape& shape,
                           hipStream_t stream);

// ---- moving experts

// A kind of experts' weights, at the same offset of each rank's memory: slot s has `slot_bytes`,
// a multiple of 4, from `offset + s * slot_bytes` on. `offset` is a multiple of 16.
struct SlotArray {
  size_t offset;
  size_t slot_bytes;
};
inline constexpr int kMostSlotArrays = 6;

// The copy of an expert from a slot of the rank that makes it.
struct ExpertCopy {
  int32_t from_slot;
  int32_t to_rank;
  int32_t to_slot;
};

// Returns slot `slot` of `rank`.
OCTET_HOST_DEVICE inline char* SlotAt(const device::PeerBases& peers, int rank,
                                      const SlotArray& array, int slot) {
  return peers.base[rank] + array.offset + static_cast<size_t>(slot) * array.slot_bytes;
}

struct CopyExpertsParams {
  device::FailurePort failure;
  device::PeerBases weights;
  SlotArray arrays[kMostSlotArrays];
  const ExpertCopy* copies;  // in host memory
  int num_copies;
};

// A switch to another placement replaces these parts of the rank's table, from host memory.
struct TableUpdate {
  ReplicaRange* ranges;
  int32_t* replicas;
  int32_t* locals;  // [num_experts]
  const ReplicaRange* new_ranges;
  const int32_t* new_replicas;
  const int32_t* new_locals;
  int num_ranges;
  int num_replicas;
  int num_experts;
};

// Memory of each rank that switches; zero at the start and after a failure.
struct SwitchState {
  uint64_t arrived[kMaxRanks];  // [rank] the last switch that it has come to; written by that rank
};

struct SwitchParams {
  device::FailurePort failure;
  device::PeerBases states;  // of SwitchState
  int num_ranks;
  uint64_t number;  // of the switch, from 1 on
  TableUpdate update;
  uint64_t* done;  // host memory: becomes `number` when `update` has been read
};

// The wait in LaunchSwitch: for a rank to come to the switch.
inline constexpr uint32_t kSwitchSite = 0;

hipError_t LoadMoves();
// Stores the experts into the slots of other ranks. Does nothing after a failure of this rank.
hipError_t LaunchCopyExperts(const CopyExpertsParams& params, const LaunchShape& shape,
                             hipStream_t stream);
// Tells all ranks that this one has come to the switch and made its copies, waits for all, and
// updates the table. If a rank does not come, or this one has failed before, the table stays.
hipError_t LaunchSwitch(const SwitchParams& params, const LaunchShape& shape, hipStream_t stream);

}  // namespace octet::placement

#endif  // OCTET_KERNELS_PLACEMENT_KERNELS_H_
