// Which transport the nodes of a World take.
#include "runtime/net/transport.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "octet/domain.h"
#include "octet/enum_names.h"
#include "tests/support/node/node_fixture.h"

namespace octet {
namespace {

const TransportOffers kBothHaveIt = {{absl::OkStatus(), absl::OkStatus()}, {"2.28.9", "2.28.9"}};
const TransportOffers kOneHasIt = {{absl::OkStatus(), absl::UnavailableError("no libnccl.so.2")},
                                   {"2.28.9", ""}};
const TransportOffers kTheyDiffer = {{absl::OkStatus(), absl::OkStatus()}, {"2.28.9", "2.19.3"}};

RailTransport Chosen(RailTransport asked, bool prefers_nccl, const TransportOffers& offers) {
  return ChooseTransport(asked, prefers_nccl, offers).value_or(RailTransport::kAuto);
}

TEST(TransportTest, AutoTakesNcclIfAllNodesHaveIt) {
  EXPECT_EQ(Chosen(RailTransport::kAuto, true, kBothHaveIt), RailTransport::kNccl);
  EXPECT_EQ(Chosen(RailTransport::kAuto, true, kOneHasIt), RailTransport::kMpi);
  EXPECT_EQ(Chosen(RailTransport::kAuto, false, kBothHaveIt), RailTransport::kMpi);
}

TEST(TransportTest, WhatIsAskedForIsTakenOrRefused) {
  EXPECT_EQ(Chosen(RailTransport::kMpi, true, kTheyDiffer), RailTransport::kMpi);
  EXPECT_EQ(Chosen(RailTransport::kNccl, false, kBothHaveIt), RailTransport::kNccl);
  EXPECT_THAT(ChooseTransport(RailTransport::kNccl, true, kOneHasIt).status(),
              StatusIs(absl::StatusCode::kUnavailable, "node 1: no libnccl.so.2"));
}

TEST(TransportTest, VersionsThatDifferAreRefused) {
  for (const RailTransport asked : {RailTransport::kAuto, RailTransport::kNccl}) {
    EXPECT_THAT(ChooseTransport(asked, true, kTheyDiffer).status(),
                StatusIs(absl::StatusCode::kInvalidArgument,
                         "the nodes differ in the version of NCCL: 2.28.9 on node 0, 2.19.3 on "
                         "node 1"));
  }
}

TEST(TransportTest, HasNames) { EXPECT_EQ(EnumNames<RailTransport>(), "auto, mpi, nccl"); }

}  // namespace
}  // namespace octet
