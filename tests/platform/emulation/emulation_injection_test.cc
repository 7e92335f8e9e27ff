// One call of the HIP API fails, each in its turn: whatever is under way ends with that error and
// leaves everything as it was.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <hip/hip_runtime_api.h>

#include <cstddef>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "emulation.h"
#include "octet/expert_parallel.h"
#include "octet/node.h"
#include "tests/support/ep_harness.h"
#include "tests/support/node/node_fixture.h"

namespace octet {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr int kInjectedRanks = 2;
constexpr absl::Duration kTimeout = absl::Seconds(20);
// Nobody waits for the deadline of somebody else's error.
constexpr absl::Duration kSoon = absl::Seconds(10);

EpConfig SmallConfig() {
  EpConfig config;
  config.num_experts = 4;
  config.topk = 2;
  config.hidden = 64;
  config.max_tokens_per_rank = 4;
  config.tuning = {.blocks = 4, .waves_per_block = 2};
  return config;
}

// Bytes in use on all GPUs together.
size_t UsedBytes() {
  int devices = 0;
  EXPECT_EQ(hipSuccess, hipGetDeviceCount(&devices));
  size_t used = 0;
  for (int device = 0; device < devices; ++device) {
    EXPECT_EQ(hipSuccess, hipSetDevice(device));
    size_t free_bytes = 0;
    size_t total = 0;
    EXPECT_EQ(hipSuccess, hipMemGetInfo(&free_bytes, &total));
    used += total - free_bytes;
  }
  EXPECT_EQ(hipSuccess, hipSetDevice(0));
  return used;
}

class InjectionTest : public NodeTest {
 protected:
  InjectionTest() {
    emulation::Config config = emulation::CurrentConfig();
    config.devices = kInjectedRanks;
    emulation::Reconfigure(config);
  }
  ~InjectionTest() override { emulation::EndInjection(); }

  static StepInput Input(int seed) {
    std::mt19937_64 rng(static_cast<uint64_t>(seed));
    return RandomStep(rng, SmallConfig(), std::vector<int>(kInjectedRanks, 3));
  }
  static absl::StatusOr<std::unique_ptr<EpHarness>> MakeHarness() {
    return EpHarness::Create(kInjectedRanks, SmallConfig(), {.timeout = kTimeout});
  }

