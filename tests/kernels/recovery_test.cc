// Thousands of calls on one Node and one ExpertParallel, every second one of which fails, each in
// another way: a failure is reported as what it is, soon, and leaves nothing behind.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <hip/hip_runtime.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "kernels/direct/kernels.h"
#include "kernels/ep/strategy_registry.h"
#include "octet/expert_parallel.h"
#include "octet/node.h"
#include "runtime/gpu/gpu_status.h"
#include "runtime/memory/device_memory.h"
#include "tests/support/ep_harness.h"
#include "tests/support/node/injection.h"
#include "tests/support/node/node_fixture.h"
#include "tests/support/node/node_kernels.h"

namespace octet {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::MatchesRegex;
using ::testing::StartsWith;

enum class Kind {
  kBody,       // the body returns a Status of its own
  kSilent,     // comes to the barriers but launches nothing: the others' waits expire
  kLeaves,     // returns early
  kRange,      // an expert id that does not exist
  kTwice,      // a token that chooses an expert twice
  kArguments,  // more tokens than there may be
  kLaunch,     // a grid that does not fit
  kDevice,     // a device that does not exist
  kCopy,       // a copy from nowhere
  kMemory,     // more memory than there is
  kInjected,   // some HIP call fails
};

// How far the rank comes before it fails.
enum class Point { kStart, kDispatched, kCombined, kSynchronized };

struct Fault {
  Kind kind;
  int rank;
  Point point;
};

constexpr std::array<absl::string_view, 11> kKindNames = {
    "body",      "silent", "leaves", "range",  "twice",   "arguments",
    "no launch", "device", "copy",   "memory", "injected"};

std::string Text(const Fault& fault) {
  return absl::StrCat(kKindNames[static_cast<size_t>(fault.kind)], " at point ",
                      static_cast<int>(fault.point), " of rank ", fault.rank);
}

// How many calls, how long waits last, and how often one is let to expire. GPUs keep time by
// themselves; emulated ones have the patience that busy cores need, so that a good call is never
// late and a few errors may be.
struct Plan {
  int calls = 2000;
  absl::Duration timeout = absl::Milliseconds(20);
  int silent_in = 8;  // of so many failures one is a rank that is silent
  int late = 0;       // errors that may come later than they should
};
Plan PlanFor(const Topology& topology) {
  Plan plan;
  if (topology.emulated()) plan = {10'000, absl::Seconds(2), 250, 50};
  if (const char* calls = std::getenv("OCTET_RECOVERY_CALLS"); calls != nullptr) {
    EXPECT_TRUE(absl::SimpleAtoi(calls, &plan.calls));
  }
  return plan;
}

int64_t ResidentBytes() {
  std::ifstream statm("/proc/self/statm");
  int64_t total = 0;
  int64_t resident = 0;
  statm >> total >> resident;
  constexpr int64_t kPage = 4096;
  return resident * kPage;
}

class RecoveryTest : public NodeTest {
 protected:
  static constexpr int kMostRanks = 4;
  static constexpr int kFaultyExpert = 1'000'000;

  void Make() {
    num_ranks_ = std::min(NumGpus(), kMostRanks);
    if (num_ranks_ < 2) GTEST_SKIP() << "needs two GPUs";
    plan_ = PlanFor(*DiscoverTopology());
    config_.num_experts = 2 * num_ranks_;
    config_.topk = 3;
    config_.hidden = 128;
    config_.max_tokens_per_rank = 6;
    config_.tuning = {.blocks = 4, .waves_per_block = 2};
    auto harness = EpHarness::Create(num_ranks_, config_, {.timeout = plan_.timeout});
    ASSERT_OK(harness.status());
    harness_ = *std::move(harness);
  }

  Fault RandomFault() {
    Fault fault = {};
    fault.rank = static_cast<int>(rng_() % static_cast<uint64_t>(num_ranks_));
    fault.point = static_cast<Point>(rng_() % 4);
    if (rng_() % static_cast<uint64_t>(plan_.silent_in) == 0) {
      fault.kind = Kind::kSilent;
    } else {
      constexpr std::array kOthers = {Kind::kBody,      Kind::kLeaves,  Kind::kRange,  Kind::kTwice,
                                      Kind::kArguments, Kind::kLaunch,  Kind::kDevice, Kind::kCopy,
                                      Kind::kMemory,    Kind::kInjected};
      fault.kind = kOthers[rng_() % (kOthers.size() - (CanInject() ? 0 : 1))];
    }
    switch (fault.kind) {
      case Kind::kSilent:
      case Kind::kLeaves:  // later, nobody would miss it
        fault.point = rng_() % 2 == 0 ? Point::kStart : Point::kDispatched;
        break;
      case Kind::kArguments:
      case Kind::kMemory:  // must not wait for a kernel that waits for others
        fault.point = Point::kStart;
        break;
      default:
        break;
    }
    return fault;
  }

  // Every rank has tokens, and each token an expert on every rank but at most one, so that nobody's
  // silence goes unnoticed.
  StepInput RandomInput() {
    std::vector<int> tokens(static_cast<size_t>(num_ranks_));
    for (int& t : tokens) t = 4 + static_cast<int>(rng_() % 3);
    return RandomStep(rng_, config_, tokens);
  }

  // What the rank does wrong when it has come to its point.
  absl::Status Misbehave(Rank& rank, Kind kind) {
    switch (kind) {
      case Kind::kBody:
        return absl::DataLossError("as planned");
      case Kind::kDevice:
        return OCTET_GPU(hipSetDevice(9999));
      case Kind::kCopy:
        return OCTET_GPU(hipMemcpyAsync(nullptr, nullptr, 64, hipMemcpyDefault, rank.stream()));
      case Kind::kMemory:
        return DeviceMemory::Allocate(size_t{1} << 50).status();
      case Kind::kLaunch:
        return OCTET_GPU(direct::LaunchDispatch(
            {}, false, {.blocks = 1 << 20, .threads = 128, .shared_bytes = 0}, rank.stream()));
      case Kind::kArguments: {
        DispatchArgs args = harness_->dispatch_args(rank.rank());
        args.num_tokens = config_.max_tokens_per_rank + 1;
        return harness_->ep().Dispatch(rank, args).status();
      }
      default:
        return absl::OkStatus();
    }
  }

  absl::Status Body(Rank& rank, const Fault& fault) {
    const bool culprit = rank.rank() == fault.rank;
    const auto reach = [&](Point point) {
      return culprit && fault.point == point ? Misbehave(rank, fault.kind) : absl::OkStatus();
    };
    const auto leaves = [&](Point point) {
      return culprit && fault.point == point &&
             (fault.kind == Kind::kSilent || fault.kind == Kind::kLeaves);
    };
    // A silent rank comes to the barriers of what is left of the step.
    const auto leave = [&](int barriers) {
      for (int i = 0; fault.kind == Kind::kSilent && i < barriers; ++i) {
        OCTET_RETURN_IF_ERROR(rank.Barrier());
      }
      return absl::OkStatus();
    };
    ExpertParallel& ep = harness_->ep();
    OCTET_RETURN_IF_ERROR(reach(Point::kStart));
    if (leaves(Point::kStart)) return leave(2);
    OCTET_ASSIGN_OR_RETURN(const Received received,
                           ep.Dispatch(rank, harness_->dispatch_args(rank.rank())));
    OCTET_RETURN_IF_ERROR(reach(Point::kDispatched));
    if (leaves(Point::kDispatched)) return leave(1);
    ScaledCombineArgs combine = harness_->combine_args(rank.rank());
    combine.expert_out = received.x;
    OCTET_RETURN_IF_ERROR(ScaledCombine(ep, rank, received.handle, combine));
    OCTET_RETURN_IF_ERROR(reach(Point::kCombined));
    OCTET_RETURN_IF_ERROR(rank.Synchronize());
    return reach(Point::kSynchronized);
  }

  void FailOnce(const Fault& fault) {
    StepInput input = RandomInput();
    StepInput::PerRank& theirs = input.ranks[static_cast<size_t>(fault.rank)];
    const size_t token = rng_() % static_cast<uint64_t>(theirs.num_tokens);
    int32_t* ids = &theirs.topk_idx[token * static_cast<size_t>(config_.topk)];
    if (fault.kind == Kind::kRange) ids[rng_() % 3] = rng_() % 2 == 0 ? kFaultyExpert : -2;
    if (fault.kind == Kind::kTwice) ids[1 + rng_() % 2] = ids[0];
    ASSERT_OK(harness_->Upload(input));
    if (fault.kind == Kind::kInjected) InjectError(fault.rank, 1 + rng_() % 8);
    const absl::Time start = absl::Now();
    const absl::Status status = harness_->node().Run([&](Rank& rank) { return Body(rank, fault); });
    if (absl::Now() - start > plan_.timeout + absl::Seconds(1)) ++late_;
    EXPECT_LE(late_, plan_.late) << "errors that did not come within the deadline and a second";
    Judge(fault, status, EndInjection());
  }

  // Names of errors begin with hip or cuda.
  static void Judge(const Fault& fault, const absl::Status& status, const std::string& injected) {
    using absl::StatusCode;
    const std::string culprit = absl::StrCat("rank ", fault.rank, ": ");
    const auto is = [&](StatusCode code, absl::string_view prefix, absl::string_view part) {
      EXPECT_EQ(status.code(), code) << status;
      EXPECT_TRUE(absl::StartsWith(status.message(), prefix)) << status;
      EXPECT_TRUE(absl::StrContains(status.message(), part)) << status;
    };
    switch (fault.kind) {
      case Kind::kBody:
        return is(StatusCode::kDataLoss, culprit, "as planned");
      case Kind::kSilent:
        is(StatusCode::kDeadlineExceeded, "rank ", absl::StrCat("for rank ", fault.rank, "'s "));
        is(StatusCode::kDeadlineExceeded, "rank ",
           fault.point == Point::kStart ? "dispatch-" : "combine-");
        // Below it, the rank that waits for nobody and the others' flags.
        is(StatusCode::kDeadlineExceeded, "rank ",
           absl::StrCat("\n  rank ", fault.rank, ": no wait\n"));
        return is(StatusCode::kDeadlineExceeded, "rank ",
                  fault.point == Point::kStart ? "\nrow counts: " : "\ncombined rows: ");
      case Kind::kLeaves:
        return is(StatusCode::kAborted, "rank ",
                  absl::StrCat("rank ", fault.rank, " has left Run"));
      case Kind::kRange:
        return is(StatusCode::kInvalidArgument, culprit, "it must be -1 (dropped) or from 0 to");
      case Kind::kTwice:
        return is(StatusCode::kInvalidArgument, culprit, "which the token has chosen before");
      case Kind::kArguments:
        return is(StatusCode::kInvalidArgument, culprit, "num_tokens is ");
      case Kind::kLaunch:
        return is(StatusCode::kInvalidArgument, culprit, "ErrorCooperativeLaunchTooLarge");
      case Kind::kDevice:
        return is(StatusCode::kInvalidArgument, culprit, "ErrorInvalidDevice");
      case Kind::kCopy:
        return is(StatusCode::kInvalidArgument, culprit, "ErrorInvalidValue");
      case Kind::kMemory:
        return is(StatusCode::kResourceExhausted, culprit, "hipMalloc of ");
      case Kind::kInjected:
        if (injected.empty()) {
          EXPECT_OK(status);
        } else {
          is(StatusCode::kInternal, culprit, "hipErrorUnknown");
        }
        return;
    }
  }

  // Free memory of each GPU.
  std::vector<size_t> FreeBytes() {
    std::vector<size_t> free_bytes(static_cast<size_t>(num_ranks_));
    EXPECT_OK(harness_->node().Run([&](Rank& rank) {
      size_t total = 0;
      return OCTET_GPU(hipMemGetInfo(&free_bytes[static_cast<size_t>(rank.rank())], &total));
    }));
    return free_bytes;
  }

  // A `fraction`th of the plan's calls, drawn from `seed`. `slack`: bytes by which the host's
  // memory may grow whatever the number of calls, by the allocator's own ups and downs.
  void TakeTurns(Strategy strategy, int fraction, uint64_t seed = 20'260'101,
                 int64_t slack = 1 << 20);

  int num_ranks_ = 0;
  Plan plan_;
  int late_ = 0;
  EpConfig config_;
  std::unique_ptr<EpHarness> harness_;
  std::mt19937_64 rng_;
};

void RecoveryTest::TakeTurns(Strategy strategy, int fraction, uint64_t seed, int64_t slack) {
  config_.strategy = strategy;
  rng_.seed(seed);
  Make();
  if (IsSkipped()) return;
  plan_.calls /= fraction;
  plan_.late /= fraction;
  // By then every kind of failure has happened, and what grows once has grown.
  const int warm = plan_.calls / 4;
  std::vector<size_t> free_bytes;
  int64_t resident = 0;
  std::array<int, kKindNames.size()> failures = {};
  int good = 0;
  for (int call = 0; call < plan_.calls && !HasFailure(); ++call) {
    SCOPED_TRACE(absl::StrCat("call ", call));
    if (call == warm) {
      free_bytes = FreeBytes();
      resident = ResidentBytes();
    }
    if (rng_() % 2 == 0) {
      ++good;
      constexpr std::array kForms = {Form::kFused, Form::kSplit, Form::kSeparateExpert};
      EXPECT_OK(harness_->Step(RandomInput(), {kForms[rng_() % 3], kForms[rng_() % 3]}));
      continue;
    }
    const Fault fault = RandomFault();
    SCOPED_TRACE(Text(fault));
    ++failures[static_cast<size_t>(fault.kind)];
    FailOnce(fault);
  }
  EXPECT_OK(harness_->Step(RandomInput()));
  EXPECT_EQ(FreeBytes(), free_bytes);
  const int64_t grown = ResidentBytes() - resident;
  // A lost Status, kernel or copy is several hundred bytes.
  EXPECT_LT(grown, slack + (plan_.calls - warm) * 256);
  std::string text = absl::StrCat(good, " good");
  for (size_t kind = 0; kind < failures.size(); ++kind) {
    absl::StrAppend(&text, ", ", failures[kind], " ", kKindNames[kind]);
  }
  std::printf("%s; host memory grew by %lld bytes\n", text.c_str(), static_cast<long long>(grown));
}

// In parts, so that several cores share them (SHARDS in tests/kernels/CMakeLists.txt); a part
// notices as few bytes lost in a call as the whole would. Ranks are silent in each.
constexpr std::array<uint64_t, 4> kSeeds = {20'260'101, 20'260'102, 20'260'103, 20'260'105};
class RecoveryPartTest : public RecoveryTest, public ::testing::WithParamInterface<uint64_t> {};

TEST_P(RecoveryPartTest, GoodAndFailingCallsInTurn) {
  constexpr int kParts = kSeeds.size();
  TakeTurns(Strategy::kDirect, kParts, GetParam(), (1 << 20) / kParts);
}
INSTANTIATE_TEST_SUITE_P(Parts, RecoveryPartTest, ::testing::ValuesIn(kSeeds));

TEST_F(RecoveryTest, GoodAndFailingCallsOfLowLatency) { TakeTurns(Strategy::kLowLatency, 10); }

TEST_F(RecoveryTest, GoodAndFailingCallsOfHighThroughput) {
  TakeTurns(Strategy::kHighThroughput, 10);
}

TEST_F(RecoveryTest, ABarrierThatExpiresNamesItsCall) {
  config_.num_experts = 2;
  config_.topk = 1;
  config_.hidden = 64;
  config_.max_tokens_per_rank = 1;
  config_.strategy = Strategy::kDirect;
  MakeNode(2, absl::Milliseconds(100));
  if (IsSkipped()) return;
  auto ep = ExpertParallel::Create(*node_, config_);
  ASSERT_OK(ep.status());
  EXPECT_THAT(node_->Run([&](Rank& rank) -> absl::Status {
    const absl::Time latest = absl::Now() + absl::Seconds(60);
    while (rank.rank() == 0 && Noted().empty() && absl::Now() < latest) {
      absl::SleepFor(absl::Milliseconds(1));
    }
    return (*ep)->Dispatch(rank, {}).status();
  }),
              StatusIs(absl::StatusCode::kDeadlineExceeded,
                       MatchesRegex("rank 1: host barrier before dispatch waited .* for rank 0")));
}

TEST_F(RecoveryTest, AnExpertParallelMayOutliveItsNode) {
  config_.num_experts = 2;
  config_.topk = 1;
  config_.hidden = 64;
  config_.max_tokens_per_rank = 1;
  for (const Strategy strategy : AllStrategies()) {
    config_.strategy = strategy;
    MakeNode(2);
    if (IsSkipped()) return;
    auto ep = ExpertParallel::Create(*node_, config_);
    ASSERT_OK(ep.status());
    node_.reset();
    EXPECT_EQ((*ep)->DispatchTraffic(0, {1}).rows, 1);
    MakeNode(2);
    EXPECT_THAT(node_->Run([&](Rank& rank) { return (*ep)->Dispatch(rank, {}).status(); }),
                StatusIs(absl::StatusCode::kFailedPrecondition,
                         StartsWith("rank 0: the rank belongs to another node")));
    EXPECT_THAT(node_->Run([&](Rank& rank) { return (*ep)->Combine(rank, {}, {}); }),
                StatusIs(absl::StatusCode::kFailedPrecondition,
                         StartsWith("rank 0: the rank belongs to another node")));
    node_.reset();
    ep->reset();
  }
}

// A kernel that no deadline ends. The node says so, takes no more calls, and what was made on it
// goes away without waiting.
TEST_F(RecoveryTest, AStreamThatNeverDrains) {
  MakeNode(2, absl::Milliseconds(10));
  if (IsSkipped()) return;
  config_.num_experts = 2;
  config_.topk = 1;
  config_.hidden = 64;
  config_.max_tokens_per_rank = 1;
  std::vector<std::unique_ptr<ExpertParallel>> strategies;
  for (const Strategy strategy : AllStrategies()) {
    config_.strategy = strategy;
    auto ep = ExpertParallel::Create(*node_, config_);
    ASSERT_OK(ep.status());
    strategies.push_back(*std::move(ep));
  }
  void* memory = nullptr;
  ASSERT_EQ(hipHostMalloc(&memory, sizeof(uint32_t), hipHostMallocPortable | hipHostMallocMapped),
            hipSuccess);
  auto* stop = static_cast<uint32_t*>(memory);
  *stop = 0;
  EXPECT_FALSE(node_->stuck());
  EXPECT_THAT(node_->Run([&](Rank& rank) {
    return rank.rank() == 1 ? OCTET_GPU(LaunchStubborn(stop, rank.stream())) : absl::OkStatus();
  }),
              StatusIs(absl::StatusCode::kDeadlineExceeded,
                       AllOf(StartsWith("rank 1: the stream is not idle after 5."),
                             HasSubstr("\n  rank 1: no wait; its stream is still busy with other "
                                       "work 5."))));
  EXPECT_TRUE(node_->stuck());
  ASSERT_EQ(Noted().size(), 1U);
  EXPECT_THAT(Noted()[0], StatusIs(absl::StatusCode::kDeadlineExceeded,
                                   StartsWith("rank 1: the stream is not idle after 5.")));
  const absl::Time start = absl::Now();
  EXPECT_THAT(node_->Run([](Rank&) { return absl::OkStatus(); }),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       MatchesRegex("the node has not recovered from 'rank 1: the stream is not "
                                    "idle after .*': rank 1: the stream is not idle after .*")));
  strategies.clear();
  node_.reset();
  // Draining once more would have taken as long as it did before.
  EXPECT_LT(absl::Now() - start, absl::Seconds(5));
  ASSERT_EQ(Noted().size(), 2U);
  EXPECT_THAT(Noted()[1], StatusIs(absl::StatusCode::kDeadlineExceeded, HasSubstr("unfreed")));
  std::atomic_ref<uint32_t>(*stop).store(1);
  EXPECT_EQ(hipSetDevice(1), hipSuccess);
  EXPECT_EQ(hipDeviceSynchronize(), hipSuccess);
  EXPECT_EQ(hipSetDevice(0), hipSuccess);
  EXPECT_EQ(hipHostFree(memory), hipSuccess);
}

}  // namespace
}  // namespace octet
