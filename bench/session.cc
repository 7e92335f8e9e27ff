#include "bench/session.h"

#include <cstdio>
#include <string>

#include "absl/memory/memory.h"
#include "absl/strings/str_format.h"
#include "runtime/base/status_macros.h"
#include "tools/support/watched_node.h"

namespace octet {

absl::StatusOr<std::unique_ptr<Session>> Session::Create(const RunSpec& options, bool all_shapes) {
  auto session = absl::WrapUnique(new Session(options, all_shapes));
  OCTET_ASSIGN_OR_RETURN(session->node_, CreateWatchedNode({.num_ranks = options.workload.num_ranks,
                                                            .timeout = options.timeout}));
  OCTET_ASSIGN_OR_RETURN(session->ceilings_, MeasureCeilings(*session->node_));
  session->contenders_ = MakeContenders(*session->node_);
  for (const std::unique_ptr<Contender>& contender : session->contenders_) {
    const absl::Status available = contender->Available();
    if (available.ok()) {
      session->available_.push_back(contender.get());
    } else {
      absl::FPrintF(stderr, "octet_bench: %s is skipped: %s\n", contender->name(),
                    available.message());
    }
  }
  return session;
}

void Session::CountWire(benchmark::State& state, double gbps) const {
  if (node_->num_ranks() == 1) return;
  state.counters["wire_GBps"] = gbps;
  state.counters["of_ceiling"] = gbps / ceilings_.all_to_all_gbps;
}

void Session::Fail(benchmark::State& state, const absl::Status& status) {
  if (status_.ok()) status_ = status;
  state.SkipWithError(std::string(status.message()).c_str());
}

}  // namespace octet
