// Copies from global to shared memory that each lane starts ahead, on emulated GPUs: done when the
// contract says so and no earlier. runtime/platform/README.md states it.
#ifndef OCTET_RUNTIME_PLATFORM_EMULATION_COPY_AHEAD_H_
#define OCTET_RUNTIME_PLATFORM_EMULATION_COPY_AHEAD_H_

#include <hip/hip_runtime.h>

#include <cstdint>

#include "device_ops.h"
#include "memory/poison.h"

namespace octet::device {

template <int groups, int most_copies>
class CopyAhead {
 public:
  void Start(Vec16* to, const Vec16* from, bool present) {
    constexpr uint32_t kWord = emulation::kPoisonWord;
    *to = {{kWord, kWord, kWord, kWord}};
    Group& group = groups_[committed_ % groups];
    group.copies[group.started++] = {to, present ? from : nullptr};
  }
  void Commit() {
    ++committed_;
    if (committed_ - done_ == groups) Finish();
    groups_[committed_ % groups].started = 0;
  }
  template <int in_flight>
  void Wait() {
    static_assert(in_flight < groups);
    while (committed_ - done_ > in_flight) Finish();
  }

 private:
  struct Copy {
    Vec16* to;
    const Vec16* from;  // nullptr: zeros
  };
  struct Group {
    Copy copies[most_copies];
    int started = 0;
  };

  // Does the copies of the oldest group.
  void Finish() {
    Group& group = groups_[done_++ % groups];
    for (int i = 0; i < group.started; ++i) {
      const Copy& copy = group.copies[i];
      *copy.to = copy.from == nullptr ? Vec16{} : LoadStream(copy.from);
    }
  }

  Group groups_[groups];
  uint32_t committed_ = 0;
  uint32_t done_ = 0;
};

}  // namespace octet::device

#endif  // OCTET_RUNTIME_PLATFORM_EMULATION_COPY_AHEAD_H_
