// The contract of device_ops.h, on whichever platform this is built for.
#include <gtest/gtest.h>
#include <hip/hip_runtime.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <ios>
#include <limits>
#include <random>
#include <vector>

#include "octet/native_fp8.h"
#include "tests/platform/device_ops_kernels.h"

namespace octet {
namespace {

#define ASSERT_GPU(call) ASSERT_EQ((call), hipSuccess) << #call

// Zeroed device memory of n elements.
template <typename T>
class DeviceArray {
 public:
  explicit DeviceArray(size_t n) : n_(n) {
    void* memory = nullptr;
    EXPECT_EQ(hipMalloc(&memory, n * sizeof(T)), hipSuccess);
    EXPECT_EQ(hipMemset(memory, 0, n * sizeof(T)), hipSuccess);
    data_ = static_cast<T*>(memory);
  }
  explicit DeviceArray(const std::vector<T>& values) : DeviceArray(values.size()) {
    EXPECT_EQ(hipMemcpy(data_, values.data(), n_ * sizeof(T), hipMemcpyHostToDevice), hipSuccess);
  }
  DeviceArray(const DeviceArray&) = delete;
  DeviceArray& operator=(const DeviceArray&) = delete;
  ~DeviceArray() { (void)hipFree(data_); }

  T* data() const { return data_; }
  std::vector<T> ToHost() const {
    std::vector<T> values(n_);
    EXPECT_EQ(hipMemcpy(values.data(), data_, n_ * sizeof(T), hipMemcpyDeviceToHost), hipSuccess);
    return values;
  }
  T Value() const { return ToHost().at(0); }

 private:
  size_t n_;
  T* data_ = nullptr;
};

// A 16-bit binary format, by its definition.
struct Format {
  const char* name;
  int exponent_bits;
  int mantissa_bits;

  int MinExponent() const { return 2 - (1 << (exponent_bits - 1)); }
  int MaxExponent() const { return (1 << (exponent_bits - 1)) - 1; }
  uint16_t Infinity() const {
    return static_cast<uint16_t>(((1 << exponent_bits) - 1) << mantissa_bits);
  }

  double Decode(uint16_t bits) const {
    const int exponent = (bits & 0x7fff) >> mantissa_bits;
    const int mantissa = bits & ((1 << mantissa_bits) - 1);
    double value = 0;
    if (exponent == (1 << exponent_bits) - 1) {
      value = mantissa != 0 ? std::numeric_limits<double>::quiet_NaN()
                            : std::numeric_limits<double>::infinity();
    } else if (exponent == 0) {
      value = std::ldexp(mantissa, MinExponent() - mantissa_bits);
    } else {
      value =
          std::ldexp(mantissa + (1 << mantissa_bits), MinExponent() + exponent - 1 - mantissa_bits);
    }
    return (bits & 0x8000) != 0 ? -value : value;
  }

