// Reads packets in copies of control memory, for tables of flags. For strategies that send a token
// once to each rank.
#ifndef OCTET_KERNELS_EP_BASE_PACKET_FLAGS_H_
#define OCTET_KERNELS_EP_BASE_PACKET_FLAGS_H_

#include <cstdint>
#include <initializer_list>
#include <vector>

#include "kernels/ep/device/call_layout.h"

namespace octet {

// Returns the flag words of packets [M] of one source: of as many packets as the source announced
// for call `epoch` in `count`, and of all that arrived beyond them (a call that reuses a layout
// announces nothing).
std::vector<uint64_t> PacketWords(const PacketLayout& layout, const device::Packet* packets,
                                  uint64_t count, uint64_t epoch);

// A row that combine returns.
struct ReturnedRow {
  int token;
  int slot;  // one of the token's combine_slots
};

// Returns the rows of a rank's last dispatch that `peer` has to send back, according to the packets
// that `peer` has received from that rank. `arrays`: the arrays of these packets, [M] each.
std::vector<ReturnedRow> ReturnedRows(const PacketLayout& layout, int peer,
                                      std::initializer_list<const device::Packet*> arrays);

}  // namespace octet

#endif  // OCTET_KERNELS_EP_BASE_PACKET_FLAGS_H_
