// The memory through which the ranks of a strategy coordinate their calls: the strategy's part of
// the symmetric heap, whose control memory holds counts, credits and flags, and the strategy's own
// state on each GPU, which holds the epochs.
//
// All control memory is reset together, so that every rank expects the same epoch next.
#ifndef OCTET_KERNELS_EP_BASE_CONTROL_MEMORY_H_
#define OCTET_KERNELS_EP_BASE_CONTROL_MEMORY_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "kernels/ep/device/call_layout.h"
#include "kernels/ep/device/rank_flags.h"
#include "kernels/ep/site_info.h"
#include "octet/node.h"
#include "octet/peers.h"
#include "octet/symmetric_heap.h"
#include "runtime/device/call_epoch.h"
#include "runtime/memory/node_memory.h"

namespace octet {

// Returns how much symmetric heap a strategy with that layout needs.
HeapSize HeapSizeOf(const CallLayout& layout);

// The memory that a strategy needs on each rank.
struct ControlNeeds {
  CallLayout layout;   // of its part of the symmetric heap
  size_t state_bytes;  // its state (StateOn); zero before the first call except for the CallEpochs
  int call_epochs;     // the number of CallEpochs at the start of the state
  // Whether dispatch credits hold the number of a layout beside their epoch
  // (runtime/device/epoch.h).
  bool layouts_in_credits = false;
};

class ControlMemory {
 public:
  explicit ControlMemory(int num_ranks) : ranks_(static_cast<size_t>(num_ranks)) {}

  // Takes the strategy's part of `heap`, or of a heap of its own if that is null. Must be called
  // first, once, and not during Run. Returns kResourceExhausted if there is not enough memory.
  absl::Status TakeHeap(Node& node, const ControlNeeds& needs, SymmetricHeap* heap);
  // Allocates the rank's state in `memory`. Reset makes it usable.
  absl::Status AllocateState(const Rank& rank, NodeMemory& memory);
  bool HasState(const Rank& rank) const { return !Of(rank.rank()).state.empty(); }

  const CallLayout& layout() const { return needs_.layout; }
  // The base addresses of the strategy's part of the heap's uncached memory, as the rank sees them.
  const device::PeerBases& peers(int rank) const { return peers_[Index(rank)]; }
  // Likewise of its cached memory, which the layout must have.
  const device::PeerBases& cached_peers(int rank) const { return cached_peers_[Index(rank)]; }
  char* state(int rank) const { return Of(rank).state.data(); }

  // Enqueues a reset to the state in which all ranks have just completed call `epoch` - 1 and call
  // `epoch` comes next.
  absl::Status Reset(Rank& rank, uint64_t epoch);
  // Returns an epoch beyond any that a rank has used, the same on all ranks, for Reset. Called by
  // all ranks together.
  absl::StatusOr<uint64_t> AgreeOnEpoch(Rank& rank);

  // Enqueues a copy of the rank's control memory to the host.
  absl::Status CopyToHost(Rank& rank);
  // Returns that copy, when it is done. The layout's functions take it in place of the heap.
  char* copied(int rank) { return reinterpret_cast<char*>(Of(rank).copied.data()); }
  void DropCopies();
  // Returns the words of these flags, in the copies, that `wait.rank` waits for from `wait.peer`:
  // one credit, or all counts. `flags` must not be FlagKind::kOwn.
  std::vector<uint64_t> CopiedWords(FlagKind flags, const FlagWait& wait);

 private:
  struct RankMemory {
    absl::Span<char> state;
    // The sources of Reset's copies to the GPU, needed until the stream is drained.
    std::vector<Flag> reset_credits;
    std::vector<device::CallEpoch> reset_epochs;
    std::vector<Flag> copied;
    uint64_t resets = 0;  // calls of AgreeOnEpoch
  };

  static size_t Index(int rank) { return static_cast<size_t>(rank); }
  RankMemory& Of(int rank) { return ranks_[Index(rank)]; }
  const RankMemory& Of(int rank) const { return ranks_[Index(rank)]; }
  // Allocates `bytes` of the heap and returns their base addresses, by rank.
  absl::StatusOr<std::vector<device::PeerBases>> TakePart(SymmetricHeap& heap, size_t bytes,
                                                          HeapMemory kind) const;

  ControlNeeds needs_ = {};
  std::unique_ptr<SymmetricHeap> own_heap_;
  std::vector<device::PeerBases> peers_;         // by rank
  std::vector<device::PeerBases> cached_peers_;  // by rank; empty if the layout has no such memory
  std::vector<RankMemory> ranks_;
};

}  // namespace octet

#endif  // OCTET_KERNELS_EP_BASE_CONTROL_MEMORY_H_
