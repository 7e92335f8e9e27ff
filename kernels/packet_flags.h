// What the packets in copies of control memory say, for tables of flags: strategies that send a
// token once to each rank.
#ifndef OCTET_KERNELS_PACKET_FLAGS_H_
#define OCTET_KERNELS_PACKET_FLAGS_H_

#include <cstdint>
#include <initializer_list>
#include <vector>

#include "kernels/device/call_layout.h"

namespace octet {

// The epochs of packets [M] of one source: of as many as it has announced for call `epoch` in
// `count`, and of all that have come beyond them (a layout that is used again announces nothing).
std::vector<uint64_t> PacketEpochs(const PacketLayout& layout, const device::Packet* packets,
                                   uint64_t count, uint64_t epoch);

// A row on its way home.
struct RowHome {
  int token;
  int slot;  // of the token's combine_slots
};

// The rows of a rank's last dispatch that `peer` has to send back, by the packets that it has
// received from that rank. `arrays`: where they lie, [M] in each.
std::vector<RowHome> RowsHome(const PacketLayout& layout, int peer,
                              std::initializer_list<const device::Packet*> arrays);

}  // namespace octet

#endif  // OCTET_KERNELS_PACKET_FLAGS_H_