  // Lets the first, second, ... call of `operation` fail until it makes no more of them. With
  // `device`, only calls of threads whose GPU that is. `after` gets the operation's Status and the
  // call that failed.
  static void Sweep(int device, const std::function<absl::Status()>& operation,
                    const std::function<void(const absl::Status&, const std::string&)>& after) {
    constexpr uint64_t kEnough = 10'000;
    for (uint64_t call = 1; call < kEnough; ++call) {
      emulation::InjectError({.call = call, .device = device});
      const absl::Time start = absl::Now();
      const absl::Status status = operation();
      const std::string hit = emulation::EndInjection();
      EXPECT_LT(absl::Now() - start, kSoon) << "call " << call << ", " << hit;
      SCOPED_TRACE(absl::StrCat("device ", device, ", call ", call, ": ", hit));
      if (hit.empty()) {
        EXPECT_OK(status);
        EXPECT_GT(call, 1) << "the operation calls nothing";
        return;
      }
      after(status, hit);
      if (HasFatalFailure()) return;
    }
    FAIL() << "the operation never ends";
  }
};

TEST_F(InjectionTest, TheCallDoesNothing) {
  void* memory = nullptr;
  const size_t before = UsedBytes();
  emulation::InjectError({.call = 2, .error = hipErrorOutOfMemory});
  int device = -1;
  EXPECT_EQ(hipGetDevice(&device), hipSuccess);
  EXPECT_EQ(hipMalloc(&memory, 64), hipErrorOutOfMemory);
  EXPECT_EQ(memory, nullptr);
  EXPECT_EQ(hipGetLastError(), hipErrorOutOfMemory);
  EXPECT_EQ(hipMalloc(&memory, 64), hipSuccess);
  EXPECT_EQ(emulation::EndInjection(), "hipMalloc");
  EXPECT_EQ(hipFree(memory), hipSuccess);
  EXPECT_EQ(UsedBytes(), before);
}

TEST_F(InjectionTest, CallsOfOtherDevicesDoNotCount) {
  emulation::InjectError({.call = 1, .device = 1});
  int count = 0;
  EXPECT_EQ(hipGetDeviceCount(&count), hipSuccess);
  EXPECT_EQ(hipSetDevice(1), hipSuccess);
  EXPECT_EQ(hipGetDeviceCount(&count), hipErrorUnknown);
  EXPECT_EQ(hipSetDevice(0), hipSuccess);
  EXPECT_EQ(emulation::EndInjection(), "hipGetDeviceCount");
  (void)hipGetLastError();
}

TEST_F(InjectionTest, MakingANode) {
  const size_t before = UsedBytes();
  std::unique_ptr<Node> made;
  Sweep(
      -1,
      [&] {
        auto node =
            Node::Create({.num_ranks = kInjectedRanks, .timeout = kTimeout, .on_failure = nullptr});
        const absl::Status status = node.status();
        if (status.ok()) made = *std::move(node);
        return status;
      },
      [&](const absl::Status& status, const std::string& hit) {
        if (status.ok()) {
          // What the node can do without.
          EXPECT_TRUE(hit == "hipGetDevice" || hit == "hipDeviceGetPCIBusId") << hit;
        } else {
          EXPECT_THAT(std::string(status.message()), HasSubstr("hipErrorUnknown"));
        }
        made.reset();
        EXPECT_EQ(UsedBytes(), before);
        MakeNode(kInjectedRanks);
        EXPECT_OK(node_->Run([](Rank& rank) { return rank.Barrier(); }));
        node_.reset();
      });
}

TEST_F(InjectionTest, MakingAnExpertParallel) {
  MakeNode(kInjectedRanks, kTimeout);
  const size_t before = UsedBytes();
  std::unique_ptr<ExpertParallel> made;
  Sweep(
      -1,
      [&] {
        auto ep = ExpertParallel::Create(*node_, SmallConfig());
        const absl::Status status = ep.status();
        if (status.ok()) made = *std::move(ep);
        return status;
      },
      [&](const absl::Status& status, const std::string&) {
        EXPECT_THAT(status, StatusIs(absl::StatusCode::kInternal, HasSubstr("hipErrorUnknown")));
        made.reset();
        EXPECT_EQ(UsedBytes(), before);
        EXPECT_OK(ExpertParallel::Create(*node_, SmallConfig()).status());
        EXPECT_EQ(UsedBytes(), before);
      });
}

// What is injected on the way out cannot be told to anybody; it must do no harm beyond what the
// call itself leaves undone.
TEST_F(InjectionTest, Unmaking) {
  const size_t before = UsedBytes();
  std::unique_ptr<EpHarness> harness;
  for (uint64_t call = 1;; ++call) {
    auto made = MakeHarness();
    ASSERT_OK(made.status());
    harness = *std::move(made);
    const size_t used = UsedBytes() - before;
    emulation::InjectError({.call = call});
    const absl::Time start = absl::Now();
    harness.reset();
    const std::string hit = emulation::EndInjection();
    EXPECT_LT(absl::Now() - start, kSoon) << hit;
    const size_t left = UsedBytes() - before;
    if (hit.empty()) {
      EXPECT_EQ(left, 0);
      break;
    }
    EXPECT_LT(left, used) << call << ": " << hit;
    if (hit != "hipFree") EXPECT_EQ(left, 0) << call << ": " << hit;
    emulation::Reconfigure(emulation::CurrentConfig());
  }
}

TEST_F(InjectionTest, AStep) {
  auto harness = MakeHarness();
  ASSERT_OK(harness.status());
  const StepInput input = Input(1);
  const size_t before = UsedBytes();
  for (int device = 0; device < kInjectedRanks; ++device) {
    Sweep(
        device, [&] { return (*harness)->Step(input, {Form::kFused, Form::kSplit}); },
        [&](const absl::Status& status, const std::string&) {
          EXPECT_THAT(status, StatusIs(absl::StatusCode::kInternal,
                                       StartsWith(absl::StrCat("rank ", device, ": "))));
          EXPECT_THAT(std::string(status.message()), HasSubstr("hipErrorUnknown"));
          ASSERT_OK((*harness)->Step(Input(2)));
          EXPECT_EQ(UsedBytes(), before);
        });
  }
}

// A node that cannot recover says so, and why; another one works.
TEST_F(InjectionTest, Recovery) {
  const size_t before = UsedBytes();
  int broken = 0;
  for (int device = 0; device < kInjectedRanks; ++device) {
    std::unique_ptr<EpHarness> harness;
    absl::Status failed;
    const auto fail_once = [&] {
      harness.reset();
      emulation::EndInjection();
      auto made = MakeHarness();
      if (!made.ok()) return made.status();
      harness = *std::move(made);
      return absl::OkStatus();
    };
    for (uint64_t call = 1;; ++call) {
      ASSERT_OK(fail_once());
      emulation::InjectError({.call = call, .device = device});
      const absl::Time start = absl::Now();
      failed = harness->node().Run([&](Rank& rank) -> absl::Status {
        return rank.rank() == device ? absl::OkStatus() : absl::NotFoundError("first");
      });
      EXPECT_LT(absl::Now() - start, kSoon);
      const std::string hit = emulation::EndInjection();
      SCOPED_TRACE(absl::StrCat("device ", device, ", call ", call, ": ", hit));
      EXPECT_FALSE(failed.ok());
      const absl::Status next = harness->Step(Input(3));
      if (next.ok()) {
        if (hit.empty()) break;
        continue;
      }
      ++broken;
      EXPECT_THAT(next, StatusIs(absl::StatusCode::kFailedPrecondition,
                                 AllOf(HasSubstr("the node has not recovered from 'rank "),
                                       HasSubstr("rank " + std::to_string(device) + ": "),
                                       HasSubstr("hipErrorUnknown"))));
    }
    harness.reset();
    EXPECT_EQ(UsedBytes(), before);
  }
  EXPECT_GT(broken, kInjectedRanks) << "recovery was not reached";
}

}  // namespace
}  // namespace octet
