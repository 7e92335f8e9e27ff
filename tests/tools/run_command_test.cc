// What the flags of `octet run` mean. (What the program does with them: octet_cli_test.py.)
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

#include "tools/commands/run_flags.h"

namespace octet {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class RunSpecTest : public testing::Test {
 protected:
  static absl::StatusOr<std::vector<RunSpec>> ParseFor(const Launch& launch,
                                                       const std::vector<std::string>& args,
                                                       int num_gpus) {
    RunFlags flags;
    CommandLine line(launch);
    AddRunFlags(line, flags);
    if (absl::Status status = line.Parse(args); !status.ok()) return status;
    return ResolveRun(line, flags, num_gpus);
  }
  static absl::StatusOr<std::vector<RunSpec>> Parse(const std::vector<std::string>& args,
                                                    int num_gpus = 8) {
    return ParseFor({}, args, num_gpus);
  }
  static RunSpec One(const std::vector<std::string>& args) {
    const absl::StatusOr<std::vector<RunSpec>> shapes = Parse(args);
    EXPECT_TRUE(shapes.ok()) << shapes.status();
    EXPECT_EQ(shapes->size(), 1U);
    return shapes->front();
  }
};

TEST_F(RunSpecTest, Defaults) {
  const RunSpec options = One({});
  EXPECT_EQ(options.workload.num_ranks, 8);
  EXPECT_EQ(options.workload.config.num_experts, 256);
  EXPECT_EQ(options.workload.config.topk, 8);
  EXPECT_EQ(options.workload.config.hidden, 7168);
  EXPECT_EQ(options.workload.config.max_tokens_per_rank, 256);
  EXPECT_EQ(options.workload.config.dtype, DType::kBFloat16);
  EXPECT_EQ(options.workload.config.variant.slots, Slots::kPrefix);
  EXPECT_EQ(options.workload.config.variant.flags, Flags::kToken);
  EXPECT_THAT(options.workload.tokens, IsEmpty());
  EXPECT_EQ(options.workload.seed, 4U);
  EXPECT_EQ(options.expert, ExpertKind::kId);
  EXPECT_TRUE(options.fuse_expert);
  EXPECT_TRUE(options.check);
  EXPECT_EQ(options.iters, 20);
  EXPECT_EQ(options.heap_bytes, 0U);
}

TEST_F(RunSpecTest, EveryFlagHasItsPlace) {
  const RunSpec options =
      One({"--ranks=4",          "--experts=64",     "--topk=6",      "--hidden=2048",
           "--max_tokens=32",    "--tokens=1,2,3,4", "--dtype=fp16",  "--strategy=direct",
           "--routing=zipf:1.5", "--drop=0.25",      "--expert=rank", "--fuse_expert=false",
           "--seed=99",          "--iters=7",        "--warmup=0",    "--check=false",
           "--slots=atomic",     "--flags=source",   "--blocks=10",   "--send_blocks=4",
           "--waves=3",          "--row_parts=2",    "--heap_mb=64",  "--timeout_ms=1500",
           "--align=device",     "--dump=some/dir",  "--json=a.json", "--trace=b.json"});
  EXPECT_EQ(options.workload.config.num_experts, 64);
  EXPECT_EQ(options.workload.config.topk, 6);
  EXPECT_EQ(options.workload.config.hidden, 2048);
  EXPECT_EQ(options.workload.config.max_tokens_per_rank, 32);
  EXPECT_EQ(options.workload.config.dtype, DType::kFloat16);
  EXPECT_EQ(options.workload.config.strategy, Strategy::kDirect);
  EXPECT_EQ(options.workload.config.variant.slots, Slots::kAtomic);
  EXPECT_EQ(options.workload.config.variant.flags, Flags::kSource);
  EXPECT_EQ(options.workload.config.tuning.blocks, 10);
  EXPECT_EQ(options.workload.config.tuning.send_blocks, 4);
  EXPECT_EQ(options.workload.config.tuning.waves_per_block, 3);
  EXPECT_EQ(options.workload.config.tuning.row_parts, 2);
  EXPECT_EQ(options.workload.num_ranks, 4);
  EXPECT_THAT(options.workload.tokens, ElementsAre(1, 2, 3, 4));
  EXPECT_EQ(options.workload.routing.kind, RoutingKind::kZipf);
  EXPECT_EQ(options.workload.drop, 0.25);
  EXPECT_EQ(options.workload.seed, 99U);
  EXPECT_EQ(options.expert, ExpertKind::kRank);
  EXPECT_FALSE(options.fuse_expert);
  EXPECT_FALSE(options.check);
  EXPECT_EQ(options.iters, 7);
  EXPECT_EQ(options.warmup, 0);
  EXPECT_EQ(options.align, Align::kDevice);
  EXPECT_EQ(options.timeout, absl::Milliseconds(1500));
  EXPECT_EQ(options.heap_bytes, size_t{64} << 20);
  EXPECT_EQ(options.dump, "some/dir");
  EXPECT_EQ(options.json, "a.json");
  EXPECT_EQ(options.trace, "b.json");
}

TEST_F(RunSpecTest, OneNumberOfTokensIsEverybodys) {
  EXPECT_THAT(One({"--ranks=4", "--tokens=9"}).workload.tokens, ElementsAre(9, 9, 9, 9));
}

TEST_F(RunSpecTest, Machine) {
  EXPECT_EQ(Parse({}, 2)->front().workload.num_ranks, 2);
  EXPECT_THAT(std::string(Parse({"--ranks=4"}, 2).status().message()),
              HasSubstr("--ranks=4 needs as many GPUs; there are 2"));
  EXPECT_THAT(std::string(Parse({}, 3).status().message()), HasSubstr("divisible by the 3 ranks"));
}

class NodesOptionsTest : public RunSpecTest {
 protected:
  static absl::StatusOr<std::vector<RunSpec>> ParseForNodes(const std::vector<std::string>& args) {
    Launch launch;
    launch.num_processes = 3;
    return ParseFor(launch, args, 8);
  }
};

TEST_F(NodesOptionsTest, RanksAreThoseOfANodeAndExpertsOfAll) {
  const auto shapes =
      ParseForNodes({"--ranks=2", "--experts=24", "--rail_rows=blocks", "--intranode_order=flat",
                     "--strategy=low_latency", "--rail_transport=mpi", "--rail_chunk=8"});
  ASSERT_TRUE(shapes.ok()) << shapes.status();
  const RunSpec& options = shapes->front();
  EXPECT_EQ(options.workload.num_ranks, 6);
  EXPECT_EQ(RanksPerNode(options), 2);
  EXPECT_EQ(options.workload.config.num_experts, 24);
  EXPECT_EQ(options.nodes.num_nodes, 3);
  EXPECT_EQ(options.nodes.ranks_per_node, 2);
  EXPECT_EQ(options.nodes.intranode_order, CombineOrder::kFlat);
  EXPECT_EQ(options.rail_rows, RailRows::kBlocks);
  EXPECT_EQ(options.rail_transport, RailTransport::kMpi);
  const RailOptions calls = RailOptionsOf(options);
  EXPECT_EQ(calls.rows, RailRows::kBlocks);
  EXPECT_EQ(calls.chunk_tokens, 8);
  EXPECT_EQ(calls.intranode_order, CombineOrder::kFlat);
}

TEST_F(NodesOptionsTest, TheHeapHoldsTheBatchesOfAllNodes) {
  const std::vector<std::string> args = {"--ranks=2", "--experts=24", "--strategy=low_latency"};
  const auto several = ParseForNodes(args);
  ASSERT_TRUE(several.ok()) << several.status();
  std::vector<std::string> alike = args;
  alike[1] = "--experts=8";                // of a node
  alike.emplace_back("--max_tokens=768");  // of a batch
  EXPECT_EQ(HeapBytesOf(several->front())->total(), HeapBytesOf(One(alike))->total());
}

TEST_F(NodesOptionsTest, Refusals) {
  for (const auto& [flag, words] : std::map<std::string, std::string>{
           {"--experts=16", "divisible by the 3 nodes"},
           {"--experts=9", "within a node"},
           {"--combine_order=per_rank", "--intranode_order is the order within a node"},
           {"--cached", "--cached is for one node, and 3 have been started"},
           {"--trace=a.json", "--trace is for one node"},
           {"--rail_rows=all", "rail_rows 'all' is not one of auto, blocks, counted"},
           {"--rail_chunk=1", "chunk_tokens is 1, which makes 256 chunks of max_tokens_per_rank"},
           {"--rail_transport=tcp", "rail_transport 'tcp' is not one of auto, mpi, nccl"},
           {"--tokens=1,2", "are given for 2 ranks; 6 are to run"}}) {
    const auto shapes = ParseForNodes({"--ranks=2", "--experts=24", flag});
    EXPECT_THAT(std::string(shapes.status().message()), HasSubstr(words)) << flag;
  }
  EXPECT_THAT(std::string(Parse({"--rail_rows=blocks"}).status().message()),
              HasSubstr("--rail_rows is for several nodes, and this is one"));
}

TEST_F(RunSpecTest, TheChallenge) {
  const absl::StatusOr<std::vector<RunSpec>> shapes =
      Parse({"--workload=challenge", "--iters=3", "--slots=atomic"});
  ASSERT_TRUE(shapes.ok()) << shapes.status();
  ASSERT_EQ(shapes->size(), 14U);
  int benchmarks = 0;
  for (const RunSpec& options : *shapes) {
    benchmarks += options.benchmark ? 1 : 0;
    EXPECT_EQ(options.workload.config.dtype, DType::kFloat16);
    EXPECT_EQ(options.expert, ExpertKind::kRank);
    EXPECT_EQ(options.iters, 3);
    EXPECT_EQ(options.workload.config.variant.slots, Slots::kAtomic);
    EXPECT_THAT(options.workload.tokens, IsEmpty());
  }
  EXPECT_EQ(benchmarks, 5);
  EXPECT_EQ(shapes->back().name, "256/8/7168/256");
  EXPECT_EQ(shapes->back().workload.config.num_experts, 256);
  EXPECT_EQ(shapes->back().workload.seed, 4U);
}

TEST_F(RunSpecTest, HeapTooSmall) {
  EXPECT_THAT(std::string(Parse({"--heap_mb=1"}).status().message()),
              HasSubstr("bytes are needed on every GPU, --heap_mb gives 1048576"));
}

TEST(ExpertScales, ById) {
  EXPECT_THAT(ExpertScales(ExpertKind::kId, 4, 2), ElementsAre(1.0F, 1.25F, 1.5F, 1.75F));
  EXPECT_THAT(ExpertScales(ExpertKind::kRank, 4, 2), ElementsAre(1.0F, 1.0F, 2.0F, 2.0F));
}

}  // namespace
}  // namespace octet
