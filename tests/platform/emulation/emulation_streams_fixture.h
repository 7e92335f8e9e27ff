// A fixture for tests of streams of emulated GPUs.
#ifndef OCTET_TESTS_PLATFORM_EMULATION_EMULATION_STREAMS_FIXTURE_H_
#define OCTET_TESTS_PLATFORM_EMULATION_EMULATION_STREAMS_FIXTURE_H_

#include <atomic>
#include <bit>
#include <chrono>
#include <cmath>
#include <fstream>
#include <string>
#include <thread>

#include "memory/poison.h"
#include "tests/platform/emulation/emulation_fixture.h"
#include "tests/support/no_more_threads.h"

namespace octet {

class EmulationStreamsTest : public EmulationTest {
 protected:
  static hipStream_t NewStream(unsigned flags = hipStreamNonBlocking) {
    hipStream_t stream = nullptr;
    EXPECT_HIP_OK(hipStreamCreateWithFlags(&stream, flags));
    return stream;
  }
};

inline size_t ResidentBytes() {
  std::ifstream file("/proc/self/statm");  // in pages: all, resident, ...
  size_t total = 0;
  size_t resident = 0;
  EXPECT_TRUE(file >> total >> resident);
  return resident * 4096;
}

}  // namespace octet

#endif  // OCTET_TESTS_PLATFORM_EMULATION_EMULATION_STREAMS_FIXTURE_H_