  // Rounds to nearest even; not for NaN.
  uint16_t Encode(float x) const {
    const uint16_t sign = std::signbit(x) ? 0x8000 : 0;
    const double magnitude = std::abs(static_cast<double>(x));
    if (magnitude == 0) return sign;
    if (std::isinf(magnitude)) return sign | Infinity();
    const int exponent = std::max(std::ilogb(magnitude), MinExponent());
    // In units of the last place; nearbyint rounds to nearest even by default.
    const auto units =
        static_cast<int>(std::nearbyint(std::ldexp(magnitude, mantissa_bits - exponent)));
    // A mantissa that rounded up to the next power of two carries into the exponent by itself.
    const int bits = ((exponent - MinExponent()) << mantissa_bits) + units;
    return sign | static_cast<uint16_t>(std::min<int>(bits, Infinity()));
  }
};

constexpr Format kBf16 = {"bf16", 8, 7};
constexpr Format kFp16 = {"fp16", 5, 10};

// Values of both formats, the ties between them, both neighbours of every tie, and noise.
std::vector<float> InterestingFloats() {
  std::vector<float> floats;
  for (const Format& format : {kBf16, kFp16}) {
    for (uint32_t bits = 0; bits < 0x10000; ++bits) {
      const double value = format.Decode(static_cast<uint16_t>(bits));
      floats.push_back(static_cast<float>(value));
      if (!std::isfinite(value)) continue;
      double next = format.Decode(static_cast<uint16_t>(bits + 1));
      if (!std::isfinite(next)) {
        next = std::copysign(std::ldexp(1, format.MaxExponent() + 1), value);
      }
      const auto tie = static_cast<float>(value / 2 + next / 2);
      floats.push_back(tie);
      floats.push_back(std::nextafter(tie, 0.0F));
      floats.push_back(std::nextafter(tie, std::copysign(HUGE_VALF, tie)));
    }
  }
  for (const uint32_t bits : {0x7f800001U, 0xffc00001U, 0x7fffffffU, 0xff800001U, 1U, 0x80000001U,
                              0x007fffffU, 0x7f7fffffU, 0xff7fffffU}) {
    floats.push_back(std::bit_cast<float>(bits));
  }
  std::mt19937 random(1234);
  for (int i = 0; i < 100'000; ++i) {
    floats.push_back(std::bit_cast<float>(static_cast<uint32_t>(random())));
  }
  if (floats.size() % 2 != 0) floats.push_back(1.0F);
  return floats;
}

class DeviceOpsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    int devices = 0;
    const hipError_t error = hipGetDeviceCount(&devices);
    if (error != hipSuccess || devices == 0) {
      GTEST_SKIP() << "no GPU: " << hipGetErrorString(error);
    }
    ASSERT_GPU(hipSetDevice(0));
    ASSERT_GPU(hipStreamCreateWithFlags(&stream_, hipStreamNonBlocking));
    // Fresh memory is zeroed on the default stream, which stream_ does not wait for.
    ASSERT_GPU(hipDeviceSynchronize());
  }
  void TearDown() override {
    if (stream_ != nullptr) {
      EXPECT_EQ(hipStreamDestroy(stream_), hipSuccess);
    }
  }

  hipStream_t stream_ = nullptr;
};

TEST_F(DeviceOpsTest, LanesOfAWaveSeeEachOther) {
  constexpr int kThreads = 256;
  DeviceArray<PlatformFacts> facts(1);
  DeviceArray<WaveAnswers> answers(kThreads);
  ASSERT_GPU(hipDeviceSynchronize());
  ASSERT_GPU(
      LaunchWaves({facts.data(), answers.data()}, {.blocks = 1, .threads = kThreads}, stream_));
  ASSERT_GPU(hipStreamSynchronize(stream_));

  const int wave_size = facts.Value().wave_size;
  ASSERT_TRUE(wave_size == 32 || wave_size == 64) << wave_size;
  EXPECT_LE(facts.Value().min_wave_size, wave_size);
  const uint64_t odd = wave_size == 64 ? 0xaaaaaaaaaaaaaaaaU : 0xaaaaaaaaU;
  const std::vector<WaveAnswers> got = answers.ToHost();
  for (int thread = 0; thread < kThreads; ++thread) {
    SCOPED_TRACE(thread);
    const int lane = thread % wave_size;
    const int first = thread - lane;
    const int next = first + (lane + 1) % wave_size;
    EXPECT_EQ(got[thread].lane, lane);
    EXPECT_EQ(got[thread].wave, thread / wave_size);
    EXPECT_EQ(got[thread].from_lane_3, static_cast<uint32_t>(first + 3));
    EXPECT_EQ(got[thread].rotated, (static_cast<uint64_t>(next) << 40) + 7);
    EXPECT_EQ(got[thread].xor_1, static_cast<float>(thread ^ 1) + 0.5F);
    EXPECT_EQ(got[thread].xor_half, static_cast<uint32_t>(thread ^ (wave_size / 2)));
    EXPECT_EQ(got[thread].up_5, static_cast<uint64_t>(lane < 5 ? thread : thread - 5) << 33);
    EXPECT_EQ(got[thread].odd_threads, odd);
    EXPECT_EQ(got[thread].neighbour, static_cast<uint32_t>(next) * 3);
  }
}

