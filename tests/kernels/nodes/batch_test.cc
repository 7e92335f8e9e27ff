#include "kernels/nodes/batch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cstddef>
#include <vector>

#include "kernels/nodes/options.h"
#include "runtime/net/rails/rail.h"

namespace octet::hierarchical {
namespace {

using ::testing::ElementsAre;

std::vector<int> FirstRows(const std::vector<Piece>& pieces) {
  std::vector<int> first;
  for (const Piece& piece : pieces) first.push_back(piece.first);
  return first;
}

TEST(ChunksTest, CoverAllTokens) {
  const auto count = [](int tokens, int chunk_tokens) {
    return ChunksOf({.max_tokens_per_rank = tokens}, chunk_tokens).count;
  };
  EXPECT_EQ(count(10, 0), 1);
  EXPECT_EQ(count(10, 3), 4);
  EXPECT_EQ(count(10, 5), 2);
  EXPECT_EQ(count(10, 10), 1);
  EXPECT_EQ(count(10, 99), 1);
}

// Node 1 of three, with 4 tokens of its own. Node 0 sends 5 tokens, node 2 sends 3.
class BatchTest : public ::testing::Test {
 protected:
  static constexpr Chunks kChunks = {.max_tokens = 6, .rows = 2, .count = 3};
  const BatchRows rows_ = LayOutBatch(kChunks, 4, {6, 0, 1}, {5, 0, 3});
};

TEST_F(BatchTest, OwnTokensComeFirstThenEachChunkOfEachNode) {
  ASSERT_EQ(rows_.chunks.size(), 3U);
  EXPECT_THAT(rows_.ends, ElementsAre(8, 11, 12));
  EXPECT_THAT(FirstRows(rows_.chunks[0]), ElementsAre(4, 6, 6));
  EXPECT_THAT(FirstRows(rows_.chunks[1]), ElementsAre(8, 10, 10));
  EXPECT_THAT(FirstRows(rows_.chunks[2]), ElementsAre(11, 12, 12));
  EXPECT_EQ(rows_.chunks[2][0].received, 1);
  EXPECT_EQ(rows_.chunks[2][2].received, 0);
}

TEST_F(BatchTest, PartsLeaveFromTheTokensOfTheirNodeAndChunk) {
  constexpr size_t kBytes = 16;
  std::array<char, 18 * kBytes> sent;
  std::array<char, 18 * kBytes> batch;
  std::vector<RailPart> parts;
  AddParts(kChunks, rows_, 1, {.sent = sent.data(), .batch = batch.data(), .bytes = kBytes}, parts);
  ASSERT_EQ(parts.size(), 3U);
  EXPECT_EQ(parts[0].send, sent.data() + 2 * kBytes);
  EXPECT_EQ(parts[0].send_bytes, 2 * kBytes);
  EXPECT_EQ(parts[0].recv, batch.data() + 8 * kBytes);
  EXPECT_EQ(parts[0].recv_bytes, 2 * kBytes);
  EXPECT_EQ(parts[1].send_bytes + parts[1].recv_bytes, 0U);
  EXPECT_EQ(parts[2].send_bytes, 0U);
  EXPECT_EQ(parts[2].recv, batch.data() + 10 * kBytes);
  EXPECT_EQ(parts[2].recv_bytes, kBytes);
}

TEST_F(BatchTest, RowsReturnOnTheWayOnWhichTheyCame) {
  constexpr size_t kBytes = 16;
  std::array<char, 18 * kBytes> sent;
  std::array<char, 18 * kBytes> batch;
  RailMemory way = {.sent = sent.data(), .batch = batch.data(), .bytes = kBytes};
  for (int chunk = 0; chunk < kChunks.count; ++chunk) {
    std::vector<RailPart> come;
    std::vector<RailPart> back;
    way.direction = Direction::kToBatch;
    AddParts(kChunks, rows_, chunk, way, come);
    way.direction = Direction::kFromBatch;
    AddParts(kChunks, rows_, chunk, way, back);
    ASSERT_EQ(come.size(), back.size());
    for (size_t i = 0; i < come.size(); ++i) {
      EXPECT_EQ(back[i].send, come[i].recv);
      EXPECT_EQ(back[i].send_bytes, come[i].recv_bytes);
      EXPECT_EQ(back[i].recv, come[i].send);
      EXPECT_EQ(back[i].recv_bytes, come[i].send_bytes);
    }
  }
}

}  // namespace
}  // namespace octet::hierarchical
