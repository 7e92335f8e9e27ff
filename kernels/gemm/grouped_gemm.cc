#include "octet/grouped_gemm.h"

#include <hip/hip_runtime.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "kernels/ep/base/check_pointers.h"
#include "kernels/gemm/gemm_config.h"
#include "kernels/gemm/kernels.h"
#include "kernels/gemm/product_params.h"
#include "kernels/tuning/tuning.h"
#include "launch_limits.h"
#include "octet/trace.h"
#include "runtime/base/status_macros.h"
#include "runtime/device/trace_event.h"
#include "runtime/gpu/gpu_name.h"
#include "runtime/gpu/gpu_status.h"
#include "runtime/memory/device_memory.h"

namespace octet {
namespace {

constexpr int kElementsPerVec = 8;  // of the output
constexpr int64_t kMostRows = std::numeric_limits<int32_t>::max();

int64_t DivideUp(int64_t a, int64_t b) { return (a + b - 1) / b; }

// The columns that tiles of this shape compute for nothing.
int64_t WastedColumns(const GroupedGemmConfig& config, GemmTiles tiles) {
  const int columns = TileShapeOf(VariantOf(config, tiles)).columns;
  return DivideUp(config.n, columns) * columns - config.n;
}

// Weights that a tile must convert: an expert that has more rows than a tile takes two, which costs
// nearly twice as much. Rows are as many for each expert, or random: then 10, 46 and 47 of a
// hundred experts have more than 16, 32 or 64 where they have 12, 32 or 64 usually. Up to these
// numbers the smaller tile loses less by random rows (at most 3, 10 and 7%) than the larger one by
// equal ones (6, 22 and 36%): bench/PERFORMANCE.md.
//
// With FP8 rows the wide tile is as fast as few64.
std::optional<GemmTiles> ChooseForConversion(const GroupedGemmConfig& config) {
  struct Choice {
    int64_t most_rows;
    GemmTiles tiles;
  };
  constexpr Choice kChoices[] = {
      {12, GemmTiles::kFew16}, {32, GemmTiles::kFew32}, {64, GemmTiles::kFew64}};
  for (const Choice& choice : kChoices) {
    const bool wide = config.fp8_rows && choice.tiles == GemmTiles::kFew64;
    if (config.usual_rows() <= choice.most_rows && !wide) return choice.tiles;
  }
  return std::nullopt;
}

// Few rows: reading the weights decides. An expert that needs a second tile reads its weights
// twice, so a tile has room for more rows than experts usually have, and the wide one is nearly as
// fast from 17 rows on; of rows that are quantized, for any number. Many rows: the wider tile reads
// the rows less often, unless the narrower one computes fewer columns for nothing.
GemmTiles ChooseByRules(const GroupedGemmConfig& config) {
  constexpr int kMostFew = 16;
  constexpr int kNotMany = 128;  // a row of tiles
  const int64_t rows = config.usual_rows();
  const WeightFormatInfo& weights = InfoOf(config.weight_format());
  if (weights.format.has_scales() && !weights.quantizes_rows) {
    if (const auto tiles = ChooseForConversion(config)) return *tiles;
  } else if (rows <= kMostFew && !weights.quantizes_rows) {
    return GemmTiles::kFew32;
  }
  if (rows <= kNotMany) return GemmTiles::kWide;
  constexpr int kPercent = 100;
  // What the narrower tile costs otherwise.
  const int worth_percent = weights.quantizes_rows ? 8 : 3;
  const int64_t saved =
      WastedColumns(config, GemmTiles::kWide) - WastedColumns(config, GemmTiles::kMedium);
  return saved * kPercent > int64_t{config.n} * worth_percent ? GemmTiles::kMedium
                                                              : GemmTiles::kWide;
}

absl::StatusOr<int> ComputeUnits() {
  int device = 0;
  int units = 0;
  OCTET_RETURN_IF_GPU_ERROR(hipGetDevice(&device));
  OCTET_RETURN_IF_GPU_ERROR(
      hipDeviceGetAttribute(&units, hipDeviceAttributeMultiprocessorCount, device));
  return units;
}

// Few experts with few rows have so few tiles that most compute units would have none. Smaller
// tiles are then several times as fast: bench/PERFORMANCE.md, "Few tiles".
absl::StatusOr<GemmTiles> SmallerIfFew(const GroupedGemmConfig& config, GemmTiles tiles) {
  if (config.weight_format().has_scales()) return tiles;
  int blocks = config.blocks;
  if (blocks == 0) {
    OCTET_ASSIGN_OR_RETURN(blocks, ComputeUnits());
  }
  const int64_t rows = config.usual_rows();
  constexpr GemmTiles kSmaller[] = {GemmTiles::kFew64, GemmTiles::kFew32, GemmTiles::kFew16};
  for (const GemmTiles smaller : kSmaller) {
    const GroupedGemmTileShape shape = TileShapeOf(VariantOf(config, tiles));
    const int64_t units =
        config.experts * DivideUp(rows, shape.rows) * DivideUp(config.n, shape.columns);
    constexpr int kMostlyBusy = 4;  // at most a quarter of the compute units idle
    if (units * kMostlyBusy >= int64_t{blocks} * (kMostlyBusy - 1)) return tiles;
    if (TileShapeOf(VariantOf(config, smaller)).rows < shape.rows) tiles = smaller;
  }
  return tiles;
}

// The caller's choice comes first, then the measured one, then the rules.
absl::StatusOr<GemmTiles> ChooseTiles(const GroupedGemmConfig& config) {
  if (config.tiles.has_value()) return *config.tiles;
  std::optional<GemmTiles> measured;
  if (config.use_measured_tuning) {
    OCTET_ASSIGN_OR_RETURN(const std::shared_ptr<const TuningTable> table, TuningTable::Default());
    if (!table->gemm_entries().empty()) {
      OCTET_ASSIGN_OR_RETURN(const std::string gpu, CurrentGpuName());
      measured = table->FindTiles(gpu, config);
    }
  }
  if (measured.has_value()) return *measured;
  return SmallerIfFew(config, ChooseByRules(config));
}

absl::Status CheckConfig(const GroupedGemmConfig& config) {
  if (config.experts < 1 || config.experts > kMaxGemmExperts) {
    return absl::InvalidArgumentError(absl::StrCat("GroupedGemmConfig::experts is ", config.experts,
                                                   "; it must be 1 to ", kMaxGemmExperts));
  }
  if (config.max_rows < 1 || config.max_rows > kMostRows) {
    return absl::InvalidArgumentError(absl::StrCat(
        "GroupedGemmConfig::max_rows is ", config.max_rows, "; it must be 1 to ", kMostRows));
  }
  const bool gated = config.activation == GemmActivation::kSwiGlu;
  const int unit = gated ? 2 * kElementsPerVec : kElementsPerVec;
  if (config.n < unit || config.n % unit != 0) {
    return absl::InvalidArgumentError(absl::StrCat("GroupedGemmConfig::n is ", config.n,
                                                   "; it must be a positive multiple of ", unit,
                                                   gated ? " with SwiGLU" : ""));
  }
  const SwiGlu& swiglu = config.swiglu;
  if (!std::isfinite(swiglu.alpha) || !(swiglu.limit > 0) || !std::isfinite(swiglu.up_offset) ||
      (!gated && swiglu != SwiGlu())) {
    return absl::InvalidArgumentError(absl::StrCat(
        "GroupedGemmConfig::swiglu has alpha ", swiglu.alpha, ", limit ", swiglu.limit,
        " and up_offset ", swiglu.up_offset,
        "; the limit must be above 0, the others finite, and all the defaults without SwiGLU"));
  }
  const WeightFormatInfo& operands = InfoOf(config.weight_format());
  if (config.k < operands.unit() || config.k % operands.unit() != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("GroupedGemmConfig::k is ", config.k, "; it must be a positive multiple of ",
                     operands.unit(), " with ", operands.title, " operands"));
  }
  if (config.fp8_rows && config.format != GemmFormat::kMxfp4) {
    return absl::InvalidArgumentError(
        absl::StrCat("GroupedGemmConfig::fp8_rows is true, which needs format ",
                     EnumName(GemmFormat::kMxfp4), ", not ", EnumName(config.format)));
  }
  const DType needed = operands.dtype.value_or(config.dtype);
  if (config.dtype != needed) {
    return absl::InvalidArgumentError(
        absl::StrCat("GroupedGemmConfig::dtype is ", EnumName(config.dtype), "; products of ",
                     operands.title, " operands are ", EnumName(needed)));
  }
  if (config.output == GemmOutput::kFloat32 && (gated || operands.format.has_scales())) {
    return absl::InvalidArgumentError(absl::StrCat(
        "GroupedGemmConfig::output is float32, which needs ",
        gated ? "activation none" : "operands of the dtype, not ", gated ? "" : operands.title));
  }
  if (config.expected_rows < 0 || config.blocks < 0) {
    return absl::InvalidArgumentError(absl::StrCat("GroupedGemmConfig::expected_rows is ",
                                                   config.expected_rows, " and blocks ",
                                                   config.blocks, "; neither may be negative"));
  }
  return absl::OkStatus();
}

// Units are counted in 32 bits, and every block takes one number past the end.
absl::Status CheckUnits(const GroupedGemmConfig& config, const GroupedGemmTileShape& shape,
                        int blocks) {
  const int64_t row_tiles = DivideUp(config.max_rows, shape.rows) + config.experts;
  const int64_t column_tiles = DivideUp(config.n, shape.columns);
  constexpr int64_t kMost = std::numeric_limits<int32_t>::max();
  if (row_tiles <= (kMost - blocks) / column_tiles) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("GroupedGemmConfig: ", config.max_rows, " rows by ", config.n,
                   " columns are more than 2^31 tiles of ", shape.rows, " by ", shape.columns,
                   "; choose larger tiles"));
}

