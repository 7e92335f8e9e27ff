// The router's reference against float64 and hand-made cases, and its kernel against the reference,
// to the bit.
#include "kernels/router/router.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <hip/hip_runtime.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "kernels/router/few_tokens.h"
#include "kernels/router/route.h"
#include "kernels/router/route_params.h"
#include "kernels/router/router_math.h"
#include "octet/dtype.h"
#include "octet/moe_layer.h"
#include "octet/topology.h"
#include "runtime/base/size.h"
#include "runtime/base/status_macros.h"
#include "runtime/gpu/gpu_status.h"
#include "runtime/memory/device_memory.h"
#include "tests/support/host_copy.h"
#include "tests/support/node/node_fixture.h"

namespace octet {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kUntouched = 7.5F;

struct Choice {
  std::vector<int32_t> experts;
  std::vector<float> weights;
};

Choice Reference(const RouterConfig& config, int topk, const std::vector<float>& logits,
                 const std::vector<float>& bias = {}) {
  Choice choice;
  choice.experts.resize(static_cast<size_t>(topk));
  choice.weights.resize(static_cast<size_t>(topk));
  ReferenceRoute({.config = config, .logits = logits, .bias = bias}, absl::MakeSpan(choice.experts),
                 absl::MakeSpan(choice.weights));
  return choice;
}

TEST(RouterMathTest, ExpIsNearTheExactOne) {
  double worst = 0;
  constexpr int kSteps = 63000;
  for (int i = 0; i < kSteps; ++i) {
    const float argument = -0.00137F * static_cast<float>(i);
    const double exact = std::exp(static_cast<double>(argument));
    worst = std::max(worst, std::abs(ExpOfNegative(argument) - exact) / exact);
  }
  EXPECT_LT(worst, 0x1p-22);
  EXPECT_EQ(ExpOfNegative(0.0F), 1.0F);
  EXPECT_EQ(ExpOfNegative(-kInf), 0.0F);
  EXPECT_EQ(ExpOfNegative(-1e30F), 0.0F);
  EXPECT_TRUE(std::isnan(ExpOfNegative(kNan)));
}

TEST(RouterMathTest, SigmoidIsNearTheExactOne) {
  for (int i = -216; i <= 216; ++i) {
    const float x = 0.37F * static_cast<float>(i);
    const double exact = 1 / (1 + std::exp(-static_cast<double>(x)));
    EXPECT_NEAR(Sigmoid(x) / exact, 1, 0x1p-21) << x;
  }
  EXPECT_EQ(Sigmoid(0.0F), 0.5F);
  EXPECT_EQ(Sigmoid(kInf), 1.0F);
  EXPECT_EQ(Sigmoid(-kInf), 0.0F);
  EXPECT_TRUE(std::isnan(Sigmoid(kNan)));
}

TEST(RouterMathTest, OrderIsThatOfNumbers) {
  const std::vector<float> ascending = {-kInf, -1e30F, -1.5F, -1e-40F, 0.0F, 1e-40F, 2.0F, kInf};
  for (size_t i = 0; i + 1 < ascending.size(); ++i) {
    EXPECT_LT(OrderOf(ascending[i]), OrderOf(ascending[i + 1])) << ascending[i];
    EXPECT_EQ(OfOrder(OrderOf(ascending[i])), ascending[i]);
  }
  EXPECT_EQ(OrderOf(-0.0F), OrderOf(0.0F));
  EXPECT_EQ(OrderOf(kNan), 1U);
  EXPECT_EQ(OrderOf(-kNan), 1U);
  EXPECT_TRUE(std::isnan(OfOrder(1)));
}

TEST(RouterReferenceTest, SoftmaxNormalised) {
  const std::vector<float> logits = {1, 3, 2, 0};
  const Choice choice = Reference({.normalize = true}, 2, logits);
  EXPECT_THAT(choice.experts, ElementsAre(1, 2));
  EXPECT_NEAR(choice.weights[0], 1 / (1 + std::exp(-1.0)), 1e-6);
  EXPECT_NEAR(choice.weights[1], 1 / (1 + std::exp(1.0)), 1e-6);
}

TEST(RouterReferenceTest, SoftmaxOverAll) {
  const Choice choice = Reference({.scaling = 16}, 1, {0, 0, 0, std::log(5.0F)});
  EXPECT_THAT(choice.experts, ElementsAre(3));
  EXPECT_NEAR(choice.weights[0], 16 * 5.0 / 8, 1e-5);
}

TEST(RouterReferenceTest, EqualScoresGoToTheLowerExpert) {
  EXPECT_THAT(Reference({}, 3, {2, 5, 2, 5, 2}).experts, ElementsAre(1, 3, 0));
}

// Groups {0, 1}, {2, 3}, {4, 5}: the second has the best expert, the third the best two.
TEST(RouterReferenceTest, GroupsByMaximumAndBySum) {
  const std::vector<float> logits = {0.5F, 0.4F, 3.0F, -9.0F, 2.0F, 1.9F};
  RouterConfig config = {.scores = RouterScores::kSigmoid, .groups = 3, .top_groups = 1};
  EXPECT_THAT(Reference(config, 2, logits).experts, ElementsAre(2, 3));
  config.group_score = GroupScore::kSumOfTwoBest;
  EXPECT_THAT(Reference(config, 2, logits).experts, ElementsAre(4, 5));
}

TEST(RouterReferenceTest, BiasChoosesButDoesNotWeigh) {
  const RouterConfig config = {.scores = RouterScores::kSigmoid,
                               .normalize = true,
                               .normalize_epsilon = 1e-20F,
                               .scaling = 2.5F};
  const Choice choice = Reference(config, 2, {0, 0, 0, 0}, {0, 0.3F, 0, 0.2F});
  EXPECT_THAT(choice.experts, ElementsAre(1, 3));
  EXPECT_THAT(choice.weights, ElementsAre(1.25F, 1.25F));
}

TEST(RouterReferenceTest, NanComesLast) {
  const RouterConfig config = {.scores = RouterScores::kSigmoid};
  EXPECT_THAT(Reference(config, 3, {kNan, -kInf, kNan, 1}).experts, ElementsAre(3, 1, 0));
}

TEST(RouterValidateTest, NamesWhatIsWrong) {
  const auto refused = [](const RouterConfig& config) {
    return std::string(Validate(config, 12, 4).message());
  };
  EXPECT_OK(Validate({.groups = 3, .top_groups = 1}, 12, 4));
  EXPECT_THAT(refused({.groups = 5}), HasSubstr("groups is 5; it must divide the 12 experts"));
  EXPECT_THAT(refused({.groups = 3, .top_groups = 4}), HasSubstr("top_groups is 4"));
  EXPECT_THAT(refused({.groups = 4, .top_groups = 1}), HasSubstr("so many groups have 3 experts"));
  EXPECT_THAT(refused({.groups = 12, .top_groups = 9, .group_score = GroupScore::kSumOfTwoBest}),
              HasSubstr("at least two experts in a group"));
  EXPECT_THAT(refused({.normalize_epsilon = kNan}), HasSubstr("normalize_epsilon"));
  EXPECT_THAT(refused({.scaling = kInf}), HasSubstr("scaling"));
}

// A batch of tokens.
struct Problem {
  RouterConfig config;
  int num_experts = 0;
  int topk = 0;
  int tokens = 0;
  int stride = 0;
  std::vector<float> logits;
  std::vector<float> bias;  // or empty

