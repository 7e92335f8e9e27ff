#include "octet/model_folder.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "kernels/layer/bounded_json.h"
#include "kernels/layer/model_config.h"
#include "kernels/layer/safetensors.h"
#include "runtime/status_macros.h"

namespace octet {
namespace {

constexpr absl::string_view kIndex = "model.safetensors.index.json";
constexpr absl::string_view kSuffix = ".safetensors";
constexpr absl::string_view kPrefix = "model.";  // of names; some folders do without
constexpr size_t kMostConfigBytes = size_t{1} << 20;
constexpr size_t kMostIndexBytes = size_t{64} << 20;
constexpr int kScaleBlock = 128;  // rows, and columns, that a scale is for

std::string PathOf(const std::string& folder, absl::string_view file) {
  return absl::StrCat(folder, "/", file);
}

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
  if (file.eof()) return text;
  const int error = errno != 0 ? errno : EIO;
  const std::string what = absl::StrCat("cannot read ", path, ": ", std::strerror(error));
  return error == ENOENT ? absl::NotFoundError(what) : absl::InvalidArgumentError(what);
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

// Returns the names of all *.safetensors files, in order.
absl::StatusOr<std::set<std::string>> ListFiles(const std::string& folder) {
  std::set<std::string> files;
  std::error_code error;
  auto entry = std::filesystem::directory_iterator(folder, error);
  for (; !error && entry != std::filesystem::directory_iterator(); entry.increment(error)) {
    const std::string name = entry->path().filename().string();
    if (absl::EndsWith(name, kSuffix)) files.insert(name);
  }
  if (error) {
    return absl::InvalidArgumentError(absl::StrCat("cannot read ", folder, ": ", error.message()));
  }
  if (files.empty()) {
    return absl::NotFoundError(absl::StrCat(folder, " has no *.safetensors files"));
  }
  return files;
}

// The tensors of all files of a folder. A view of nothing is returned where there is none.
class Tensors {
 public:
  struct Found {
    const SafetensorsFile* file = nullptr;
    const SafetensorsTensor* tensor = nullptr;
  };

  static absl::StatusOr<Tensors> Open(const std::string& folder) {
    Tensors tensors;
    const std::string index_path = PathOf(folder, kIndex);
    WeightMap index;
    std::set<std::string> names;
    if (Exists(index_path)) {
      OCTET_ASSIGN_OR_RETURN(index, ReadIndex(index_path));
      for (const auto& [tensor, file] : index) names.insert(file);
    } else {
      OCTET_ASSIGN_OR_RETURN(names, ListFiles(folder));
    }
    for (const std::string& name : names) {
      OCTET_RETURN_IF_ERROR(tensors.Add(PathOf(folder, name)));
    }
    for (const auto& [tensor, file] : index) {
      const std::string path = PathOf(folder, file);
      const Found found = tensors.Find(tensor);
      if (found.tensor == nullptr || found.file->path() != path) {
        return absl::InvalidArgumentError(absl::StrCat(path, " has no tensor ", QuotedName(tensor),
                                                       ", which ", index_path, " puts there"));
      }
    }
    return tensors;
  }

  Found Find(absl::string_view name) const {
    const auto found = tensors_.find(name);
    return found == tensors_.end() ? Found() : found->second;
  }

 private:
  absl::Status Add(const std::string& path) {
    OCTET_ASSIGN_OR_RETURN(std::unique_ptr<SafetensorsFile> file, SafetensorsFile::Open(path));
    for (const SafetensorsTensor& tensor : file->tensors()) {
      const auto [before, added] = tensors_.try_emplace(tensor.name, Found{file.get(), &tensor});
      if (!added) {
        return absl::InvalidArgumentError(absl::StrCat("tensor ", QuotedName(tensor.name),
                                                       " is in ", before->second.file->path(),
                                                       " and in ", path));
      }
    }
    files_.push_back(std::move(file));
    return absl::OkStatus();
  }

