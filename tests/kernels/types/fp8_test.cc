// The 8-bit floats of octet/fp8.h and the rows of kernels/types/fp8_rows.h, against their
// definitions in double precision.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <ios>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "kernels/types/fp8_rows.h"
#include "octet/dtype.h"
#include "octet/ep_config.h"
#include "octet/fp8.h"

namespace octet {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

// A form by its definition: sign, four bits of exponent, three of mantissa.
class Form {
 public:
  explicit Form(Fp8Form form) : form_(form) {
    for (int code = 0; code <= LargestCode(); ++code) finite_.push_back(Decode(code));
  }

  Fp8Form form() const { return form_; }
  bool fnuz() const { return form_ == Fp8Form::kE4m3Fnuz; }
  int LargestCode() const { return fnuz() ? 0x7f : 0x7e; }
  double Largest() const { return finite_.back(); }
  int NanCode() const { return fnuz() ? 0x80 : 0x7f; }

  double Decode(int code) const {
    if (fnuz() ? code == 0x80 : (code & 0x7f) == 0x7f) return kNan;
    const int exponent = (code >> 3) & 15;
    const int bias = fnuz() ? 8 : 7;
    const double mantissa = code & 7;
    const double magnitude = exponent == 0 ? std::ldexp(mantissa, 1 - bias - 3)
                                           : std::ldexp(8 + mantissa, exponent - bias - 3);
    return (code & 0x80) != 0 ? -magnitude : magnitude;
  }
  // The nearest of all finite values, an even code at a tie; so it saturates by itself.
  int Encode(double value) const {
    if (std::isnan(value)) return NanCode();
    const double magnitude = std::min(std::abs(value), Largest());
    auto above = std::lower_bound(finite_.begin(), finite_.end(), magnitude);
    auto code = static_cast<int>(above - finite_.begin());
    if (code > 0) {
      const double to_upper = finite_[code] - magnitude;
      const double to_lower = magnitude - finite_[code - 1];
      if (to_lower < to_upper || (to_lower == to_upper && code % 2 == 1)) --code;
    }
    if (fnuz() && code == 0) return 0;
    return std::signbit(value) ? code | 0x80 : code;
  }

 private:
  Fp8Form form_;
  std::vector<double> finite_;  // by code, ascending
};

class Fp8Test : public ::testing::TestWithParam<Fp8Form> {
 protected:
  void ExpectEncoded(float value) {
    const int expected = form_.Encode(value);
    const int got = Fp8BitsFromFloat(form_.form(), value);
    EXPECT_EQ(got, expected) << value << " (0x" << std::hex << std::bit_cast<uint32_t>(value)
                             << ")";
  }

  Form form_{GetParam()};
};

TEST_P(Fp8Test, EveryByteIsDecodedAndEncodedBack) {
  for (int code = 0; code < 256; ++code) {
    SCOPED_TRACE(code);
    const float value = FloatFromFp8Bits(form_.form(), static_cast<uint8_t>(code));
    const double expected = form_.Decode(code);
    if (std::isnan(expected)) {
      EXPECT_TRUE(std::isnan(value));
      EXPECT_EQ(Fp8BitsFromFloat(form_.form(), value), form_.NanCode());
      continue;
    }
    EXPECT_EQ(value, expected);
    EXPECT_EQ(std::signbit(value), std::signbit(expected));
    EXPECT_EQ(Fp8BitsFromFloat(form_.form(), value), code);
  }
}

TEST_P(Fp8Test, Every16BitFloatBecomesTheNearest) {
  for (int bits = 0; bits < 0x10000; ++bits) {
    for (const DType dtype : {DType::kBFloat16, DType::kFloat16}) {
      ExpectEncoded(FloatFromBits(dtype, static_cast<uint16_t>(bits)));
    }
    if (HasFailure()) return;
  }
}

TEST_P(Fp8Test, FloatsAroundEveryTieBecomeTheNearest) {
  for (int code = 0; code <= form_.LargestCode(); ++code) {
    const double value = form_.Decode(code);
    const double next = code == form_.LargestCode() ? value * 1.1 : form_.Decode(code + 1);
    const auto tie = static_cast<float>((value + next) / 2);
    for (const float sign : {1.0F, -1.0F}) {
      ExpectEncoded(sign * tie);
      ExpectEncoded(sign * std::nextafter(tie, 0.0F));
      ExpectEncoded(sign * std::nextafter(tie, kInfinity));
    }
  }
  std::mt19937 random(7);
  for (int i = 0; i < 200'000; ++i) {
    ExpectEncoded(std::bit_cast<float>(static_cast<uint32_t>(random())));
    if (HasFailure()) return;
  }
}

TEST_P(Fp8Test, InfinitiesSaturateAndNanStays) {
  const auto encode = [&](float value) { return Fp8BitsFromFloat(GetParam(), value); };
  const int largest = form_.LargestCode();
  EXPECT_EQ(encode(kInfinity), largest);
  EXPECT_EQ(encode(-kInfinity), largest | 0x80);
  EXPECT_EQ(encode(std::numeric_limits<float>::max()), largest);
  EXPECT_EQ(encode(kNan), form_.NanCode());
  EXPECT_EQ(encode(-kNan), form_.NanCode());
  EXPECT_EQ(encode(std::numeric_limits<float>::denorm_min()), 0);
  EXPECT_EQ(encode(-0.0F), form_.fnuz() ? 0 : 0x80);
}

// A row and what it is quantised to.
struct Row {
  EpConfig config;
  std::vector<uint16_t> x;
  std::vector<uint8_t> fp8;
  std::vector<uint32_t> scales;

