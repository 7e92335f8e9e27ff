// Who can do a step of dispatch and combine, to be measured side by side: this project's
// strategies, and peers, which do the same with what is there without this project (a library's
// all-to-all, the copy engines).
//
//   for (const std::unique_ptr<Contender>& contender : MakeContenders(node)) {
//     if (!contender->Available().ok()) continue;                    // says what is missing
//     OCTET_ASSIGN_OR_RETURN(auto ep, contender->Create(config, {}));
//     OCTET_ASSIGN_OR_RETURN(auto runner, StepRunner::Create(node, *ep, options));
//     ...                                                            // as for any ExpertParallel
//   }
//
// A contender's product is an ExpertParallel, so that all of them get the same input, give the same
// output, are checked by the same reference and timed at the same boundary. What a peer has to do
// on the host within a call (to learn how many rows will come, say) is part of its call.
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
  virtual absl::string_view summary() const = 0;  // a line
  virtual bool is_peer() const = 0;               // not one of this project's strategies

  // kUnavailable with what is missing on this machine (a library), else OK. Quick.
  virtual absl::Status Available() const = 0;

  // Whether it can do what `config` asks for, but for memory: kInvalidArgument says what it cannot.
  // `config`'s strategy is not looked at. Quick.
  virtual absl::Status Check(const EpConfig& config) const = 0;

  // `config`'s strategy is not looked at, nor, by peers, its tuning, slots and flags. Peers trust
  // the routing: ids out of range are not found. Not during Run; the contender must outlive the
  // ExpertParallel.
  virtual absl::StatusOr<std::unique_ptr<ExpertParallel>> Create(
      const EpConfig& config, const ExpertParallelOptions& options) = 0;
};

// All that this platform has, available or not: the strategies first. The node must outlive them.
std::vector<std::unique_ptr<Contender>> MakeContenders(Node& node);

// kUnavailable for a peer of another platform, or one that this build was made without;
// kInvalidArgument, with all the names, for any other name that none of them has.
absl::StatusOr<Contender*> FindContender(const std::vector<std::unique_ptr<Contender>>& contenders,
                                         absl::string_view name);

}  // namespace octet

#endif  // OCTET_TOOLS_CONTENDERS_CONTENDER_H_