  std::string Text() const {
    return absl::StrCat("E ", num_experts, " K ", topk, " T ", tokens, " groups ", config.groups,
                        "/", config.top_groups, " ", EnumName(config.group_score), " ",
                        EnumName(config.scores), " jitter ", config.jitter,
                        config.normalize ? " normalised" : "", bias.empty() ? "" : " bias");
  }
};

// Tokens and a router's weights, [tokens][hidden] and [logit_rows][hidden] of the dtype.
struct Product {
  DType dtype = DType::kBFloat16;
  int hidden = 0;
  int logit_rows = 0;
  std::vector<uint16_t> x, router;
  std::vector<float> bias;  // [logit_rows], or none
};

class RouterKernelTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const absl::StatusOr<Topology> topology = DiscoverTopology();
    if (!topology.ok()) GTEST_SKIP() << topology.status();
    wave_ = topology->gpus[0].wave_size;
  }

  static RouteParams ParamsOf(const Problem& p) {
    MoeLayerConfig config;
    config.num_experts = p.num_experts;
    config.topk = p.topk;
    config.router = p.config;
    RouteParams params = RouteParamsOf(config);
    params.stride = p.stride;
    params.num_tokens = p.tokens;
    return params;
  }

  absl::StatusOr<Choice> Run(const Problem& p, int blocks, int waves) const {
    Choice got;
    const auto choices = static_cast<size_t>(p.tokens) * static_cast<size_t>(p.topk);
    OCTET_ASSIGN_OR_RETURN(const DeviceMemory logits, Copy(p.logits));
    OCTET_ASSIGN_OR_RETURN(const DeviceMemory bias, Copy(p.bias));
    OCTET_ASSIGN_OR_RETURN(const DeviceMemory ids, DeviceMemory::Allocate(choices * 4 + 4));
    OCTET_ASSIGN_OR_RETURN(const DeviceMemory weights, DeviceMemory::Allocate(choices * 4 + 4));
    RouteParams params = ParamsOf(p);
    params.logits = logits.as<float>();
    params.bias = p.bias.empty() ? nullptr : bias.as<float>();
    params.topk_idx = ids.as<int32_t>();
    params.topk_weights = weights.as<float>();
    OCTET_RETURN_IF_GPU_ERROR(LoadRoute(p.num_experts));
    OCTET_RETURN_IF_GPU_ERROR(
        LaunchRoute(params, {.blocks = blocks, .threads = waves * wave_}, nullptr));
    OCTET_RETURN_IF_GPU_ERROR(hipDeviceSynchronize());
    OCTET_ASSIGN_OR_RETURN(got.experts, ToHost<int32_t>(ids.as<void>(), choices));
    OCTET_ASSIGN_OR_RETURN(got.weights, ToHost<float>(weights.as<void>(), choices));
    return got;
  }

  // The kernel's results are the reference's, to the bit; of NaNs, any.
  void ExpectReference(const Problem& p, int blocks = 3, int waves = 2) const {
    SCOPED_TRACE(p.Text());
    ASSERT_OK(Validate(p.config, p.num_experts, p.topk));
    const absl::StatusOr<Choice> got = Run(p, blocks, waves);
    ASSERT_OK(got.status());
    ExpectChoice(p, *got);
  }

  static void ExpectChoice(const Problem& p, const Choice& got) {
    for (int token = 0; token < p.tokens; ++token) {
      const auto row = p.logits.begin() + static_cast<ptrdiff_t>(token) * p.stride;
      const Choice want = Reference(p.config, p.topk, {row, row + p.num_experts}, p.bias);
      for (int k = 0; k < p.topk; ++k) {
        const auto choice = static_cast<size_t>(k);
        const size_t at = static_cast<size_t>(token) * static_cast<size_t>(p.topk) + choice;
        ASSERT_EQ(got.experts[at], want.experts[choice]) << "token " << token << " choice " << k;
        if (std::isnan(want.weights[choice])) {
          ASSERT_TRUE(std::isnan(got.weights[at])) << "token " << token << " choice " << k;
        } else {
          ASSERT_EQ(std::memcmp(&got.weights[at], &want.weights[choice], sizeof(float)), 0)
              << "token " << token << " choice " << k << ": " << got.weights[at] << " instead of "
              << want.weights[choice];
        }
      }
    }
  }

  // Computes p.logits, and the choice by them, in one launch.
  static absl::StatusOr<Choice> RunFewTokens(const Product& product, Problem& p) {
    const auto choices = static_cast<size_t>(p.tokens) * static_cast<size_t>(p.topk);
    p.logits.assign(static_cast<size_t>(p.tokens) * static_cast<size_t>(p.stride), kUntouched);
    OCTET_ASSIGN_OR_RETURN(const DeviceMemory x, Copy(product.x));
    OCTET_ASSIGN_OR_RETURN(const DeviceMemory router, Copy(product.router));
    OCTET_ASSIGN_OR_RETURN(const DeviceMemory logit_bias, Copy(product.bias));
    OCTET_ASSIGN_OR_RETURN(const DeviceMemory logits, Copy(p.logits));
    OCTET_ASSIGN_OR_RETURN(const DeviceMemory bias, Copy(p.bias));
    OCTET_ASSIGN_OR_RETURN(const DeviceMemory ids, DeviceMemory::Allocate(choices * 4));
    OCTET_ASSIGN_OR_RETURN(const DeviceMemory weights, DeviceMemory::Allocate(choices * 4));
    const std::vector<uint32_t> no_parts(LogitPartWords(product.logit_rows), kNoLogitPart);
    OCTET_ASSIGN_OR_RETURN(const DeviceMemory parts, Copy(no_parts));
    FewTokensParams params = {.x = x.as<void>(),
                              .router = router.as<void>(),
                              .hidden = product.hidden,
                              .logit_rows = product.logit_rows,
                              .logit_bias = nullptr,
                              .route = ParamsOf(p),
                              .logits = logits.as<float>(),
                              .parts = parts.as<uint32_t>(),
                              .fp16 = product.dtype == DType::kFloat16};
    if (!product.bias.empty()) params.logit_bias = logit_bias.as<float>();
    params.route.logits = params.logits;
    params.route.bias = p.bias.empty() ? nullptr : bias.as<float>();
    params.route.topk_idx = ids.as<int32_t>();
    params.route.topk_weights = weights.as<float>();
    OCTET_RETURN_IF_GPU_ERROR(LoadRouteFewTokens(p.num_experts, params.fp16));
    // The second launch finds what the first leaves.
    OCTET_RETURN_IF_GPU_ERROR(LaunchRouteFewTokens(params, nullptr));
    OCTET_RETURN_IF_GPU_ERROR(LaunchRouteFewTokens(params, nullptr));
    OCTET_RETURN_IF_GPU_ERROR(hipDeviceSynchronize());
    OCTET_ASSIGN_OR_RETURN(p.logits, ToHost<float>(logits.as<void>(), p.logits.size()));
    OCTET_ASSIGN_OR_RETURN(const std::vector<uint32_t> left,
                           ToHost<uint32_t>(parts.as<void>(), no_parts.size()));
    EXPECT_EQ(left, no_parts);
    Choice got;
    OCTET_ASSIGN_OR_RETURN(got.experts, ToHost<int32_t>(ids.as<void>(), choices));
    OCTET_ASSIGN_OR_RETURN(got.weights, ToHost<float>(weights.as<void>(), choices));
    return got;
  }

  // Logits are those of float64 but for the roundings of H sums; what follows them is not touched.
  static void ExpectLogits(const Product& product, const Problem& p) {
    const auto hidden = static_cast<size_t>(product.hidden);
    for (int token = 0; token < p.tokens; ++token) {
      for (int row = 0; row < p.stride; ++row) {
        const float got = p.logits[Size(token) * Size(p.stride) + Size(row)];
        if (row >= product.logit_rows) {
          ASSERT_EQ(got, kUntouched) << "token " << token << " row " << row;
          continue;
        }
        double exact = 0;
        double sizes = 0;
        for (size_t i = 0; i < hidden; ++i) {
          const double a = FloatFromBits(product.dtype, product.x[Size(token) * hidden + i]);
          const double b = FloatFromBits(product.dtype, product.router[Size(row) * hidden + i]);
          exact += a * b;
          sizes += std::abs(a * b);
        }
        if (!product.bias.empty()) {
          exact += product.bias[Size(row)];
          sizes += std::abs(product.bias[Size(row)]);
        }
        ASSERT_NEAR(got, exact, sizes * static_cast<double>(product.hidden + 1) * 0x1p-24)
            << "token " << token << " row " << row;
      }
    }
  }

 private:
  template <typename T>
  static absl::StatusOr<DeviceMemory> Copy(const std::vector<T>& values) {
    OCTET_ASSIGN_OR_RETURN(DeviceMemory memory,
                           DeviceMemory::Allocate(values.size() * sizeof(T) + 4));
    OCTET_RETURN_IF_ERROR(ToDevice(memory, values));
    return memory;
  }

  int wave_ = 0;
};

