// The generator against its authors' published vectors, and the normal numbers made from it.
#include "tools/workload/philox.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numbers>
#include <vector>

#include "tools/workload/normal.h"

namespace octet {
namespace {

using ::testing::ElementsAre;

// "philox4x32 10" of Random123's kat_vectors.
TEST(Philox, KnownAnswers) {
  EXPECT_THAT(Philox({0, 0, 0, 0}, {0, 0}),
              ElementsAre(0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8));
  EXPECT_THAT(Philox({0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff}, {0xffffffff, 0xffffffff}),
              ElementsAre(0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd));
  EXPECT_THAT(Philox({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}),
              ElementsAre(0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1));
}

TEST(PhiloxStream, CountsInWordZero) {
  PhiloxStream stream(0x299f31d0a4093822, 1, 2, 3);
  for (uint32_t block = 0; block < 3; ++block) {
    for (const uint32_t word : Philox({block, 1, 2, 3}, {0xa4093822, 0x299f31d0})) {
      EXPECT_EQ(stream.Next(), word);
    }
  }
}

TEST(PhiloxStream, DrawsStayInRange) {
  PhiloxStream stream(1, 0, 0, 0);
  std::vector<int> seen(7);
  for (int i = 0; i < 7000; ++i) {
    const uint32_t number = stream.Below(7);
    ASSERT_LT(number, 7U);
    ++seen[number];
    const float f = stream.UniformFloat();
    ASSERT_TRUE(f >= 0 && f < 1);
    const double d = stream.UniformDouble();
    ASSERT_TRUE(d > 0 && d < 1);
  }
  for (const int count : seen) EXPECT_NEAR(count, 1000, 150);
}

TEST(PortableLog, AgreesWithTheLibrary) {
  PhiloxStream stream(2, 0, 0, 0);
  for (int i = 0; i < 100000; ++i) {
    const double x = stream.UniformDouble();
    ASSERT_NEAR(PortableLog(x), std::log(x), 4e-16 * std::fabs(std::log(x)) + 1e-17) << x;
    const double y = 1 / x;
    ASSERT_NEAR(PortableLog(y), std::log(y), 4e-16 * std::log(y) + 1e-17) << y;
  }
  EXPECT_EQ(PortableLog(1.0), 0.0);
}

TEST(PortableSineCosine, AgreesWithTheLibrary) {
  const auto check = [](uint32_t word) {
    const double angle = 2 * std::numbers::pi * (static_cast<double>(word) * 0x1p-32);
    const SineCosine got = PortableSineCosine(word);
    ASSERT_NEAR(got.sine, std::sin(angle), 1e-15) << word;
    ASSERT_NEAR(got.cosine, std::cos(angle), 1e-15) << word;
  };
  PhiloxStream stream(3, 0, 0, 0);
  for (int i = 0; i < 100000; ++i) check(stream.Next());
  for (uint32_t eighth = 0; eighth < 8; ++eighth) {
    for (const uint32_t step : {0U, 1U, 0xffffffffU}) check((eighth << 29) + step);
  }
}

TEST(Normals, HaveTheMomentsAndTailsOfTheDistribution) {
  constexpr size_t kCount = 1 << 20;
  PhiloxStream stream(4, 0, 0, 0);
  std::vector<uint32_t> words(kCount);
  for (uint32_t& word : words) word = stream.Next();
  std::vector<float> normals(kCount);
  NormalsFromWords(words.data(), kCount, normals.data());
  double sum = 0;
  double squares = 0;
  double fourth = 0;
  double neighbours = 0;
  int beyond_two = 0;
  for (size_t i = 0; i < kCount; ++i) {
    const double z = normals[i];
    sum += z;
    squares += z * z;
    fourth += z * z * z * z;
    neighbours += i % 2 == 0 ? z * normals[i + 1] : 0;
    beyond_two += std::fabs(z) > 2 ? 1 : 0;
  }
  EXPECT_NEAR(sum / kCount, 0, 0.005);
  EXPECT_NEAR(squares / kCount, 1, 0.007);
  EXPECT_NEAR(fourth / kCount, 3, 0.06);
  constexpr size_t kPairs = kCount / 2;
  EXPECT_NEAR(neighbours / kPairs, 0, 0.007);
  EXPECT_NEAR(static_cast<double>(beyond_two) / kCount, 0.0455, 0.001);
}

TEST(Normals, ExtremeWordsAreFinite) {
  const std::vector<uint32_t> words = {0, 0, 0, 0xffffffff, 0xffffffff, 0, 0xffffffff, 0xffffffff};
  std::vector<float> normals(words.size());
  NormalsFromWords(words.data(), words.size(), normals.data());
  for (const float z : normals) EXPECT_LT(std::fabs(z), 6.8F);
}

}  // namespace
}  // namespace octet
