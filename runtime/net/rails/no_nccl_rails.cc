// Octet without the header of NCCL or RCCL.
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "octet/node.h"
#include "runtime/net/progress.h"
#include "runtime/net/rails/nccl_rails.h"
#include "runtime/net/rails/rails.h"

namespace octet {

absl::StatusOr<std::string> NcclVersion() {
  return absl::UnavailableError("Octet has been built without the header of RCCL");
}

absl::StatusOr<std::unique_ptr<Rails>> MakeNcclRails(Node& /*node*/, Progress& /*progress*/,
                                                     absl::Duration /*limit*/) {
  return NcclVersion().status();
}

}  // namespace octet
