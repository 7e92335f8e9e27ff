// The input is a line with a number of bytes, a line with a config.json, and the header of a
// *.safetensors file with so many bytes of data: a model folder, whose layers are looked up.
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <system_error>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "kernels/layer/pack_weights.h"
#include "octet/model_folder.h"
#include "tests/fuzz/check.h"

namespace octet::fuzz {
namespace {

// A folder's defects are the user's mistakes, or files that are missing.
void CheckRefused(const absl::Status& status) {
  Check(absl::IsInvalidArgument(status) || absl::IsNotFound(status) ||
        absl::IsUnimplemented(status));
  Check(!status.message().empty());
}

class Folder {
 public:
  Folder() { Check(mkdtemp(path_.data()) != nullptr); }
  ~Folder() {
    std::error_code error;
    std::filesystem::remove_all(path_, error);
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;

  const std::string& path() const { return path_; }
  void Write(absl::string_view name, absl::string_view text) const {
    std::ofstream(absl::StrCat(path_, "/", name), std::ios::binary) << text;
  }

 private:
  std::string path_ = std::filesystem::temp_directory_path().string() + "/octet_fuzz_XXXXXX";
};

// All that Load would read is there.
void CheckMatrix(const HostTensor& tensor) {
  if (tensor.empty()) return;
  // Others are refused by MoeLayer::Load.
  if (!CheckTensor("it", tensor, tensor.rows, tensor.columns).ok()) return;
  for (const int row : {0, tensor.rows - 1}) {
    for (const int column : {0, tensor.columns - 1}) {
      [[maybe_unused]] const volatile float element = ElementOf(tensor, row, column);
    }
  }
}

void CheckMlp(const MlpWeights& mlp) {
  for (const HostTensor* const tensor :
       {&mlp.gate, &mlp.up, &mlp.down, &mlp.gate_bias, &mlp.up_bias, &mlp.down_bias}) {
    CheckMatrix(*tensor);
  }
}

void CheckLayer(const ModelFolder& folder, int layer) {
  const absl::StatusOr<MoeLayerConfig> config = folder.LayerConfig(layer);
  if (!config.ok()) return CheckRefused(config.status());
  const absl::StatusOr<MoeLayerWeights> weights = folder.Weights(layer);
  if (!weights.ok()) return CheckRefused(weights.status());
  Check(weights->experts.size() == static_cast<size_t>(config->num_experts));
  CheckMatrix(weights->router);
  CheckMatrix(weights->router_bias);
  CheckMatrix(weights->logit_bias);
  CheckMatrix(weights->shared_gate);
  CheckMlp(weights->shared);
  for (const MlpWeights& expert : weights->experts) CheckMlp(expert);
}

void Run(absl::string_view input) {
  constexpr uint64_t kMostBytes = 1 << 20;
  const std::vector<absl::string_view> parts = absl::StrSplit(input, absl::MaxSplits('\n', 2));
  uint64_t bytes = 0;
  if (parts.size() < 3 || !absl::SimpleAtoi(parts[0], &bytes) || bytes > kMostBytes) return;
  const absl::string_view header = parts[2];
  std::string file;
  for (int byte = 0; byte < 8; ++byte) {
    file.push_back(static_cast<char>(uint64_t{header.size()} >> (8 * byte)));
  }
  absl::StrAppend(&file, header, std::string(bytes, '\x3c'));
  const Folder files;
  files.Write("config.json", parts[1]);
  files.Write("model.safetensors", file);
  const absl::StatusOr<std::unique_ptr<ModelFolder>> folder = ModelFolder::Open(files.path());
  if (!folder.ok()) return CheckRefused(folder.status());
  constexpr int kMostLayers = 3;
  for (int layer = 0; layer < std::min((*folder)->num_layers(), kMostLayers); ++layer) {
    CheckLayer(**folder, layer);
  }
}

}  // namespace
}  // namespace octet::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  octet::fuzz::Run({reinterpret_cast<const char*>(data), size});
  return 0;
}
