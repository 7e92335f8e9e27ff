// Rows quantized by RowQuantizer against ReferenceQuantize, to the bit.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <hip/hip_runtime.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "kernels/types/fp8_rows.h"
#include "kernels/types/row_quantizer.h"
#include "octet/dtype.h"
#include "octet/ep_config.h"
#include "runtime/base/status_macros.h"
#include "runtime/gpu/gpu_status.h"
#include "runtime/memory/device_memory.h"
#include "tests/support/host_copy.h"
#include "tests/support/node/node_fixture.h"

namespace octet {
namespace {

using ::testing::HasSubstr;

constexpr uint8_t kUnwritten = 0xee;
constexpr size_t kRowsBehind = 2;  // memory behind the last row that must stay as it is

struct Quantized {
  std::vector<uint8_t> fp8;
  std::vector<uint32_t> scales;
};

struct Case {
  RowQuantizerConfig config;
  int32_t rows = 0;
  std::optional<int32_t> word = {};  // QuantizeRowsArgs::num_rows, instead of rows

  std::string Text() const {
    return absl::StrCat(
        EnumName(config.dtype), " ", EnumName(config.scale_format), " ", config.columns,
        " columns, at most ", config.max_rows, " rows, ",
        word.has_value() ? absl::StrCat(*word, " in GPU memory") : absl::StrCat(rows, " by value"));
  }
};

class QuantizeRowsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const absl::StatusOr<Topology> topology = DiscoverTopology();
    if (!topology.ok() || topology->gpus.empty()) GTEST_SKIP() << "no GPU";
    ASSERT_OK(OCTET_GPU(hipSetDevice(topology->gpus[0].device)));
  }

  static absl::StatusOr<Quantized> Quantize(const Case& c, const std::vector<uint16_t>& x) {
    OCTET_ASSIGN_OR_RETURN(const RowQuantizer quantizer, RowQuantizer::Create(c.config));
    Quantized out;
    const auto columns = static_cast<size_t>(c.config.columns);
    const auto words = static_cast<size_t>(quantizer.scale_words());
    out.fp8.assign(quantizer.Fp8Bytes() + kRowsBehind * columns, kUnwritten);
    out.scales.assign(quantizer.ScaleBytes() / sizeof(uint32_t) + kRowsBehind * words, kUnwritten);
    const std::vector<int32_t> word = {c.word.value_or(0)};
    OCTET_ASSIGN_OR_RETURN(const DeviceMemory device_x, OnDevice(x));
    OCTET_ASSIGN_OR_RETURN(const DeviceMemory fp8, OnDevice(out.fp8));
    OCTET_ASSIGN_OR_RETURN(const DeviceMemory scales, OnDevice(out.scales));
    OCTET_ASSIGN_OR_RETURN(const DeviceMemory num_rows, OnDevice(word));
    OCTET_RETURN_IF_ERROR(
        quantizer.Run({.x = device_x.as<void>(),
                       .fp8 = fp8.as<void>(),
                       .scales = scales.as<void>(),
                       .rows = c.rows,
                       .num_rows = c.word.has_value() ? num_rows.as<int32_t>() : nullptr},
                      nullptr));
    OCTET_RETURN_IF_GPU_ERROR(hipDeviceSynchronize());
    OCTET_ASSIGN_OR_RETURN(out.fp8, ToHost<uint8_t>(fp8.as<void>(), out.fp8.size()));
    OCTET_ASSIGN_OR_RETURN(out.scales, ToHost<uint32_t>(scales.as<void>(), out.scales.size()));
    return out;
  }

  // What Quantize must return.
  static Quantized Expected(const Case& c, const std::vector<uint16_t>& x) {
    EpConfig config;
    config.hidden = c.config.columns;
    config.dtype = c.config.dtype;
    config.dispatch_format = DispatchFormat::kQuantizedFp8;
    config.scale_format = c.config.scale_format;
    config.scale_group = 128;
    const auto columns = static_cast<size_t>(c.config.columns);
    const auto words = static_cast<size_t>(config.scale_words());
    const size_t all = static_cast<size_t>(c.config.max_rows) + kRowsBehind;
    Quantized out = {.fp8 = std::vector<uint8_t>(all * columns, kUnwritten),
                     .scales = std::vector<uint32_t>(all * words, kUnwritten)};
    const int32_t rows = std::clamp(c.word.value_or(c.rows), 0, c.config.max_rows);
    for (size_t row = 0; row < static_cast<size_t>(rows); ++row) {
      ReferenceQuantize(config, absl::MakeConstSpan(x).subspan(row * columns, columns),
                        absl::MakeSpan(out.fp8).subspan(row * columns, columns),
                        absl::MakeSpan(out.scales).subspan(row * words, words));
    }
    return out;
  }

  static void Check(const Case& c, const std::vector<uint16_t>& x) {
    const absl::StatusOr<Quantized> got = Quantize(c, x);
    ASSERT_OK(got.status()) << c.Text();
    const Quantized want = Expected(c, x);
    ASSERT_EQ(got->scales.size(), want.scales.size()) << c.Text();
    const auto scale = std::ranges::mismatch(got->scales, want.scales);
    EXPECT_EQ(scale.in1, got->scales.end())
        << c.Text() << ": scale word " << scale.in1 - got->scales.begin();
    ASSERT_EQ(got->fp8.size(), want.fp8.size()) << c.Text();
    const auto byte = std::ranges::mismatch(got->fp8, want.fp8);
    EXPECT_EQ(byte.in1, got->fp8.end()) << c.Text() << ": byte " << byte.in1 - got->fp8.begin();
  }

