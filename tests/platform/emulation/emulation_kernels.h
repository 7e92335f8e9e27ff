// Small kernels that show one behaviour of the emulated GPUs each, and who launches them.
#ifndef OCTET_TESTS_PLATFORM_EMULATION_EMULATION_KERNELS_H_
#define OCTET_TESTS_PLATFORM_EMULATION_EMULATION_KERNELS_H_

#include <hip/hip_runtime_api.h>

#include <cstddef>
#include <cstdint>

#include "runtime/device/launch_shape.h"

namespace octet {

// ---- emulation_collectives_kernels.hip

struct WaveResult {
  uint32_t from_first;
  uint32_t xor_1;
  uint32_t up_1;
  uint64_t from_next;
  uint64_t odd;
};
// One result per thread. With `odd_leave`, odd threads leave before the ballot of the others.
hipError_t LaunchWaveOps(WaveResult* results, bool odd_leave, LaunchShape shape,
                         hipStream_t stream);

// Each block adds up its thread numbers through static and dynamic shared memory, `rounds` times,
// and writes the sum of all. Needs threads * 4 bytes of dynamic shared memory.
// Sets the most dynamic shared memory of its launches on the current device.
hipError_t LimitBlockSum(int shared_bytes);
// Asks for it, and for how many such blocks fit on a compute unit.
hipError_t AskAboutBlockSum(size_t shared_bytes, int* limit, int* blocks);
hipError_t LaunchBlockSum(uint32_t* sums, int rounds, LaunchShape shape, hipStream_t stream);

// `rounds` times, every thread checks that all threads of the grid have counted up, then counts.
// `errors` counts what was wrong.
hipError_t LaunchGridRounds(uint32_t* counter, uint32_t* errors, int rounds, LaunchShape shape,
                            bool cooperative, hipStream_t stream);

// The last block stores 1 to the words 2 t and 2 t + 1 of each of its threads t. The waves of the
// others poll both words, with a ballot, until all lanes have them.
hipError_t LaunchPollTogether(uint32_t* polled, uint32_t* stored, LaunchShape shape,
                              hipStream_t stream);

// Writes what a static shared array holds before anybody writes to it.
hipError_t LaunchReadFreshShared(uint32_t* values, LaunchShape shape, hipStream_t stream);

// ---- emulation_streams_kernels.hip

// out[i] = in[i] + 1.
hipError_t LaunchIncrement(const uint32_t* in, uint32_t* out, int count, hipStream_t stream);

// Stores `value` at `theirs`, then waits until `mine` is at least `value`.
hipError_t LaunchHandshake(uint32_t* mine, uint32_t* theirs, uint32_t value, hipStream_t stream);

// Waits until `flag` is at least `value`; alternates between `flag` and `other` if that is not
// nullptr.
hipError_t LaunchWaitFor(const uint32_t* flag, const uint32_t* other, uint32_t value,
                         hipStream_t stream, LaunchShape shape = {.blocks = 1, .threads = 32});
// Each block but the last one waits for the next one, then sets its own flag.
hipError_t LaunchAwaitNextBlock(uint32_t* flags, int blocks, int threads, hipStream_t stream);
hipError_t LaunchStoreFlag(uint32_t* flag, uint32_t value, hipStream_t stream);

// Waits until `flag` is not 0 or `ticks` have passed; writes the ticks waited, negative if the flag
// came.
hipError_t LaunchWaitWithDeadline(const uint32_t* flag, uint64_t ticks, int64_t* waited,
                                  int polls_per_clock, hipStream_t stream);

// ---- emulation_errors_kernels.hip

enum class Touch { kLoadStream, kStoreStream, kLoad, kStore, kAdd, kLoadOnce, kStoreOnce };
hipError_t LaunchTouch(Touch touch, char* address, hipStream_t stream);

// Lane 0 comes to another collective than the others.
hipError_t LaunchDivergentWave(hipStream_t stream);
hipError_t LaunchDivergentBlock(hipStream_t stream);
hipError_t LaunchLeaveBeforeGridSync(hipStream_t stream);
hipError_t LaunchDeepRecursion(uint32_t* out, int depth, hipStream_t stream);
hipError_t LaunchTooMuchStaticShared(uint32_t* out, hipStream_t stream);

// ---- emulation_schedule_kernels.hip

// All threads draw tickets; `order[ticket]` is the thread.
hipError_t LaunchTickets(uint32_t* counter, uint32_t* order, LaunchShape shape, hipStream_t stream);

// Passes a value from producer to consumer, `rounds` times. `consumed` says that the slot may be
// used again; a producer that does not wait for it overwrites values that have not been read.
struct PassParams {
  uint32_t* slot;      // on the consumer
  uint32_t* produced;  // on the consumer
  uint32_t* consumed;  // on the producer
  uint32_t* errors;    // on the consumer
  int rounds;
  bool wait_for_consumer;
};
hipError_t LaunchProducer(const PassParams& params, hipStream_t stream);
hipError_t LaunchConsumer(const PassParams& params, hipStream_t stream);

// ---- emulation_race_kernels.hip

enum class Publish {
  kRelease,        // system scope, all is well
  kFence,          // relaxed after a release fence of system scope
  kRelaxed,        // orders nothing
  kReleaseDevice,  // too small a scope for a peer
  kFenceDevice,
  kNoWaveSync,  // lane 0 publishes what other lanes have stored
  kOtherWave,   // a wave publishes what another one has stored, knowing of it by a relaxed flag
  kPlainFlag,   // releases, but stores the flag itself plainly
};
enum class Consume {
  kFence,        // system scope, all is well
  kAcquire,      // so is this
  kFenceDevice,  // too small a scope for a peer
  kRelaxed,      // orders nothing
  kNoWaveSync,   // lanes read what lane 0 has waited for
};
// One wave of the sender stores a row and publishes it; one wave of the receiver waits and reads.
hipError_t LaunchSendRow(Publish how, char* row, uint32_t* flag, uint32_t value,
                         hipStream_t stream);
hipError_t LaunchReceiveRow(Consume how, const char* row, const uint32_t* flag, uint32_t value,
                            char* to, hipStream_t stream);
inline constexpr int kRowBytes = 4096;

// Waits for `in` with acquire at system scope, then releases `out` at device scope.
hipError_t LaunchRelay(const uint32_t* in, uint32_t* out, uint32_t value, hipStream_t stream);

enum class Meet { kBarrier, kReleaseDevice, kReleaseBlock, kRelaxed };
// The waves of a block (one block) or the blocks of a grid (more) store their thread numbers + 1,
// meet, and check what the next wave or block has stored: in shared memory for one block, in
// `values` for more. `counter` starts at 0. Cooperative.
hipError_t LaunchExchange(Meet meet, uint32_t* values, uint32_t* counter, uint32_t* errors,
                          LaunchShape shape, hipStream_t stream);

// Stores `value` at record[1..3], then publishes at record[0].
hipError_t LaunchWriteRecord(Publish how, uint32_t* record, uint32_t value, hipStream_t stream);

// ---- emulation_endless_kernels.hip

// Runs until *word, in pinned memory, is not 0, and lets nothing else run on its worker's thread.
hipError_t LaunchEndless(uint32_t* word, hipStream_t stream);

}  // namespace octet

#endif  // OCTET_TESTS_PLATFORM_EMULATION_EMULATION_KERNELS_H_
