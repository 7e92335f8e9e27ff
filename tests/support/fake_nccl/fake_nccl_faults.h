// What the fake of NCCL needs from its program, and may be told to do wrong.
#ifndef OCTET_TESTS_SUPPORT_FAKE_NCCL_FAKE_NCCL_FAULTS_H_
#define OCTET_TESTS_SUPPORT_FAKE_NCCL_FAKE_NCCL_FAULTS_H_

#include <cstddef>
#include <cstdint>

namespace octet::fake {

// The program's, since a library that is loaded cannot find HIP.
struct NcclHooks {
  // Enqueue work(data), or a kernel that waits until `*word` is not 0; 0 if that succeeds.
  int (*enqueue)(void* stream, void (*work)(void* data), void* data) = nullptr;
  int (*enqueue_wait)(void* stream, const uint32_t* word) = nullptr;
  bool (*is_capturing)(void* stream) = nullptr;
  void* (*allocate_pinned)(size_t bytes) = nullptr;
};

struct NcclFaults {
  int version = 22809;
  bool init_fails = false;  // with ncclSystemError
  bool init_hangs = false;
  bool connect_hangs = false;  // the first operation waits for ever, in its call
  bool never_ends = false;     // no operation ends, not even when it is aborted
  // Of the communicators that there are when the fault is told.
  bool never_sends = false;      // operations do not end
  bool reports_error = false;    // ncclRemoteError
  bool graphs_are_alive = true;  // ncclCommAbort waits for those that have captured operations
};

}  // namespace octet::fake

#endif  // OCTET_TESTS_SUPPORT_FAKE_NCCL_FAKE_NCCL_FAULTS_H_
