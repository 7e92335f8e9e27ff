#include "kernels/ep/device/routing.h"

#include <gtest/gtest.h>

#include <cstdint>

#include "kernels/ep/device/token_packet.h"
#include "octet/peers.h"

namespace octet {
namespace {

TEST(ExpertMapTest, EveryExpertIsOnTheRankThatDivisionSays) {
  constexpr int kMostLocalExperts = 1 << device::kLocalExpertBits;
  for (int num_ranks = 1; num_ranks <= kMaxRanks; ++num_ranks) {
    for (int num_local = 1; num_local <= kMostLocalExperts; num_local += num_local / 16 + 1) {
      const int num_experts = num_ranks * num_local;
      const ExpertMap experts = MakeExpertMap(num_experts, num_ranks);
      EXPECT_EQ(experts.num_local_experts, num_local);
      for (int e = 0; e < num_experts; ++e) {
        const int rank = experts.RankOf(e);
        ASSERT_EQ(rank, e / num_local) << num_experts << " experts, " << num_ranks << " ranks";
        ASSERT_EQ(experts.LocalExpert(e, rank), e % num_local);
        ASSERT_EQ(experts.FirstExpert(rank) + experts.LocalExpert(e, rank), e);
      }
    }
  }
}

TEST(ExpertMapTest, OtherIdsAreNoExperts) {
  const ExpertMap experts = MakeExpertMap(12, 3);
  for (int e = 0; e < 12; ++e) EXPECT_TRUE(experts.IsExpert(e));
  for (const int32_t id : {-1, -2, 12, INT32_MIN, INT32_MAX}) EXPECT_FALSE(experts.IsExpert(id));
}

}  // namespace
}  // namespace octet
