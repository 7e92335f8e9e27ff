// Link in a build without MPI.
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "runtime/net/link.h"

namespace octet {

absl::StatusOr<std::unique_ptr<Link>> Link::Open(LinkOpening& /*opening*/) {
  return absl::UnimplementedError(
      "this Octet has been built without MPI, which joins nodes: install libopenmpi-dev and "
      "openmpi-bin (tools/install_packages.sh build), then configure with -DOCTET_MPI=ON and "
      "build again");
}

}  // namespace octet
