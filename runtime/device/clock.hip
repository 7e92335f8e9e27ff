// Ping-pong between two GPUs, one thread on each:
//
//   caller      t0 --- round --->             t1        offset = t - (t0 + t1) / 2
//   responder                     t --- t, round --->   round trip = t1 - t0
//
// The offset would be exact if both directions took equally long; its error is at most half a round
// trip. The fastest of many rounds was disturbed least.
#include "runtime/device/clock.h"

#include <hip/hip_runtime.h>

#include <cstdint>

#include "device_ops.h"
#include "runtime/device/launch_cooperative.h"
#include "runtime/device/load_kernel.h"
#include "runtime/device/wait.h"

namespace octet::device {

__global__ void ClockCallerKernel(ClockPairParams params) {
  if (threadIdx.x != 0) return;
  ClockOffset best = {0, ~uint64_t{0}};
  for (uint64_t round = 1; round <= params.rounds; ++round) {
    const Site site = {params.site, params.peer, static_cast<uint32_t>(round)};
    const uint64_t t0 = Clock();
    StoreRelease<Scope::kSystem>(&params.theirs->round, round);
    if (!WaitEpoch(params.port, &params.mine->round, round, site)) return;
    const uint64_t t1 = Clock();
    const uint64_t t = LoadRelaxed<Scope::kSystem>(&params.mine->clock);
    if (t1 - t0 < best.round_trip_ticks) {
      best.round_trip_ticks = t1 - t0;
      best.offset_ticks = static_cast<int64_t>(t - t0) - static_cast<int64_t>((t1 - t0) / 2);
    }
  }
  *params.result = best;
}

__global__ void ClockResponderKernel(ClockPairParams params) {
  if (threadIdx.x != 0) return;
  for (uint64_t round = 1; round <= params.rounds; ++round) {
    const Site site = {params.site, params.peer, static_cast<uint32_t>(round)};
    if (!WaitEpoch(params.port, &params.mine->round, round, site)) return;
    StoreRelaxed<Scope::kSystem>(&params.theirs->clock, Clock());
    StoreRelease<Scope::kSystem>(&params.theirs->round, round);
  }
}

namespace {

LaunchShape OneWave() { return {.blocks = 1, .threads = kWaveSize}; }

}  // namespace

hipError_t LaunchClockCaller(const ClockPairParams& params, hipStream_t stream) {
  return LaunchCooperative(ClockCallerKernel, params, OneWave(), stream);
}

hipError_t LaunchClockResponder(const ClockPairParams& params, hipStream_t stream) {
  return LaunchCooperative(ClockResponderKernel, params, OneWave(), stream);
}

hipError_t LoadClockKernels() { return LoadKernels(ClockCallerKernel, ClockResponderKernel); }

uint64_t ClockHz() { return HostClockHz(); }

}  // namespace octet::device
