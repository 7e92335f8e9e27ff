// NumPy's .npy files: one array, little endian, rows first ("C order").
#ifndef OCTET_TOOLS_SUPPORT_NPY_H_
#define OCTET_TOOLS_SUPPORT_NPY_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace octet {

enum class NpyType { kUint8, kFloat16, kUint16, kInt32, kInt64, kFloat32, kFloat64 };

absl::string_view NpyTypeName(NpyType type);  // "float16"
size_t NpyTypeBytes(NpyType type);            // of one element

struct NpyArray {
  NpyType type = NpyType::kFloat32;
  std::vector<int64_t> shape;  // empty: one element
  std::string data;            // the elements, as they are in the file
};

// Reads format versions 1.0 to 3.0. Returns kInvalidArgument with what is wrong with the file: not
// an .npy file, an unknown version, a header that is malformed or longer than the file, Fortran
// order, a dtype not in NpyType, a shape of too many bytes, data cut short, or bytes left over.
absl::StatusOr<NpyArray> ParseNpy(absl::string_view file);

// The same for a file of at most `most_bytes`; messages contain its path.
absl::StatusOr<NpyArray> ReadNpy(const std::string& path, size_t most_bytes);

// Returns the bytes before the data, format version 1.0, with the format's padding.
std::string NpyHeader(NpyType type, absl::Span<const int64_t> shape);

// Writes a file completely or not at all. `data` has as many elements as `shape` says.
absl::Status WriteNpy(const std::string& path, NpyType type, absl::Span<const int64_t> shape,
                      const void* data);

// Returns the elements of an int32 or int64 array as int32. Returns kInvalidArgument for any other
// type, or for a value that does not fit, with its position and value.
absl::StatusOr<std::vector<int32_t>> NpyToInt32(const NpyArray& array);

}  // namespace octet

#endif  // OCTET_TOOLS_SUPPORT_NPY_H_
