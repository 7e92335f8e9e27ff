#include "kernels/check_pointers.h"

#include <cstdint>
#include <string>

#include "absl/strings/str_cat.h"
#include "misuse.h"

namespace octet {

absl::Status CheckPointers(const Rank& rank, std::initializer_list<NamedPointer> arguments) {
  for (const auto& [name, pointer, alignment] : arguments) {
    const auto address = reinterpret_cast<uintptr_t>(pointer);
    if (address % alignment != 0) {
      return absl::InvalidArgumentError(absl::StrCat(name, " is at 0x", absl::Hex(address),
                                                     "; it must be ", alignment, "-byte aligned"));
    }
    const std::string place = platform::PlaceOutside(rank.device(), pointer);
    if (place.empty()) continue;
    return absl::InvalidArgumentError(absl::StrCat(name, " of rank ", rank.rank(), " is ", place,
                                                   "; it must be memory of the rank's own device, ",
                                                   rank.device()));
  }
  return absl::OkStatus();
}

}  // namespace octet
