// Files of tensors, *.safetensors: the length N of a header in 8 bytes, little-endian; the header,
// N bytes of JSON; and the tensors' data.
//
//   {"__metadata__": {"format": "pt"},
//    "layers.0.weight": {"dtype": "BF16", "shape": [4, 2], "data_offsets": [0, 16]}, ...}
//
// Offsets count from the end of the header. The data of the tensors lie behind each other without
// holes, from the end of the header to the end of the file.
#ifndef OCTET_KERNELS_MODEL_SAFETENSORS_H_
#define OCTET_KERNELS_MODEL_SAFETENSORS_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace octet {

struct SafetensorsTensor {
  std::string name;
  std::string dtype;            // as the file has it: "BF16"
  std::vector<uint64_t> shape;  // empty: one element
  // The bytes of the file that the elements are: as many as dtype and shape say.
  uint64_t begin = 0;
  uint64_t end = 0;
};

// Returns the tensors of a file, in the order of their data. `beginning` is the whole file or its
// beginning up to at least the end of the header, and `file_bytes` what the file has. Memory is
// bounded by a multiple of the header. Returns kInvalidArgument with what is wrong, and with which
// tensor: a header that is cut short, longer than 100 MB or of another structure than above, a
// name that comes twice, an unknown dtype, sizes that do not fit each other or the file, and data
// that overlap or leave holes, which no reader of the format accepts.
absl::StatusOr<std::vector<SafetensorsTensor>> ParseSafetensorsHeader(absl::string_view beginning,
                                                                      uint64_t file_bytes);

// Returns `name` for a message: in quotes, escaped, and not longer than a few lines.
std::string QuotedName(absl::string_view name);

// A file that stays mapped. Whoever changes it meanwhile changes the tensors; whoever makes it
// shorter ends the process that reads beyond its end.
class SafetensorsFile {
 public:
  // Errors name the file: kNotFound if there is none, or only a pointer of git-lfs,
  // kInvalidArgument for one that cannot be read and for those of ParseSafetensorsHeader.
  static absl::StatusOr<std::unique_ptr<SafetensorsFile>> Open(const std::string& path);
  ~SafetensorsFile();
  SafetensorsFile(const SafetensorsFile&) = delete;
  SafetensorsFile& operator=(const SafetensorsFile&) = delete;

  const std::string& path() const { return path_; }
  absl::Span<const SafetensorsTensor> tensors() const { return tensors_; }
  // Returns the elements of one of tensors().
  const std::byte* Data(const SafetensorsTensor& tensor) const { return bytes_ + tensor.begin; }

 private:
  SafetensorsFile(const std::string& path, const std::byte* bytes, size_t size)
      : path_(path), bytes_(bytes), size_(size) {}

  const std::string path_;
  const std::byte* const bytes_;
  const size_t size_;
  std::vector<SafetensorsTensor> tensors_;
};

}  // namespace octet

#endif  // OCTET_KERNELS_MODEL_SAFETENSORS_H_
