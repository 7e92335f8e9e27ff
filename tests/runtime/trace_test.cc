#include "octet/trace.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "runtime/gpu/gpu_status.h"
#include "tests/runtime/trace_kernels.h"
#include "tests/support/node/node_fixture.h"

namespace octet {
namespace {

using ::testing::IsEmpty;
using ::testing::SizeIs;
using Json = nlohmann::json;

// ---- JSON, without any GPU

std::vector<Json> EventsOf(const std::string& text, const std::string& ph) {
  const Json json = Json::parse(text);  // throws, and so fails the test, where it is not JSON
  std::vector<Json> events;
  for (const Json& event : json.at("traceEvents")) {
    if (event.at("ph") == ph) events.push_back(event);
  }
  return events;
}

TEST(TraceJson, HasWhatPerfettoReads) {
  const std::vector<TraceSlice> slices = {
      {.rank = 0, .block = 3, .tag = 1, .detail = 17, .start_us = 0, .duration_us = 2.5},
      {.rank = 2, .block = 0, .tag = 5, .detail = 4'000'000'000, .start_us = 1.001}};
  const std::string text =
      TraceJson(slices, std::vector<TraceTag>{{.name = "send"}, {.name = "receive"}},
                {.gpus = std::vector<std::string>{"GPU A"}});

  const std::vector<Json> complete = EventsOf(text, "X");
  ASSERT_THAT(complete, SizeIs(2));
  EXPECT_EQ(complete[0], Json::parse(R"({"ph": "X", "name": "receive", "pid": 0, "tid": 3,
                                         "ts": 0.0, "dur": 2.5, "args": {"detail": 17}})"));
  EXPECT_EQ(complete[1], Json::parse(R"({"ph": "X", "name": "tag 5", "pid": 2, "tid": 0,
                                         "ts": 1.001, "dur": 0.0,
                                         "args": {"detail": 4000000000}})"));

  std::map<std::pair<int, int>, std::string> threads;
  std::map<int, std::string> processes;
  for (const Json& event : EventsOf(text, "M")) {
    const std::string name = event.at("args").at("name");
    if (event.at("name") == "process_name") {
      processes[event.at("pid")] = name;
    } else {
      ASSERT_EQ(event.at("name"), "thread_name");
      threads[{event.at("pid"), event.at("tid")}] = name;
    }
  }
  EXPECT_EQ(processes, (std::map<int, std::string>{{0, "rank 0 (GPU A)"}, {2, "rank 2"}}));
  EXPECT_EQ(threads,
            (std::map<std::pair<int, int>, std::string>{{{0, 3}, "block 3"}, {{2, 0}, "block 0"}}));
}

TEST(TraceJson, SaysWhatTheDetailIs) {
  const std::vector<TraceTag> tags = {
      {.name = "wait", .phase = {"receive"}, .detail = kTracePeer, .waits = true},
      {.name = "copy", .detail = {"row"}}};
  const std::vector<TraceSlice> slices = {
      {.tag = 0, .detail = 3}, {.tag = 0, .detail = device::kNoPeer}, {.tag = 1, .detail = 5}};
  const std::vector<Json> complete = EventsOf(TraceJson(slices, tags), "X");
  ASSERT_THAT(complete, SizeIs(3));
  EXPECT_EQ(complete[0].at("args"), Json::parse(R"({"peer": 3})"));
  EXPECT_EQ(complete[0].at("cat"), "receive");
  EXPECT_EQ(complete[1].at("args"), Json::object());
  EXPECT_EQ(complete[2].at("args"), Json::parse(R"({"row": 5})"));
  EXPECT_FALSE(complete[2].contains("cat"));
}

TEST(TraceJson, NamesTracksAndFurtherDetails) {
  const std::vector<TraceTag> tags = {
      {.name = "multiply", .detail = {"expert"}, .more_details = {"row", "rows"}},
      {.name = "wait", .detail = kTracePeer, .more_details = {"row"}}};
  const std::vector<TraceSlice> slices = {
      {.block = 2, .track = 1, .tag = 0, .detail = 3, .more_details = {4, 5, 6}},
      {.block = 2, .tag = 1, .detail = kNoTraceDetail, .more_details = {7}}};
  const std::vector<absl::string_view> names = {"math"};
  const std::string text = TraceJson(slices, tags, {.tracks = names});
  const std::vector<Json> complete = EventsOf(text, "X");
  ASSERT_THAT(complete, SizeIs(2));
  EXPECT_EQ(complete[0].at("tid"), 5);
  EXPECT_EQ(complete[0].at("args"), Json::parse(R"({"expert": 3, "row": 4, "rows": 5})"));
  EXPECT_EQ(complete[1].at("tid"), 4);
  EXPECT_EQ(complete[1].at("args"), Json::parse(R"({"row": 7})"));
  std::map<int, std::string> threads;
  for (const Json& event : EventsOf(text, "M")) {
    if (event.at("name") == "thread_name") threads[event.at("tid")] = event.at("args").at("name");
  }
  EXPECT_EQ(threads, (std::map<int, std::string>{{4, "block 2 (math)"}, {5, "block 2"}}));
}

TEST(TraceJson, WithoutSlices) {
  const Json json = Json::parse(TraceJson({}, {}));
  EXPECT_THAT(json.at("traceEvents"), IsEmpty());
}

TEST(TraceJson, NamesMayHoldAnything) {
  const auto name_of = [](const std::string& tag) {
    const std::string text =
        TraceJson(std::vector<TraceSlice>{{}}, std::vector<TraceTag>{{.name = tag}});
    return EventsOf(text, "X").at(0).at("name").get<std::string>();
  };
  for (const std::string same :
       {"", "a \"quoted\" \\ name", "tab\tline\n\x01", "µs — 漢字 \U0001f600"}) {
    EXPECT_EQ(name_of(same), same);
  }
  // Not UTF-8: a lone continuation, an overlong form, a surrogate, beyond the last code point, cut.
  EXPECT_EQ(name_of("a\x80z"), "a\ufffdz");
  EXPECT_EQ(name_of("\xc0\xaf"), "\ufffd\ufffd");
  EXPECT_EQ(name_of("\xed\xa0\x80"), "\ufffd\ufffd\ufffd");
  EXPECT_EQ(name_of("\xf5z"), "\ufffdz");
  EXPECT_EQ(name_of("\xe6\xbc"), "\ufffd\ufffd");
}

// A day's worth of microseconds with three decimals.
TEST(TraceJson, KeepsNanosecondsOfLongTraces) {
  const std::vector<TraceSlice> slices = {{.start_us = 86'400'000'000.123, .duration_us = 0.001}};
  const std::string text = TraceJson(slices, {});
  EXPECT_THAT(text, ::testing::HasSubstr("\"ts\":86400000000.123,\"dur\":0.001"));
}

// ---- collection

class TraceTest : public NodeTest {
 protected:
  void Make(int num_ranks, int num_blocks, int events_per_track, int tracks = 1) {
    MakeNode(num_ranks);
    if (IsSkipped()) return;
    auto trace = TraceCollector::Create(*node_, num_blocks, events_per_track, tracks);
    ASSERT_OK(trace.status());
    trace_ = *std::move(trace);
  }
  absl::Status RunTraced(int blocks, int inner) {
    return node_->Run([&](Rank& rank) {
      return OCTET_GPU(LaunchTraced({.trace = trace_->buffer(rank.rank()),
                                     .inner = inner,
                                     .second_track = trace_->tracks() > 1},
                                    {.blocks = blocks, .threads = 64}, rank.stream()));
    });
  }

  std::unique_ptr<TraceCollector> trace_;  // gone before the node
};

int64_t Nanoseconds(double us) { return std::llround(us * 1e3); }

// Slices of one block either nest or follow one another.
void ExpectNesting(const std::vector<TraceSlice>& slices) {
  std::vector<int64_t> open;  // ends of the slices around the next one
  std::pair<int, int> where = {-1, -1};
  for (const TraceSlice& slice : slices) {
    if (where != std::pair(slice.rank, slice.block)) open.clear();
    where = {slice.rank, slice.block};
    const int64_t start = Nanoseconds(slice.start_us);
    const int64_t stop = start + Nanoseconds(slice.duration_us);
    ASSERT_LE(start, stop);
    while (!open.empty() && open.back() <= start) open.pop_back();
    if (!open.empty()) {
      EXPECT_LE(stop, open.back()) << "tag " << slice.tag;
    }
    open.push_back(stop);
  }
}

TEST_F(TraceTest, CollectsWhatKernelsRecord) {
  constexpr int kRanks = 3;
  constexpr int kBlocks = 4;
  constexpr int kInner = 5;
  Make(kRanks, kBlocks, 16);
  if (IsSkipped()) return;
  ASSERT_OK(RunTraced(kBlocks, kInner));
  const auto slices = trace_->Collect();
  ASSERT_OK(slices.status());
  EXPECT_EQ(trace_->num_dropped(), 0U);
  EXPECT_THAT(*slices, SizeIs(kRanks * kBlocks * (kInner + 2)));

  std::map<std::tuple<int, int, uint32_t>, std::vector<uint32_t>> details;
  double earliest = 1e30;
  for (const TraceSlice& slice : *slices) {
    details[{slice.rank, slice.block, slice.tag}].push_back(slice.detail);
    earliest = std::min(earliest, slice.start_us);
    EXPECT_LT(slice.start_us + slice.duration_us, 1.5e6) << "the clocks are not aligned";
  }
  EXPECT_EQ(earliest, 0.0);
  for (int rank = 0; rank < kRanks; ++rank) {
    for (int block = 0; block < kBlocks; ++block) {
      EXPECT_EQ((details[{rank, block, kOuterTag}]),
                std::vector<uint32_t>{static_cast<uint32_t>(block)});
      EXPECT_EQ((details[{rank, block, kInnerTag}]), (std::vector<uint32_t>{0, 1, 2, 3, 4}))
          << "in the order of their starts";
      EXPECT_THAT((details[{rank, block, kUnnamedTag}]), SizeIs(1));
    }
  }
  EXPECT_TRUE(
      std::is_sorted(slices->begin(), slices->end(), [](const TraceSlice& a, const TraceSlice& b) {
        return std::tuple(a.rank, a.block, a.start_us) < std::tuple(b.rank, b.block, b.start_us);
      }));
  ExpectNesting(*slices);
}

TEST_F(TraceTest, KeepsTheTracksOfABlockApart) {
  constexpr int kBlocks = 3;
  constexpr int kTracks = 2;
  Make(2, kBlocks, 4, kTracks);
  if (IsSkipped()) return;
  EXPECT_EQ(trace_->tracks(), kTracks);
  EXPECT_EQ(trace_->num_ranks(), 2);
  ASSERT_OK(RunTraced(kBlocks, 9));
  const auto slices = trace_->Collect();
  ASSERT_OK(slices.status());
  EXPECT_EQ(trace_->num_dropped(), 2U * kBlocks * (9U + 2U - 4U)) << "of the first track alone";
  ASSERT_THAT(*slices, SizeIs(2 * kBlocks * (4 + 1)));
  for (size_t i = 0; i < slices->size(); ++i) {
    const TraceSlice& slice = (*slices)[i];
    const bool second = i % 5 == 4;
    EXPECT_EQ(slice.track, second ? 1 : 0) << i;
    EXPECT_EQ(slice.block, static_cast<int>(i) / 5 % kBlocks) << i;
    if (!second) continue;
    EXPECT_EQ(slice.tag, kSecondTrackTag);
    EXPECT_EQ(slice.detail, static_cast<uint32_t>(slice.block));
    EXPECT_EQ(slice.more_details, (std::array<uint32_t, 3>{10, 11, 12}));
  }
}

TEST_F(TraceTest, CountsWhatDoesNotFit) {
  Make(2, 2, 4);
  if (IsSkipped()) return;
  // Block 2 has no memory at all and is not recorded.
  ASSERT_OK(RunTraced(3, 7));
  auto slices = trace_->Collect();
  ASSERT_OK(slices.status());
  EXPECT_THAT(*slices, SizeIs(2 * 2 * 4));
  EXPECT_EQ(trace_->num_dropped(), 2U * 2U * (7U + 2U - 4U));

  ASSERT_OK(trace_->Clear());
  slices = trace_->Collect();
  ASSERT_OK(slices.status());
  EXPECT_THAT(*slices, IsEmpty());
  EXPECT_EQ(trace_->num_dropped(), 0U);

  ASSERT_OK(RunTraced(2, 1));
  slices = trace_->Collect();
  ASSERT_OK(slices.status());
  EXPECT_THAT(*slices, SizeIs(2 * 2 * 3));
}

TEST_F(TraceTest, JsonOfACollectionNestsAsWell) {
  Make(2, 2, 64);
  if (IsSkipped()) return;
  ASSERT_OK(RunTraced(2, 20));
  const auto slices = trace_->Collect();
  ASSERT_OK(slices.status());
  std::vector<TraceSlice> parsed;
  for (const Json& event : EventsOf(TraceJson(*slices, {}), "X")) {
    parsed.push_back({.rank = event.at("pid"),
                      .block = event.at("tid"),
                      .detail = event.at("args").at("detail"),
                      .start_us = event.at("ts"),
                      .duration_us = event.at("dur")});
  }
  ASSERT_THAT(parsed, SizeIs(slices->size()));
  ExpectNesting(parsed);
}

TEST_F(TraceTest, ClocksAreCompared) {
  const int num_ranks = std::min(NumGpus(), 8);
  Make(num_ranks, 1, 1);
  if (IsSkipped()) return;
  const auto offsets = trace_->clock_offsets();
  ASSERT_THAT(offsets, SizeIs(num_ranks));
  EXPECT_EQ(offsets[0].offset_ns, 0);
  for (int rank = 1; rank < num_ranks; ++rank) {
    EXPECT_GT(offsets[rank].round_trip_ns, 0) << rank;
    EXPECT_LT(offsets[rank].round_trip_ns, 1e9) << rank;
    if (node_->topology().emulated()) {  // clocks there are a second apart
      EXPECT_NEAR(offsets[rank].offset_ns, 1e9 * rank, offsets[rank].round_trip_ns / 2 + 1);
    }
  }
}

TEST_F(TraceTest, RefusesEmptyBuffers) {
  MakeNode(1);
  if (IsSkipped()) return;
  EXPECT_EQ(TraceCollector::Create(*node_, 0, 1).status().code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(TraceCollector::Create(*node_, 1, 0).status().code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(TraceCollector::Create(*node_, 1, 1, 0).status().code(),
            absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace octet
