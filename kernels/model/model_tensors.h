// The files of a model folder and the tensors in them.
#ifndef OCTET_KERNELS_MODEL_MODEL_TENSORS_H_
#define OCTET_KERNELS_MODEL_MODEL_TENSORS_H_

#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "kernels/model/safetensors.h"

namespace octet {

// Returns the contents of a file. kNotFound if there is none, or only a pointer of git-lfs,
// kInvalidArgument if it cannot be read or has more bytes than `most_bytes`.
absl::StatusOr<std::string> ReadText(const std::string& path, size_t most_bytes);

// The tensors of a folder: those of model.safetensors, as `transformers` reads it; without such a
// file those of all files that model.safetensors.index.json names; without an index those of all
// *.safetensors files whose names do not begin with a point. What the index says of tensors does
// not count, only which files it names. Those that are not there are missed when a tensor is.
class ModelTensors {
 public:
  struct Found {
    const SafetensorsFile* file = nullptr;
    const SafetensorsTensor* tensor = nullptr;  // nullptr: there is no such tensor
  };

  // Maps the files and reads their headers. Errors name the file: those of SafetensorsFile::Open,
  // kNotFound for a folder without such files and for an index none of whose files is there,
  // kInvalidArgument for a damaged index and for a name that two files have.
  static absl::StatusOr<ModelTensors> Open(const std::string& folder);

  Found Find(absl::string_view name) const;

  // Returns the tensors whose names begin with `prefix`, by name.
  std::vector<Found> WithPrefix(absl::string_view prefix) const;

  // Returns why a tensor that the index names is not there, as kNotFound: its file is not, or has
  // no such tensor. OK for any other name.
  absl::Status WhyMissing(absl::string_view name) const;

 private:
  absl::Status Add(const std::string& path);
  // Adds the files that an index names, if they are there.
  absl::Status AddIndexed(const std::string& folder, const std::string& index_path);

  std::vector<std::unique_ptr<SafetensorsFile>> files_;
  std::map<absl::string_view, Found> tensors_;  // names are the files'
  std::string index_path_;
  std::map<std::string, std::string, std::less<>>
      missing_;                                // tensors that only the index has -> file
  std::map<std::string, std::string> absent_;  // files that are not there -> why
};

}  // namespace octet

#endif  // OCTET_KERNELS_MODEL_MODEL_TENSORS_H_
