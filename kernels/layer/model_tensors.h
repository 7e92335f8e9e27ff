// The files of a model folder and the tensors in them.
#ifndef OCTET_KERNELS_LAYER_MODEL_TENSORS_H_
#define OCTET_KERNELS_LAYER_MODEL_TENSORS_H_

#include <cstddef>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "kernels/layer/safetensors.h"

namespace octet {

// Returns the contents of a file. kNotFound if there is none, kInvalidArgument if it cannot be read
// or has more bytes than `most_bytes`.
absl::StatusOr<std::string> ReadText(const std::string& path, size_t most_bytes);

// The tensors of all *.safetensors files of a folder, or of those that its index names.
class ModelTensors {
 public:
  struct Found {
    const SafetensorsFile* file = nullptr;
    const SafetensorsTensor* tensor = nullptr;  // nullptr: there is no such tensor
  };

  // Maps the files and reads their headers. Errors name the file: those of SafetensorsFile::Open,
  // kNotFound for a folder without such files, kInvalidArgument for a damaged index, for one that
  // the files contradict, and for a name that two files have.
  static absl::StatusOr<ModelTensors> Open(const std::string& folder);

  Found Find(absl::string_view name) const;

 private:
  absl::Status Add(const std::string& path);

  std::vector<std::unique_ptr<SafetensorsFile>> files_;
  std::map<absl::string_view, Found> tensors_;  // names are the files'
};

}  // namespace octet

#endif  // OCTET_KERNELS_LAYER_MODEL_TENSORS_H_
