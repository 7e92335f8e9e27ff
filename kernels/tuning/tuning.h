// A table of choices that were measured to be faster than the built-in ones, by GPU and kind of
// call: the launch shapes of a strategy, the strategy for Strategy::kAuto, and the tile shapes of
// grouped products. `octet tune` measures and writes the entries:
//
//   {"schema": 1,
//    "entries": [
//      {"platform": "nvidia", "gpu": "NVIDIA H200", "ranks": 8, "strategy": "direct",
//       "rows": [1024, 2047], "row_bytes": [8192, 16383], "format": "same", "received": "packed",
//       "blocks": 132, "send_blocks": 66, "waves": 8, "row_parts": 2,
//       "note": "how it was measured; only for readers"},
//      {..., "strategy": "high_throughput", ...,
//       "blocks": 132, "waves": 16, "send_waves": 4, "combine_send_waves": 12, "row_parts": 1,
//       "row_copies": "vectors"},
//      {..., "strategy": "auto", ..., "chosen": "low_latency"}],
//    "gemm": [
//      {"gpu": "NVIDIA H200", "dtype": "bf16", "n": 4096, "k": 7168, "rows": [65, 128],
//       "activation": "swiglu", "tiles": "medium", "note": "..."}]}
//
// "format", "received" and "row_copies" may be left out: "same", "packed" and "auto". The launch
// shape of an entry applies to calls of its strategy, whether the caller or kAuto chose it. "gemm"
// may be left out, too.
#ifndef OCTET_KERNELS_TUNING_TUNING_H_
#define OCTET_KERNELS_TUNING_TUNING_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "kernels/tuning/tuning_field.h"
#include "octet/enum_names.h"
#include "octet/ep_config.h"
#include "octet/gemm_tiles.h"
#include "octet/grouped_gemm.h"
#include "octet/routed_experts.h"
#include "octet/topology.h"
#include "runtime/platform/gemm_call.h"

namespace octet {

// Returns the fields that `strategy` uses.
absl::Span<const TuningField> TuningFieldsOf(Strategy strategy);

// The values from first to last, both included.
struct TuningRange {
  int64_t first = 0;
  int64_t last = 0;
  bool Contains(int64_t value) const { return first <= value && value <= last; }
  bool operator==(const TuningRange&) const = default;
};

// The calls that a tuning is for.
struct TuningKey {
  std::string platform;  // as in Topology
  std::string gpu;       // GpuInfo::name of rank 0's GPU
  int num_ranks = 0;
  Strategy strategy = Strategy::kDirect;
  TuningRange rows;       // M · K
  TuningRange row_bytes;  // H elements of the dtype
  DispatchFormat format = DispatchFormat::kSame;
  Output received = Output::kPackedExperts;
  bool operator==(const TuningKey&) const = default;
};

struct TuningEntry {
  TuningKey key;
  Tuning tuning = {};                 // every field that the strategy uses
  Strategy chosen = Strategy::kAuto;  // if key.strategy is kAuto: the strategy to take
  std::string note = {};              // for readers
};

// Returns the key of the calls that are like `config`'s: M · K and the bytes of a row lie between
// the same powers of two, and rows have the same format in transit and the same received layout.
TuningKey TuningKeyOf(const Topology& topology, int num_ranks, const EpConfig& config);

// The grouped products that a tile shape is for.
struct GemmTuningKey {
  std::string gpu;  // CurrentGpuName
  device::GemmElement element = device::GemmElement::kBf16;
  int n = 0;
  int k = 0;
  TuningRange rows;  // that an expert usually has
  GemmActivation activation = GemmActivation::kNone;
  bool operator==(const GemmTuningKey&) const = default;
};

struct GemmTuningEntry {
  GemmTuningKey key;
  GemmTiles tiles = GemmTiles::kWide;
  std::string note = {};  // for readers
};

// Returns the key of the products that are like `config`'s: the rows of an expert need tiles of the
// same power of two, so that a range ends at one (17 to 32). All else is the same.
GemmTuningKey GemmTuningKeyOf(absl::string_view gpu, const GroupedGemmConfig& config);

// The two calls of RoutedExperts.
enum class FusedCall { kDispatchGemm, kGemmCombine };
absl::Span<const EnumEntry<FusedCall>> EnumTable(FusedCall);  // names: octet/enum_names.h

// The calls with a product that a fusion is for.
struct FusedTuningKey {
  FusedCall call = FusedCall::kDispatchGemm;
  TuningKey links;      // the dispatch or combine, by high_throughput
  int num_experts = 0;  // E, which decides what fits; 0: of any number, in files that do not say it
  int intermediate = 0;
  GemmActivation activation = GemmActivation::kNone;
  bool operator==(const FusedTuningKey&) const = default;
};

// How such a call is made.
struct FusedChoice {
  Fusion fusion = Fusion::kNone;  // not kAuto
  FusedTuning tuning = {};
};

struct FusedTuningEntry {
  FusedTuningKey key;
  FusedChoice choice = {};
  std::string note = {};  // for readers
};

// Returns the key of the calls that are like `config`'s, whatever their strategy and fusion.
FusedTuningKey FusedTuningKeyOf(const Topology& topology, int num_ranks, FusedCall call,
                                const RoutedExpertsConfig& config);

class TuningTable {
 public:
  TuningTable() = default;

