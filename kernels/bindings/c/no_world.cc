// JoinWorld in the library that is not linked to MPI.
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/bindings/c/handles.h"
#include "octet/domain.h"
#include "octet/world.h"

namespace octet::c {

absl::StatusOr<std::unique_ptr<Domain>> JoinWorld(const WorldOptions& /*options*/) {
  return absl::UnimplementedError(
      "liboctet.so is not linked to MPI, which joins nodes: use liboctet_mpi.so in its place, "
      "which "
      "has the same functions (docs/bindings.md)");
}

}  // namespace octet::c