TEST_F(DeviceOpsTest, ConversionsEqualTheDefinitionOfTheFormats) {
  const std::vector<float> floats = InterestingFloats();
  std::vector<uint32_t> bits;
  for (uint32_t i = 0; i < 0x10000; ++i) bits.push_back(i | (i ^ 0xffffU) << 16);
  const DeviceArray<float> device_floats(floats);
  const DeviceArray<uint32_t> device_bits(bits);
  DeviceArray<uint32_t> bf16(floats.size() / 2);
  DeviceArray<uint32_t> fp16(floats.size() / 2);
  DeviceArray<float> from_bf16(2 * bits.size());
  DeviceArray<float> from_fp16(2 * bits.size());
  ASSERT_GPU(hipDeviceSynchronize());
  ASSERT_GPU(LaunchConvert({.floats = device_floats.data(),
                            .bf16 = bf16.data(),
                            .fp16 = fp16.data(),
                            .pairs = static_cast<int>(floats.size() / 2),
                            .bits = device_bits.data(),
                            .from_bf16 = from_bf16.data(),
                            .from_fp16 = from_fp16.data(),
                            .bit_pairs = static_cast<int>(bits.size()),
                            .fp8 = nullptr,
                            .bf16_from_fp8 = nullptr,
                            .fp8_vecs = 0},
                           {.blocks = 16, .threads = 256}, stream_));
  ASSERT_GPU(hipStreamSynchronize(stream_));

  const auto half = [](uint32_t pair, size_t which) {
    return static_cast<uint16_t>(which == 0 ? pair : pair >> 16);
  };
  const auto check_pack = [&](const Format& format, const std::vector<uint32_t>& packed) {
    int wrong = 0;
    for (size_t i = 0; i < floats.size(); ++i) {
      const uint16_t got = half(packed[i / 2], i % 2);
      const bool ok =
          std::isnan(floats[i]) ? std::isnan(format.Decode(got)) : got == format.Encode(floats[i]);
      if (!ok && ++wrong <= 5) {
        ADD_FAILURE() << format.name << " of " << floats[i] << " (0x" << std::hex
                      << std::bit_cast<uint32_t>(floats[i]) << ") is 0x" << got << ", not 0x"
                      << format.Encode(floats[i]);
      }
    }
    EXPECT_EQ(wrong, 0) << format.name;
  };
  check_pack(kBf16, bf16.ToHost());
  check_pack(kFp16, fp16.ToHost());

  const auto check_unpack = [&](const Format& format, const std::vector<float>& unpacked) {
    int wrong = 0;
    for (size_t i = 0; i < unpacked.size(); ++i) {
      const uint16_t from = half(bits[i / 2], i % 2);
      const auto expected = static_cast<float>(format.Decode(from));
      const bool ok = std::isnan(expected) ? std::isnan(unpacked[i])
                                           : std::bit_cast<uint32_t>(expected) ==
                                                 std::bit_cast<uint32_t>(unpacked[i]);
      if (!ok && ++wrong <= 5) {
        ADD_FAILURE() << format.name << " 0x" << std::hex << from << " gives " << unpacked[i]
                      << ", not " << expected;
      }
    }
    EXPECT_EQ(wrong, 0) << format.name;
  };
  check_unpack(kBf16, from_bf16.ToHost());
  check_unpack(kFp16, from_fp16.ToHost());
}

// All 256 codes in each of the eight places, beside others.
TEST_F(DeviceOpsTest, Fp8NumbersBecomeBf16) {
  constexpr int kCodes = 256;
  constexpr int kPlaces = 8;
  std::mt19937 random(5);
  std::vector<uint8_t> codes;
  for (int code = 0; code < kCodes; ++code) {
    for (int place = 0; place < kPlaces; ++place) {
      for (int i = 0; i < kPlaces; ++i) {
        const uint32_t other =
            code % 2 == 0 ? random() % 0x7F : random();  // without NaNs, and with
        codes.push_back(static_cast<uint8_t>(i == place ? static_cast<uint32_t>(code) : other));
      }
    }
  }
  std::vector<uint32_t> words(codes.size() / sizeof(uint32_t));
  std::memcpy(words.data(), codes.data(), codes.size());
  const DeviceArray<uint32_t> fp8(words);
  const DeviceArray<uint32_t> bf16(codes.size() / 2);
  ConvertParams params = {};
  params.fp8 = fp8.data();
  params.bf16_from_fp8 = bf16.data();
  params.fp8_vecs = kCodes * kPlaces;
  ASSERT_GPU(LaunchConvert(params, {.blocks = 4, .threads = 64}, stream_));
  ASSERT_GPU(hipStreamSynchronize(stream_));
  const std::vector<uint32_t> got = bf16.ToHost();
  for (size_t i = 0; i < codes.size(); ++i) {
    const float want = FloatFromFp8(NativeFp8{codes[i]});
    const uint32_t bits = (i % 2 == 0 ? got[i / 2] : got[i / 2] >> 16) << 16;
    if (std::isnan(want)) {
      EXPECT_TRUE(std::isnan(std::bit_cast<float>(bits))) << "code " << int{codes[i]};
    } else {
      EXPECT_EQ(bits, std::bit_cast<uint32_t>(want)) << "code " << int{codes[i]};
    }
  }
}

