// Addresses of one symmetric object on every rank. Plain records, shared by host and device.
#ifndef OCTET_PEERS_H_
#define OCTET_PEERS_H_

#include <cstddef>
#include <cstdint>

#include "octet/gpu.h"

namespace octet {

// The maximum number of ranks of a node. Arrays indexed by rank have this length.
inline constexpr int kMaxRanks = 16;

namespace device {

// The beginning of each rank's symmetric heap, as seen by the GPU that holds this record.
struct PeerBases {
  char* base[kMaxRanks];
  int rank;       // the rank that this record belongs to
  int num_ranks;  // base[0 .. num_ranks-1] are valid
};

// Returns the address on `peer` of the object at `mine` in this rank's heap. Every object has the
// same offset in every heap, so two bases suffice.
template <typename T>
OCTET_HOST_DEVICE inline T* Translate(const PeerBases& peers, T* mine, int peer) {
  const ptrdiff_t offset = reinterpret_cast<const char*>(mine) - peers.base[peers.rank];
  return reinterpret_cast<T*>(peers.base[peer] + offset);
}

}  // namespace device

// An object of `T`s at the same offset in every rank's symmetric heap.
template <typename T>
struct SymmetricPtr {
  size_t offset = 0;

  OCTET_HOST_DEVICE T* On(const device::PeerBases& peers, int rank) const {
    return reinterpret_cast<T*>(peers.base[rank] + offset);
  }
  OCTET_HOST_DEVICE T* Mine(const device::PeerBases& peers) const { return On(peers, peers.rank); }
};

}  // namespace octet

#endif  // OCTET_PEERS_H_
