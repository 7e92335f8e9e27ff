// Generated inputs: the rules of each routing, and that a seed means the same bits.
#include "tools/workload/workload.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "octet/dtype.h"
#include "tools/workload/philox.h"

namespace octet {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

WorkloadSpec Spec(const std::string& routing = "uniform") {
  WorkloadSpec spec;
  spec.num_ranks = 4;
  spec.config.num_experts = 64;
  spec.config.topk = 6;
  spec.config.hidden = 64;
  spec.config.max_tokens_per_rank = 128;
  spec.tokens = {100, 0, 1, 128};
  spec.routing = *ParseRouting(routing);
  spec.seed = 7;
  return spec;
}

std::unique_ptr<Workload> Make(const WorkloadSpec& spec, uint32_t step = 0) {
  absl::StatusOr<std::unique_ptr<Workload>> workload = Workload::Create(spec);
  EXPECT_TRUE(workload.ok()) << workload.status();
  (*workload)->Generate(step);
  return *std::move(workload);
}

std::string Refusal(const WorkloadSpec& spec) {
  const absl::StatusOr<std::unique_ptr<Workload>> workload = Workload::Create(spec);
  EXPECT_EQ(workload.status().code(), absl::StatusCode::kInvalidArgument);
  return std::string(workload.status().message());
}

uint64_t Fingerprint(const Workload& workload) {
  uint64_t hash = 0xcbf29ce484222325;  // FNV-1a, by element
  const auto add = [&hash](uint64_t value) { hash = (hash ^ value) * 0x100000001b3; };
  for (const RankInput& input : workload.inputs()) {
    add(static_cast<uint64_t>(input.num_tokens));
    for (const uint16_t bits : input.x) add(bits);
    for (const int32_t id : input.topk_idx) add(static_cast<uint32_t>(id));
    for (const float weight : input.topk_weights) add(static_cast<uint64_t>(weight * 0x1p24F));
  }
  return hash;
}

TEST(Workload, ShapesAndRanges) {
  const std::unique_ptr<Workload> workload = Make(Spec());
  ASSERT_EQ(workload->inputs().size(), 4U);
  for (size_t r = 0; r < 4; ++r) {
    const RankInput& input = workload->inputs()[r];
    const auto tokens = static_cast<size_t>(Spec().tokens[r]);
    EXPECT_EQ(static_cast<size_t>(input.num_tokens), tokens);
    EXPECT_EQ(input.x.size(), tokens * 64);
    EXPECT_EQ(input.topk_idx.size(), tokens * 6);
    for (const float weight : input.topk_weights) EXPECT_TRUE(weight >= 0 && weight < 1);
    for (size_t t = 0; t < tokens; ++t) {
      const auto ids = input.topk_idx.subspan(t * 6, 6);
      EXPECT_EQ(std::set<int32_t>(ids.begin(), ids.end()).size(), 6U);
      for (const int32_t id : ids) EXPECT_TRUE(id >= 0 && id < 64);
    }
  }
}

TEST(Workload, RowsAreNormalAndRoundedToTheDtype) {
  for (const DType dtype : {DType::kFloat16, DType::kBFloat16}) {
    WorkloadSpec spec = Spec();
    spec.config.dtype = dtype;
    const std::unique_ptr<Workload> workload = Make(spec);
    double sum = 0;
    double squares = 0;
    const auto x = workload->inputs()[3].x;
    for (const uint16_t bits : x) {
      const float value = FloatFromBits(dtype, bits);
      sum += value;
      squares += value * value;
    }
    EXPECT_NEAR(sum / static_cast<double>(x.size()), 0, 0.05);
    EXPECT_NEAR(squares / static_cast<double>(x.size()), 1, 0.05);
  }
}

// What is recorded here must never change: runs are compared across machines and years by seed.
TEST(Workload, ASeedMeansTheseBits) {
  EXPECT_EQ(Fingerprint(*Make(Spec())), 10738469018677044663U);
  EXPECT_EQ(Fingerprint(*Make(Spec("zipf:1.2"), 5)), 3137511951904351226U);
  WorkloadSpec spec = Spec("group:2/8");
  spec.config.dtype = DType::kFloat16;
  spec.drop = 0.3;
  spec.tokens.clear();
  EXPECT_EQ(Fingerprint(*Make(spec)), 15176610812140648136U);
}

TEST(Workload, StepsRanksAndSeedsDiffer) {
  std::set<uint64_t> seen;
  WorkloadSpec spec = Spec();
  spec.tokens = {8, 8, 8, 8};
  for (const uint64_t seed : {1, 2, 100}) {
    spec.seed = seed;
    for (const uint32_t step : {0, 1, 2}) seen.insert(Fingerprint(*Make(spec, step)));
  }
  EXPECT_EQ(seen.size(), 9U);
  const std::unique_ptr<Workload> workload = Make(spec);
  EXPECT_NE(workload->inputs()[0].x, workload->inputs()[1].x);
  EXPECT_NE(workload->inputs()[0].topk_idx, workload->inputs()[1].topk_idx);
  // Rank r draws with seed + r.
  spec.seed = 101;
  EXPECT_EQ(workload->inputs()[1].x, Make(spec)->inputs()[0].x);
}

TEST(Workload, TokensAreDrawnLikeTheChallenge) {
  WorkloadSpec spec = Spec();
  spec.tokens.clear();
  spec.config.hidden = 8;
  std::set<int> seen;
  for (spec.seed = 0; spec.seed < 200; ++spec.seed) {
    const absl::StatusOr<std::unique_ptr<Workload>> workload = Workload::Create(spec);
    ASSERT_TRUE(workload.ok());
    for (int r = 0; r < 4; ++r) seen.insert((*workload)->num_tokens(r));
  }
  EXPECT_EQ(*seen.begin(), 1);
  EXPECT_EQ(*seen.rbegin(), 127);
  spec.config.max_tokens_per_rank = 1;
  EXPECT_THAT(Refusal(spec), HasSubstr("max_tokens is 1"));
}

TEST(Workload, DropsAreDrawnForEachChoice) {
  WorkloadSpec spec = Spec();
  spec.drop = 0.3;
  const auto some = Make(spec);
  const auto ids = some->inputs()[3].topk_idx;
  const double dropped = static_cast<double>(std::count(ids.begin(), ids.end(), -1));
  EXPECT_NEAR(dropped / static_cast<double>(ids.size()), 0.3, 0.05);
  spec.drop = 1;
  EXPECT_THAT(Make(spec)->inputs()[3].topk_idx, Each(-1));
  spec.drop = 1.5;
  EXPECT_THAT(Refusal(spec), HasSubstr("drop is 1.5"));
}

TEST(Routing, UniformChoosesEachExpertEquallyOftenInEachPlace) {
  WorkloadSpec spec = Spec();
  spec.config.num_experts = 8;
  spec.config.topk = 8;
  spec.config.hidden = 8;
  spec.tokens = {4096, 0, 0, 0};
  spec.config.max_tokens_per_rank = 4096;
  const auto workload = Make(spec);
  std::vector<int> counts(64);
  const auto ids = workload->inputs()[0].topk_idx;
  for (size_t i = 0; i < ids.size(); ++i) ++counts[i % 8 * 8 + static_cast<size_t>(ids[i])];
  for (const int count : counts) EXPECT_NEAR(count, 512, 110);
}

TEST(Routing, ZipfFollowsItsLawAndHasNoDuplicates) {
  WorkloadSpec spec = Spec("zipf:1");
  spec.config.num_experts = 16;
  spec.config.topk = 1;
  spec.config.hidden = 8;
  spec.tokens = {20000, 0, 0, 0};
  spec.config.max_tokens_per_rank = 20000;
  const auto workload = Make(spec);
  std::vector<int> counts(16);
  for (const int32_t id : workload->inputs()[0].topk_idx) ++counts[static_cast<size_t>(id)];
  std::sort(counts.rbegin(), counts.rend());
  double total = 0;
  for (int n = 1; n <= 16; ++n) total += 1.0 / n;
  for (size_t n = 0; n < 4; ++n) {
    EXPECT_NEAR(counts[n], 20000 / (static_cast<double>(n + 1) * total), 300) << n;
  }
  // Sorted, the law is of the experts in their order.
  spec.routing = *ParseRouting("zipf_sorted:1");
  const auto sorted = Make(spec);
  std::vector<int> in_order(16);
  for (const int32_t id : sorted->inputs()[0].topk_idx) ++in_order[static_cast<size_t>(id)];
  for (size_t n = 0; n < 16; ++n) {
    EXPECT_NEAR(in_order[n], 20000 / (static_cast<double>(n + 1) * total), 300) << n;
  }
  // However skewed, all of a token's experts are drawn and differ.
  spec = Spec("zipf:100");
  spec.config.topk = 32;
  const auto skewed = Make(spec);
  for (size_t t = 0; t < 128; ++t) {
    const auto ids = skewed->inputs()[3].topk_idx.subspan(t * 32, 32);
    EXPECT_EQ(std::set<int32_t>(ids.begin(), ids.end()).size(), 32U);
  }
}

TEST(Routing, GroupsLimitWhereATokenGoes) {
  const auto workload = Make(Spec("group:2/8"));
  std::set<int32_t> all;
  for (size_t t = 0; t < 128; ++t) {
    std::set<int32_t> groups;
    const auto ids = workload->inputs()[3].topk_idx.subspan(t * 6, 6);
    EXPECT_EQ(std::set<int32_t>(ids.begin(), ids.end()).size(), 6U);
    for (const int32_t id : ids) groups.insert(id / 8);
    EXPECT_LE(groups.size(), 2U);
    all.insert(groups.begin(), groups.end());
  }
  EXPECT_EQ(all.size(), 8U);
}

TEST(Routing, OneExpertTakesAll) {
  const auto workload = Make(Spec("one_expert"));
  for (size_t t = 0; t < 128; ++t) {
    EXPECT_THAT(workload->inputs()[3].topk_idx.subspan(t * 6, 6),
                ElementsAre(0, -1, -1, -1, -1, -1));
  }
}

TEST(Routing, RefusesBadSpecs) {
  for (const char* text : {"", "unifrom", "zipf", "zipf:", "zipf:x", "zipf_sorted:", "group:",
                           "group:1", "group:a/b", "group:1/2/3", "file:", "one_expert:1"}) {
    EXPECT_THAT(std::string(ParseRouting(text).status().message()), HasSubstr("is not one of"))
        << text;
  }
  EXPECT_THAT(std::string(ParseRouting("zipf:-1").status().message()), HasSubstr("from 0 to"));
  EXPECT_THAT(std::string(ParseRouting("zipf:nan").status().message()), HasSubstr("from 0 to"));
  EXPECT_THAT(std::string(ParseRouting("group:3/2").status().message()), HasSubstr("no more than"));
  EXPECT_THAT(std::string(ParseRouting("group:0/2").status().message()), HasSubstr("at least 1"));
  EXPECT_THAT(Refusal(Spec("group:1/7")), HasSubstr("cannot be divided"));
  EXPECT_THAT(Refusal(Spec("group:1/16")), HasSubstr("fewer than topk"));
}

TEST(Workload, RefusesBadTokens) {
  WorkloadSpec spec = Spec();
  spec.tokens = {1, 2, 3};
  EXPECT_THAT(Refusal(spec), HasSubstr("given for 3 ranks; 4 are to run"));
  spec.tokens = {1, 2, 3, 129};
  EXPECT_THAT(Refusal(spec), HasSubstr("rank 3 is to have 129 tokens"));
  spec.tokens = {1, 2, 3, -1};
  EXPECT_THAT(Refusal(spec), HasSubstr("rank 3 is to have -1 tokens"));
}

NpyArray Recorded(std::vector<int64_t> shape, const std::vector<int32_t>& ids) {
  NpyArray array;
  array.type = NpyType::kInt32;
  array.shape = std::move(shape);
  array.data.assign(reinterpret_cast<const char*>(ids.data()), ids.size() * sizeof(int32_t));
  return array;
}

TEST(Recorded, IsSplitOverTheRanks) {
  const std::vector<int32_t> ids = {0, 1, 2, 3, 4, -1, -1, -1};
  for (const std::vector<int64_t>& shape : {std::vector<int64_t>{4, 2}, {2, 2, 2}}) {
    const absl::StatusOr<RecordedRouting> routing = RecordedFromNpy(Recorded(shape, ids), 2);
    ASSERT_TRUE(routing.ok()) << routing.status();
    EXPECT_EQ(routing->num_tokens(1), 2);
    EXPECT_THAT(routing->topk_idx[1], ElementsAre(4, -1, -1, -1));
    EXPECT_TRUE(CheckRecorded(*routing, 5).ok());
  }
}

TEST(Recorded, RefusesOtherShapes) {
  const std::vector<int32_t> ids = {0, 1, 2, 3, 4, 5};
  const auto refusal = [&](std::vector<int64_t> shape, int ranks) {
    return std::string(RecordedFromNpy(Recorded(std::move(shape), ids), ranks).status().message());
  };
  EXPECT_THAT(refusal({6}, 2), HasSubstr("neither"));
  EXPECT_THAT(refusal({3, 2}, 2), HasSubstr("cannot be split evenly over 2 ranks"));
  EXPECT_THAT(refusal({3, 1, 2}, 2), HasSubstr("has 3 ranks; 2 are to run"));
}

TEST(Recorded, NamesTheFirstBadId) {
  const auto refusal = [](const std::vector<int32_t>& ids) {
    const RecordedRouting routing = *RecordedFromNpy(Recorded({2, 2, 2}, ids), 2);
    return std::string(CheckRecorded(routing, 8).message());
  };
  EXPECT_THAT(refusal({0, 1, 2, 3, 4, 8, 6, 7}),
              HasSubstr("rank 1, token 0, k 1: expert id 8 is not from -1 (dropped) to 7"));
  EXPECT_THAT(refusal({0, 1, -2, 3, 4, 8, 6, 7}), HasSubstr("rank 0, token 1, k 0: expert id -2"));
  EXPECT_THAT(refusal({0, 1, 0, 1, -1, -1, 6, 6}),
              HasSubstr("rank 1, token 1, k 1: expert id 6 is there already"));
}

TEST(Recorded, IsUsedAsItIs) {
  WorkloadSpec spec = Spec();
  spec.num_ranks = 2;
  spec.config.topk = 2;
  spec.tokens.clear();
  spec.routing = *ParseRouting("file:some.npy");
  const std::vector<int32_t> ids = {0, 1, 2, 3, 4, -1, -1, -1};
  spec.recorded = std::make_shared<RecordedRouting>(*RecordedFromNpy(Recorded({2, 2, 2}, ids), 2));
  const auto workload = Make(spec, 3);
  EXPECT_THAT(workload->inputs()[0].topk_idx, ElementsAre(0, 1, 2, 3));
  EXPECT_THAT(workload->inputs()[1].topk_idx, ElementsAre(4, -1, -1, -1));
  spec.config.topk = 3;
  EXPECT_THAT(Refusal(spec), HasSubstr("has 2 choices for a token; topk is 3"));
}

}  // namespace
}  // namespace octet
