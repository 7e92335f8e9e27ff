// JoinWorld in the library that is linked to MPI.
#include <memory>

#include "absl/status/statusor.h"
#include "kernels/bindings/c/handles.h"
#include "octet/domain.h"
#include "octet/world.h"

namespace octet::c {

absl::StatusOr<std::unique_ptr<Domain>> JoinWorld(const WorldOptions& options) {
  return World::Create(options);
}

}  // namespace octet::c
