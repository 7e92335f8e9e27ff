// The names of RailTransport, for programs that are not linked to octet_net, too.
#include <array>

#include "absl/types/span.h"
#include "octet/domain.h"
#include "octet/enum_names.h"

namespace octet {

absl::Span<const EnumEntry<RailTransport>> EnumTable(RailTransport /*unused*/) {
  static constexpr std::array<EnumEntry<RailTransport>, 3> kTable = {{
      {RailTransport::kAuto, "auto"},
      {RailTransport::kMpi, "mpi"},
      {RailTransport::kNccl, "nccl"},
  }};
  return kTable;
}

}  // namespace octet
