#include "kernels/ep/base/packet_flags.h"

#include <algorithm>

#include "kernels/ep/device/token_packet.h"
#include "runtime/device/epoch.h"

namespace octet {
namespace {

const device::Packet* Slot(const PacketLayout& layout, const device::Packet* packets, int slot) {
  return reinterpret_cast<const device::Packet*>(reinterpret_cast<const char*>(packets) +
                                                 slot * layout.packet_bytes);
}

}  // namespace

std::vector<uint64_t> PacketWords(const PacketLayout& layout, const device::Packet* packets,
                                  uint64_t count, uint64_t epoch) {
  const int announced =
      device::EpochOf(count) == epoch ? static_cast<int>(device::CountOf(count)) : 0;
  std::vector<uint64_t> words;
  for (int slot = 0; slot < layout.max_tokens; ++slot) {
    const uint64_t word = Slot(layout, packets, slot)->flag;
    if (slot < announced || device::EpochOf(word) >= epoch) words.push_back(word);
  }
  return words;
}

std::vector<ReturnedRow> ReturnedRows(const PacketLayout& layout, int peer,
                                      std::initializer_list<const device::Packet*> arrays) {
  uint64_t last = 1;
  std::vector<const device::Packet*> packets;
  for (const device::Packet* array : arrays) {
    for (int slot = 0; slot < layout.max_tokens; ++slot) {
      packets.push_back(Slot(layout, array, slot));
      last = std::max(last, device::EpochOf(packets.back()->flag));
    }
  }
  std::vector<ReturnedRow> rows;
  for (const device::Packet* packet : packets) {
    if (device::EpochOf(packet->flag) != last) continue;
    const int choices = layout.per_rank ? 1 : static_cast<int>(device::CountOf(packet->flag));
    for (int i = 0; i < choices; ++i) {
      const uint32_t origin = packet->choices()[i].origin;
      rows.push_back({.token = device::TokenOf(origin),
                      .slot = layout.per_rank
                                  ? packet->combine_slot
                                  : layout.CombineSlot(peer, i, device::TopkOf(origin))});
    }
  }
  return rows;
}

}  // namespace octet