Problem RandomProblem(std::mt19937& random) {
  const auto below = [&](int n) { return static_cast<int>(random() % static_cast<uint32_t>(n)); };
  Problem p;
  constexpr int kSizes[] = {8, 33, 64, 160, 256, 300, 1024, 2048};
  const int most = kSizes[below(8)];
  p.config.groups = below(2) == 0 ? 1 : 1 + below(std::min(most, 16));
  const int of_group = 1 + below(std::max(most / p.config.groups, 1));
  p.num_experts = p.config.groups * of_group;
  p.config.top_groups = 1 + below(p.config.groups);
  p.topk = 1 + below(std::min(p.config.top_groups * of_group, 32));
  if (of_group > 1 && below(2) == 0) p.config.group_score = GroupScore::kSumOfTwoBest;
  if (below(2) == 0) p.config.scores = RouterScores::kSigmoid;
  p.config.normalize = below(2) == 0;
  p.config.normalize_epsilon = below(2) == 0 ? 1e-20F : 0.0F;
  p.config.scaling = 0.5F + static_cast<float>(below(9));
  p.tokens = below(20);
  p.stride = p.num_experts + below(9);
  std::normal_distribution<float> normal;
  const bool few_values = below(3) == 0;  // so that many scores are equal
  const auto draw = [&] { return few_values ? static_cast<float>(below(3)) : 3 * normal(random); };
  for (int i = 0; i < p.tokens * p.stride; ++i) p.logits.push_back(draw());
  if (below(2) == 0) {
    for (int e = 0; e < p.num_experts; ++e) p.bias.push_back(draw() / 4);
  }
  if (below(3) == 0) {
    p.config.scores = RouterScores::kSparsemixer;
    p.config.jitter = 0.05F * static_cast<float>(below(15));
    p.config.groups = p.config.top_groups = 1;
    p.bias.clear();
  }
  return p;
}

