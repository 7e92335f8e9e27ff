// Kernels that wait, fail and hang on purpose.
#ifndef OCTET_TESTS_SUPPORT_NODE_NODE_KERNELS_H_
#define OCTET_TESTS_SUPPORT_NODE_NODE_KERNELS_H_

#include <hip/hip_runtime.h>

#include <cstdint>

#include "runtime/device/failure_record.h"

namespace octet {

// One thread stores `epoch` into `to` (if not null), then waits for `flag` to reach `epoch` (if not
// null), then adds 1 to `passed`.
struct ExchangeParams {
  device::FailurePort port;
  device::Site site;
  uint64_t* to;
  const uint64_t* flag;
  uint64_t epoch;
  uint64_t* passed;
};
hipError_t LaunchExchange(const ExchangeParams& params, hipStream_t stream);

// Refuses its input.
struct RefuseParams {
  device::FailurePort port;
  device::Site site;
  uint64_t value;
};
hipError_t LaunchRefuse(const RefuseParams& params, hipStream_t stream);

// Runs until *word is not 0, whatever anybody says.
hipError_t LaunchStubborn(uint32_t* word, hipStream_t stream);

// Runs for so many ticks of the device's clock.
hipError_t LaunchWork(uint64_t ticks, hipStream_t stream);

// Reads *word.
hipError_t LaunchTouch(const uint32_t* word, uint32_t* result, hipStream_t stream);

// Stores `value` into all words; counts those that are not `value` in `wrong`.
struct WordsParams {
  uint64_t* words[16];
  int count;
  uint64_t value;
  uint64_t* wrong;
};
hipError_t LaunchStoreWords(const WordsParams& params, hipStream_t stream);
hipError_t LaunchCheckWords(const WordsParams& params, hipStream_t stream);

}  // namespace octet

#endif  // OCTET_TESTS_SUPPORT_NODE_NODE_KERNELS_H_