TEST_F(DeviceOpsTest, AtomicsLoseNothing) {
  constexpr uint32_t kBlocks = 8;
  constexpr uint32_t kThreads = 128;
  constexpr uint32_t kAll = kBlocks * kThreads;
  DeviceArray<uint32_t> block_sums(kBlocks);
  DeviceArray<uint64_t> device_count(1);
  DeviceArray<uint32_t> tickets(kAll);
  DeviceArray<uint32_t> ticket_count(1);
  DeviceArray<int32_t> negative(1);
  DeviceArray<uint32_t> token(1);
  DeviceArray<uint64_t> token_sum(1);
  ASSERT_GPU(hipDeviceSynchronize());
  ASSERT_GPU(LaunchAtomics({.block_sums = block_sums.data(),
                            .device_count = device_count.data(),
                            .tickets = tickets.data(),
                            .ticket_count = ticket_count.data(),
                            .negative = negative.data(),
                            .token = token.data(),
                            .token_sum = token_sum.data()},
                           {.blocks = kBlocks, .threads = kThreads}, stream_));
  ASSERT_GPU(hipStreamSynchronize(stream_));

  EXPECT_EQ(block_sums.ToHost(), std::vector<uint32_t>(kBlocks, kThreads));
  EXPECT_EQ(device_count.Value(), uint64_t{kAll} << 32);
  EXPECT_EQ(ticket_count.Value(), kAll);
  EXPECT_EQ(negative.Value(), -static_cast<int32_t>(kAll));
  std::vector<uint32_t> drawn = tickets.ToHost();
  std::sort(drawn.begin(), drawn.end());
  for (uint32_t i = 0; i < kAll; ++i) EXPECT_EQ(drawn[i], i);
  // Every thread's token was taken out by another one, but for the last, which is still there.
  EXPECT_EQ(token_sum.Value() + token.Value(), uint64_t{kAll} * (kAll + 1) / 2);
}

TEST_F(DeviceOpsTest, MessagesArriveWhole) {
  constexpr int kRounds = 200;
  constexpr int kVecs = 300;
  constexpr int kThreads = 128;
  DeviceArray<uint32_t> rows(static_cast<size_t>(kRounds) * kVecs * 4);
  DeviceArray<uint32_t> packets(kThreads * 4);
  DeviceArray<uint64_t> flag(1);
  DeviceArray<uint32_t> packets_wrong(1);
  DeviceArray<uint32_t> rows_wrong(1);
  DeviceArray<uint32_t> timeouts(1);
  ASSERT_GPU(hipDeviceSynchronize());
  ASSERT_GPU(LaunchMessages({.rows = rows.data(),
                             .packets = packets.data(),
                             .flag = flag.data(),
                             .packets_wrong = packets_wrong.data(),
                             .rows_wrong = rows_wrong.data(),
                             .timeouts = timeouts.data(),
                             .rounds = kRounds,
                             .vecs = kVecs},
                            {.blocks = 2, .threads = kThreads}, stream_));
  ASSERT_GPU(hipStreamSynchronize(stream_));

  EXPECT_EQ(timeouts.Value(), 0U);
  EXPECT_EQ(rows_wrong.Value(), 0U);
  EXPECT_EQ(packets_wrong.Value(), 0U);
  EXPECT_EQ(flag.Value(), uint64_t{kRounds});
  EXPECT_EQ(packets.ToHost(), std::vector<uint32_t>(kThreads * 4, kRounds));
}

TEST_F(DeviceOpsTest, ClockAdvances) {
  DeviceArray<PlatformFacts> facts(1);
  DeviceArray<WaveAnswers> answers(64);
  DeviceArray<uint64_t> ticks(1);
  DeviceArray<uint32_t> backwards(1);
  ASSERT_GPU(hipDeviceSynchronize());
  ASSERT_GPU(LaunchWaves({facts.data(), answers.data()}, {.blocks = 1, .threads = 64}, stream_));
  ASSERT_GPU(LaunchClock({ticks.data(), backwards.data()}, stream_));
  ASSERT_GPU(hipStreamSynchronize(stream_));

  EXPECT_EQ(backwards.Value(), 0U);
  EXPECT_GE(ticks.Value(), facts.Value().clock_hz / 10'000);
}

}  // namespace
}  // namespace octet