TEST_F(RouterKernelTest, RandomShapes) {
  std::mt19937 random(11);
  for (int i = 0; i < 120; ++i) {
    SCOPED_TRACE(absl::StrCat("seed 11, shape ", i));
    ExpectReference(RandomProblem(random));
    if (HasFatalFailure()) return;
  }
}

// Random operands for the logits of p.
Product RandomProduct(std::mt19937& random, const Problem& p, int hidden, int logit_rows) {
  std::normal_distribution<float> normal;
  Product product = {.dtype = random() % 2 == 0 ? DType::kFloat16 : DType::kBFloat16,
                     .hidden = hidden,
                     .logit_rows = logit_rows,
                     .x = {},
                     .router = {},
                     .bias = {}};
  for (int n = p.tokens * hidden; n > 0; --n) {
    product.x.push_back(BitsFromFloat(product.dtype, normal(random)));
  }
  for (int n = logit_rows * hidden; n > 0; --n) {
    product.router.push_back(BitsFromFloat(product.dtype, normal(random)));
  }
  return product;
}

TEST(LogitPartTest, NoPartIsTheWordOfNone) {
  for (const uint32_t bits : {0U, 1U, 0x3f800000U, 0x80000000U, 0x7f800000U, 0xff800000U}) {
    EXPECT_EQ(LogitPartWord(std::bit_cast<float>(bits)), bits);
  }
  for (const uint32_t nan : {kNoLogitPart, 0x7fffffffU, 0x7fc00000U, 0xffc00001U}) {
    const uint32_t word = LogitPartWord(std::bit_cast<float>(nan));
    EXPECT_NE(word, kNoLogitPart);
    EXPECT_TRUE(std::isnan(std::bit_cast<float>(word)));
  }
}