  // Parses a table. `origin` is the text's name in errors. Returns kInvalidArgument with the entry
  // and the field that is missing, unknown or wrong.
  static absl::StatusOr<TuningTable> Parse(absl::string_view json, absl::string_view origin);
  // Parses the file at `path`. Errors name it.
  static absl::StatusOr<TuningTable> Read(const std::string& path);
  // Returns the table of the environment variable OCTET_TUNING, a file, or "none" for an empty
  // table. Without the variable, returns the table that comes with the library. A file is parsed
  // once, and again only if its size or time has changed. Thread-safe.
  static absl::StatusOr<std::shared_ptr<const TuningTable>> Default();

  // The origin of the table, for messages.
  const std::string& origin() const { return origin_; }
  const std::vector<TuningEntry>& entries() const { return entries_; }
  const std::vector<GemmTuningEntry>& gemm_entries() const { return gemm_entries_; }
  const std::vector<FusedTuningEntry>& fused_entries() const { return fused_entries_; }

  // Returns the tuning for calls like `config`'s, from the first entry that matches them.
  std::optional<Tuning> Find(const Topology& topology, int num_ranks, const EpConfig& config) const;
  // Likewise for `config` with the strategy kAuto: returns the strategy to take.
  std::optional<Strategy> FindStrategy(const Topology& topology, int num_ranks,
                                       const EpConfig& config) const;
  // Returns the strategies of all entries for `config`, of any GPU.
  std::vector<Strategy> StrategiesFor(int num_ranks, const EpConfig& config) const;
  // Returns the largest row_parts of any GPU's entry for such calls; 0 if there is none.
  int MostRowParts(int num_ranks, const EpConfig& config) const;

  // Returns the tile shape for products like `config`'s on a GPU of this name, from the first entry
  // that matches them.
  std::optional<GemmTiles> FindTiles(absl::string_view gpu, const GroupedGemmConfig& config) const;

  // Returns how calls like `config`'s are made, from the first entry that matches them.
  std::optional<FusedChoice> FindFusion(const Topology& topology, int num_ranks, FusedCall call,
                                        const RoutedExpertsConfig& config) const;
  // Returns the choices of all entries for such calls, of any GPU.
  std::vector<FusedChoice> FusionsFor(int num_ranks, FusedCall call,
                                      const RoutedExpertsConfig& config) const;

  // Add an entry, or replace the one with the same key. Set and Remove of a FusedTuningKey with a
  // number of experts also end an entry for such calls of any number.
  void Set(const TuningEntry& entry);
  void Set(const GemmTuningEntry& entry);
  void Set(const FusedTuningEntry& entry);
  void Remove(const TuningKey& key);
  void Remove(const GemmTuningKey& key);
  void Remove(const FusedTuningKey& key);
  std::string ToJson() const;

 private:
  // Returns nullptr if there is none.
  const TuningEntry* FindEntry(const Topology& topology, int num_ranks,
                               const EpConfig& config) const;

  std::string origin_ = "no tuning";
  std::vector<TuningEntry> entries_;
  std::vector<GemmTuningEntry> gemm_entries_;
  std::vector<FusedTuningEntry> fused_entries_;
};

}  // namespace octet

#endif  // OCTET_KERNELS_TUNING_TUNING_H_