  // Rows of numbers of all sizes, each row's of one. Some groups are zero, and some elements are
  // zeros, infinities, NaNs or the largest finite numbers.
  static std::vector<uint16_t> DrawRows(const RowQuantizerConfig& config, std::mt19937& random) {
    const bool fp16 = config.dtype == DType::kFloat16;
    const uint16_t infinity = fp16 ? 0x7c00 : 0x7f80;
    const std::array<uint16_t, 6> special = {0,
                                             0x8000,
                                             infinity,
                                             static_cast<uint16_t>(infinity | 0x8001),
                                             static_cast<uint16_t>(infinity - 1),
                                             static_cast<uint16_t>(infinity | 0x8000)};
    std::normal_distribution<float> normal;
    std::vector<uint16_t> x;
    for (int32_t row = 0; row < config.max_rows; ++row) {
      const int range = fp16 ? 14 : 120;
      const int exponent = static_cast<int>(random() % (2 * range + 1)) - range;
      bool zeros = false;
      for (int column = 0; column < config.columns; ++column) {
        if (column % 128 == 0) zeros = random() % 8 == 0;
        const float value = zeros ? 0 : std::ldexp(normal(random), exponent);
        const bool planted = random() % 300 == 0;
        x.push_back(planted ? special[random() % special.size()]
                            : BitsFromFloat(config.dtype, value));
      }
    }
    return x;
  }
  static std::vector<uint16_t> DrawRows(const RowQuantizerConfig& config, uint32_t seed) {
    std::mt19937 random(seed);
    return DrawRows(config, random);
  }

 private:
  template <typename T>
  static absl::StatusOr<DeviceMemory> OnDevice(const std::vector<T>& values) {
    OCTET_ASSIGN_OR_RETURN(DeviceMemory memory, DeviceMemory::Allocate(values.size() * sizeof(T)));
    OCTET_RETURN_IF_ERROR(ToDevice(memory, values));
    return memory;
  }
};

TEST_F(QuantizeRowsTest, RandomShapesEqualTheReference) {
  constexpr uint32_t kShapes = 60;
  for (uint32_t seed = 1; seed <= kShapes; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    std::mt19937 random(seed);
    const auto draw = [&random](int least, int most) {
      return std::uniform_int_distribution<int>(least, most)(random);
    };
    Case c;
    c.config.dtype = draw(0, 1) == 0 ? DType::kBFloat16 : DType::kFloat16;
    c.config.columns = 16 * (draw(0, 3) == 0 ? draw(1, 500) : draw(1, 40));
    c.config.max_rows = draw(1, 40);
    constexpr ScaleFormat kFormats[] = {ScaleFormat::kFloat32, ScaleFormat::kPowerOfTwo,
                                        ScaleFormat::kUe8m0};
    c.config.scale_format = kFormats[draw(0, 2)];
    const int rows = draw(0, c.config.max_rows);
    if (draw(0, 1) == 0) {
      c.rows = rows;
    } else {
      c.word = rows;
    }
    Check(c, DrawRows(c.config, random));
    if (HasFailure()) return;
  }
}

// The rows of DeepSeek-V3's experts and its tokens.
TEST_F(QuantizeRowsTest, LargeRowsEqualTheReference) {
  for (const int columns : {2048, 7168}) {
    for (const ScaleFormat format : {ScaleFormat::kFloat32, ScaleFormat::kUe8m0}) {
      const Case c = {.config = {.columns = columns, .scale_format = format, .max_rows = 33},
                      .rows = 33};
      Check(c, DrawRows(c.config, 7));
    }
  }
}

TEST_F(QuantizeRowsTest, NothingBehindTheLastRowIsWritten) {
  for (const int32_t rows : {0, 1, 4, 5, 6, 1000, -1, std::numeric_limits<int32_t>::max(),
                             std::numeric_limits<int32_t>::min()}) {
    const RowQuantizerConfig config = {.columns = 144, .max_rows = 5};
    const std::vector<uint16_t> x = DrawRows(config, 11);
    Check({.config = config, .rows = rows}, x);
    Check({.config = config, .word = rows}, x);
  }
}

TEST_F(QuantizeRowsTest, TakesNoRowsAtAll) {
  const RowQuantizerConfig config = {.columns = 16, .max_rows = 0};
  Check({.config = config, .rows = 3}, {});
  Check({.config = config, .word = 3}, {});
}

TEST_F(QuantizeRowsTest, RefusesConfigsThatCannotBe) {
  for (const int columns : {0, 8, 24, -16}) {
    EXPECT_THAT(RowQuantizer::Create({.columns = columns, .max_rows = 1}).status(),
                StatusIs(absl::StatusCode::kInvalidArgument,
                         HasSubstr(absl::StrCat("columns is ", columns,
                                                "; it must be a positive multiple of 16"))));
  }
  EXPECT_THAT(RowQuantizer::Create({.columns = 16, .max_rows = -1}).status(),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("max_rows is -1")));
}

}  // namespace
}  // namespace octet