TEST_F(RouterKernelTest, FewTokensInOneLaunch) {
  std::mt19937 random(14);
  const auto below = [&](int n) { return static_cast<int>(random() % static_cast<uint32_t>(n)); };
  std::normal_distribution<float> normal;
  for (int i = 0; i < 40; ++i) {
    Problem p = RandomProblem(random);
    if (p.num_experts > 400 && i % 10 != 0) continue;  // blocks of parts take their time
    p.tokens = 1 + below(kFewRoutedTokens);
    const int hidden = 8 * (1 + below(p.num_experts > 400 ? 8 : 120));
    const int logit_rows = p.num_experts + below(p.stride - p.num_experts + 1);
    Product product = RandomProduct(random, p, hidden, logit_rows);
    for (int n = below(2) * product.logit_rows; n > 0; --n) product.bias.push_back(normal(random));
    SCOPED_TRACE(absl::StrCat("seed 14, shape ", i, ", H ", product.hidden, ", ", p.Text()));
    const absl::StatusOr<Choice> got = RunFewTokens(product, p);
    ASSERT_OK(got.status());
    ExpectLogits(product, p);
    ExpectChoice(p, *got);
    if (HasFatalFailure()) return;
  }
}

// Of models, with whole and cut steps of the product, and with the gate of shared experts.
TEST_F(RouterKernelTest, FewTokensOfModels) {
  const RouterConfig groups = {.scores = RouterScores::kSigmoid,
                               .groups = 8,
                               .top_groups = 4,
                               .group_score = GroupScore::kSumOfTwoBest,
                               .normalize = true,
                               .normalize_epsilon = 1e-20F,
                               .scaling = 2.5F};
  const RouterConfig softmax = {.normalize = true};
  struct Shape {
    RouterConfig config;
    int num_experts, topk, hidden, tokens, stride;
  };
  const std::vector<Shape> shapes = {
      {softmax, 128, 8, 2048, 16, 128}, {groups, 256, 8, 1792, 9, 256},
      {groups, 64, 8, 7168, 3, 64},     {softmax, 512, 10, 1032, 13, 513},
      {softmax, 60, 4, 2040, 11, 61},   {softmax, 256, 32, 264, 16, 257},
      {groups, 640, 9, 520, 2, 640},    {softmax, 1, 1, 8, 16, 1}};
  std::mt19937 random(15);
  for (const Shape& shape : shapes) {
    Problem p = {.config = shape.config,
                 .num_experts = shape.num_experts,
                 .topk = shape.topk,
                 .tokens = shape.tokens,
                 .stride = shape.stride,
                 .logits = {},
                 .bias = {}};
    const Product product = RandomProduct(random, p, shape.hidden, p.stride);
    if (shape.config.groups > 1) {
      std::uniform_real_distribution<float> small(-0.1F, 0.1F);
      for (int e = 0; e < p.num_experts; ++e) p.bias.push_back(small(random));
    }
    SCOPED_TRACE(absl::StrCat("H ", shape.hidden, ", ", p.Text()));
    const absl::StatusOr<Choice> got = RunFewTokens(product, p);
    ASSERT_OK(got.status());
    ExpectLogits(product, p);
    ExpectChoice(p, *got);
    if (HasFatalFailure()) return;
  }
}