absl::Status CheckPointer(absl::string_view name, const void* pointer, size_t alignment) {
  if (pointer == nullptr) {
    return absl::InvalidArgumentError(absl::StrCat("GroupedGemmArgs::", name, " is null"));
  }
  if (reinterpret_cast<uintptr_t>(pointer) % alignment == 0) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("GroupedGemmArgs::", name, " is not aligned to ", alignment, " bytes"));
}

// An operand has scales if its format has some, and only then.
absl::Status CheckScales(absl::string_view name, const void* scales, bool needed,
                         const WeightFormatInfo& operands) {
  if (needed) return CheckPointer(name, scales, alignof(float));
  if (scales == nullptr) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("GroupedGemmArgs::", name, " is given, but ",
                                                 operands.title, " operands have no scales"));
}

absl::Status CheckArgs(const GroupedGemmConfig& config, const GroupedGemmArgs& args) {
  if (args.rows < 0 || args.rows > config.max_rows) {
    return absl::InvalidArgumentError(absl::StrCat(
        "GroupedGemmArgs::rows is ", args.rows, "; it must be 0 to max_rows, ", config.max_rows));
  }
  OCTET_RETURN_IF_ERROR(CheckPointer("a", args.a, kVecBytes));
  OCTET_RETURN_IF_ERROR(CheckPointer("b", args.b, kVecBytes));
  OCTET_RETURN_IF_ERROR(CheckPointer("out", args.out, kVecBytes));
  const WeightFormatInfo& operands = InfoOf(config.weight_format());
  const WeightFormatInfo& rows = InfoOf(config.row_format());
  OCTET_RETURN_IF_ERROR(CheckScales("a_scales", args.a_scales, rows.format.has_scales(), rows));
  OCTET_RETURN_IF_ERROR(
      CheckScales("b_scales", args.b_scales, operands.format.has_scales(), operands));
  if (operands.format.has_scales() && !operands.quantizes_rows) {
    OCTET_RETURN_IF_ERROR(CheckPointer("b_scales", args.b_scales, kVecBytes));
  }
  OCTET_RETURN_IF_ERROR(CheckPointer("expert_offsets", args.expert_offsets, alignof(int32_t)));
  if (args.expert_counts != nullptr) {
    OCTET_RETURN_IF_ERROR(CheckPointer("expert_counts", args.expert_counts, alignof(int32_t)));
  }
  if (args.bias != nullptr) {
    OCTET_RETURN_IF_ERROR(CheckPointer("bias", args.bias, alignof(float)));
  }
  if (args.row_scale != nullptr && config.swiglu != SwiGlu()) {
    return absl::InvalidArgumentError(
        "GroupedGemmArgs::row_scale is given, which needs GroupedGemmConfig::swiglu's defaults");
  }
  if (args.row_scale != nullptr) {
    OCTET_RETURN_IF_ERROR(CheckPointer("row_scale", args.row_scale, alignof(float)));
  }
  return absl::OkStatus();
}

