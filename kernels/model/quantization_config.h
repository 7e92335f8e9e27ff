// quantization_config, a member of config.json: how the weights of a folder are quantized.
#ifndef OCTET_KERNELS_MODEL_QUANTIZATION_CONFIG_H_
#define OCTET_KERNELS_MODEL_QUANTIZATION_CONFIG_H_

#include "absl/status/status.h"
#include "kernels/model/json_reader.h"
#include "octet/model_folder.h"

namespace octet {

// Accepts what tells that weights are of a format that Octet reads, or nothing: the tensors tell
// which of them are. kInvalidArgument, naming the member and what it must be, for any other.
absl::Status CheckQuantization(const JsonReader& config, ModelFamily family);

}  // namespace octet

#endif  // OCTET_KERNELS_MODEL_QUANTIZATION_CONFIG_H_
