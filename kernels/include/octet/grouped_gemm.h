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
#include "octet/swiglu.h"
#include "octet/types/weight_format.h"

namespace octet {

class TraceCollector;  // octet/trace.h

enum class GemmActivation {
  kNone,
  // out[c] = silu(gate) · up, where silu(x) = x / (1 + exp(-x)), or what GroupedGemmConfig::swiglu
  // makes of it. The N columns of b hold gate and up in turn, eight at a time: column c of the
  // output comes from gate = column 16·(c/8) + c%8 of b and from up = that column + 8. The output
  // has N/2 columns.
  kSwiGlu,
};

// The elements of the output.
enum class GemmOutput {
  kDtype,  // GroupedGemmConfig::dtype
  // The sums as they are after the epilogue, not rounded; with format kSame, and without kSwiGlu.
  kFloat32,
};

struct GroupedGemmConfig {
  int experts = 0;       // L, 1 to 256
  int64_t max_rows = 0;  // rows that a and out have memory for (Received::max_rows), 1 to 2^31 - 1
  int n = 0;             // N, columns of the product: a multiple of 8; with kSwiGlu, of 16
  // K, elements of a row of a: a multiple of 8; with kFp8, of 16; with kMxfp4, of 32.
  int k = 0;
  DType dtype = DType::kBFloat16;  // of a, b and out; sums are float32
  GemmOutput output = GemmOutput::kDtype;
  // The elements of a and b. kFp8 and kMxfp4 need dtype kBFloat16: that of out, and with kMxfp4
  // of a.
  GemmFormat format = GemmFormat::kSame;
  // With kMxfp4: the elements of a are those of kFp8, with scales. Fewer instructions convert
  // weights for them, and tensor cores multiply them twice as fast.
  bool fp8_rows = false;
  ScaleFormat scale_format = ScaleFormat::kFloat32;  // of kFp8 and fp8_rows; octet/fp8_scale.h
  GemmActivation activation = GemmActivation::kNone;
  SwiGlu swiglu = {};  // the parameters of kSwiGlu; others than the defaults exclude row_scale

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

  // Returns the format of b, with the scales that the product reads.
  WeightFormat weight_format() const {
    WeightFormat weights = FormatOf(dtype, format);
    if (InfoOf(weights).quantizes_rows) weights.scale = scale_format;
    return weights;
  }
  // Returns the format of a.
  WeightFormat row_format() const {
    const WeightFormat weights = weight_format();
    if (InfoOf(weights).quantizes_rows) return weights;
    WeightFormat rows = FormatOf(dtype, fp8_rows ? GemmFormat::kFp8 : GemmFormat::kSame);
    if (fp8_rows) rows.scale = scale_format;
    return rows;
  }
  // The rows that an expert usually has, also where expected_rows does not say it.
  int64_t usual_rows() const {
    return expected_rows > 0 ? expected_rows : (max_rows + experts - 1) / experts;
  }
  // 4-byte words of a row of scales of b, and of a; 0 without scales.
  int scale_words() const;
  int row_scale_words() const;
  // Rows of scales of an expert's b: ceil(N / 128); with kSwiGlu, ceil(N / 256) of gate and then as
  // many of up. With kMxfp4, N. 0 without scales.
  int weight_scale_rows() const;
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
  // [L][N][K]. With kMxfp4, of a row's elements 2 i and 2 i + 1 the first is the lower half of byte
  // i.
  const void* b = nullptr;
  // With kFp8 and fp8_rows, else nullptr; 4-byte aligned. Finite or NaN.
  const void* a_scales = nullptr;  // [max_rows][row_scale_words()]: Received::scales
  // With kFp8 and kMxfp4, else nullptr; 4-byte aligned, with kMxfp4 16-byte aligned.
  //
  // kMxfp4: [L][N][scale_words], a row for each row of b, of bytes: byte i is the exponent + 127 of
  // columns 32 i to 32 i + 31 of K, or 0xff for NaN (octet/fp8_scale.h). Bytes of further columns
  // may be anything.
  //
  // kFp8: [L][weight_scale_rows()][scale_words]. Without kSwiGlu, the scales of column c of b are
  // in row c / 128. With kSwiGlu, they are those of two matrices [N/2][K], gate and up, before
  // their rows were made to alternate: [L][2][ceil(N / 256)][scale_words], where row r of gate or
  // up has its scales in row r / 128. Row r of gate is column 16·(r/8) + r%8 of b, row r of up that
  // + 8.
  const void* b_scales = nullptr;
  const int32_t* expert_offsets = nullptr;  // [L + 1] first row of each expert, ascending
  // [L] rows of each expert, where padding follows them. nullptr: up to the next offset.
  const int32_t* expert_counts = nullptr;
  const float* bias = nullptr;  // [L][N], added to the product; nullptr: none
  const float* row_scale =
      nullptr;          // [max_rows], multiplies the result (kSwiGlu: `up`); or nullptr
  void* out = nullptr;  // [max_rows][out_columns()]; overlaps nothing else
  // 1 .. max_rows: a, a_scales, row_scale and out are memory of so many rows only. 0: of max_rows.
  int64_t rows = 0;
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
// their two scales, whose product is a float32, and added in float32. With kMxfp4, elements of b
// are multiplied by their scales, which is exact, and then by those of a. With fp8_rows, sums over
// 32 to 128 columns of K are multiplied by the scale of the row; on Hopper, the weights of 64
// columns of b and 128 of K (each from a multiple of these numbers on) are first divided by a power
// of two so that the largest of their scales is 64, and rounded to E4M3: exact, unless a scale is
// less than 2^-14 times the largest, else with an error of at most 2^-16 times the largest.
// Hopper's tensor cores keep 13 bits behind the leading one while they add such a sum's products;
// on other platforms these sums are float32, too.
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
  // an `out` that overlaps b, bias, expert_offsets or the first row of a; in emulation also for
  // memory that is too small; kFailedPrecondition if another GPU than that of Create is current.
  // Offsets that leave [0, rows] are cut to it on the GPU: nothing outside is touched.
  virtual absl::Status Run(const GroupedGemmArgs& args, GpuStream stream) = 0;

  // The tile shape in use.
  virtual GemmTiles tiles() const = 0;

  // Blocks of a launch.
  virtual int blocks() const = 0;
};

absl::Span<const EnumEntry<GemmActivation>> EnumTable(GemmActivation);
absl::Span<const EnumEntry<GemmOutput>> EnumTable(GemmOutput);
absl::Span<const EnumEntry<GemmTiles>> EnumTable(GemmTiles);  // names: octet/enum_names.h

}  // namespace octet

#endif  // OCTET_GROUPED_GEMM_H_