// The arguments of a product on `device` that are given.
absl::Status CheckPlaces(int device, const GroupedGemmConfig& config, const GroupedGemmArgs& args) {
  constexpr size_t kWord = alignof(float);
  OCTET_RETURN_IF_ERROR(
      CheckPointersOn(device, {{"GroupedGemmArgs::a", args.a},
                               {"GroupedGemmArgs::b", args.b},
                               {"GroupedGemmArgs::a_scales", args.a_scales, kWord},
                               {"GroupedGemmArgs::b_scales", args.b_scales, kWord},
                               {"GroupedGemmArgs::expert_offsets", args.expert_offsets, kWord},
                               {"GroupedGemmArgs::expert_counts", args.expert_counts, kWord},
                               {"GroupedGemmArgs::bias", args.bias, kWord},
                               {"GroupedGemmArgs::row_scale", args.row_scale, kWord},
                               {"GroupedGemmArgs::out", args.out}}));
  const auto experts = static_cast<size_t>(config.experts);
  const size_t bias = experts * static_cast<size_t>(config.n) * sizeof(float);
  const size_t offsets = (experts + 1) * sizeof(int32_t);
  OCTET_RETURN_IF_ERROR(
      CheckApart({"GroupedGemmArgs::out", args.out, OutputRowBytes(config)},
                 {{"GroupedGemmArgs::a", args.a, InputRowBytes(config)},
                  {"GroupedGemmArgs::b", args.b, WeightBytes(config)},
                  {"GroupedGemmArgs::bias", args.bias, bias},
                  {"GroupedGemmArgs::expert_offsets", args.expert_offsets, offsets}}));
  const auto rows = static_cast<size_t>(args.rows > 0 ? args.rows : config.max_rows);
  const size_t scales = static_cast<size_t>(config.scale_words()) * sizeof(uint32_t);
  const size_t row_scales = static_cast<size_t>(config.row_scale_words()) * sizeof(uint32_t);
  const auto scale_rows = experts * static_cast<size_t>(config.weight_scale_rows());
  return CheckRoom(
      {{"GroupedGemmArgs::a", args.a, rows, InputRowBytes(config)},
       {"GroupedGemmArgs::b", args.b, experts, WeightBytes(config) / experts},
       {"GroupedGemmArgs::a_scales", args.a_scales, rows, row_scales},
       {"GroupedGemmArgs::b_scales", args.b_scales, scale_rows, scales},
       {"GroupedGemmArgs::expert_offsets", args.expert_offsets, 1, offsets},
       {"GroupedGemmArgs::expert_counts", args.expert_counts, experts, sizeof(int32_t), true},
       {"GroupedGemmArgs::bias", args.bias, experts, bias / experts, true},
       {"GroupedGemmArgs::row_scale", args.row_scale, rows, sizeof(float), true},
       {"GroupedGemmArgs::out", args.out, rows, OutputRowBytes(config)}});
}

