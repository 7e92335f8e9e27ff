#include "runtime/net/transport.h"

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "octet/domain.h"
#include "runtime/base/status_macros.h"
#include "runtime/net/outcome.h"

namespace octet {

absl::StatusOr<RailTransport> ChooseTransport(RailTransport asked, bool prefers_nccl,
                                              const TransportOffers& offers) {
  if (asked == RailTransport::kAuto && !prefers_nccl) asked = RailTransport::kMpi;
  if (asked == RailTransport::kMpi) return asked;
  const absl::Status missing = CauseOf(offers.nccl);
  if (!missing.ok() && asked == RailTransport::kAuto) return RailTransport::kMpi;
  OCTET_RETURN_IF_ERROR(missing);
  OCTET_RETURN_IF_ERROR(CheckSame("the version of NCCL", offers.nccl_versions));
  return RailTransport::kNccl;
}

}  // namespace octet
