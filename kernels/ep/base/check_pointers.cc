#include "kernels/ep/base/check_pointers.h"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "misuse.h"
#include "runtime/base/status_macros.h"

namespace octet {

namespace {

uintptr_t AddressOf(const void* pointer) { return reinterpret_cast<uintptr_t>(pointer); }

absl::Status CheckAlignment(const NamedPointer& argument) {
  const uintptr_t address = AddressOf(argument.pointer);
  if (address % argument.alignment == 0) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(argument.name, " is at 0x", absl::Hex(address),
                                                 "; it must be ", argument.alignment,
                                                 "-byte aligned"));
}

bool Overlap(const NamedRange& a, const NamedRange& b) {
  if (a.begin == nullptr || b.begin == nullptr || a.bytes == 0 || b.bytes == 0) return false;
  return AddressOf(a.begin) < AddressOf(b.begin) + b.bytes &&
         AddressOf(b.begin) < AddressOf(a.begin) + a.bytes;
}

std::string TextOf(const NamedRange& range) {
  return absl::StrCat("0x", absl::Hex(AddressOf(range.begin)), " to 0x",
                      absl::Hex(AddressOf(range.begin) + range.bytes));
}

// `whose`: " of rank 1", or empty.
absl::Status CheckApart(absl::string_view whose, const NamedRange& out,
                        std::initializer_list<NamedRange> others) {
  for (const NamedRange& other : others) {
    if (!Overlap(out, other)) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        out.name, whose, " overlaps ", other.name, ": one has the addresses ", TextOf(out),
        ", the other ", TextOf(other), "; what a call writes must be memory of its own"));
  }
  return absl::OkStatus();
}

std::string TextOf(const NamedRoom& room) {
  return absl::StrCat(room.rows, room.rows == 1 ? " row of " : " rows of ", room.row_bytes,
                      " bytes");
}

// `whose` as above.
absl::Status CheckRoom(absl::string_view whose, const NamedRoom& argument) {
  const size_t bytes = argument.rows * argument.row_bytes;
  if (bytes == 0) return absl::OkStatus();
  if (argument.begin == nullptr) {
    if (argument.optional) return absl::OkStatus();
    return absl::InvalidArgumentError(absl::StrCat(
        argument.name, whose, " is null; the call needs ", TextOf(argument), " there"));
  }
  const std::optional<size_t> there = platform::BytesFrom(argument.begin);
  if (!there.has_value() || *there >= bytes) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      argument.name, whose, " has ", *there,
      " bytes up to the end of its allocation; the call needs ", bytes, ", ", TextOf(argument)));
}

}  // namespace

absl::Status CheckRoom(const Rank& rank, std::initializer_list<NamedRoom> arguments) {
  const std::string whose = absl::StrCat(" of rank ", rank.rank());
  for (const NamedRoom& argument : arguments) {
    OCTET_RETURN_IF_ERROR(CheckRoom(whose, argument));
  }
  return absl::OkStatus();
}

absl::Status CheckRoom(std::initializer_list<NamedRoom> arguments) {
  for (const NamedRoom& argument : arguments) OCTET_RETURN_IF_ERROR(CheckRoom("", argument));
  return absl::OkStatus();
}

absl::Status CheckApart(const Rank& rank, const NamedRange& out,
                        std::initializer_list<NamedRange> others) {
  return CheckApart(absl::StrCat(" of rank ", rank.rank()), out, others);
}

absl::Status CheckApart(const NamedRange& out, std::initializer_list<NamedRange> others) {
  return CheckApart(absl::string_view(), out, others);
}

absl::Status CheckPointersOn(int device, std::initializer_list<NamedPointer> arguments) {
  for (const NamedPointer& argument : arguments) {
    OCTET_RETURN_IF_ERROR(CheckAlignment(argument));
    const std::string place = platform::PlaceOutside(device, argument.pointer);
    if (place.empty()) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        argument.name, " is ", place, "; it must be memory of the object's own GPU, ", device));
  }
  return absl::OkStatus();
}

absl::Status CheckPointers(const Rank& rank, std::initializer_list<NamedPointer> arguments) {
  for (const NamedPointer& argument : arguments) {
    OCTET_RETURN_IF_ERROR(CheckAlignment(argument));
    const auto& [name, pointer, alignment] = argument;
    const std::string place = platform::PlaceOutside(rank.device(), pointer);
    if (place.empty()) continue;
    return absl::InvalidArgumentError(absl::StrCat(name, " of rank ", rank.rank(), " is ", place,
                                                   "; it must be memory of the rank's own device, ",
                                                   rank.device()));
  }
  return absl::OkStatus();
}

}  // namespace octet