// The logits of weights that are 0 are their biases: any numbers.
TEST_F(RouterKernelTest, FewTokensOfAnyLogits) {
  std::mt19937 random(16);
  const std::vector<float> special = {kNan, -kNan, kInf, -kInf, 0.0F, -0.0F, 1e38F, -1e38F, 1.0F};
  for (int i = 0; i < 80; ++i) {
    Problem p = RandomProblem(random);
    if (p.num_experts > 400 && i % 10 != 0) continue;
    p.tokens = 1 + i % 2;
    p.logits.resize(Size(p.stride));
    Product product = RandomProduct(random, p, 8, p.stride);
    std::fill(product.router.begin(), product.router.end(), uint16_t{0});
    product.bias = p.logits;
    for (float& logit : product.bias) {
      if (i % 2 == 0 && random() % 4 == 0) logit = special[random() % special.size()];
    }
    SCOPED_TRACE(absl::StrCat("seed 16, shape ", i, ", ", p.Text()));
    const absl::StatusOr<Choice> got = RunFewTokens(product, p);
    ASSERT_OK(got.status());
    ExpectChoice(p, *got);
    if (HasFatalFailure()) return;
  }
}

// A token has the same results with others as alone, wherever it is among them and whatever they
// are: one of them is NaNs, whose bits are all set.
TEST_F(RouterKernelTest, FewTokensDoNotDependOnOthers) {
  std::mt19937 random(17);
  Problem p = {.config = {.normalize = true},
               .num_experts = 96,
               .topk = 6,
               .tokens = kFewRoutedTokens,
               .stride = 96,
               .logits = {},
               .bias = {}};
  Product product = RandomProduct(random, p, 424, p.stride);
  const size_t hidden = Size(product.hidden);
  constexpr size_t kNanToken = 5;
  std::fill_n(product.x.begin() + static_cast<ptrdiff_t>(kNanToken * hidden), hidden,
              uint16_t{0xffff});
  const absl::StatusOr<Choice> all = RunFewTokens(product, p);
  ASSERT_OK(all.status());
  ExpectChoice(p, *all);
  EXPECT_TRUE(std::isnan(p.logits[kNanToken * Size(p.stride)]));
  for (const size_t token : {size_t{0}, size_t{4}, size_t{8}, size_t{15}}) {
    SCOPED_TRACE(absl::StrCat("token ", token));
    Problem one = p;
    one.tokens = 1;
    Product alone = product;
    const auto row = product.x.begin() + static_cast<ptrdiff_t>(token * hidden);
    alone.x.assign(row, row + static_cast<ptrdiff_t>(hidden));
    const absl::StatusOr<Choice> got = RunFewTokens(alone, one);
    ASSERT_OK(got.status());
    for (size_t e = 0; e < Size(p.stride); ++e) {
      ASSERT_EQ(one.logits[e], p.logits[token * Size(p.stride) + e]) << "expert " << e;
    }
    for (size_t k = 0; k < Size(p.topk); ++k) {
      EXPECT_EQ(got->experts[k], all->experts[token * Size(p.topk) + k]);
      EXPECT_EQ(got->weights[k], all->weights[token * Size(p.topk) + k]);
    }
  }
}

