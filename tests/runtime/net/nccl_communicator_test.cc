// A communicator when its library does not return, or when there can be no more threads.
#include "runtime/net/rails/nccl_communicator.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <pthread.h>

#include <atomic>
#include <cstddef>

#include "absl/status/status.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "runtime/net/rails/nccl_library.h"
#include "tests/support/node/node_fixture.h"

namespace octet {
namespace {

using ::testing::HasSubstr;

constexpr absl::Duration kLongCall = absl::Seconds(4);

bool AlwaysGoOn() { return true; }

// What the library has been called for.
struct Calls {
  std::atomic<int> inits{0};
  std::atomic<int> aborts{0};  // that have returned
  std::atomic<bool> abort_waits{false};
};

Calls& TheCalls() {
  static Calls calls;
  return calls;
}

// One that never waits for others, but perhaps in ncclCommAbort.
NcclLibrary MakeLibrary() {
  NcclLibrary library = {};
  library.comm_init_rank_config = [](ncclComm_t* comm, int, ncclUniqueId, int, ncclConfig_t*) {
    ++TheCalls().inits;
    *comm = reinterpret_cast<ncclComm_t>(&TheCalls());
    return ncclSuccess;
  };
  library.comm_get_async_error = [](ncclComm_t, ncclResult_t* error) {
    *error = ncclSuccess;
    return ncclSuccess;
  };
  library.comm_abort = [](ncclComm_t) {
    const absl::Time end = absl::Now() + kLongCall;
    while (TheCalls().abort_waits && absl::Now() < end) absl::SleepFor(absl::Milliseconds(1));
    ++TheCalls().aborts;
    return ncclSuccess;
  };
  return library;
}

// Makes the system refuse new threads: no stack has room.
class NoNewThreads {
 public:
  NoNewThreads() {
    pthread_attr_init(&attributes_);
    pthread_getattr_default_np(&attributes_);
    pthread_attr_t huge;
    pthread_attr_init(&huge);
    pthread_attr_setstacksize(&huge, size_t{1} << 47);
    EXPECT_EQ(pthread_setattr_default_np(&huge), 0);
    pthread_attr_destroy(&huge);
  }
  ~NoNewThreads() {
    EXPECT_EQ(pthread_setattr_default_np(&attributes_), 0);
    pthread_attr_destroy(&attributes_);
  }

 private:
  pthread_attr_t attributes_;
};

class NcclCommunicatorTest : public ::testing::Test {
 protected:
  void SetUp() override {
    TheCalls().inits = 0;
    TheCalls().aborts = 0;
    TheCalls().abort_waits = false;
  }
  absl::Status Connect(NcclCommunicator& communicator) {
    return communicator.Connect({.num_nodes = 2, .node = 0, .id = {}}, AlwaysGoOn);
  }

  // Threads that are left behind may use it.
  static const NcclLibrary& Library() {
    static const NcclLibrary kLibrary = MakeLibrary();
    return kLibrary;
  }
};

TEST_F(NcclCommunicatorTest, AbortNeedsNoNewThread) {
  TheCalls().abort_waits = true;
  NcclCommunicator communicator(Library());
  ASSERT_OK(Connect(communicator));
  const absl::Time start = absl::Now();
  {
    const NoNewThreads none;
    communicator.Abort();
    EXPECT_OK(communicator.AsyncError());
  }
  EXPECT_LT(absl::Now() - start, kLongCall / 2) << "the library's abort takes longer";
  EXPECT_EQ(TheCalls().aborts, 0);
  TheCalls().abort_waits = false;
  communicator.AwaitAborted(absl::Seconds(20));
  EXPECT_EQ(TheCalls().aborts, 1);
}

TEST_F(NcclCommunicatorTest, DoesNotConnectIfItCouldNotBeAborted) {
  NcclCommunicator communicator(Library());
  {
    const NoNewThreads none;
    EXPECT_THAT(Connect(communicator), StatusIs(absl::StatusCode::kResourceExhausted,
                                                HasSubstr("no thread to abort a communicator")));
    communicator.Abort();
  }
  EXPECT_EQ(TheCalls().inits, 0);
  ASSERT_OK(Connect(communicator));
  EXPECT_EQ(TheCalls().inits, 1);
}

// Nobody waits twice for what does not end.
TEST_F(NcclCommunicatorTest, GivesUpWhatIsNotFreedInTime) {
  TheCalls().abort_waits = true;
  const absl::Time start = absl::Now();
  {
    NcclCommunicator communicator(Library());
    ASSERT_OK(Connect(communicator));
    communicator.Abort();
    communicator.AwaitAborted(absl::Milliseconds(100));
  }
  EXPECT_LT(absl::Now() - start, kLongCall / 2);
  TheCalls().abort_waits = false;
  while (TheCalls().aborts == 0) absl::SleepFor(absl::Milliseconds(1));
}

}  // namespace
}  // namespace octet
