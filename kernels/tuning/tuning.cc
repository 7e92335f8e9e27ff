#include "kernels/tuning/tuning.h"

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <system_error>

#include "absl/algorithm/container.h"
#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "kernels/ep/strategy_registry.h"
#include "kernels/tuning/shipped_tuning.h"
#include "kernels/types/gemm_element.h"
#include "runtime/base/mutex.h"
#include "runtime/base/status_macros.h"

namespace octet {
namespace {

constexpr size_t kMostFileBytes = size_t{16} << 20;

template <typename Entry>
void SetIn(std::vector<Entry>& entries, const Entry& entry) {
  for (Entry& each : entries) {
    if (each.key == entry.key) {
      each = entry;
      return;
    }
  }
  entries.push_back(entry);
}

// Returns the range between the two powers of two around `value`.
TuningRange Octave(int64_t value) {
  const auto first = static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(value)));
  return {first, std::max(first, 2 * first - 1)};
}

int64_t Rows(const EpConfig& config) {
  return static_cast<int64_t>(config.max_tokens_per_rank) * config.topk;
}

int64_t RowBytes(const EpConfig& config) { return static_cast<int64_t>(config.dtype_row_bytes()); }

bool IsLike(const TuningKey& key, int num_ranks, const EpConfig& config) {
  return key.num_ranks == num_ranks && key.strategy == config.strategy &&
         key.format == config.dispatch_format && key.received == config.output &&
         key.rows.Contains(Rows(config)) && key.row_bytes.Contains(RowBytes(config));
}

// Returns the key of the calls that are like those of `key` and have any number of experts.
FusedTuningKey OfAnyExperts(FusedTuningKey key) {
  key.num_experts = 0;
  return key;
}

// Returns whether an entry with the key `entry` is for the calls of `key`.
bool IsFor(const FusedTuningKey& entry, const FusedTuningKey& key) {
  return entry == key || entry == OfAnyExperts(key);
}

absl::StatusOr<std::shared_ptr<const TuningTable>> Shared(absl::StatusOr<TuningTable> table) {
  if (!table.ok()) return table.status();
  return std::make_shared<const TuningTable>(*std::move(table));
}

// The last file that was read, and its table.
class LastRead {
 public:
  static absl::StatusOr<std::shared_ptr<const TuningTable>> Get(const std::string& path) {
    static auto& last = *new LastRead;
    MutexLock lock(&last.mutex_);
    std::error_code missing;  // Read reports it
    const auto time = std::filesystem::last_write_time(path, missing);
    const auto bytes = std::filesystem::file_size(path, missing);
    if (missing || last.path_ != path || last.time_ != time || last.bytes_ != bytes) {
      last.table_ = Shared(TuningTable::Read(path));
      last.path_ = path;
      last.time_ = time;
      last.bytes_ = bytes;
    }
    return last.table_;
  }

 private:
  Mutex mutex_;
  std::string path_ ABSL_GUARDED_BY(mutex_);
  std::filesystem::file_time_type time_ ABSL_GUARDED_BY(mutex_);
  uintmax_t bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  absl::StatusOr<std::shared_ptr<const TuningTable>> table_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace

std::string TuningField::Text(const Tuning& tuning) const {
  return number != nullptr ? absl::StrCat(tuning.*number)
                           : std::string(EnumName(tuning.row_copies));
}

absl::Span<const TuningField> TuningFieldsOf(Strategy strategy) {
  if (strategy == Strategy::kAuto) return {};
  return InfoOf(strategy).tuning_fields;
}

TuningKey TuningKeyOf(const Topology& topology, int num_ranks, const EpConfig& config) {
  return {.platform = topology.platform,
          .gpu = topology.gpus.empty() ? "" : topology.gpus[0].name,
          .num_ranks = num_ranks,
          .strategy = config.strategy,
          .rows = Octave(Rows(config)),
          .row_bytes = Octave(RowBytes(config)),
          .format = config.dispatch_format,
          .received = config.output};
}

GemmTuningKey GemmTuningKeyOf(absl::string_view gpu, const GroupedGemmConfig& config) {
  const auto last = static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(config.usual_rows())));
  return {.gpu = std::string(gpu),
          .element = ElementOf(config.weight_format(), config.row_format()),
          .n = config.n,
          .k = config.k,
          .rows = {last / 2 + 1, last},
          .activation = config.activation};
}

absl::Span<const EnumEntry<FusedCall>> EnumTable(FusedCall /*unused*/) {
  static constexpr EnumEntry<FusedCall> kTable[] = {{FusedCall::kDispatchGemm, "dispatch_gemm"},
                                                    {FusedCall::kGemmCombine, "gemm_combine"}};
  return kTable;
}

FusedTuningKey FusedTuningKeyOf(const Topology& topology, int num_ranks, FusedCall call,
                                const RoutedExpertsConfig& config) {
  EpConfig ep = config.ep;
  ep.strategy = Strategy::kHighThroughput;
  return {
      .call = call,
      .links = TuningKeyOf(topology, num_ranks, ep),
      .num_experts = ep.num_experts,
      .intermediate = config.intermediate,
      .activation = call == FusedCall::kDispatchGemm ? config.activation : GemmActivation::kNone};
}

