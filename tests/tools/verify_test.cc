// The verifier must see every kind of wrong result, and nothing else.
#include "tools/check/verify.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "octet/dtype.h"
#include "tools/workload/workload.h"

namespace octet {
namespace {

using ::testing::HasSubstr;

constexpr size_t kHidden = 16;
constexpr size_t kRowBytes = kHidden * sizeof(uint16_t);

class VerifyTest : public testing::Test {
 protected:
  void SetUp() override {
    config_.num_experts = 8;
    config_.topk = 3;
    config_.hidden = kHidden;
    config_.max_tokens_per_rank = 20;
    Make();
  }

  // What rank 1 receives and rank 0 gets back, all of it right.
  void Make() {
    WorkloadSpec spec;
    spec.num_ranks = 2;
    spec.config = config_;
    spec.tokens = {20, 11};
    workload_ = *Workload::Create(spec);
    workload_->Generate(0);
    reference_ = ReferenceDispatch(config_, workload_->inputs(), 1);
    const DispatchVerifier verifier(config_, workload_->inputs(), 1);
    const bool deduplicated = config_.output == Output::kDeduplicated;
    received_ = {.expert_counts = reference_.expert_counts,
                 .expert_offsets = reference_.expert_offsets,
                 .sources = deduplicated ? reference_.tokens : reference_.sources,
                 .ranges = reference_.ranges,
                 .split_counts = reference_.split_counts,
                 .source_offsets = reference_.source_offsets,
                 .row_weights = reference_.row_weights,
                 .row_index = reference_.row_index,
                 .recv_topk_idx = reference_.recv_topk_idx,
                 .recv_topk_weights = reference_.recv_topk_weights};
    rows_.assign(verifier.num_rows() * config_.received_row_bytes(), 0);
    scales_.assign(verifier.num_rows() * static_cast<size_t>(config_.scale_words()), 0);
    const std::vector<RowSource>& rows = reference_.rows(config_);
    if (config_.rows_apart()) received_.sources.assign(verifier.num_sources(), {9, 9, 9, 9});
    for (size_t i = 0; i < rows.size(); ++i) {
      const size_t place = config_.rows_apart() ? static_cast<size_t>(reference_.places[i]) : i;
      PutRow(place, rows[i]);
      if (config_.rows_apart()) received_.sources[place] = rows[i];
    }
    y_ = ReferenceCombine(config_, 2, workload_->inputs()[0], scale_, bias_);
  }

  void PutRow(size_t row, const RowSource& source) {
    if (source.rank < 0) return;
    const RankInput token = workload_->inputs()[static_cast<size_t>(source.rank)].Tokens(
        config_, static_cast<size_t>(source.token), 1);
    const void* from = token.x.data();
    if (!token.scales.empty()) from = token.fp8.data();
    std::memcpy(&rows_[row * config_.received_row_bytes()], from, config_.received_row_bytes());
    std::copy(token.scales.begin(), token.scales.end(),
              scales_.begin() + static_cast<ptrdiff_t>(row * token.scales.size()));
  }

  Verification Dispatch() {
    DispatchVerifier verifier(config_, workload_->inputs(), 1);
    EXPECT_EQ(verifier.num_sources(), received_.sources.size());
    verifier.CheckLayout(received_);
    const size_t row_bytes = config_.received_row_bytes();
    const auto words = static_cast<size_t>(config_.scale_words());
    for (const RowRange& range : verifier.RowsOf(verifier.num_rows())) {
      const auto first = static_cast<size_t>(range.first);
      const auto count = static_cast<size_t>(range.count);
      const auto rows = absl::MakeConstSpan(rows_).subspan(first * row_bytes, count * row_bytes);
      verifier.CheckRows(first, rows.subspan(0, count / 2 * row_bytes));
      verifier.CheckRows(first + count / 2, rows.subspan(count / 2 * row_bytes));
      if (words > 0) {
        verifier.CheckScales(first,
                             absl::MakeConstSpan(scales_).subspan(first * words, count * words));
      }
    }
    return verifier.result();
  }
  Verification Combine() {
    const CombineTerms terms = {.expert_scale = scale_, .bias = bias_};
    CombineVerifier verifier(config_, 2, 0, workload_->inputs()[0], terms);
    const size_t half = y_.size() / kHidden / 2 * kHidden;
    verifier.CheckRows(0, absl::MakeConstSpan(y_).subspan(0, half));
    verifier.CheckRows(half / kHidden, absl::MakeConstSpan(y_).subspan(half));
    return verifier.result();
  }
  // Exchanges rows i and j with all that is said about them.
  void SwapRows(size_t i, size_t j) {
    std::swap(received_.sources[i], received_.sources[j]);
    std::swap_ranges(&rows_[i * kRowBytes], &rows_[i * kRowBytes] + kRowBytes,
                     &rows_[j * kRowBytes]);
  }

