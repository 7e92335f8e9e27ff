// Waits for packets: the device side of token_packet.h.
#ifndef OCTET_KERNELS_EP_DEVICE_TOKEN_PACKET_DEVICE_H_
#define OCTET_KERNELS_EP_DEVICE_TOKEN_PACKET_DEVICE_H_

#include <cstdint>

#include "device_ops.h"
#include "kernels/ep/device/token_packet.h"
#include "runtime/device/wait.h"

namespace octet::device {

// Waits for a packet of call `epoch`. Called by all lanes of a wave. Returns the number of its
// choices, or 0 if it did not arrive.
template <bool kMeasured = false>
__device__ inline int WaveAwaitPacket(const FailurePort& port, const Packet* packet, uint64_t epoch,
                                      const Site& site) {
  int choices = 0;
  if (Lane() == 0) {
    uint64_t start = 0;
    const bool came =
        WaitUntil<kMeasured>(port, &packet->flag, site, PackEpochCount(epoch, 0), &start,
                             [epoch](uint64_t word) { return EpochOf(word) >= epoch; });
    if (came) choices = static_cast<int>(CountOf(LoadRelaxed<Scope::kSystem>(&packet->flag)));
  }
  SyncWave();
  return Shuffle(choices, 0);
}

}  // namespace octet::device

#endif  // OCTET_KERNELS_EP_DEVICE_TOKEN_PACKET_DEVICE_H_
