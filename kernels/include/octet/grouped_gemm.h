// Grouped matrix products: the experts of one GPU, each applied to its own rows, in one launch.
//
//   out[row] = epilogue(a[row] · b[e]ᵀ)  for the rows of expert e
//
// The rows lie expert by expert, as Dispatch delivers them with kPackedExperts; where each expert's
// rows begin is known on the GPU only. Rows of padding between the experts are neither read nor
// written. The host waits for nothing.
#ifndef OCTET_GROUPED_GEMM_H_
#define OCTET_GROUPED_GEMM_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "octet/dtype.h"
#include "octet/enum_names.h"
#include "octet/fp8_scale.h"
#include "octet/gemm_tiles.h"
#include "octet/gpu.h"

namespace octet {

class TraceCollector;  // octet/trace.h

// The elements of a and b.
enum class GemmFormat {
  kSame,  // GroupedGemmConfig::dtype
  // 8-bit floats in the platform's form (Fp8Form::kNative, octet/fp8.h) with scales: one for each
  // row of a and 128 columns of K, as EpConfig::scale_group = 128 delivers them, and one for each
  // 128 rows and 128 columns of an expert's b. An element stands for itself times its scale. With
  // kSwiGlu, gate and up have scales of their own, as checkpoints have them (b_scales, below).
  kFp8,
};

enum class GemmActivation {
  kNone,
  // out[c] = silu(gate) · up, where silu(x) = x / (1 + exp(-x)). The N columns of b hold gate and
  // up in turn, eight at a time: column c of the output comes from gate = column 16·(c/8) + c%8 of
  // b and from up = that column + 8. The output has N/2 columns.
  kSwiGlu,
};

// The elements of the output.
enum class GemmOutput {
  kDtype,    // GroupedGemmConfig::dtype
  kFloat32,  // the sums as they are after the epilogue, not rounded; without kSwiGlu and kFp8
};

struct GroupedGemmConfig {
  int experts = 0;       // L, 1 to 256
  int64_t max_rows = 0;  // rows that a and out have memory for (Received::max_rows), 1 to 2^31 - 1
  int n = 0;             // N, columns of the product: a multiple of 8; with kSwiGlu, of 16
  int k = 0;             // K, elements of a row of a: a multiple of 8; with kFp8, of 16
  DType dtype = DType::kBFloat16;  // of a, b and out; sums are float32
  GemmOutput output = GemmOutput::kDtype;
  // The elements of a and b. kFp8 needs dtype kBFloat16, which then is that of out, if any.
  GemmFormat format = GemmFormat::kSame;
  ScaleFormat scale_format = ScaleFormat::kFloat32;  // of kFp8; octet/fp8_scale.h
  GemmActivation activation = GemmActivation::kNone;

  // Rows that an expert usually has, which the tile shape is chosen by. 0: max_rows / experts.
  int64_t expected_rows = 0;
  // Empty: the tile shape that `octet tune --operation=gemm` found to be the fastest for such
  // products on this GPU, if the tuning table has one (docs/using.md), else chosen by expected_rows
  // and n. Whatever it is, every shape is computed.
  std::optional<GemmTiles> tiles = {};
  // false: `tiles` is not looked up in the tuning table.
  bool use_measured_tuning = true;
  // 0: as many as the GPU runs at once. Others are rounded up to what the tile shape needs, and cut
  // to what the GPU runs at once.
  int blocks = 0;

