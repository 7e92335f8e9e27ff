// The input is a *.safetensors file, and also, by itself, the header of files with 0, 24 and many
// bytes of data: what changes the header would seldom change its length as well.
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <set>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "kernels/model/safetensors.h"
#include "tests/fuzz/check.h"

namespace octet::fuzz {
namespace {

void Parse(absl::string_view beginning, uint64_t file_bytes) {
  const auto tensors = ParseSafetensorsHeader(beginning, file_bytes);
  if (!tensors.ok()) return CheckRefusal(tensors.status());
  // They follow each other from the end of the header to that of the file.
  uint64_t header_bytes = 0;
  Check(beginning.size() >= sizeof(header_bytes));
  std::memcpy(&header_bytes, beginning.data(), sizeof(header_bytes));
  uint64_t end = sizeof(header_bytes) + header_bytes;
  Check(end <= beginning.size());
  std::set<absl::string_view> names;
  for (const SafetensorsTensor& tensor : *tensors) {
    Check(names.insert(tensor.name).second && !tensor.dtype.empty());
    Check(tensor.begin == end && tensor.end >= tensor.begin);
    end = tensor.end;
    uint64_t elements = 1;
    for (const uint64_t size : tensor.shape) {
      Check(!__builtin_mul_overflow(elements, size, &elements));
    }
    // An element has 4 bits to 8 bytes.
    const uint64_t bytes = tensor.end - tensor.begin;
    Check(bytes / 8 <= elements && elements / 2 <= bytes && (bytes == 0) == (elements == 0));
  }
  Check(end == file_bytes);
}

void Run(absl::string_view input) {
  Parse(input, input.size());
  std::string length(sizeof(uint64_t), '\0');
  const uint64_t size = input.size();
  std::memcpy(length.data(), &size, sizeof(size));
  const std::string beginning = absl::StrCat(length, input);
  for (const uint64_t data_bytes : {uint64_t{0}, uint64_t{24}, uint64_t{1} << 40}) {
    Parse(beginning, beginning.size() + data_bytes);
  }
}

}  // namespace
}  // namespace octet::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  octet::fuzz::Run({reinterpret_cast<const char*>(data), size});
  return 0;
}
