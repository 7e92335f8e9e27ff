// Model folders as Hugging Face `transformers` writes them: config.json and *.safetensors, with or
// without an index.
#ifndef OCTET_MODEL_FOLDER_H_
#define OCTET_MODEL_FOLDER_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "octet/enum_names.h"
#include "octet/moe_layer.h"
#include "octet/moe_weights.h"

namespace octet {

enum class ModelFamily {
  kMixtral,
  kQwen2Moe,
  kQwen3Moe,
  kOlmoe,
  kDeepseekV2,
  kDeepseekV3,
  kGptOss,
  kGlm4Moe,
  kMinimaxM2,
  kQwen3Next,
  kKimiK2,
  kGraniteMoe,
  kErnie45Moe,
  kHunyuanV1Moe,
  kLlama4Text,
  kQwen35MoeText,
  kPhimoe,
};
// The names are those of config.json's model_type. Folders of llama4 and qwen3_5_moe, which see
// images, too, have one of llama4_text and qwen3_5_moe_text in them.
absl::Span<const EnumEntry<ModelFamily>> EnumTable(ModelFamily);

// A model folder, opened. Its files stay mapped, and nothing of them is read before it is needed.
// Any thread may call.
class ModelFolder {
 public:
  // Reads config.json and the headers of the *.safetensors files that count (docs/formats.md).
  // Errors are a sentence with the file and what is wrong: kNotFound for a file that is missing or
  // only a pointer of git-lfs, unless an index names it and others are there, kUnimplemented for an
  // unknown model_type (naming those known), kInvalidArgument for what is damaged, truncated,
  // overlapping.
  static absl::StatusOr<std::unique_ptr<ModelFolder>> Open(const std::string& folder);
  virtual ~ModelFolder() = default;

  virtual ModelFamily family() const = 0;
  virtual int num_layers() const = 0;

  // Returns the configuration of layer `layer`: shapes, router, dtype (float32 weights become
  // kBFloat16), kFp8 or kMxfp4 if the folder has such weights, and weighs_input.
  // max_tokens_per_rank and all other members after `weights` have their defaults.
  // kInvalidArgument for a layer that does not exist or has no experts, and for members of
  // config.json that are missing or not supported.
  virtual absl::StatusOr<MoeLayerConfig> LayerConfig(int layer) const = 0;

  // Returns views of the layer's tensors, valid as long as the folder. Experts have tensors of
  // their own, or two tensors have those of all experts (docs/formats.md). kNotFound or
  // kInvalidArgument, naming file and tensor, for one that is missing or has another shape or type,
  // and for one that Octet would leave out.
  virtual absl::StatusOr<MoeLayerWeights> Weights(int layer) const = 0;
};

}  // namespace octet

#endif  // OCTET_MODEL_FOLDER_H_
