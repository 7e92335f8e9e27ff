// Conversion and quantisation by a GPU (fp8_ops.h, kernels/types/fp8_quantize.h) against the
// host's (octet/fp8.h, kernels/types/fp8_rows.h), to the bit.
#include <gtest/gtest.h>
#include <hip/hip_runtime.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <ios>
#include <limits>
#include <random>
#include <string>
#include <tuple>
#include <vector>

#include "kernels/types/fp8_rows.h"
#include "octet/dtype.h"
#include "octet/ep_config.h"
#include "octet/fp8.h"
#include "runtime/memory/device_memory.h"
#include "tests/kernels/types/fp8_kernels.h"

namespace octet {
namespace {

#define ASSERT_GPU(call) ASSERT_EQ((call), hipSuccess) << #call

bool HasGpu() {
  int devices = 0;
  return hipGetDeviceCount(&devices) == hipSuccess && devices > 0;
}

template <typename T>
DeviceMemory OnDevice(const std::vector<T>& values) {
  absl::StatusOr<DeviceMemory> memory = DeviceMemory::Allocate(values.size() * sizeof(T));
  EXPECT_TRUE(memory.ok()) << memory.status();
  EXPECT_EQ(hipMemcpy(memory->as<void>(), values.data(), values.size() * sizeof(T),
                      hipMemcpyHostToDevice),
            hipSuccess);
  return *std::move(memory);
}

template <typename T>
std::vector<T> ToHost(const DeviceMemory& memory, size_t n) {
  std::vector<T> values(n);
  EXPECT_EQ(hipMemcpy(values.data(), memory.as<void>(), n * sizeof(T), hipMemcpyDeviceToHost),
            hipSuccess);
  return values;
}

// All 16-bit floats of both kinds, all that lies around a tie of either form, and random ones.
std::vector<float> InterestingFloats() {
  std::vector<float> floats;
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    for (const DType dtype : {DType::kBFloat16, DType::kFloat16}) {
      floats.push_back(FloatFromBits(dtype, static_cast<uint16_t>(bits)));
    }
  }
  for (const Fp8Form form : {Fp8Form::kE4m3Fn, Fp8Form::kE4m3Fnuz}) {
    for (int code = 0; code < 0x7e; ++code) {
      const float tie = (FloatFromFp8Bits(form, static_cast<uint8_t>(code)) +
                         FloatFromFp8Bits(form, static_cast<uint8_t>(code + 1))) /
                        2;
      for (const float value : {tie, std::nextafter(tie, 0.0F), std::nextafter(tie, 1e9F)}) {
        floats.push_back(value);
        floats.push_back(-value);
      }
    }
  }
  std::mt19937 random(3);
  while (floats.size() < 200'000) {
    floats.push_back(std::bit_cast<float>(static_cast<uint32_t>(random())));
  }
  return floats;
}

TEST(PackFp8Test, EqualsTheHost) {
  if (!HasGpu()) GTEST_SKIP() << "no GPU";
  const std::vector<float> floats = InterestingFloats();
  const size_t words = floats.size() / 4;
  const DeviceMemory device_floats = OnDevice(floats);
  const DeviceMemory fn = OnDevice(std::vector<uint32_t>(words));
  const DeviceMemory fnuz = OnDevice(std::vector<uint32_t>(words));
  ASSERT_GPU(LaunchPackFp8({.floats = device_floats.as<float>(),
                            .fn = fn.as<uint32_t>(),
                            .fnuz = fnuz.as<uint32_t>(),
                            .words = static_cast<int>(words)},
                           {.blocks = 8, .threads = 256}, nullptr));
  ASSERT_GPU(hipDeviceSynchronize());
  const std::vector<uint8_t> got_fn = ToHost<uint8_t>(fn, 4 * words);
  const std::vector<uint8_t> got_fnuz = ToHost<uint8_t>(fnuz, 4 * words);
  for (size_t i = 0; i < 4 * words; ++i) {
    const auto bits = std::bit_cast<uint32_t>(floats[i]);
    ASSERT_EQ(got_fn[i], Fp8BitsFromFloat(Fp8Form::kE4m3Fn, floats[i])) << std::hex << bits;
    ASSERT_EQ(got_fnuz[i], Fp8BitsFromFloat(Fp8Form::kE4m3Fnuz, floats[i])) << std::hex << bits;
  }
}

// Rows of bits of config.dtype.
using Rows = std::vector<uint16_t>;

class QuantizeTest : public ::testing::TestWithParam<std::tuple<DType, Fp8Form>> {
 protected:
  void SetUp() override {
    if (!HasGpu()) GTEST_SKIP() << "no GPU";
  }

  DType dtype() const { return std::get<0>(GetParam()); }

  EpConfig ConfigOf(int hidden, int group, ScaleFormat format) const {
    EpConfig config;
    config.hidden = hidden;
    config.dtype = dtype();
    config.dispatch_format = DispatchFormat::kQuantizedFp8;
    config.scale_format = format;
    config.scale_group = group;
    config.fp8_form = std::get<1>(GetParam());
    return config;
  }

  // A random row, as large as 2^exponent or so.
  void AppendRow(Rows& rows, int hidden, int exponent) {
    std::normal_distribution<float> normal;
    for (int i = 0; i < hidden; ++i) {
      rows.push_back(BitsFromFloat(dtype(), std::ldexp(normal(random_), exponent)));
    }
  }

  // One element in each group of 64 columns at least is `bits`, where `every` is 64.
  static void Plant(Rows& rows, int hidden, int every, uint16_t bits) {
    for (size_t i = rows.size() - static_cast<size_t>(hidden); i < rows.size();
         i += static_cast<size_t>(every)) {
      rows[i] = bits;
    }
  }

