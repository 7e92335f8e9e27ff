// Kernels that try every function of device_ops.h once; tests/platform/device_ops_test.cc says what
// is right.
#ifndef OCTET_TESTS_PLATFORM_DEVICE_OPS_KERNELS_H_
#define OCTET_TESTS_PLATFORM_DEVICE_OPS_KERNELS_H_

#include <hip/hip_runtime.h>

#include <cstdint>

#include "runtime/device/launch_shape.h"

namespace octet {

// What the platform says of itself, filled by one thread.
struct PlatformFacts {
  int wave_size;
  int min_wave_size;
  uint64_t clock_hz;
};

// One thread's answers of the wave functions.
struct WaveAnswers {
  int lane;
  int wave;
  uint32_t from_lane_3;  // Shuffle of the thread's index
  uint64_t rotated;      // Shuffle of a 64-bit value, from the next lane
  float xor_1;
  uint32_t xor_half;  // from the lane half a wave away
  uint64_t up_5;
  uint64_t odd_threads;  // Ballot
  uint32_t neighbour;    // through shared memory and SyncWave
};
struct WaveParams {
  PlatformFacts* facts;
  WaveAnswers* answers;  // [threads of the block]
};
hipError_t LaunchWaves(const WaveParams& params, LaunchShape shape, hipStream_t stream);

// Pack and unpack, element by element.
struct ConvertParams {
  const float* floats;  // [2 * pairs]
  uint32_t* bf16;       // [pairs]
  uint32_t* fp16;       // [pairs]
  int pairs;
  const uint32_t* bits;  // [bit_pairs]: unpacked as both formats
  float* from_bf16;      // [2 * bit_pairs]
  float* from_fp16;      // [2 * bit_pairs]
  int bit_pairs;
  const uint32_t* fp8;      // [2 * fp8_vecs]: eight numbers in two words
  uint32_t* bf16_from_fp8;  // [4 * fp8_vecs]
  int fp8_vecs;
};
hipError_t LaunchConvert(const ConvertParams& params, LaunchShape shape, hipStream_t stream);

// Every thread draws tickets from shared counters.
struct AtomicParams {
  uint32_t* block_sums;    // [blocks]: threads that added to their block's shared counter
  uint64_t* device_count;  // FetchAddRelaxed, device scope
  uint32_t* tickets;       // [blocks * threads]: FetchAddAcqRel at system scope gave each of them
  uint32_t* ticket_count;
  int32_t* negative;  // every thread adds -1
  uint32_t* token;    // every thread puts its index + 1 in and adds up what it gets out
  uint64_t* token_sum;
};
hipError_t LaunchAtomics(const AtomicParams& params, LaunchShape shape, hipStream_t stream);

// Two resident blocks: block 0 sends `rounds` messages to block 1, which checks them.
// A message is `vecs` vectors of 16 bytes, then its number as a flag.
struct MessageParams {
  void* rows;      // [rounds][vecs] of 16 bytes
  void* packets;   // [threads] of 16 bytes, each rewritten every round by one StoreOnce16
  uint64_t* flag;  // round that is ready: release and relaxed poll with fence, by turns
  uint32_t* packets_wrong;
  uint32_t* rows_wrong;
  uint32_t* timeouts;
  int rounds;
  int vecs;
};
hipError_t LaunchMessages(const MessageParams& params, LaunchShape shape, hipStream_t stream);

// One thread reads the clock until 100 µs have passed.
struct ClockParams {
  uint64_t* ticks;      // that passed
  uint32_t* backwards;  // readings before their predecessor
};
hipError_t LaunchClock(const ClockParams& params, hipStream_t stream);

}  // namespace octet

#endif  // OCTET_TESTS_PLATFORM_DEVICE_OPS_KERNELS_H_
