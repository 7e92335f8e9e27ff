// The state that all benchmarks of one process share.
#ifndef OCTET_BENCH_SESSION_H_
#define OCTET_BENCH_SESSION_H_

#include <benchmark/benchmark.h>

#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "octet/node.h"
#include "tools/contenders/contender.h"
#include "tools/measure/probe/ceilings.h"
#include "tools/step/run_spec.h"

namespace octet {

class Session {
 public:
  // `options`: ranks, tuning and timing of all steps; each benchmark has its own shape.
  // `all_shapes`: includes shapes that take an emulated node minutes.
  static absl::StatusOr<std::unique_ptr<Session>> Create(const RunSpec& options, bool all_shapes);

  Node& node() { return *node_; }
  const RunSpec& options() const { return options_; }
  bool all_shapes() const { return all_shapes_; }
  bool emulated() const { return node_->topology().emulated(); }
  const Ceilings& ceilings() const { return ceilings_; }
  // The contenders that are available.
  const std::vector<Contender*>& contenders() const { return available_; }

  // Sets the counters of the wire bandwidth, absolute and relative to the ceiling. A single rank
  // has none: relative deviations of zeros are NaN, which JSON cannot represent.
  void CountWire(benchmark::State& state, double gbps) const;
  // Ends the benchmark with an error, and the process, later, with an exit code that is not 0.
  void Fail(benchmark::State& state, const absl::Status& status);
  // Returns the first failure.
  const absl::Status& status() const { return status_; }

 private:
  Session(const RunSpec& options, bool all_shapes) : options_(options), all_shapes_(all_shapes) {}

  const RunSpec options_;
  const bool all_shapes_;
  std::shared_ptr<Node> node_;
  Ceilings ceilings_;
  std::vector<std::unique_ptr<Contender>> contenders_;
  std::vector<Contender*> available_;
  absl::Status status_;
};

}  // namespace octet

#endif  // OCTET_BENCH_SESSION_H_