  std::vector<std::unique_ptr<SafetensorsFile>> files_;
  std::map<absl::string_view, Found> tensors_;  // names are the files'
};

// How a family calls the tensors of a layer.
struct Names {
  absl::string_view block = "mlp";
  absl::string_view gate = "gate_proj";
  absl::string_view up = "up_proj";
  absl::string_view down = "down_proj";
  absl::string_view shared = "shared_experts";
  bool router_bias = false;
};

Names NamesOf(ModelFamily family) {
  switch (family) {
    case ModelFamily::kMixtral:
      return {.block = "block_sparse_moe", .gate = "w1", .up = "w3", .down = "w2"};
    case ModelFamily::kQwen2Moe:
      return {.shared = "shared_expert"};
    case ModelFamily::kDeepseekV3:
      return {.router_bias = true};
    case ModelFamily::kQwen3Moe:
    case ModelFamily::kOlmoe:
    case ModelFamily::kDeepseekV2:
      break;
  }
  return {};
}

std::string ShapeText(absl::Span<const uint64_t> shape) {
  return absl::StrCat("[", absl::StrJoin(shape, ", "), "]");
}

// What a tensor must be like.
struct Wanted {
  std::vector<uint64_t> shape;
  std::vector<TensorType> types;
};

// The dtypes of files that HostTensor has.
struct Dtype {
  absl::string_view name;
  TensorType type;
};
constexpr Dtype kDtypes[] = {{"F32", TensorType::kFloat32},
                             {"BF16", TensorType::kBFloat16},
                             {"F16", TensorType::kFloat16},
                             {"F8_E4M3", TensorType::kFloat8E4m3}};

constexpr TensorType kPlainTypes[] = {TensorType::kFloat32, TensorType::kBFloat16,
                                      TensorType::kFloat16};

const Dtype* DtypeOf(const SafetensorsTensor& tensor) {
  for (const Dtype& dtype : kDtypes) {
    if (dtype.name == tensor.dtype) return &dtype;
  }
  return nullptr;
}

// Reads the tensors of one layer.
class LayerReader {
 public:
  LayerReader(const Tensors& tensors, absl::string_view folder, std::string block)
      : tensors_(tensors), folder_(folder), block_(std::move(block)) {}

  // Returns whether there is such a tensor, in FP8.
  bool IsFp8(absl::string_view name) const {
    const SafetensorsTensor* const tensor = Find(name).tensor;
    return tensor != nullptr && tensor->dtype == "F8_E4M3";
  }

  // Returns a matrix of floating-point numbers.
  absl::StatusOr<HostTensor> Plain(absl::string_view name, int rows, int columns) const {
    return Get(name, {Sizes({rows, columns}), {std::begin(kPlainTypes), std::end(kPlainTypes)}});
  }

  // Returns a vector of float32, as one row.
  absl::StatusOr<HostTensor> Vector(absl::string_view name, int columns) const {
    return Get(name, {Sizes({columns}), {TensorType::kFloat32}});
  }

  // Returns a matrix of floating-point numbers, or of FP8 with its scales.
  absl::StatusOr<HostTensor> Quantized(absl::string_view name, int rows, int columns) const {
    if (!IsFp8(name)) return Plain(name, rows, columns);
    OCTET_ASSIGN_OR_RETURN(HostTensor tensor,
                           Get(name, {Sizes({rows, columns}), {TensorType::kFloat8E4m3}}));
    const auto blocks = [](int size) { return (size - 1) / kScaleBlock + 1; };
    OCTET_ASSIGN_OR_RETURN(const HostTensor scales,
                           Get(absl::StrCat(name, "_scale_inv"),
                               {Sizes({blocks(rows), blocks(columns)}), {TensorType::kFloat32}}));
    tensor.scales = scales.data;
    return tensor;
  }

  absl::StatusOr<MlpWeights> Mlp(absl::string_view prefix, const Names& names, int hidden,
                                 int intermediate) const {
    const auto matrix = [&](absl::string_view name, int rows, int columns) {
      return Quantized(absl::StrCat(prefix, ".", name, ".weight"), rows, columns);
    };
    MlpWeights mlp;
    OCTET_ASSIGN_OR_RETURN(mlp.gate, matrix(names.gate, intermediate, hidden));
    OCTET_ASSIGN_OR_RETURN(mlp.up, matrix(names.up, intermediate, hidden));
    OCTET_ASSIGN_OR_RETURN(mlp.down, matrix(names.down, hidden, intermediate));
    return mlp;
  }

 private:
  static std::vector<uint64_t> Sizes(std::initializer_list<int> sizes) {
    return {sizes.begin(), sizes.end()};
  }

  std::string FullName(absl::string_view name) const { return absl::StrCat(block_, ".", name); }

  Tensors::Found Find(absl::string_view name) const {
    const Tensors::Found found = tensors_.Find(absl::StrCat(kPrefix, FullName(name)));
    return found.tensor != nullptr ? found : tensors_.Find(FullName(name));
  }