TEST_F(RouterKernelTest, AnyLaunchShape) {
  std::mt19937 random(12);
  Problem p = RandomProblem(random);
  while (p.tokens < 10) p = RandomProblem(random);
  for (const int blocks : {1, 2, 7, 40}) {
    for (const int waves : {1, 3, 4}) ExpectReference(p, blocks, waves);
  }
}

// Numbers that are none, too large or equal, in many places.
TEST_F(RouterKernelTest, NumbersThatAreNone) {
  std::mt19937 random(13);
  const std::vector<float> special = {kNan, -kNan, kInf, -kInf, 0.0F, -0.0F, 1e38F, -1e38F, 1.0F};
  for (int i = 0; i < 60; ++i) {
    SCOPED_TRACE(absl::StrCat("seed 13, shape ", i));
    Problem p = RandomProblem(random);
    for (float& logit : p.logits) {
      if (random() % 4 == 0) logit = special[random() % special.size()];
    }
    ExpectReference(p);
    if (HasFatalFailure()) return;
  }
}

TEST_F(RouterKernelTest, AllLogitsAlike) {
  for (const float logit : {kNan, kInf, -kInf, 0.0F}) {
    Problem p = {.config = {.groups = 4, .top_groups = 2},
                 .num_experts = 40,
                 .topk = 5,
                 .tokens = 3,
                 .stride = 40,
                 .logits = std::vector<float>(3 * 40, logit),
                 .bias = {}};
    ExpectReference(p);
    p.config.scores = RouterScores::kSigmoid;
    ExpectReference(p);
    p.config = {.scores = RouterScores::kSparsemixer, .jitter = 0.01F};
    ExpectReference(p);
  }
}

}  // namespace
}  // namespace octet