  Rows RowsOf(int hidden) {
    const uint16_t infinity = dtype() == DType::kBFloat16 ? 0x7f80 : 0x7c00;
    Rows rows;
    for (const int exponent : {0, 3, -8, -20, -85, -95, -130, 14, 120}) {
      AppendRow(rows, hidden, exponent);
    }
    rows.resize(rows.size() + static_cast<size_t>(hidden));  // zeros
    AppendRow(rows, hidden, 0);
    Plant(rows, hidden, 256, infinity);
    AppendRow(rows, hidden, 0);
    Plant(rows, hidden, 192, infinity | 0x8001);  // NaN
    AppendRow(rows, hidden, -100);
    Plant(rows, hidden, 64, infinity - 1);  // the largest finite
    AppendRow(rows, hidden, 0);
    Plant(rows, hidden, 2, 0x8000);
    AppendRow(rows, hidden, 0);
    for (size_t i = rows.size() - static_cast<size_t>(hidden); i < rows.size(); ++i) {
      rows[i] = static_cast<uint16_t>(random_());  // any bits
    }
    return rows;
  }

  void ExpectAsOnTheHost(const EpConfig& config, const Rows& x) {
    const auto hidden = static_cast<size_t>(config.hidden);
    const auto scale_words = static_cast<size_t>(config.scale_words());
    const size_t rows = x.size() / hidden;
    const DeviceMemory device_x = OnDevice(x);
    const DeviceMemory fp8 = OnDevice(std::vector<uint8_t>(x.size(), 0xee));
    const DeviceMemory scales = OnDevice(std::vector<uint32_t>(rows * scale_words, 0xeeeeeeeeU));
    ASSERT_GPU(LaunchQuantize({.x = device_x.as<void>(),
                               .fp8 = fp8.as<uint8_t>(),
                               .scales = scales.as<uint32_t>(),
                               .hidden = config.hidden,
                               .scale_words = config.scale_words(),
                               .scale_group = config.scale_group,
                               .format = config.scale_format},
                              config.fp8_form == Fp8Form::kE4m3Fnuz,
                              config.dtype == DType::kFloat16,
                              {.blocks = static_cast<int>(rows), .threads = 128}, nullptr));
    ASSERT_GPU(hipDeviceSynchronize());
    const auto got_fp8 = ToHost<uint8_t>(fp8, x.size());
    const auto got_scales = ToHost<uint32_t>(scales, rows * scale_words);
    std::vector<uint8_t> want_fp8(hidden);
    std::vector<uint32_t> want_scales(scale_words);
    for (size_t row = 0; row < rows; ++row) {
      SCOPED_TRACE(testing::Message() << "row " << row << " of " << hidden << " columns");
      const auto columns = absl::MakeConstSpan(x).subspan(row * hidden, hidden);
      ReferenceQuantize(config, columns, absl::MakeSpan(want_fp8), absl::MakeSpan(want_scales));
      for (size_t i = 0; i < scale_words; ++i) {
        ASSERT_EQ(got_scales[row * scale_words + i], want_scales[i]) << "scale word " << i;
      }
      for (size_t i = 0; i < hidden; ++i) {
        ASSERT_EQ(got_fp8[row * hidden + i], want_fp8[i])
            << "column " << i << ", 0x" << std::hex << columns[i];
      }
    }
  }

  std::mt19937 random_{5};
};

TEST_P(QuantizeTest, RowsOfAllKinds) {
  for (const int hidden : {8, 24, 120, 128, 136, 512, 7168}) {
    const Rows rows = RowsOf(hidden);
    for (const int group : {64, 128, 256}) {
      for (const ScaleFormat format :
           {ScaleFormat::kFloat32, ScaleFormat::kPowerOfTwo, ScaleFormat::kUe8m0}) {
        SCOPED_TRACE(testing::Message()
                     << "groups of " << group << ", format " << static_cast<int>(format));
        ExpectAsOnTheHost(ConfigOf(hidden, group, format), rows);
        if (HasFailure()) return;
      }
    }
  }
}

// The kernel divides by multiplications: of every mantissa over every largest magnitude's, as far
// as quotients do not become zero. Powers of two change nothing, unless what is left over of a
// division is no normal number any more, for which there is a smallest scale.
TEST_P(QuantizeTest, EveryQuotientOfMantissas) {
  constexpr int kExponents = 20;
  constexpr int kGroup = 256;
  const bool bf16 = dtype() == DType::kBFloat16;
  const int mantissas = bf16 ? 128 : 1024;
  const std::vector<int> largest_exponents =
      bf16 ? std::vector<int>{127, 127 - 82, 127 - 118} : std::vector<int>{30};
  for (const int largest_exponent : largest_exponents) {
    for (int mantissa = 0; mantissa < mantissas; ++mantissa) {
      const int largest = largest_exponent * mantissas + mantissa;
      Rows row;
      for (int bits = largest; bits >= 0 && bits > largest - kExponents * mantissas; --bits) {
        if (row.size() % kGroup == 0) row.push_back(static_cast<uint16_t>(largest));
        row.push_back(static_cast<uint16_t>(bits));
      }
      row.resize((row.size() + 7) / 8 * 8);
      ExpectAsOnTheHost(ConfigOf(static_cast<int>(row.size()), kGroup, ScaleFormat::kFloat32), row);
      if (HasFailure()) return;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Forms, QuantizeTest,
                         ::testing::Combine(::testing::Values(DType::kBFloat16, DType::kFloat16),
                                            ::testing::Values(Fp8Form::kE4m3Fn,
                                                              Fp8Form::kE4m3Fnuz)),
                         [](const auto& param) {
                           return std::string(EnumName(std::get<0>(param.param))) + "_" +
                                  std::string(EnumName(std::get<1>(param.param)));
                         });

}  // namespace
}  // namespace octet
