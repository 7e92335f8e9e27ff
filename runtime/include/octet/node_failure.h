// What failed on a node, as values. A Status puts it into a sentence.
#ifndef OCTET_NODE_FAILURE_H_
#define OCTET_NODE_FAILURE_H_

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"

namespace octet {

struct NodeFailure {
  enum class Kind {
    kError,  // the body of a Run, a HIP call or a kernel failed; only `kind` and `rank` are set
    kWait,   // a wait expired, on a GPU or on the host
    kInput,  // a kernel refused the caller's data
  };
  Kind kind = Kind::kError;
  int rank = -1;          // the rank that failed, waited or was given the data
  int peer = -1;          // the rank that it waited for, or whose data differs; -1: none is known
  uint32_t index = 0;     // of the flag, or of the refused element
  uint64_t expected = 0;  // kWait: the epoch that the flag must reach. kInput: the limit
  uint64_t seen = 0;      // kWait: the epoch of the flag. kInput: the value
  absl::Duration waited = absl::ZeroDuration();  // kWait
  std::string phase = {};                        // what the rank was doing: "dispatch-receive"
  std::string flag = {};  // kWait: what it waited for, "row count". kInput: the data, "expert id"
  // The name of the object whose call it was (ExpertParallelOptions::name, MoeLayerOptions::name);
  // empty if it has none, or none is known.
  std::string object = {};
};

// Returns the failure that a Status of Node::Run, of a Rank's functions or of
// NodeOptions::on_failure reports; nullopt if it reports none. Copies of the Status keep it; a
// Status made from the code and message alone does not.
std::optional<NodeFailure> FailureOf(const absl::Status& status);

}  // namespace octet

#endif  // OCTET_NODE_FAILURE_H_
