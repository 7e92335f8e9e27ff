#include "tools/commands/gemm_rows.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>

#include "absl/flags/declare.h"
#include "absl/flags/flag.h"
#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/types/span.h"
#include "octet/ep_config.h"
#include "octet/peers.h"
#include "runtime/base/status_macros.h"
#include "tools/commands/run_options.h"
#include "tools/workload/expert_rows.h"

ABSL_FLAG(std::string, rows, "8x64",
          "rows of each expert: a number, for each of --experts; a list such as 512,0,8x64, where\n"
          "LxN stands for L experts of N rows; routing: what rank 0 of --ranks receives");
ABSL_DECLARE_FLAG(int32_t, experts);
ABSL_DECLARE_FLAG(int32_t, ranks);

namespace octet {
namespace {

constexpr int kMostExperts = 256;  // of one GPU: GroupedGemmConfig::experts
constexpr absl::string_view kRouting = "routing";
constexpr auto kRoutingFlags = absl::MakeConstSpan(kGemmRowsFlags).subspan(2);

// Returns a number of digits alone, or `more` if it is larger; nothing for any other text.
std::optional<int64_t> ParseNumber(absl::string_view text, int64_t more) {
  if (text.empty() || text.find_first_not_of("0123456789") != absl::string_view::npos) {
    return std::nullopt;
  }
  int64_t number = 0;
  return absl::SimpleAtoi(text, &number) ? std::min(number, more) : more;
}

// Appends the experts that one part of a list names, "N" or "LxN".
absl::Status AppendRows(absl::string_view part, std::vector<int32_t>& rows) {
  constexpr int64_t kMostRows = std::numeric_limits<int32_t>::max();
  const auto wrong = [part](absl::string_view what) {
    return absl::InvalidArgumentError(absl::StrCat("--rows has '", part, "', ", what));
  };
  const std::vector<absl::string_view> numbers = absl::StrSplit(part, 'x');
  const std::optional<int64_t> each = ParseNumber(numbers.back(), kMostRows + 1);
  const std::optional<int64_t> experts =
      numbers.size() == 1 ? 1 : ParseNumber(numbers.front(), kMostExperts + 1);
  if (numbers.size() > 2 || !each.has_value() || !experts.has_value()) {
    return wrong("which is neither N nor LxN");
  }
  if (*experts < 1 || *experts > kMostExperts) {
    return wrong(absl::StrCat("and a GPU has 1 to ", kMostExperts, " experts"));
  }
  if (*each > kMostRows) {
    return wrong(absl::StrCat("and an expert has at most ", kMostRows, " rows"));
  }
  rows.insert(rows.end(), static_cast<size_t>(*experts), static_cast<int32_t>(*each));
  return absl::OkStatus();
}

absl::StatusOr<std::vector<int32_t>> ParseList(const CommandLine& line, const std::string& text) {
  for (const absl::string_view flag : kRoutingFlags) {
    if (!line.Given(flag)) continue;
    return absl::InvalidArgumentError(absl::StrCat("--", flag, " goes with --rows=routing only"));
  }
  std::vector<int32_t> rows;
  for (const absl::string_view part : absl::StrSplit(text, ',')) {
    OCTET_RETURN_IF_ERROR(AppendRows(part, rows));
  }
  if (!line.Given("experts")) return rows;
  const int experts = absl::GetFlag(FLAGS_experts);
  if (experts < 1 || experts > kMostExperts) {
    return absl::InvalidArgumentError(
        absl::StrCat("--experts=", experts, " is not from 1 to ", kMostExperts));
  }
  if (int32_t each = 0; absl::SimpleAtoi(text, &each)) {
    rows.assign(static_cast<size_t>(experts), each);
  }
  if (rows.size() != static_cast<size_t>(experts)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--experts=", experts, " does not agree with --rows, which lists ", rows.size()));
  }
  return rows;
}

absl::StatusOr<std::vector<int32_t>> RowsOfRouting(const CommandLine& line) {
  constexpr int kLeastHidden = 8;  // choices do not depend on the rows
  if (absl::GetFlag(FLAGS_ranks) == 0) {
    return absl::InvalidArgumentError(
        "--rows=routing needs --ranks, the number of ranks that share the experts");
  }
  OCTET_ASSIGN_OR_RETURN(WorkloadSpec spec, ParseChoicesOptions(line, kMaxRanks));
  spec.config.hidden = kLeastHidden;
  if (!line.Given("max_tokens") && !spec.tokens.empty()) {
    spec.config.max_tokens_per_rank =
        std::max(1, *std::max_element(spec.tokens.begin(), spec.tokens.end()));
  }
  OCTET_RETURN_IF_ERROR(Validate(spec.config, spec.num_ranks));
  return ExpertRows(spec, 0);
}

}  // namespace

absl::StatusOr<std::vector<int32_t>> ParseGemmRows(const CommandLine& line) {
  const std::string text = absl::GetFlag(FLAGS_rows);
  OCTET_ASSIGN_OR_RETURN(std::vector<int32_t> rows,
                         text == kRouting ? RowsOfRouting(line) : ParseList(line, text));
  if (rows.size() <= kMostExperts) return rows;
  return absl::InvalidArgumentError(
      absl::StrCat(rows.size(), " experts are more than the ", kMostExperts, " of a GPU at most"));
}

}  // namespace octet