// The blocks of a launch: what the compute units run at once, or fewer if the caller asks for that.
absl::StatusOr<int> ChooseBlocks(const GroupedGemmConfig& config,
                                 const GroupedGemmTileShape& shape) {
  OCTET_ASSIGN_OR_RETURN(const int units, ComputeUnits());
  const int64_t most = int64_t{units} * shape.blocks_per_compute_unit / shape.cluster_blocks;
  int64_t clusters = DivideUp(config.blocks, shape.cluster_blocks);
  if (config.blocks == 0) {
    const int64_t row_bytes = config.max_rows * static_cast<int64_t>(InputRowBytes(config));
    clusters = platform::DefaultLaunchLimits(row_bytes).blocks / shape.cluster_blocks;
  }
  clusters = std::clamp<int64_t>(clusters, 1, std::max<int64_t>(most, 1));
  return static_cast<int>(clusters) * shape.cluster_blocks;
}

// Returns where the product is recorded; no memory if it is not.
absl::StatusOr<GemmTraceTarget> TraceTargetOf(const GroupedGemmOptions& options) {
  if (options.trace == nullptr) return GemmTraceTarget{};
  if (options.first_track < 0) {
    return absl::InvalidArgumentError(absl::StrCat("GroupedGemmOptions::first_track is ",
                                                   options.first_track, "; it must be from 0 up"));
  }
  const int64_t tracks = int64_t{options.first_track} + GroupedGemm::kTraceTracks;
  if (options.trace->tracks() < tracks) {
    return absl::InvalidArgumentError(
        absl::StrCat("GroupedGemmOptions::trace has ", options.trace->tracks(),
                     " tracks for each block; it must have ", tracks));
  }
  const int num_ranks = options.trace->num_ranks();
  if (options.rank < 0 || options.rank >= num_ranks) {
    return absl::InvalidArgumentError(absl::StrCat("GroupedGemmOptions::rank is ", options.rank,
                                                   "; GroupedGemmOptions::trace has ranks 0 to ",
                                                   num_ranks - 1));
  }
  return GemmTraceTarget{.buffer = options.trace->buffer(options.rank),
                         .first_track = static_cast<uint32_t>(options.first_track),
                         .first_tag = options.first_tag};
}