  float Scale(int group) const { return ScaleOfGroup(config.scale_format, scales, group); }
};

Row Quantized(const EpConfig& config, const std::vector<float>& values) {
  Row row;
  row.config = config;
  for (const float value : values) row.x.push_back(BitsFromFloat(config.dtype, value));
  row.fp8.resize(row.x.size());
  row.scales.assign(static_cast<size_t>(config.scale_words()), 0xdeadbeefU);
  ReferenceQuantize(config, row.x, absl::MakeSpan(row.fp8), absl::MakeSpan(row.scales));
  return row;
}

EpConfig ConfigOf(Fp8Form form, int hidden, ScaleFormat scales, int group = 128) {
  EpConfig config;
  config.hidden = hidden;
  config.dispatch_format = DispatchFormat::kQuantizedFp8;
  config.scale_format = scales;
  config.scale_group = group;
  config.fp8_form = form;
  return config;
}

constexpr ScaleFormat kScaleFormats[] = {ScaleFormat::kFloat32, ScaleFormat::kPowerOfTwo,
                                         ScaleFormat::kUe8m0};

// All of a random row's scales and bytes, by the definition.
TEST_P(Fp8Test, RowsAreQuantisedByGroups) {
  std::mt19937 random(11);
  std::normal_distribution<float> normal;
  for (const int hidden : {8, 24, 120, 128, 136, 512, 7168}) {
    for (const int group : {64, 128, 256}) {
      for (const ScaleFormat scales : kScaleFormats) {
        SCOPED_TRACE(testing::Message() << hidden << " columns, groups of " << group);
        const EpConfig config = ConfigOf(form_.form(), hidden, scales, group);
        std::vector<float> values(static_cast<size_t>(hidden));
        const float spread = std::ldexp(1.0F, static_cast<int>(random() % 40) - 20);
        for (float& value : values) value = normal(random) * spread;
        const Row row = Quantized(config, values);
        std::vector<float> back(values.size());
        Dequantize(config, row.fp8, row.scales, absl::MakeSpan(back));
        for (int i = 0; i < hidden; ++i) {
          float amax = 0;
          for (int j = i / group * group; j < std::min(hidden, (i / group + 1) * group); ++j) {
            amax = std::max(amax, std::abs(FloatFromBits(config.dtype, row.x[j])));
          }
          float scale = amax / static_cast<float>(form_.Largest());
          if (scales != ScaleFormat::kFloat32) scale = std::exp2(std::ceil(std::log2(scale)));
          ASSERT_EQ(row.Scale(i / group), scale);
          const float quotient = FloatFromBits(config.dtype, row.x[i]) / scale;
          ASSERT_EQ(row.fp8[i], form_.Encode(quotient)) << i;
          ASSERT_EQ(back[i], static_cast<float>(form_.Decode(row.fp8[i])) * scale) << i;
        }
      }
    }
  }
}

TEST_P(Fp8Test, ScalesOfSpecialGroups) {
  const auto largest = static_cast<float>(form_.Largest());
  for (const ScaleFormat scales : kScaleFormats) {
    // A group each of: zeros; an infinity; NaN; the smallest bf16; the largest; exactly the largest
    // fp8; and the shorter last one.
    constexpr int kWidth = 64;
    std::vector<float> values(6 * kWidth + 8);
    values[0] = -0.0F;
    values[1 * kWidth + 5] = -kInfinity;
    values[1 * kWidth + 6] = 1;
    values[2 * kWidth + 63] = kNan;
    values[3 * kWidth] = std::ldexp(-1.0F, -133);
    values[4 * kWidth] = FloatFromBits(DType::kBFloat16, 0x7f7f);
    values[5 * kWidth] = -largest;
    values[5 * kWidth + 1] = 1;
    values[6 * kWidth + 7] = 2 * largest;
    const Row row =
        Quantized(ConfigOf(form_.form(), static_cast<int>(values.size()), scales, kWidth), values);
    const std::vector<uint8_t>& fp8 = row.fp8;
    EXPECT_EQ(row.Scale(0), 1.0F);
    EXPECT_EQ(fp8[0], form_.fnuz() ? 0 : 0x80);
    EXPECT_EQ(std::count(fp8.begin() + 1, fp8.begin() + kWidth, 0), kWidth - 1);
    for (const int poisoned : {1, 2}) {
      EXPECT_TRUE(std::isnan(row.Scale(poisoned)));
      const auto first = fp8.begin() + poisoned * kWidth;
      EXPECT_EQ(std::count(first, first + kWidth, form_.NanCode()), kWidth);
    }
    EXPECT_EQ(row.Scale(3), std::ldexp(1.0F, -90));
    EXPECT_EQ(fp8[3 * kWidth] & 0x7f, 0);
    EXPECT_EQ(fp8[4 * kWidth], scales == ScaleFormat::kFloat32
                                   ? form_.LargestCode()
                                   : form_.Encode(form_.fnuz() ? 128 : 256));
    EXPECT_EQ(row.Scale(5), 1.0F);
    EXPECT_EQ(fp8[5 * kWidth], form_.LargestCode() | 0x80);
    EXPECT_EQ(fp8[5 * kWidth + 1], form_.Encode(1));
    EXPECT_EQ(row.Scale(6), 2.0F);
    if (scales == ScaleFormat::kUe8m0) {
      const std::vector<uint32_t> expected = {
          127U | 0xffU << 8 | 0xffU << 16 | (127U - 90U) << 24,
          (127U + (form_.fnuz() ? 121U : 120U)) | 127U << 8 | 128U << 16};
      EXPECT_EQ(row.scales, expected);
    }
  }
}

TEST_P(Fp8Test, PowersOfTwoAreTheNextAbove) {
  const auto largest = static_cast<float>(form_.Largest());
  for (const float factor : {0.5F, 0.51F, 1.0F, 1.01F, 1.99F}) {
    const Row row = Quantized(ConfigOf(form_.form(), 8, ScaleFormat::kPowerOfTwo),
                              std::vector<float>(8, factor * largest));
    EXPECT_EQ(row.Scale(0), factor <= 0.5F ? 0.5F : factor <= 1 ? 1.0F : 2.0F) << factor;
  }
}

INSTANTIATE_TEST_SUITE_P(Forms, Fp8Test, ::testing::Values(Fp8Form::kE4m3Fn, Fp8Form::kE4m3Fnuz),
                         [](const auto& param) { return std::string(EnumName(param.param)); });

TEST(Fp8FormTest, NativeIsOneOfThem) {
  const Fp8Form native = WithNativeFp8(Fp8Form::kNative);
  EXPECT_NE(native, Fp8Form::kNative);
  EXPECT_EQ(Fp8BitsFromFloat(Fp8Form::kNative, 1e6F), Fp8BitsFromFloat(native, 1e6F));
  EXPECT_EQ(FloatFromFp8Bits(Fp8Form::kNative, 0x7e), FloatFromFp8Bits(native, 0x7e));
}

TEST(Ue8m0Test, EveryByte) {
  for (int byte = 0; byte < 255; ++byte) {
    const std::vector<uint32_t> word = {static_cast<uint32_t>(byte) << 8};
    EXPECT_EQ(ScaleOfGroup(ScaleFormat::kUe8m0, word, 1), std::ldexp(1.0F, byte - 127));
  }
  const std::vector<uint32_t> word = {0xff000000U};
  EXPECT_TRUE(std::isnan(ScaleOfGroup(ScaleFormat::kUe8m0, word, 3)));
}

}  // namespace
}  // namespace octet
