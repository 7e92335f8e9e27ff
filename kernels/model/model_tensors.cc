#include "kernels/model/model_tensors.h"

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <set>
#include <system_error>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "kernels/model/bounded_json.h"
#include "kernels/model/lfs_pointer.h"
#include "runtime/base/status_macros.h"

namespace octet {
namespace {

constexpr absl::string_view kOneFile = "model.safetensors";
constexpr absl::string_view kIndex = "model.safetensors.index.json";
constexpr absl::string_view kSuffix = ".safetensors";
constexpr size_t kMostIndexBytes = size_t{64} << 20;

std::string PathOf(const std::string& folder, absl::string_view file) {
  return absl::StrCat(folder, "/", file);
}

bool Exists(const std::string& path) {
  std::error_code error;
  return std::filesystem::exists(path, error);
}

// Which file holds a tensor, as the index has it.
using WeightMap = std::map<std::string, std::string>;

absl::StatusOr<WeightMap> ReadIndex(const std::string& path) {
  OCTET_ASSIGN_OR_RETURN(const std::string text, ReadText(path, kMostIndexBytes));
  OCTET_ASSIGN_OR_RETURN(const Json json, ParseJsonObject(text, path));
  const auto found = json.find("weight_map");
  if (found == json.end() || !found->is_object()) {
    return absl::InvalidArgumentError(absl::StrCat(path, " has no object weight_map"));
  }
  WeightMap files;
  for (const auto& [tensor, value] : found->items()) {
    const std::string file = value.is_string() ? value.get<std::string>() : "";
    // Files of the folder itself, and nothing else of the machine's.
    if (!absl::EndsWith(file, kSuffix) || absl::StrContains(file, '/')) {
      return absl::InvalidArgumentError(absl::StrCat(path, ": tensor ", QuotedName(tensor),
                                                     " is in ", Shown(value),
                                                     ", which is no name of a *.safetensors file"));
    }
    files[tensor] = file;
  }
  return files;
}

// Returns the names of all *.safetensors files, in order, without those of the system: macOS, for
// instance, puts "._model.safetensors" beside a file.
absl::StatusOr<std::set<std::string>> ListFiles(const std::string& folder) {
  std::set<std::string> files;
  std::error_code error;
  auto entry = std::filesystem::directory_iterator(folder, error);
  for (; !error && entry != std::filesystem::directory_iterator(); entry.increment(error)) {
    const std::string name = entry->path().filename().string();
    if (absl::EndsWith(name, kSuffix) && !absl::StartsWith(name, ".")) files.insert(name);
  }
  if (error) {
    return absl::InvalidArgumentError(absl::StrCat("cannot read ", folder, ": ", error.message()));
  }
  if (files.empty()) {
    return absl::NotFoundError(absl::StrCat(folder, " has no *.safetensors files"));
  }
  return files;
}

}  // namespace

absl::StatusOr<std::string> ReadText(const std::string& path, size_t most_bytes) {
  errno = 0;
  std::ifstream file(path, std::ios::binary);
  std::string text;
  constexpr size_t kChunk = 1 << 16;
  while (file && text.size() <= most_bytes) {
    const size_t size = text.size();
    text.resize(size + kChunk);
    file.read(text.data() + size, kChunk);
    text.resize(size + static_cast<size_t>(file.gcount()));
  }
  if (text.size() > most_bytes) {
    return absl::InvalidArgumentError(absl::StrCat(path, " has more than ", most_bytes, " bytes"));
  }
  if (file.eof()) {
    OCTET_RETURN_IF_ERROR(CheckNoLfsPointer(text, path));
    return text;
  }
  const int error = errno != 0 ? errno : EIO;
  const std::string what = absl::StrCat("cannot read ", path, ": ", std::strerror(error));
  return error == ENOENT ? absl::NotFoundError(what) : absl::InvalidArgumentError(what);
}

absl::StatusOr<ModelTensors> ModelTensors::Open(const std::string& folder) {
  ModelTensors tensors;
  const std::string one_file = PathOf(folder, kOneFile);
  const std::string index_path = PathOf(folder, kIndex);
  if (Exists(one_file)) {
    OCTET_RETURN_IF_ERROR(tensors.Add(one_file));
  } else if (Exists(index_path)) {
    OCTET_RETURN_IF_ERROR(tensors.AddIndexed(folder, index_path));
  } else {
    OCTET_ASSIGN_OR_RETURN(const std::set<std::string> names, ListFiles(folder));
    for (const std::string& name : names) {
      OCTET_RETURN_IF_ERROR(tensors.Add(PathOf(folder, name)));
    }
  }
  return tensors;
}

absl::Status ModelTensors::AddIndexed(const std::string& folder, const std::string& index_path) {
  OCTET_ASSIGN_OR_RETURN(const WeightMap index, ReadIndex(index_path));
  index_path_ = index_path;
  std::set<std::string> files;
  for (const auto& [tensor, file] : index) files.insert(PathOf(folder, file));
  for (const std::string& file : files) {
    const absl::Status status = Add(file);
    if (absl::IsNotFound(status)) {
      absent_[file] = std::string(status.message());
    } else {
      OCTET_RETURN_IF_ERROR(status);
    }
  }
  if (files_.empty() && !absent_.empty()) return absl::NotFoundError(absent_.begin()->second);
  for (const auto& [tensor, file] : index) {
    if (Find(tensor).tensor == nullptr) missing_[tensor] = PathOf(folder, file);
  }
  return absl::OkStatus();
}

std::vector<ModelTensors::Found> ModelTensors::WithPrefix(absl::string_view prefix) const {
  std::vector<Found> found;
  for (auto each = tensors_.lower_bound(prefix);
       each != tensors_.end() && absl::StartsWith(each->first, prefix); ++each) {
    found.push_back(each->second);
  }
  return found;
}

absl::Status ModelTensors::WhyMissing(absl::string_view name) const {
  const auto missing = missing_.find(name);
  if (missing == missing_.end()) return absl::OkStatus();
  const auto& [tensor, file] = *missing;
  const auto absent = absent_.find(file);
  if (absent == absent_.end()) {
    return absl::NotFoundError(absl::StrCat(file, " has no tensor ", QuotedName(tensor), ", which ",
                                            index_path_, " puts there"));
  }
  return absl::NotFoundError(absl::StrCat(absent->second, "; ", index_path_, " puts tensor ",
                                          QuotedName(tensor), " there"));
}

ModelTensors::Found ModelTensors::Find(absl::string_view name) const {
  const auto found = tensors_.find(name);
  return found == tensors_.end() ? Found() : found->second;
}

absl::Status ModelTensors::Add(const std::string& path) {
  OCTET_ASSIGN_OR_RETURN(std::unique_ptr<SafetensorsFile> file, SafetensorsFile::Open(path));
  for (const SafetensorsTensor& tensor : file->tensors()) {
    const auto [before, added] = tensors_.try_emplace(tensor.name, Found{file.get(), &tensor});
    if (!added) {
      return absl::InvalidArgumentError(absl::StrCat("tensor ", QuotedName(tensor.name), " is in ",
                                                     before->second.file->path(), " and in ",
                                                     path));
    }
  }
  files_.push_back(std::move(file));
  return absl::OkStatus();
}

}  // namespace octet