  EpConfig config_;
  std::unique_ptr<Workload> workload_;
  ReferenceReceived reference_;
  ReceivedLayout received_;
  std::vector<uint8_t> rows_;
  std::vector<uint32_t> scales_;
  std::vector<uint16_t> y_;
  std::vector<uint16_t> bias_;
  const std::vector<float> scale_ = {1.0F, 1.1F, 1.2F, 1.3F, 1.4F, 1.5F, 1.6F, 1.7F};
};

TEST_F(VerifyTest, TheReferenceItselfIsRight) {
  for (const Verification& result : {Dispatch(), Combine()}) {
    EXPECT_TRUE(result.bitwise);
    EXPECT_TRUE(result.within_tolerance);
    EXPECT_EQ(result.max_error, 0);
    EXPECT_EQ(result.wrong_rows + result.wrong_tokens, 0);
    EXPECT_EQ(result.first, "");
  }
}

TEST_F(VerifyTest, SeesWrongCountsAndOffsets) {
  ++received_.expert_counts[2];
  EXPECT_THAT(Dispatch().first, HasSubstr("rank 1: expert_counts[2] is"));
  --received_.expert_counts[2];
  --received_.expert_offsets[4];
  EXPECT_THAT(Dispatch().first, HasSubstr("rank 1: expert_offsets[4] is"));
}

TEST_F(VerifyTest, SeesWrongRows) {
  rows_[5 * kRowBytes + 2 * 3] ^= 1;
  const Verification result = Dispatch();
  EXPECT_FALSE(result.bitwise);
  EXPECT_EQ(result.wrong_rows, 1);
  EXPECT_THAT(result.first, HasSubstr("differs from x at element 3"));
}

TEST_F(VerifyTest, SeesRowsThatWereNeverWritten) {
  std::fill_n(&rows_[0], kRowBytes, uint8_t{0xff});
  received_.sources[1] = RowSource{-1, -1, -1, -1};
  EXPECT_EQ(Dispatch().wrong_rows, 2);
}

TEST_F(VerifyTest, SeesSourcesThatMakeNoSense) {
  received_.sources[0].token = 1000000;
  received_.sources[1].rank = 2;
  EXPECT_EQ(Dispatch().wrong_rows, 2);
}

TEST_F(VerifyTest, OrderWithinASourceIsFreeOnlyWithAtomicSlots) {
  // Two rows of one (expert, source), and two of different sources.
  size_t same = 0;
  while (received_.sources[same].rank != received_.sources[same + 1].rank ||
         received_.sources[same].local_expert != received_.sources[same + 1].local_expert) {
    ++same;
  }
  SwapRows(same, same + 1);
  EXPECT_EQ(Dispatch().wrong_rows, 2);
  config_.variant.slots = Slots::kAtomic;
  EXPECT_TRUE(Dispatch().bitwise);
  // The same row twice is wrong in any order.
  received_.sources[same] = received_.sources[same + 1];
  EXPECT_FALSE(Dispatch().bitwise);
  received_.sources = reference_.sources;
  size_t other = 0;
  while (received_.sources[other].rank == received_.sources[other + 1].rank) ++other;
  SwapRows(other, other + 1);
  EXPECT_FALSE(Dispatch().bitwise);
}

TEST_F(VerifyTest, SeesPaddingThatIsNotZero) {
  config_.high_throughput.expert_alignment = 8;
  Make();
  EXPECT_TRUE(Dispatch().bitwise);
  const auto padding = static_cast<size_t>(received_.expert_counts[0]);
  ASSERT_EQ(received_.sources[padding].rank, -1);
  rows_[padding * kRowBytes + 2 * 5] = 1;
  EXPECT_THAT(Dispatch().first, HasSubstr("differs from zero at element 5: 0x1 instead of 0x0"));
  rows_[padding * kRowBytes + 2 * 5] = 0;
  received_.sources[padding] = received_.sources[0];
  EXPECT_THAT(Dispatch().first, HasSubstr("it should be rank -1"));
  received_.sources[padding] = reference_.sources[padding];
  received_.sources[0] = received_.sources[padding];
  EXPECT_EQ(Dispatch().wrong_rows, 1) << "a row that says it is padding";
}

TEST_F(VerifyTest, SeesAWrongIndex) {
  config_.high_throughput.duplicates = Duplicates::kIndex;
  config_.high_throughput.expert_alignment = 4;
  Make();
  EXPECT_TRUE(Dispatch().bitwise);
  ++received_.row_index[3];
  EXPECT_THAT(Dispatch().first, HasSubstr("row_index[3] is"));
  --received_.row_index[3];
  received_.row_weights[2] += 1;
  EXPECT_THAT(Dispatch().first, HasSubstr("row_weights[2] is"));
  received_.row_weights = reference_.row_weights;
  ++received_.source_offsets[1];
  EXPECT_THAT(Dispatch().first, HasSubstr("source_offsets[1] is"));
  --received_.source_offsets[1];
  rows_.back() ^= 1;
  EXPECT_THAT(Dispatch().first, HasSubstr("differs from x at element 15"));
}

TEST_F(VerifyTest, SeesWrongChoicesOfTokens) {
  config_.output = Output::kDeduplicated;
  config_.strategy = Strategy::kHighThroughput;
  Make();
  EXPECT_TRUE(Dispatch().bitwise);
  received_.recv_topk_idx[2] = 7;
  EXPECT_THAT(Dispatch().first, HasSubstr("recv_topk_idx[2] is 7, not"));
  received_.recv_topk_idx = reference_.recv_topk_idx;
  received_.recv_topk_weights[4] = 2;
  EXPECT_THAT(Dispatch().first, HasSubstr("recv_topk_weights[4] is 2, not"));
}

TEST_F(VerifyTest, SeesRowsThatAreNotWhereTheyShouldBe) {
  for (const Output output : {Output::kExpertMajor, Output::kRankMajor}) {
    config_.output = output;
    Make();
    EXPECT_EQ(Dispatch().first, "");
    const auto last = static_cast<size_t>(reference_.places.back());
    // What lies between the rows has no meaning.
    size_t gap = 0;
    while (received_.sources[gap].rank != 9) ++gap;
    rows_[gap * kRowBytes] = 0xff;
    EXPECT_TRUE(Dispatch().bitwise);
    rows_[last * kRowBytes + 2 * 5] ^= 1;
    EXPECT_THAT(Dispatch().first, HasSubstr("differs from x at element 5"));
    rows_[last * kRowBytes + 2 * 5] ^= 1;
    std::swap(received_.sources[last], received_.sources[gap]);
    EXPECT_THAT(Dispatch().first, HasSubstr(absl::StrCat("row ", last, " says that it is from")));
    std::swap(received_.sources[last], received_.sources[gap]);
    ++received_.ranges[3].first;
    EXPECT_THAT(Dispatch().first, HasSubstr("ranges[3] is"));
    --received_.ranges[3].first;
    ++received_.ranges[2].count;
    EXPECT_THAT(Dispatch().first, HasSubstr("ranges[2] is"));
    received_.ranges.clear();
    EXPECT_THAT(Dispatch().first, HasSubstr("ranges are missing"));
    received_.ranges = reference_.ranges;
    ++received_.split_counts[1];
    EXPECT_THAT(Dispatch().first, HasSubstr("split_counts[1] is"));
    received_.split_counts.clear();
    EXPECT_EQ(Dispatch().bitwise, output == Output::kExpertMajor);
  }
  config_.output = Output::kExpertMajor;
  Make();
  EXPECT_EQ(received_.expert_offsets, (std::vector<int32_t>{0, 40, 80, 120, 160}));
  ++received_.expert_offsets[4];
  EXPECT_THAT(Dispatch().first, HasSubstr("expert_offsets[4] is 161, not 160"));
}

TEST_F(VerifyTest, SeesWrongFp8AndScales) {
  for (const ScaleFormat format : {ScaleFormat::kFloat32, ScaleFormat::kUe8m0}) {
    config_.dispatch_format = DispatchFormat::kFp8;
    config_.scale_format = format;
    config_.scale_group = 8;
    Make();
    EXPECT_TRUE(Dispatch().bitwise);
    rows_[5 * kHidden + 3] ^= 1;
    EXPECT_THAT(Dispatch().first, HasSubstr("differs from x in fp8 at element 3"));
    rows_[5 * kHidden + 3] ^= 1;
    scales_[static_cast<size_t>(config_.scale_words())] ^= 1;
    EXPECT_THAT(Dispatch().first, HasSubstr("differs from the scales at element 0"));
    EXPECT_EQ(Dispatch().wrong_rows, 1);
  }
}

// What experts make of 8-bit floats is close to what they make of x, but not the same.
TEST_F(VerifyTest, SumsAreOfWhatExpertsReceive) {
  const std::vector<uint16_t> of_x = y_;
  config_.dispatch_format = DispatchFormat::kFp8;
  Make();
  EXPECT_TRUE(Combine().bitwise);
  EXPECT_NE(y_, of_x);
  for (size_t i = 0; i < y_.size(); ++i) {
    EXPECT_NEAR(FloatFromBits(config_.dtype, y_[i]), FloatFromBits(config_.dtype, of_x[i]), 1);
  }
}

TEST_F(VerifyTest, SeesWrongSums) {
  const size_t element = 7 * kHidden + 2;
  const float right = FloatFromBits(config_.dtype, y_[element]);
  y_[element] ^= 1;
  Verification result = Combine();
  EXPECT_FALSE(result.bitwise);
  EXPECT_TRUE(result.within_tolerance);
  EXPECT_EQ(result.wrong_tokens, 1);
  EXPECT_NEAR(result.max_error, 0, 0.01 * std::fabs(right));
  EXPECT_GT(result.max_error, 0);
  EXPECT_THAT(result.first, HasSubstr("rank 0: y of token 7 is"));
  EXPECT_THAT(result.first, HasSubstr("at element 2"));

  y_[element] = BitsFromFloat(config_.dtype, right + 1);
  result = Combine();
  EXPECT_FALSE(result.within_tolerance);
  EXPECT_NEAR(result.max_error, 1, 0.1);

  y_[element] = 0xffff;  // NaN
  result = Combine();
  EXPECT_FALSE(result.within_tolerance);
  EXPECT_TRUE(std::isinf(result.max_error));
}

// A row that was sent as it is must come as it is: also a NaN, of which there are many.
TEST_F(VerifyTest, RowsAreComparedByTheirBits) {
  config_.dispatch_format = DispatchFormat::kBytes;
  config_.high_throughput.row_bytes = static_cast<int>(kRowBytes);
  Make();
  EXPECT_TRUE(Dispatch().bitwise);
  const RowSource& source = received_.sources[4];
  const RankInput& input = workload_->inputs()[static_cast<size_t>(source.rank)];
  auto* sent = const_cast<uint16_t*>(&input.x[static_cast<size_t>(source.token) * kHidden + 6]);
  *sent = 0x7fff;
  const uint16_t other_nan = 0x7ffe;
  for (size_t row = 0; row < received_.sources.size(); ++row) {
    const RowSource& same = received_.sources[row];
    if (same.rank != source.rank || same.token != source.token) continue;
    std::memcpy(&rows_[row * kRowBytes + 2 * 6], &other_nan, sizeof(other_nan));
  }
  EXPECT_THAT(Dispatch().first, HasSubstr("differs from x at element 6: 0x7ffe instead of 0x7fff"));
}

TEST_F(VerifyTest, SeesWhatIsMissing) {
  config_.strategy = Strategy::kHighThroughput;
  config_.high_throughput.duplicates = Duplicates::kIndex;
  Make();
  const auto expect_missing = [&](const std::string& name, auto& array) {
    const auto kept = std::exchange(array, {});
    EXPECT_THAT(Dispatch().first, HasSubstr(absl::StrCat(name, " is missing")));
    array = kept;
  };
  expect_missing("expert_counts", received_.expert_counts);
  expect_missing("expert_offsets", received_.expert_offsets);
  expect_missing("source_offsets", received_.source_offsets);
  expect_missing("row_weights", received_.row_weights);
  expect_missing("row_index", received_.row_index);
  EXPECT_TRUE(Dispatch().bitwise);
  config_.high_throughput.duplicates = Duplicates::kFill;
  config_.output = Output::kDeduplicated;
  Make();
  expect_missing("recv_topk_idx", received_.recv_topk_idx);
  expect_missing("recv_topk_weights", received_.recv_topk_weights);
  EXPECT_TRUE(Dispatch().bitwise);
}

TEST_F(VerifyTest, ABiasIsPartOfTheSum) {
  bias_.assign(kHidden, BitsFromFloat(config_.dtype, 3.0F));
  Make();
  EXPECT_TRUE(Combine().bitwise);
  bias_.clear();
  EXPECT_EQ(Combine().wrong_tokens, 20);
}

TEST_F(VerifyTest, AddsUp) {
  Verification sum = Combine();
  y_[0] ^= 1;
  sum.Add(Combine());
  y_[kHidden] ^= 1;
  sum.Add(Combine());
  EXPECT_FALSE(sum.bitwise);
  EXPECT_EQ(sum.wrong_tokens, 3);
  EXPECT_THAT(sum.first, HasSubstr("token 0"));
}

}  // namespace
}  // namespace octet