absl::StatusOr<TuningTable> TuningTable::Read(const std::string& path) {
  errno = 0;
  std::ifstream file(path, std::ios::binary);
  std::string text;
  constexpr size_t kChunk = 1 << 16;
  while (file && text.size() <= kMostFileBytes) {
    const size_t size = text.size();
    text.resize(size + kChunk);
    file.read(text.data() + size, kChunk);
    text.resize(size + static_cast<size_t>(file.gcount()));
  }
  if (!file.eof()) {
    if (text.size() > kMostFileBytes) {
      return absl::InvalidArgumentError(
          absl::StrCat("tuning ", path, " has more than ", kMostFileBytes, " bytes"));
    }
    const std::string what =
        absl::StrCat("cannot read tuning ", path, ": ", std::strerror(errno != 0 ? errno : EIO));
    return errno == ENOENT ? absl::NotFoundError(what) : absl::InvalidArgumentError(what);
  }
  return Parse(text, absl::StrCat("tuning ", path));
}

absl::StatusOr<std::shared_ptr<const TuningTable>> TuningTable::Default() {
  const char* const path = std::getenv("OCTET_TUNING");
  if (path == nullptr || *path == '\0') {
    static const auto& shipped = *new absl::StatusOr<std::shared_ptr<const TuningTable>>(
        Shared(Parse(kShippedTuning, "the library's own tuning")));
    return shipped;
  }
  if (absl::string_view(path) == "none") return std::make_shared<const TuningTable>();
  return LastRead::Get(path);
}

const TuningEntry* TuningTable::FindEntry(const Topology& topology, int num_ranks,
                                          const EpConfig& config) const {
  for (const TuningEntry& entry : entries_) {
    if (entry.key.platform == topology.platform && !topology.gpus.empty() &&
        entry.key.gpu == topology.gpus[0].name && IsLike(entry.key, num_ranks, config)) {
      return &entry;
    }
  }
  return nullptr;
}

std::optional<Tuning> TuningTable::Find(const Topology& topology, int num_ranks,
                                        const EpConfig& config) const {
  const TuningEntry* const entry = FindEntry(topology, num_ranks, config);
  return entry != nullptr ? std::optional(entry->tuning) : std::nullopt;
}

std::optional<Strategy> TuningTable::FindStrategy(const Topology& topology, int num_ranks,
                                                  const EpConfig& config) const {
  const TuningEntry* const entry = FindEntry(topology, num_ranks, config);
  return entry != nullptr ? std::optional(entry->chosen) : std::nullopt;
}

std::vector<Strategy> TuningTable::StrategiesFor(int num_ranks, const EpConfig& config) const {
  std::vector<Strategy> strategies;
  for (const TuningEntry& entry : entries_) {
    if (IsLike(entry.key, num_ranks, config)) strategies.push_back(entry.chosen);
  }
  return strategies;
}

int TuningTable::MostRowParts(int num_ranks, const EpConfig& config) const {
  int most = 0;
  for (const TuningEntry& entry : entries_) {
    if (IsLike(entry.key, num_ranks, config)) most = std::max(most, entry.tuning.row_parts);
  }
  return most;
}

std::optional<GemmTiles> TuningTable::FindTiles(absl::string_view gpu,
                                                const GroupedGemmConfig& config) const {
  GemmTuningKey key = GemmTuningKeyOf(gpu, config);
  for (const GemmTuningEntry& entry : gemm_entries_) {
    key.rows = entry.key.rows;
    if (entry.key == key && key.rows.Contains(config.usual_rows())) return entry.tiles;
  }
  return std::nullopt;
}

std::optional<FusedChoice> TuningTable::FindFusion(const Topology& topology, int num_ranks,
                                                   FusedCall call,
                                                   const RoutedExpertsConfig& config) const {
  const FusedTuningKey key = FusedTuningKeyOf(topology, num_ranks, call, config);
  const auto entry = absl::c_find_if(
      fused_entries_, [&](const FusedTuningEntry& each) { return IsFor(each.key, key); });
  return entry != fused_entries_.end() ? std::optional(entry->choice) : std::nullopt;
}

std::vector<FusedChoice> TuningTable::FusionsFor(int num_ranks, FusedCall call,
                                                 const RoutedExpertsConfig& config) const {
  FusedTuningKey key = FusedTuningKeyOf({}, num_ranks, call, config);
  std::vector<FusedChoice> choices;
  for (const FusedTuningEntry& entry : fused_entries_) {
    key.links.platform = entry.key.links.platform;
    key.links.gpu = entry.key.links.gpu;
    if (IsFor(entry.key, key)) choices.push_back(entry.choice);
  }
  return choices;
}

void TuningTable::Set(const FusedTuningEntry& entry) {
  const FusedTuningKey any = OfAnyExperts(entry.key);
  if (any != entry.key) {
    std::erase_if(fused_entries_, [&](const FusedTuningEntry& each) { return each.key == any; });
  }
  SetIn(fused_entries_, entry);
}

void TuningTable::Remove(const FusedTuningKey& key) {
  std::erase_if(fused_entries_,
                [&](const FusedTuningEntry& entry) { return IsFor(entry.key, key); });
}

void TuningTable::Set(const TuningEntry& entry) { SetIn(entries_, entry); }

void TuningTable::Set(const GemmTuningEntry& entry) { SetIn(gemm_entries_, entry); }

void TuningTable::Remove(const TuningKey& key) {
  std::erase_if(entries_, [&](const TuningEntry& entry) { return entry.key == key; });
}

void TuningTable::Remove(const GemmTuningKey& key) {
  std::erase_if(gemm_entries_, [&](const GemmTuningEntry& entry) { return entry.key == key; });
}

}  // namespace octet