  absl::StatusOr<HostTensor> Get(absl::string_view name, const Wanted& wanted) const {
    const auto [file, tensor] = Find(name);
    if (tensor == nullptr) {
      return absl::NotFoundError(
          absl::StrCat(folder_, " has no tensor '", kPrefix, FullName(name), "'"));
    }
    const std::string where = absl::StrCat(file->path(), ": tensor ", QuotedName(tensor->name));
    if (tensor->shape != wanted.shape) {
      return absl::InvalidArgumentError(absl::StrCat(where, " has the shape ",
                                                     ShapeText(tensor->shape), ", and must have ",
                                                     ShapeText(wanted.shape)));
    }
    const Dtype* const dtype = DtypeOf(*tensor);
    if (dtype == nullptr ||
        std::count(wanted.types.begin(), wanted.types.end(), dtype->type) == 0) {
      const auto name_of = [](std::string* out, TensorType type) {
        absl::StrAppend(
            out, std::find_if(std::begin(kDtypes), std::end(kDtypes), [type](const Dtype& each) {
                   return each.type == type;
                 })->name);
      };
      return absl::InvalidArgumentError(absl::StrCat(where, " has the dtype ", tensor->dtype,
                                                     ", and must have ",
                                                     absl::StrJoin(wanted.types, " or ", name_of)));
    }
    return HostTensor{.type = dtype->type,
                      .rows = static_cast<int>(wanted.shape.size() == 1 ? 1 : wanted.shape[0]),
                      .columns = static_cast<int>(wanted.shape.back()),
                      .data = file->Data(*tensor)};
  }

  const Tensors& tensors_;
  const absl::string_view folder_;
  const std::string block_;
};

std::string ExpertPrefix(int expert) { return absl::StrCat("experts.", expert); }

class MappedModelFolder final : public ModelFolder {
 public:
  MappedModelFolder(std::string folder, ModelConfig config, Tensors tensors)
      : folder_(std::move(folder)),
        config_(std::move(config)),
        names_(NamesOf(config_.family)),
        tensors_(std::move(tensors)) {}

  ModelFamily family() const override { return config_.family; }
  int num_layers() const override { return config_.num_layers; }

  absl::StatusOr<MoeLayerConfig> LayerConfig(int layer) const override {
    OCTET_ASSIGN_OR_RETURN(MoeLayerConfig config, config_.LayerConfig(layer));
    const std::string first = absl::StrCat(ExpertPrefix(0), ".", names_.gate, ".weight");
    if (ReaderOf(layer).IsFp8(first)) config.weights = GemmFormat::kFp8;
    return config;
  }

  absl::StatusOr<MoeLayerWeights> Weights(int layer) const override {
    OCTET_ASSIGN_OR_RETURN(const MoeLayerConfig config, LayerConfig(layer));
    const LayerReader reader = ReaderOf(layer);
    MoeLayerWeights weights;
    OCTET_ASSIGN_OR_RETURN(weights.router,
                           reader.Plain("gate.weight", config.num_experts, config.hidden));
    if (names_.router_bias) {
      OCTET_ASSIGN_OR_RETURN(weights.router_bias,
                             reader.Vector("gate.e_score_correction_bias", config.num_experts));
    }
    for (int expert = 0; expert < config.num_experts; ++expert) {
      OCTET_ASSIGN_OR_RETURN(const MlpWeights mlp, reader.Mlp(ExpertPrefix(expert), names_,
                                                              config.hidden, config.intermediate));
      OCTET_RETURN_IF_ERROR(CheckFormat(mlp, expert, layer, config.weights));
      weights.experts.push_back(mlp);
    }
    if (config.shared_intermediate > 0) {
      OCTET_ASSIGN_OR_RETURN(weights.shared, reader.Mlp(names_.shared, names_, config.hidden,
                                                        config.shared_intermediate));
    }
    if (config.shared_gate) {
      OCTET_ASSIGN_OR_RETURN(
          weights.shared_gate,
          reader.Plain(absl::StrCat(names_.shared, "_gate.weight"), 1, config.hidden));
    }
    return weights;
  }

 private:
  LayerReader ReaderOf(int layer) const {
    return {tensors_, folder_, absl::StrCat("layers.", layer, ".", names_.block)};
  }

  // All experts' weights are FP8, or none.
  absl::Status CheckFormat(const MlpWeights& mlp, int expert, int layer, GemmFormat format) const {
    for (const HostTensor* const tensor : {&mlp.gate, &mlp.up, &mlp.down}) {
      if ((tensor->type == TensorType::kFloat8E4m3) != (format == GemmFormat::kFp8)) {
        return absl::InvalidArgumentError(
            absl::StrCat(folder_, ": layer ", layer, ": weights of expert ", expert, " are ",
                         EnumName(tensor->type), ", and others are",
                         format == GemmFormat::kFp8 ? "" : " not", " fp8; all must be, or none"));
      }
    }
    return absl::OkStatus();
  }

  const std::string folder_;
  const ModelConfig config_;
  const Names names_;
  const Tensors tensors_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<ModelFolder>> ModelFolder::Open(const std::string& folder) {
  const std::string path = PathOf(folder, "config.json");
  OCTET_ASSIGN_OR_RETURN(const std::string text, ReadText(path, kMostConfigBytes));
  OCTET_ASSIGN_OR_RETURN(ModelConfig config, ModelConfig::Parse(text, path));
  OCTET_ASSIGN_OR_RETURN(Tensors tensors, Tensors::Open(folder));
  return std::make_unique<MappedModelFolder>(folder, std::move(config), std::move(tensors));
}

}  // namespace octet
