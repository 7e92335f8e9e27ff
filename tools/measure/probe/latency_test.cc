#include "tools/measure/probe/latency_test.h"

#include <hip/hip_runtime.h>

#include <algorithm>
#include <utility>

#include "absl/memory/memory.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "runtime/failure/failure.h"
#include "runtime/gpu/gpu_status.h"
#include "tools/measure/probe/ceilings_kernels.h"

namespace octet {
namespace {

// Measurements repeat each of these so often. Emulated GPUs are slow, and their times say nothing.
struct Counts {
  int host_barriers = 2000;
  int launches = 50;
  uint32_t rounds = 1000;  // of one kernel, so that its launch does not count
};
constexpr Counts kEmulated = {.host_barriers = 100, .launches = 10, .rounds = 20};

constexpr uint32_t kFlagSite = 0;
constexpr uint32_t kBarrierSite = 1;

Counts CountsFor(const Node& node) { return node.topology().emulated() ? kEmulated : Counts{}; }

}  // namespace

absl::StatusOr<std::unique_ptr<LatencyTest>> LatencyTest::Create(Node& node) {
  OCTET_ASSIGN_OR_RETURN(DeviceTimer timer, DeviceTimer::Create(node));
  auto test = absl::WrapUnique(new LatencyTest(node, std::move(timer)));
  OCTET_RETURN_IF_ERROR(test->Init());
  return test;
}

LatencyTest::LatencyTest(Node& node, DeviceTimer timer)
    : node_(node), timer_(std::move(timer)), client_(NodeClient::Register(node, this)) {}

LatencyTest::~LatencyTest() { NodeClient::Unregister(node_, client_); }

absl::Status LatencyTest::Init() {
  constexpr size_t kHeapBytes = 4096;
  OCTET_ASSIGN_OR_RETURN(trace_, TraceCollector::Create(node_, 1, 1));
  OCTET_ASSIGN_OR_RETURN(heap_, SymmetricHeap::Create(node_, kHeapBytes));
  OCTET_ASSIGN_OR_RETURN(barrier_, heap_->Allocate<device::NodeBarrierState>(1));
  OCTET_ASSIGN_OR_RETURN(flag_, heap_->Allocate<uint64_t>(1));
  OCTET_ASSIGN_OR_RETURN(clock_, heap_->Allocate<uint64_t>(1));
  return node_.Run([](Rank&) { return OCTET_GPU(LoadLatencyKernels()); });
}

absl::Status LatencyTest::Describe(int rank, const device::FailureRecord& record) const {
  return DeadlineStatus(RecordedFailure(rank, record, "latency test",
                                        record.site == kFlagSite ? "flag" : "barrier flag"));
}

absl::Status LatencyTest::Recover(Rank& rank) {
  if (heap_ == nullptr) return absl::OkStatus();
  flag_round_ = 1;
  char* const base = heap_->peers(rank.rank()).base[rank.rank()];
  return OCTET_GPU(hipMemsetAsync(base, 0, heap_->bytes_used(), rank.stream()));
}

absl::StatusOr<double> LatencyTest::EmptyLaunch() {
  return timer_.Time([this](Rank& rank) {
    return OCTET_GPU(LaunchReadClock(clock_.Mine(heap_->peers(rank.rank())), rank.stream()));
  });
}

absl::StatusOr<double> LatencyTest::HostBarrier() {
  const int barriers = CountsFor(node_).host_barriers;
  std::vector<double> us(static_cast<size_t>(node_.num_ranks()));
  OCTET_RETURN_IF_ERROR(node_.Run([&](Rank& rank) -> absl::Status {
    OCTET_RETURN_IF_ERROR(rank.Barrier());
    const absl::Time start = absl::Now();
    for (int i = 0; i < barriers; ++i) OCTET_RETURN_IF_ERROR(rank.Barrier());
    us[static_cast<size_t>(rank.rank())] =
        absl::ToDoubleMicroseconds(absl::Now() - start) / barriers;
    return absl::OkStatus();
  }));
  return *std::max_element(us.begin(), us.end());
}

absl::StatusOr<double> LatencyTest::CoordinatedLaunch() {
  const int launches = CountsFor(node_).launches;
  std::vector<double> us(static_cast<size_t>(node_.num_ranks()));
  OCTET_RETURN_IF_ERROR(node_.Run([&](Rank& rank) -> absl::Status {
    uint64_t* const clock = clock_.Mine(heap_->peers(rank.rank()));
    absl::Duration total;
    for (int i = 0; i < launches; ++i) {
      OCTET_RETURN_IF_ERROR(rank.Barrier());
      const absl::Time start = absl::Now();
      OCTET_RETURN_IF_ERROR(
          rank.CoordinatedLaunch([&] { return OCTET_GPU(LaunchReadClock(clock, rank.stream())); }));
      total += absl::Now() - start;
      OCTET_RETURN_IF_ERROR(rank.Synchronize());
    }
    us[static_cast<size_t>(rank.rank())] = absl::ToDoubleMicroseconds(total) / launches;
    return absl::OkStatus();
  }));
  return *std::max_element(us.begin(), us.end());
}

absl::StatusOr<double> LatencyTest::LaunchSkew() {
  std::vector<uint64_t> starts(static_cast<size_t>(node_.num_ranks()));  // of the rank's own clock
  OCTET_RETURN_IF_ERROR(node_.Run([&](Rank& rank) -> absl::Status {
    uint64_t* const clock = clock_.Mine(heap_->peers(rank.rank()));
    OCTET_RETURN_IF_ERROR(
        rank.CoordinatedLaunch([&] { return OCTET_GPU(LaunchReadClock(clock, rank.stream())); }));
    OCTET_RETURN_IF_ERROR(rank.Synchronize());
    return OCTET_GPU(hipMemcpy(&starts[static_cast<size_t>(rank.rank())], clock, sizeof(*clock),
                               hipMemcpyDeviceToHost));
  }));
  constexpr double kNanosPerMicro = 1e3;
  double first = 0;  // rank 0's, on its own clock
  double last = 0;
  for (size_t r = 1; r < starts.size(); ++r) {
    const auto ticks = static_cast<double>(static_cast<int64_t>(starts[r] - starts[0]));
    const double ns =
        ticks * 1e9 / static_cast<double>(DeviceClockHz()) - trace_->clock_offsets()[r].offset_ns;
    first = std::min(first, ns);
    last = std::max(last, ns);
  }
  return (last - first) / kNanosPerMicro;
}

double LatencyTest::clock_round_trip() const {
  constexpr double kNanosPerMicro = 1e3;
  double longest = 0;
  for (const TraceCollector::ClockOffset& offset : trace_->clock_offsets()) {
    longest = std::max(longest, offset.round_trip_ns / kNanosPerMicro);
  }
  return longest;
}

absl::StatusOr<double> LatencyTest::FlagRoundTrip(int from, int to) {
  const int ranks = node_.num_ranks();
  if (from == to || std::min(from, to) < 0 || std::max(from, to) >= ranks) {
    return absl::InvalidArgumentError(
        absl::StrCat("there is no link from rank ", from, " to rank ", to, " of ", ranks));
  }
  const uint32_t rounds = CountsFor(node_).rounds;
  // The flag only grows, across pairs.
  const uint64_t first = flag_round_;
  OCTET_ASSIGN_OR_RETURN(const double us, timer_.Time([&](Rank& rank) {
    const int me = rank.rank();
    if (me != from && me != to) return absl::OkStatus();
    const int peer = me == from ? to : from;
    const device::PeerBases peers = heap_->peers(me);
    const PingPongParams params = {.mine = flag_.Mine(peers),
                                   .theirs = flag_.On(peers, peer),
                                   .first = first,
                                   .rounds = rounds,
                                   .call = me == from,
                                   .peer = peer,
                                   .port = NodeClient::PortOf(rank, client_),
                                   .site = kFlagSite};
    return OCTET_GPU(LaunchPingPong(params, rank.stream()));
  }));
  flag_round_ += rounds;
  return us / rounds;
}

absl::StatusOr<double> LatencyTest::NodeBarrier() {
  const uint32_t rounds = CountsFor(node_).rounds;
  OCTET_ASSIGN_OR_RETURN(const double us, timer_.Time([&](Rank& rank) {
    device::NodeBarrierParams params = {};
    params.rank = rank.rank();
    params.num_ranks = rank.num_ranks();
    params.port = NodeClient::PortOf(rank, client_);
    params.site = kBarrierSite;
    const device::PeerBases peers = heap_->peers(rank.rank());
    for (int peer = 0; peer < params.num_ranks; ++peer) {
      params.state[peer] = barrier_.On(peers, peer);
    }
    return OCTET_GPU(LaunchNodeBarriers(params, rounds, rank.stream()));
  }));
  return us / rounds;
}

}  // namespace octet
