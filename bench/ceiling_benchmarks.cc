#include "bench/ceiling_benchmarks.h"

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "bench/measured.h"
#include "runtime/base/status_macros.h"
#include "tools/measure/probe/latency_test.h"
#include "tools/measure/probe/link_test.h"
#include "tools/support/statistics.h"

namespace octet {
namespace {

// Created by the first benchmark that needs it.
template <typename Test>
class Lazy {
 public:
  explicit Lazy(Session& session) : session_(session) {}

  absl::StatusOr<Test*> Get() {
    if (test_ == nullptr) {
      OCTET_ASSIGN_OR_RETURN(test_, Test::Create(session_.node()));
    }
    return test_.get();
  }
  Session& session() { return session_; }

 private:
  Session& session_;
  std::unique_ptr<Test> test_;
};

void RegisterLink(const std::shared_ptr<Lazy<LinkTest>>& links, const LinkLoad& load) {
  std::string name = absl::StrCat(
      "links/", load.from == -1 ? "all_to_all" : absl::StrCat("pair:", load.from, "-", load.to),
      "/", EnumName(load.mover));
  if (load.mover != Mover::kCopyEngine) {
    absl::StrAppend(&name, "/blocks:", load.blocks, "/row:", load.row_bytes);
  }
  bool verified = false;
  RegisterMeasured(
      links->session(), name,
      [links, load, verified](benchmark::State& state) mutable -> absl::StatusOr<double> {
        OCTET_ASSIGN_OR_RETURN(LinkTest* const test, links->Get());
        if (!std::exchange(verified, true)) OCTET_RETURN_IF_ERROR(test->Verify(load));
        OCTET_ASSIGN_OR_RETURN(const LinkTest::Result result, test->Run(load));
        links->session().CountWire(state, Gbps(result.bytes, result.us));
        return result.us;
      });
}

void RegisterLinks(Session& session) {
  const auto links = std::make_shared<Lazy<LinkTest>>(session);
  const int ranks = session.node().num_ranks();
  const int units = session.node().topology().gpus[0].num_compute_units;
  const bool small = session.emulated();
  const std::vector<int> blocks =
      small ? std::vector{1, units} : std::vector{8, 16, 24, 32, 64, units, 2 * units};
  const std::vector<int> rows =
      small ? std::vector{1024} : std::vector{256, 512, 1024, 2048, 4096, 8192};
  const std::vector<Mover> by_blocks = {Mover::kStores, Mover::kLoads, Mover::kBulk};
  for (const Mover mover : by_blocks) {
    for (const int n : blocks) {
      RegisterLink(links, {.mover = mover, .blocks = n, .row_bytes = kRowBytes});
    }
    for (const int row : rows) {
      RegisterLink(links, {.mover = mover, .blocks = units, .row_bytes = row});
    }
  }
  RegisterLink(links, {.mover = Mover::kCopyEngine});
  for (int from = 0; from < ranks; ++from) {
    for (int to = 0; to < ranks; ++to) {
      if (from == to) continue;
      for (const auto& [mover, name] : EnumTable(Mover{})) {
        RegisterLink(
            links,
            {.mover = mover, .from = from, .to = to, .blocks = units, .row_bytes = kRowBytes});
      }
    }
  }
}

void RegisterLatencies(Session& session) {
  const auto latencies = std::make_shared<Lazy<LatencyTest>>(session);
  const auto add = [&](const std::string& name,
                       const std::function<absl::StatusOr<double>(LatencyTest&)>& measure) {
    RegisterMeasured(session, absl::StrCat("latency/", name),
                     [latencies, measure](benchmark::State&) -> absl::StatusOr<double> {
                       OCTET_ASSIGN_OR_RETURN(LatencyTest* const test, latencies->Get());
                       return measure(*test);
                     });
  };
  add("empty_launch", [](LatencyTest& test) { return test.EmptyLaunch(); });
  add("host_barrier", [](LatencyTest& test) { return test.HostBarrier(); });
  add("node_barrier", [](LatencyTest& test) { return test.NodeBarrier(); });
  add("coordinated_launch", [](LatencyTest& test) { return test.CoordinatedLaunch(); });
  if (session.node().num_ranks() == 1) return;
  add("launch_skew", [](LatencyTest& test) { return test.LaunchSkew(); });
  for (int to = 1; to < session.node().num_ranks(); ++to) {
    add(absl::StrCat("flag_round_trip/0-", to),
        [to](LatencyTest& test) { return test.FlagRoundTrip(0, to); });
  }
}

}  // namespace

void RegisterCeilingBenchmarks(Session& session) {
  RegisterLatencies(session);
  if (session.node().num_ranks() > 1) RegisterLinks(session);
}

}  // namespace octet
