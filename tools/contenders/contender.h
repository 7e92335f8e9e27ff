// Implementations of a step of dispatch and combine, measured side by side: Octet's strategies,
// and other implementations, which use a library's all-to-all or the copy engines.
//
//   for (const std::unique_ptr<Contender>& contender : MakeContenders(node)) {
//     if (!contender->Available().ok()) continue;                    // says what is missing
//     OCTET_ASSIGN_OR_RETURN(auto ep, contender->Create(config, {}));
//     OCTET_ASSIGN_OR_RETURN(auto runner, StepRunner::Create(node, *ep, options));
//     ...                                                            // as for any ExpertParallel
//   }
//
// A contender creates an ExpertParallel, so that all of them get the same input, give the same
// output, are checked by the same reference and timed at the same boundary. If an implementation
// needs host work within a call (for example, to learn how many rows will arrive), that work is
// part of the call.
#ifndef OCTET_TOOLS_CONTENDERS_CONTENDER_H_
#define OCTET_TOOLS_CONTENDERS_CONTENDER_H_

#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "octet/ep_config.h"
#include "octet/expert_parallel.h"
#include "octet/node.h"

namespace octet {

class Contender {
 public:
  virtual ~Contender() = default;

  virtual absl::string_view name() const = 0;     // "direct", "nccl", "memcpy_peer"
  virtual absl::string_view summary() const = 0;  // one line
  virtual bool is_strategy() const = 0;           // one of Octet's; else another implementation

  // Returns kUnavailable with what is missing on this machine (a library), else OK. Quick.
  virtual absl::Status Available() const = 0;

  // Returns OK if it supports `config`, apart from memory; kInvalidArgument says what it does not
  // support. Ignores `config`'s strategy. Quick.
  virtual absl::Status Check(const EpConfig& config) const = 0;

  // Ignores `config`'s strategy. Implementations other than strategies also ignore its tuning,
  // slots and flags, and trust the routing: they do not find ids out of range. Not during Run; the
  // contender must outlive the ExpertParallel.
  virtual absl::StatusOr<std::unique_ptr<ExpertParallel>> Create(
      const EpConfig& config, const ExpertParallelOptions& options) = 0;
};

// Returns all contenders of this platform, available or not, the strategies first. The node must
// outlive them.
std::vector<std::unique_ptr<Contender>> MakeContenders(Node& node);

// Returns the contender with that name. Errors: kUnavailable if it belongs to another platform or
// this build lacks it; kInvalidArgument, with all names, if there is no such name.
absl::StatusOr<Contender*> FindContender(const std::vector<std::unique_ptr<Contender>>& contenders,
                                         absl::string_view name);

}  // namespace octet

#endif  // OCTET_TOOLS_CONTENDERS_CONTENDER_H_