  // 4-byte words of a row of scales; 0 without scales.
  int scale_words() const {
    return format == GemmFormat::kFp8 ? Fp8ScaleWords(k, kGemmScaleGroup, scale_format) : 0;
  }
  // Rows of scales of an expert's b: ceil(N / 128); with kSwiGlu, ceil(N / 256) of gate and then as
  // many of up. 0 without scales.
  int weight_scale_rows() const {
    const bool gated = activation == GemmActivation::kSwiGlu;
    return format == GemmFormat::kFp8 ? GemmScaleRows(n, gated) : 0;
  }
  // Of an element of the output.
  size_t out_bytes() const {
    return output == GemmOutput::kFloat32 ? sizeof(float) : InfoOf(dtype).bytes;
  }
  int out_columns() const { return activation == GemmActivation::kSwiGlu ? n / 2 : n; }
};

// All pointers are GPU memory and 16-byte aligned, offsets and counts 4-byte aligned. Everything is
// read and written in stream order.
struct GroupedGemmArgs {
  const void* a = nullptr;  // [max_rows][K]
  const void* b = nullptr;  // [L][N][K]
  // With kFp8, else nullptr; 4-byte aligned. Finite or NaN.
  const void* a_scales = nullptr;  // [max_rows][scale_words]: Received::scales
  // [L][weight_scale_rows()][scale_words]. Without kSwiGlu, the scales of column c of b are in row
  // c / 128. With kSwiGlu, they are those of two matrices [N/2][K], gate and up, before their rows
  // were made to alternate: [L][2][ceil(N / 256)][scale_words], where row r of gate or up has its
  // scales in row r / 128. Row r of gate is column 16·(r/8) + r%8 of b, row r of up that + 8.
  const void* b_scales = nullptr;
  const int32_t* expert_offsets = nullptr;  // [L + 1] first row of each expert, ascending
  // [L] rows of each expert, where padding follows them. nullptr: up to the next offset.
  const int32_t* expert_counts = nullptr;
  const float* bias = nullptr;  // [L][N], added to the product; nullptr: none
  const float* row_scale =
      nullptr;          // [max_rows], multiplies the result (kSwiGlu: `up`); or nullptr
  void* out = nullptr;  // [max_rows][out_columns()]; overlaps nothing else
};

struct GroupedGemmOptions {
  // Blocks record here what they do with each tile; must outlive the GroupedGemm, and have
  // first_track + kTraceTracks tracks. Blocks, and events of a track, that it has no memory for are
  // missing: GroupedGemm::blocks() is known once one is made without a trace. Results stay the same
  // to the bit. nullptr: not traced, which costs nothing.
  TraceCollector* trace = nullptr;
  int rank = 0;  // of the collector's node, whose GPU is current
  // For a collector that also records other kernels: the first of the kTraceTracks tracks, and the
  // tag of the first kind of slice.
  int first_track = 0;
  uint32_t first_tag = 0;
};

// Results are the same to the bit from run to run, for any number of blocks, and for each row
// whatever the other rows are. Sums are accumulated in float32 in an order that the platform and
// the tile shape decide; the result is rounded once to the dtype, or is a float32. NaN and infinity
// propagate as in IEEE arithmetic. With kFp8, sums over 64 or 128 columns of K are multiplied by
// their two scales, whose product is a float32, and added in float32. Hopper's tensor cores keep 13
// bits behind the leading one while they add such a sum's products; on other platforms these sums
// are float32, too.
//
// Belongs to the GPU that was current at Create. Calls with one object may come from any thread
// with that GPU current, but not at the same time, and their streams must run them one after the
// other: they share a counter in the GPU's memory. They may be captured into a graph.
class GroupedGemm {
 public:
  // Of each block: one for what multiplies and one for what loads, on which nothing is recorded
  // where the same waves do both.
  static constexpr int kTraceTracks = 2;

  // Allocates, and loads the kernel, so that Run does neither. kInvalidArgument, naming the member,
  // for a config or options that the comments above exclude; kUnavailable without a GPU; likewise
  // the errors of the file that OCTET_TUNING names.
  static absl::StatusOr<std::unique_ptr<GroupedGemm>> Create(
      const GroupedGemmConfig& config, const GroupedGemmOptions& options = {});

  virtual ~GroupedGemm() = default;

  // Enqueues one kernel. Refused, with nothing enqueued: kInvalidArgument for a pointer that is
  // null or not aligned, in emulation also for one that is not memory of this object's GPU, and for
  // an `out` that overlaps b, bias, expert_offsets or the first row of a; kFailedPrecondition if
  // another GPU than that of Create is current. Offsets that leave [0, max_rows] are cut to it on
  // the GPU: nothing outside is touched.
  virtual absl::Status Run(const GroupedGemmArgs& args, GpuStream stream) = 0;

  // The tile shape in use.
  virtual GemmTiles tiles() const = 0;

  // Blocks of a launch.
  virtual int blocks() const = 0;
};

absl::Span<const EnumEntry<GemmFormat>> EnumTable(GemmFormat);
absl::Span<const EnumEntry<GemmActivation>> EnumTable(GemmActivation);
absl::Span<const EnumEntry<GemmOutput>> EnumTable(GemmOutput);
absl::Span<const EnumEntry<GemmTiles>> EnumTable(GemmTiles);  // names: octet/enum_names.h

}  // namespace octet

#endif  // OCTET_GROUPED_GEMM_H_