// What a product is launched with.
struct GemmLaunch {
  int device;
  GroupedGemmVariant variant;
  int blocks;
};

class GroupedGemmOnGpu final : public GroupedGemm {
 public:
  // Members as below.
  GroupedGemmOnGpu(const GroupedGemmConfig& config, const GemmLaunch& launch,
                   const GemmTraceTarget& trace, DeviceMemory next_unit)
      : config_(config), launch_(launch), trace_(trace), next_unit_(std::move(next_unit)) {}

  absl::Status Run(const GroupedGemmArgs& args, GpuStream stream) override {
    OCTET_RETURN_IF_ERROR(CheckArgs(config_, args));
    int current = 0;
    OCTET_RETURN_IF_GPU_ERROR(hipGetDevice(&current));
    if (current != launch_.device) {
      return absl::FailedPreconditionError(absl::StrCat("this GroupedGemm was created on GPU ",
                                                        launch_.device, ", and GPU ", current,
                                                        " is current; create one on each GPU"));
    }
    OCTET_RETURN_IF_ERROR(CheckPlaces(launch_.device, config_, args));
    GroupedGemmParams params = ParamsOf(config_, args);
    params.next_unit = next_unit_.as<int32_t>();
    params.trace = trace_;
    return OCTET_GPU(LaunchGroupedGemm(params, launch_.variant, launch_.blocks, stream));
  }

  GemmTiles tiles() const override { return launch_.variant.tiles; }
  int blocks() const override { return launch_.blocks; }

 private:
  GroupedGemmConfig config_;
  GemmLaunch launch_;
  GemmTraceTarget trace_;  // of a traced variant
  DeviceMemory next_unit_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<GroupedGemm>> GroupedGemm::Create(
    const GroupedGemmConfig& config, const GroupedGemmOptions& options) {
  static_assert(kTraceTracks == device::kGemmTracks);
  OCTET_RETURN_IF_ERROR(CheckConfig(config));
  OCTET_ASSIGN_OR_RETURN(const GemmTraceTarget trace, TraceTargetOf(options));
  OCTET_ASSIGN_OR_RETURN(const GemmTiles tiles, ChooseTiles(config));
  GroupedGemmVariant variant = VariantOf(config, tiles);
  variant.traced = options.trace != nullptr;
  const GroupedGemmTileShape shape = TileShapeOf(variant);
  OCTET_ASSIGN_OR_RETURN(const int blocks, ChooseBlocks(config, shape));
  OCTET_RETURN_IF_ERROR(CheckUnits(config, shape, blocks));
  OCTET_RETURN_IF_GPU_ERROR(LoadGroupedGemm(variant));
  OCTET_ASSIGN_OR_RETURN(DeviceMemory next_unit, DeviceMemory::Allocate(sizeof(int32_t)));
  OCTET_RETURN_IF_GPU_ERROR(hipMemset(next_unit.as<void>(), 0, next_unit.bytes()));
  OCTET_RETURN_IF_GPU_ERROR(hipDeviceSynchronize());
  int device = 0;
  OCTET_RETURN_IF_GPU_ERROR(hipGetDevice(&device));
  const GemmLaunch launch = {.device = device, .variant = variant, .blocks = blocks};
  return std::make_unique<GroupedGemmOnGpu>(config, launch, trace, std::move(next_unit));
}

}  // namespace octet
