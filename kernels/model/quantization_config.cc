#include "kernels/model/quantization_config.h"

#include <optional>
#include <string>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "octet/enum_names.h"
#include "octet/types/weight_format.h"
#include "runtime/base/status_macros.h"

namespace octet {
namespace {

constexpr absl::string_view kFp8Method = "fp8";
constexpr absl::string_view kMxfp4Method = "mxfp4";
constexpr absl::string_view kCompressed = "compressed-tensors";

// The members that are read below, and those that change nothing: tensors tell themselves whether
// they are quantized, and caches of keys and values are none of the layer's.
constexpr absl::string_view kFp8Members[] = {"quant_method",      "fmt",
                                             "activation_scheme", "scale_fmt",
                                             "dequantize",        "weight_block_size",
                                             "ignored_layers",    "modules_to_not_convert",
                                             "kv_cache_scheme",   "is_checkpoint_fp8_serialized"};
constexpr absl::string_view kCompressedMembers[] = {
    "quant_method",    "format",          "quantization_status", "config_groups",
    "ignore",          "version",         "kv_cache_scheme",     "global_compression_ratio",
    "sparsity_config", "transform_config"};
constexpr absl::string_view kGroupMembers[] = {"targets", "weights", "input_activations",
                                               "output_activations", "format"};
constexpr absl::string_view kWeightMembers[] = {
    "num_bits", "type",     "symmetric", "strategy",        "group_size",  "block_structure",
    "dynamic",  "actorder", "observer",  "observer_kwargs", "scale_dtype", "zp_dtype"};

constexpr absl::string_view kE4m3 = "e4m3";
constexpr absl::string_view kLongE4m3 = "float8_e4m3fn";  // as MiniMax writes it
constexpr absl::string_view kFloatScales = "float";
constexpr absl::string_view kScalesOfActivations =
    "': Octet quantizes activations with float32 scales, as transformers does; remove it for these";
constexpr absl::string_view kDequantize =
    "false; remove it and convert the weights when they are loaded (octet layer --weights=bf16)";

// Accepts what tells that weights are MXFP4, which only gpt_oss has.
absl::Status CheckMxfp4(const JsonReader& reader, ModelFamily family) {
  constexpr absl::string_view kMembers[] = {"quant_method", "modules_to_not_convert", "dequantize"};
  if (family != ModelFamily::kGptOss) {
    return reader.Unsupported("quant_method", std::string(kMxfp4Method),
                              absl::StrCat("'", kFp8Method, "' or '", kCompressed,
                                           "' in a folder of ", EnumName(family)));
  }
  OCTET_RETURN_IF_ERROR(reader.OnlyMembers(kMembers));
  OCTET_ASSIGN_OR_RETURN(const bool dequantize, reader.Bool("dequantize", false));
  return dequantize ? reader.Unsupported("dequantize", true, kDequantize) : absl::OkStatus();
}

// The member is missing, or the blocks of Octet's FP8.
absl::Status CheckBlocks(const JsonReader& reader, absl::string_view member) {
  if (!reader.Has(member)) return absl::OkStatus();
  const WeightFormat format = FormatOf(TensorType::kFloat8E4m3);
  OCTET_ASSIGN_OR_RETURN(const std::vector<int> blocks, reader.Naturals(member));
  if (blocks == std::vector<int>{format.block_rows, format.block_columns}) return absl::OkStatus();
  return reader.Unsupported(member, absl::StrCat("[", absl::StrJoin(blocks, ", "), "]"),
                            absl::StrCat("[", format.block_rows, ", ", format.block_columns, "]"));
}

// Accepts FP8 with a scale for each block of 128 x 128, for each row or for a tensor.
absl::Status CheckFp8(const JsonReader& reader) {
  OCTET_RETURN_IF_ERROR(reader.OnlyMembers(kFp8Members));
  OCTET_ASSIGN_OR_RETURN(const std::string fmt, reader.String("fmt", kE4m3));
  if (fmt != kE4m3 && fmt != kLongE4m3) {
    return reader.Unsupported("fmt", fmt, absl::StrCat("'", kE4m3, "'"));
  }
  OCTET_ASSIGN_OR_RETURN(const std::string scheme, reader.String("activation_scheme", "dynamic"));
  if (scheme != "dynamic" && scheme != "static") {
    return reader.Unsupported("activation_scheme", scheme, "'dynamic' or 'static'");
  }
  OCTET_ASSIGN_OR_RETURN(const std::string scale_fmt, reader.String("scale_fmt", kFloatScales));
  if (scale_fmt != kFloatScales) {
    return reader.Unsupported("scale_fmt", scale_fmt,
                              absl::StrCat("'", kFloatScales, kScalesOfActivations));
  }
  OCTET_ASSIGN_OR_RETURN(const bool dequantize, reader.Bool("dequantize", false));
  if (dequantize) return reader.Unsupported("dequantize", true, kDequantize);
  return CheckBlocks(reader, "weight_block_size");
}

absl::StatusOr<std::string> Strategy(const JsonReader& weights,
                                     absl::Span<const absl::string_view> known) {
  OCTET_ASSIGN_OR_RETURN(std::string strategy, weights.String("strategy"));
  if (absl::c_linear_search(known, strategy)) return strategy;
  return weights.Unsupported("strategy", strategy,
                             absl::StrCat("'", absl::StrJoin(known, "' or '"), "'"));
}

absl::Status CheckInt4(const JsonReader& weights) {
  constexpr absl::string_view kStrategies[] = {"group", "channel"};
  OCTET_ASSIGN_OR_RETURN(const std::string strategy, Strategy(weights, kStrategies));
  if (strategy != kStrategies[0]) return absl::OkStatus();
  const int unit = FormatOf(TensorType::kInt4).block_columns;
  OCTET_ASSIGN_OR_RETURN(const int group, weights.Natural("group_size", 1));
  if (group % unit == 0) return absl::OkStatus();
  return weights.Unsupported("group_size", group, absl::StrCat("a multiple of ", unit));
}

absl::Status CheckFloat8(const JsonReader& weights) {
  constexpr absl::string_view kStrategies[] = {"block", "channel", "tensor"};
  OCTET_RETURN_IF_ERROR(Strategy(weights, kStrategies).status());
  return CheckBlocks(weights, "block_structure");
}

// Accepts FP8, with or without activations in FP8, or symmetric INT4 without.
absl::Status CheckGroup(const JsonReader& group) {
  OCTET_RETURN_IF_ERROR(group.OnlyMembers(kGroupMembers));
  OCTET_ASSIGN_OR_RETURN(const std::optional<JsonReader> weights, group.Object("weights"));
  if (!weights.has_value()) return absl::OkStatus();
  OCTET_RETURN_IF_ERROR(weights->OnlyMembers(kWeightMembers));
  OCTET_ASSIGN_OR_RETURN(const int bits, weights->Natural("num_bits", 1));
  OCTET_ASSIGN_OR_RETURN(const std::string type, weights->String("type", "int"));
  constexpr int kInt4Bits = 4;
  constexpr int kFp8Bits = 8;
  const bool int4 = type == "int" && bits == kInt4Bits;
  if (!int4 && !(type == "float" && bits == kFp8Bits)) {
    return weights->Unsupported("num_bits", bits,
                                absl::StrCat("4 with type 'int', or 8 with type 'float', and type "
                                             "is '",
                                             type, "'"));
  }
  OCTET_ASSIGN_OR_RETURN(const bool symmetric, weights->Bool("symmetric", true));
  if (!symmetric) return weights->Unsupported("symmetric", false, "true");
  if (weights->Has("actorder")) {
    OCTET_ASSIGN_OR_RETURN(const std::string order, weights->String("actorder"));
    return weights->Unsupported("actorder", order, "null: columns must be in order");
  }
  if (group.Has("output_activations")) {
    return group.Unsupported("output_activations", "an object", "null");
  }
  OCTET_ASSIGN_OR_RETURN(const std::optional<JsonReader> rows, group.Object("input_activations"));
  if (!rows.has_value()) return int4 ? CheckInt4(*weights) : CheckFloat8(*weights);
  OCTET_ASSIGN_OR_RETURN(const int row_bits, rows->Natural("num_bits", 1));
  if (int4 || row_bits != kFp8Bits) {
    return group.Unsupported("input_activations", absl::StrCat(row_bits, " bits"),
                             int4 ? "null with INT4 weights" : "of 8 bits");
  }
  OCTET_RETURN_IF_ERROR(rows->Only("type", "float"));
  return CheckFloat8(*weights);
}

absl::Status CheckCompressed(const JsonReader& reader) {
  OCTET_RETURN_IF_ERROR(reader.OnlyMembers(kCompressedMembers));
  constexpr absl::string_view kFormats[] = {"float-quantized", "naive-quantized", "pack-quantized"};
  OCTET_ASSIGN_OR_RETURN(const std::string format, reader.String("format"));
  if (!absl::c_linear_search(kFormats, format)) {
    return reader.Unsupported("format", format,
                              absl::StrCat("'", absl::StrJoin(kFormats, "' or '"), "'"));
  }
  OCTET_RETURN_IF_ERROR(reader.Only("quantization_status", "compressed"));
  for (const absl::string_view member : {"sparsity_config", "transform_config"}) {
    OCTET_ASSIGN_OR_RETURN(const std::optional<JsonReader> more, reader.Object(member));
    if (!more.has_value()) continue;
    OCTET_RETURN_IF_ERROR(more->OnlyMembers({}));
  }
  OCTET_ASSIGN_OR_RETURN(const std::vector<JsonReader> groups, reader.Objects("config_groups"));
  for (const JsonReader& group : groups) OCTET_RETURN_IF_ERROR(CheckGroup(group));
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckQuantization(const JsonReader& config, ModelFamily family) {
  OCTET_ASSIGN_OR_RETURN(const std::optional<JsonReader> reader,
                         config.Object("quantization_config"));
  if (!reader.has_value()) return absl::OkStatus();
  OCTET_ASSIGN_OR_RETURN(const std::string method, reader->String("quant_method"));
  if (method == kMxfp4Method) return CheckMxfp4(*reader, family);
  if (method == kFp8Method) return CheckFp8(*reader);
  if (method == kCompressed) return CheckCompressed(*reader);
  return reader->Unsupported(
      "quant_method", method,
      absl::StrCat("'", kFp8Method, "', '", kMxfp4Method, "' or '", kCompressed, "'"));
}

}  // namespace octet
