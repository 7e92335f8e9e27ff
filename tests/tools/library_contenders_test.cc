// How the vendors' libraries are called, with fakes of them on emulated GPUs.
#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <hip/hip_runtime.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "octet/model_folder.h"
#include "octet/node.h"
#include "runtime/base/shared_library.h"
#include "tests/tools/fake_blas/fake_gemm.h"
#include "tools/contenders/cublas_contenders.h"
#include "tools/contenders/gemm_contender.h"
#include "tools/contenders/hipblaslt_contender.h"
#include "tools/contenders/layer_contender.h"
#include "tools/measure/gemm/gemm_run.h"
#include "tools/measure/layer/layer_run.h"
#include "tools/support/domain.h"
#include "tools/support/progress.h"
#include "tools/workload/layer_tokens.h"
#include "tools/workload/model_shapes.h"
#include "tools/workload/random_weights.h"

namespace octet {
namespace {

using ::testing::ElementsAre;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::StartsWith;

// Loads a fake by its path; the contenders find the loaded library by its name. It stays loaded.
void* LoadFake(const char* path) {
  void* const library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    ADD_FAILURE() << dlerror();
    return nullptr;
  }
  const auto set_enqueue =
      reinterpret_cast<void (*)(fake::Enqueue)>(dlsym(library, "octet_fake_set_enqueue"));
  set_enqueue([](void* stream, void (*work)(void*), void* data) {
    return static_cast<int>(hipLaunchHostFunc(static_cast<hipStream_t>(stream), work, data));
  });
  return library;
}

// Measures `contenders` and returns the names of those whose results are right.
std::vector<std::string> RightOnes(const std::vector<std::unique_ptr<GemmContender>>& contenders,
                                   std::vector<int32_t> rows) {
  GemmOptions options;
  options.rows = std::move(rows);
  options.n = 40;
  options.k = 72;
  options.iters = 1;
  options.warmup = 1;
  options.samples = 200;
  const absl::StatusOr<GemmReport> report = MeasureGemm(options, contenders);
  EXPECT_TRUE(report.ok()) << report.status();
  if (!report.ok()) return {};
  for (const LeftOutContender& contender : report->left_out) {
    ADD_FAILURE() << contender.name << ": " << contender.reason;
  }
  std::vector<std::string> names;
  for (const GemmMeasurement& measured : report->measurements) {
    EXPECT_EQ(measured.first_wrong, "");
    if (measured.wrong == 0) names.push_back(measured.name);
  }
  return names;
}

TEST(LibraryContendersTest, EachPlatformHasItsOwn) {
  const auto names = [](absl::string_view platform) {
    std::vector<std::string> found;
    for (const auto& contender : MakeGemmContenders(platform)) {
      found.emplace_back(contender->name());
    }
    return found;
  };
  EXPECT_THAT(names("nvidia"), ElementsAre("cublas", "cublas_streams", "cublas_grouped"));
  EXPECT_THAT(names("amd"), ElementsAre("hipblaslt"));
  EXPECT_THAT(names("emulation"), IsEmpty());
}

TEST(LibraryContendersTest, WhatIsMissingHasAName) {
  const absl::Status none =
      SharedLibrary::Open({"liboctet_none.so.1", "liboctet_none.so"}).status();
  EXPECT_EQ(none.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(none.message(), HasSubstr("liboctet_none.so: cannot open"));

  absl::StatusOr<SharedLibrary> library =
      SharedLibrary::Open({"liboctet_none.so", OCTET_FAKE_CUBLAS});
  ASSERT_TRUE(library.ok()) << library.status();
  int (*function)(void*) = nullptr;
  library->Require(function, "cublasDestroy_v2");
  EXPECT_NE(function, nullptr);
  EXPECT_TRUE(library->CheckComplete().ok());
  library->Find(function, "cublasFind");
  EXPECT_EQ(function, nullptr);
  EXPECT_TRUE(library->CheckComplete().ok()) << "it need not be there";
  library->Require(function, "cublasOne");
  library->Require(function, "cublasTwo");
  EXPECT_EQ(library->CheckComplete().code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(library->CheckComplete().message(), EndsWith(" lacks cublasOne, cublasTwo"));
}

TEST(LibraryContendersTest, Cublas) {
  void* const fake = LoadFake(OCTET_FAKE_CUBLAS);
  ASSERT_NE(fake, nullptr);
  const auto streams_used = reinterpret_cast<size_t (*)()>(dlsym(fake, "octet_fake_streams_used"));
  const std::vector<int32_t> rows = {3, 0, 17, 1, 1, 2, 5, 0, 4, 1, 1, 30};
  EXPECT_THAT(RightOnes(MakeCublasContenders(), rows),
              ElementsAre("cublas", "cublas_streams", "cublas_grouped"));
  EXPECT_EQ(streams_used(), 1U + 8U) << "the default stream, and eight";
  EXPECT_THAT(RightOnes(MakeCublasContenders(), {0, 0}),
              ElementsAre("cublas", "cublas_streams", "cublas_grouped"));
}

TEST(LibraryContendersTest, OneOfAPlatform) {
  EXPECT_EQ((*MakeGemmContender("nvidia", "cublas"))->name(), "cublas");
  EXPECT_EQ((*MakeGemmContender("amd", "hipblaslt"))->name(), "hipblaslt");
  const absl::Status others = MakeGemmContender("emulation", "cublas").status();
  EXPECT_EQ(others.code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(others.message(), "the platform emulation has no cublas");
  const absl::Status unknown = MakeGemmContender("nvidia", "cubla").status();
  EXPECT_EQ(unknown.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(unknown.message(), HasSubstr("cublas, cublas_streams, cublas_grouped, hipblaslt"));
}

struct LayerCase {
  const char* name;
  ModelFamily family;
  int ranks;
  std::vector<int> tokens;  // of each rank
};

class LayerContenderTest : public ::testing::TestWithParam<LayerCase> {};

// A layer of `shape`, beside contenders of the copy engines and the fake.
absl::StatusOr<LayerReport> MeasureLayer(const LayerCase& shape, LayerRunOptions options) {
  constexpr uint64_t kSeed = 4;
  const absl::StatusOr<std::shared_ptr<Node>> node = Node::Create({.num_ranks = shape.ranks});
  if (!node.ok()) return node.status();
  options.config = SmallShape(shape.family);
  options.config.router = ModelRouter(shape.family, options.config.num_experts);
  options.config.shared_gate = shape.family == ModelFamily::kQwen2Moe;
  options.contender_platform = "nvidia";
  const RandomWeights weights(options.config, false, kSeed);
  LayerTokens tokens =
      RandomTokens(23, options.config.hidden, shape.ranks, options.config.dtype, kSeed);
  for (int rank = 0; rank < shape.ranks; ++rank) {
    const auto r = static_cast<size_t>(rank);
    tokens.rows[r].resize(static_cast<size_t>(shape.tokens[r]) *
                          static_cast<size_t>(options.config.hidden));
  }
  return RunLayer(**node, options, weights.weights(), tokens, Progress(false));
}

TEST_P(LayerContenderTest, ComputesWhatTheLayerDoes) {
  ASSERT_NE(LoadFake(OCTET_FAKE_CUBLAS), nullptr);
  LayerRunOptions options;
  options.iters = 2;
  options.warmup = 0;
  options.contenders = {{"memcpy_peer", "cublas_streams"}, {"memcpy_peer", "cublas"}};
  const absl::StatusOr<LayerReport> report = MeasureLayer(GetParam(), options);
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_TRUE(report->Checked().ok()) << report->Checked();
  ASSERT_EQ(report->contenders.size(), 2U);
  EXPECT_EQ(report->contenders[0].row.what, "memcpy_peer+cublas_streams");
  for (const MeasuredContender& contender : report->contenders) {
    ASSERT_TRUE(contender.check.has_value());
    const LayerCheck check = contender.check.value_or(LayerCheck());
    EXPECT_GT(check.checked, 0);
    EXPECT_GT(check.worst, 0);
    EXPECT_EQ(contender.row.us.size(), 2U);
    EXPECT_GT(contender.row.tflops.value_or(0), 0);
  }
}

INSTANTIATE_TEST_SUITE_P(
    Layers, LayerContenderTest,
    ::testing::Values(LayerCase{"OneRank", ModelFamily::kQwen3Moe, 1, {17}},
                      LayerCase{"Shared", ModelFamily::kDeepseekV3, 2, {3, 23}},
                      LayerCase{"SharedGate", ModelFamily::kQwen2Moe, 2, {1, 6}},
                      LayerCase{"ARankWithoutTokens", ModelFamily::kMixtral, 4, {2, 0, 23, 1}}),
    [](const auto& info) { return std::string(info.param.name); });

TEST(LayerContendersTest, WhatCannotBeHadIsLeftOut) {
  ASSERT_NE(LoadFake(OCTET_FAKE_CUBLAS), nullptr);
  LayerRunOptions options;
  options.iters = 0;
  const LayerCase shape = {"", ModelFamily::kQwen3Moe, 2, {4, 5}};
  options.contenders = {
      {"nccl", "cublas"}, {"memcpy_peer", "hipblaslt"}, {"memcpy_peer", "cublas"}};
  const absl::StatusOr<LayerReport> report = MeasureLayer(shape, options);
  ASSERT_TRUE(report.ok()) << report.status();
  ASSERT_EQ(report->left_out.size(), 2U);
  EXPECT_EQ(report->left_out[0].name, "nccl+cublas");
  EXPECT_THAT(report->left_out[0].reason, StartsWith("this build of octet has no nccl: "));
  EXPECT_EQ(report->left_out[1].reason, "the platform nvidia has no hipblaslt");
  ASSERT_EQ(report->contenders.size(), 1U);
  EXPECT_TRUE(report->contenders[0].row.us.empty());
  EXPECT_TRUE(report->contenders[0].check.has_value());
  for (const auto& [libraries, words] :
       {std::pair(LayerLibraries{"direct", "cublas"}, "direct is Octet's"),
        std::pair(LayerLibraries{"pigeons", "cublas"}, "'pigeons' is not one of"),
        std::pair(LayerLibraries{"pigeons", "hipblaslt"}, "'pigeons' is not one of"),
        std::pair(LayerLibraries{"memcpy_peer", "abacus"}, "'abacus' is not one of"),
        std::pair(LayerLibraries{"nccl", "abacus"}, "'abacus' is not one of"),
        std::pair(LayerLibraries{"memcpy_peer", "cublas_grouped"}, "no layer can use it")}) {
    options.contenders = {libraries};
    const absl::Status status = MeasureLayer(shape, options).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(status.message(), HasSubstr(words));
  }
}

TEST(LayerContendersTest, WrongResultsAreAnError) {
  LayerReport report;
  EXPECT_TRUE(report.Checked().ok());
  report.check.emplace();
  report.contenders.push_back({.row = {.what = "a+b"}, .check = LayerCheck()});
  EXPECT_TRUE(report.Checked().ok());
  report.contenders[0].check = LayerCheck{.wrong = 1, .first_wrong = "element 3"};
  EXPECT_EQ(report.Checked(), absl::DataLossError("a+b: element 3"));
}

TEST(LayerContendersTest, NamesHaveTwoParts) {
  EXPECT_EQ(ParseLayerLibraries("nccl+cublas")->name(), "nccl+cublas");
  for (const char* name : {"", "nccl", "nccl+", "+cublas", "a+b+c"}) {
    EXPECT_EQ(ParseLayerLibraries(name).status().code(), absl::StatusCode::kInvalidArgument)
        << name;
  }
}

TEST(LibraryContendersTest, Hipblaslt) {
  ASSERT_NE(LoadFake(OCTET_FAKE_HIPBLASLT), nullptr);
  std::vector<std::unique_ptr<GemmContender>> contenders;
  contenders.push_back(MakeHipblasltContender());
  EXPECT_THAT(RightOnes(contenders, {3, 0, 17, 3, 30}), ElementsAre("hipblaslt"));
}

}  // namespace
}  // namespace octet
