// The verifier must see every kind of wrong result, and nothing else.
#include "tools/verify.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "kernels/dtype.h"
#include "tools/workload.h"

namespace octet {
namespace {

using ::testing::HasSubstr;

constexpr size_t kHidden = 16;

class VerifyTest : public testing::Test {
 protected:
  void SetUp() override {
    WorkloadSpec spec;
    spec.num_ranks = 2;
    spec.num_experts = 8;
    spec.topk = 3;
    spec.hidden = kHidden;
    spec.max_tokens = 20;
    spec.tokens = {20, 11};
    workload_ = *Workload::Create(spec);
    workload_->Generate(0);
    config_.num_experts = 8;
    config_.topk = 3;
    config_.hidden = kHidden;
    config_.max_tokens_per_rank = 20;
    received_ = ReferenceDispatch(config_, workload_->inputs(), 1);
    for (const RowSource& source : received_.sources) {
      const auto row = workload_->inputs()[static_cast<size_t>(source.rank)].x.subspan(
          static_cast<size_t>(source.token) * kHidden, kHidden);
      rows_.insert(rows_.end(), row.begin(), row.end());
    }
    y_ = ReferenceCombine(config_, 2, workload_->inputs()[0], scale_);
  }

  Verification Dispatch() {
    DispatchVerifier verifier(config_, workload_->inputs(), 1);
    EXPECT_EQ(verifier.num_rows(), received_.sources.size());
    verifier.CheckLayout(received_.expert_counts, received_.expert_offsets, received_.sources);
    const size_t half = received_.sources.size() / 2 * kHidden;
    verifier.CheckRows(0, absl::MakeConstSpan(rows_).subspan(0, half));
    verifier.CheckRows(half / kHidden, absl::MakeConstSpan(rows_).subspan(half));
    return verifier.result();
  }
  Verification Combine() {
    return VerifyCombine(config_, 2, workload_->inputs()[0], 0, 0, scale_, y_);
  }
  // Exchanges rows i and j with all that is said about them.
  void SwapRows(size_t i, size_t j) {
    std::swap(received_.sources[i], received_.sources[j]);
    std::swap_ranges(&rows_[i * kHidden], &rows_[i * kHidden] + kHidden, &rows_[j * kHidden]);
  }

  EpConfig config_;
  std::unique_ptr<Workload> workload_;
  ReferenceReceived received_;
  std::vector<uint16_t> rows_;
  std::vector<uint16_t> y_;
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
  rows_[5 * kHidden + 3] ^= 1;
  const Verification result = Dispatch();
  EXPECT_FALSE(result.bitwise);
  EXPECT_EQ(result.wrong_rows, 1);
  EXPECT_THAT(result.first, HasSubstr("differs from x at element 3"));
}

TEST_F(VerifyTest, SeesRowsThatWereNeverWritten) {
  std::fill_n(&rows_[0], kHidden, uint16_t{0xffff});
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
  config_.slots = Slots::kAtomic;
  EXPECT_TRUE(Dispatch().bitwise);
  // The same row twice is wrong in any order.
  received_.sources[same] = received_.sources[same + 1];
  EXPECT_FALSE(Dispatch().bitwise);
  received_ = ReferenceDispatch(config_, workload_->inputs(), 1);
  size_t other = 0;
  while (received_.sources[other].rank == received_.sources[other + 1].rank) ++other;
  SwapRows(other, other + 1);
  EXPECT_FALSE(Dispatch().bitwise);
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
