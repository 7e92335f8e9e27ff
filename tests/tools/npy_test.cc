// Reading and writing .npy files, and every way in which one can be wrong.
#include "tools/support/npy.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tools/support/atomic_file.h"
#include "tools/workload/philox.h"

namespace octet {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string File(const std::string& header, const std::string& data, char major = 1) {
  std::string file("\x93NUMPY", 6);
  file.push_back(major);
  file.push_back(0);
  for (int i = 0; i < (major == 1 ? 2 : 4); ++i) {
    file.push_back(static_cast<char>(header.size() >> (8 * i)));
  }
  return file + header + data;
}

constexpr size_t kMostBytes = size_t{1} << 20;

constexpr char kGood[] = "{'descr': '<i4', 'fortran_order': False, 'shape': (2, 3), }\n";

std::string Ints(int n) {
  std::string bytes;
  for (int32_t i = 0; i < n; ++i) bytes.append(reinterpret_cast<const char*>(&i), sizeof(i));
  return bytes;
}

// The message for a file that must be refused.
std::string Refusal(const std::string& file) {
  const absl::StatusOr<NpyArray> array = ParseNpy(file);
  EXPECT_EQ(array.status().code(), absl::StatusCode::kInvalidArgument);
  return std::string(array.status().message());
}

TEST(Npy, ReadsAllVersionsAndSpellings) {
  for (const char version : {1, 2, 3}) {
    for (const char* header :
         {kGood, "{\"shape\":(2,3),\"fortran_order\":False,\"descr\":\"<i4\"}",
          "  { 'descr' : '<i4' , 'fortran_order' : False , 'shape' : ( 2L , 3L ) }   \n"}) {
      const absl::StatusOr<NpyArray> array = ParseNpy(File(header, Ints(6), version));
      ASSERT_TRUE(array.ok()) << array.status();
      EXPECT_EQ(array->type, NpyType::kInt32);
      EXPECT_THAT(array->shape, ElementsAre(2, 3));
      EXPECT_THAT(*NpyToInt32(*array), ElementsAre(0, 1, 2, 3, 4, 5));
    }
  }
}

TEST(Npy, ReadsScalarsVectorsAndNothing) {
  const auto parse = [](const std::string& shape, int n) {
    return ParseNpy(
        File("{'descr': '<i4', 'fortran_order': False, 'shape': " + shape + "}", Ints(n)));
  };
  EXPECT_THAT(parse("()", 1)->shape, ElementsAre());
  EXPECT_THAT(parse("(4,)", 4)->shape, ElementsAre(4));
  EXPECT_THAT(parse("(0, 9223372036854775807)", 0)->shape,
              ElementsAre(0, std::numeric_limits<int64_t>::max()));
}

TEST(Npy, RefusesWhatIsNoNpyFile) {
  EXPECT_THAT(Refusal(""), HasSubstr("not a .npy file"));
  EXPECT_THAT(Refusal("PK\x03\x04 a zip"), HasSubstr("not a .npy file"));
  EXPECT_THAT(Refusal(File(kGood, Ints(6), 4)), HasSubstr("version 4.0 is unknown"));
  EXPECT_THAT(Refusal(File(kGood, Ints(6), 0)), HasSubstr("version 0.0 is unknown"));
}

TEST(Npy, RefusesEveryShorterFile) {
  for (const char version : {1, 2}) {
    const std::string file = File(kGood, Ints(6), version);
    for (size_t size = 0; size < file.size(); ++size) Refusal(file.substr(0, size));
  }
  EXPECT_THAT(Refusal(File(kGood, Ints(5))), HasSubstr("takes 24 bytes, but 20 are there: the file "
                                                       "is cut short"));
  EXPECT_THAT(Refusal(File(kGood, Ints(7))), HasSubstr("takes 24 bytes, but 28 are there"));
}

TEST(Npy, RefusesLongHeaders) {
  std::string file = File(kGood, Ints(6), 2);
  std::memcpy(&file[8], "\xff\xff\xff\xff", 4);
  EXPECT_THAT(Refusal(file), HasSubstr("4294967295 bytes, which is too long"));
  file = File(kGood, "", 1);
  std::memcpy(&file[8], "\xff\x00", 2);
  EXPECT_THAT(Refusal(file), HasSubstr("claims to have 255 bytes, but the file has"));
}

TEST(Npy, RefusesOtherOrdersAndTypes) {
  const auto header = [](const std::string& descr, const std::string& order) {
    return File("{'descr': " + descr + ", 'fortran_order': " + order + ", 'shape': (2, 3)}",
                Ints(6));
  };
  EXPECT_THAT(Refusal(header("'<i4'", "True")), HasSubstr("Fortran order"));
  EXPECT_THAT(Refusal(header("'<i4'", "0")), HasSubstr("neither True nor False"));
  EXPECT_THAT(Refusal(header("'>i4'", "False")), HasSubstr("big endian"));
  EXPECT_THAT(Refusal(header("'|S24'", "False")), HasSubstr("dtype is '|S24'; it must be one of"));
  EXPECT_THAT(Refusal(header("[('a', '<i4')]", "False")), HasSubstr("has fields"));
}

TEST(Npy, RefusesMalformedHeaders) {
  const auto refuse = [](const std::string& header) { return Refusal(File(header, Ints(6))); };
  EXPECT_THAT(refuse("[]"), HasSubstr("not a dictionary"));
  EXPECT_THAT(refuse("{}"), HasSubstr("lacks one of"));
  EXPECT_THAT(refuse("{'descr': '<i4"), HasSubstr("quote is not closed"));
  EXPECT_THAT(refuse("{'descr' '<i4'}"), HasSubstr("no ':'"));
  EXPECT_THAT(refuse("{'descr': '<i4' 'shape': (2, 3)}"), HasSubstr("no ',' or '}'"));
  EXPECT_THAT(refuse("{'descr': '<i4', 'descr': '<i4'}"), HasSubstr("there twice"));
  EXPECT_THAT(refuse("{'other': 1}"), HasSubstr("unknown"));
  EXPECT_THAT(refuse(absl::StrCat(kGood, "x")), HasSubstr("something follows"));
  EXPECT_THAT(refuse("{'shape': 6}"), HasSubstr("not a tuple"));
  EXPECT_THAT(refuse("{'shape': (2, -3)}"), HasSubstr("whole numbers"));
  EXPECT_THAT(refuse("{'shape': (2 3)}"), HasSubstr("not closed"));
  EXPECT_THAT(refuse("{'shape': (99999999999999999999,)}"), HasSubstr("too large"));
}

TEST(Npy, RefusesShapesThatOverflow) {
  const auto refuse = [](const std::string& shape) {
    return Refusal(
        File("{'descr': '<i4', 'fortran_order': False, 'shape': " + shape + "}", Ints(6)));
  };
  EXPECT_THAT(refuse("(4294967296, 4294967296)"), HasSubstr("too large"));
  EXPECT_THAT(refuse("(9223372036854775807,)"), HasSubstr("too large"));
  std::string many = "(";
  for (int i = 0; i < 33; ++i) many += "1, ";
  EXPECT_THAT(refuse(many + ")"), HasSubstr("too many dimensions"));
}

TEST(Npy, SurvivesRandomDamage) {
  const std::string good = File(kGood, Ints(6));
  PhiloxStream random(1, 0, 0, 0);
  for (int i = 0; i < 20000; ++i) {
    std::string file = good;
    for (uint32_t n = 1 + random.Below(4); n > 0; --n) {
      file[random.Below(static_cast<uint32_t>(file.size()))] = static_cast<char>(random.Next());
    }
    const absl::StatusOr<NpyArray> array = ParseNpy(file);
    if (array.ok()) EXPECT_EQ(array->data.size(), 24U);
  }
}

TEST(Npy, ConvertsInt64WithARangeCheck) {
  NpyArray array;
  array.type = NpyType::kInt64;
  array.shape = {3};
  std::vector<int64_t> values = {-1, 7, std::numeric_limits<int32_t>::max()};
  array.data.assign(reinterpret_cast<const char*>(values.data()), 24);
  EXPECT_THAT(*NpyToInt32(array), ElementsAre(-1, 7, std::numeric_limits<int32_t>::max()));
  values[2] += 1;
  array.data.assign(reinterpret_cast<const char*>(values.data()), 24);
  EXPECT_THAT(std::string(NpyToInt32(array).status().message()),
              HasSubstr("element 2 is 2147483648"));
  array.type = NpyType::kFloat32;
  EXPECT_THAT(std::string(NpyToInt32(array).status().message()), HasSubstr("dtype is float32"));
}

TEST(Npy, WritesWhatItReads) {
  const std::string path = absl::StrCat(testing::TempDir(), "/npy_test.npy");
  const std::vector<float> values = {1, 2, 3, 4, 5, 6};
  for (const std::vector<int64_t>& shape :
       {std::vector<int64_t>{6}, std::vector<int64_t>{2, 3}, std::vector<int64_t>{3, 1, 2}}) {
    ASSERT_TRUE(WriteNpy(path, NpyType::kFloat32, shape, values.data()).ok());
    const absl::StatusOr<NpyArray> array = ReadNpy(path, kMostBytes);
    ASSERT_TRUE(array.ok()) << array.status();
    EXPECT_EQ(array->shape, shape);
    EXPECT_EQ(std::memcmp(array->data.data(), values.data(), 24), 0);
    EXPECT_EQ(NpyHeader(NpyType::kFloat32, shape).size() % 64, 0U);
  }
}

TEST(Npy, NamesTheFile) {
  const absl::StatusOr<NpyArray> missing = ReadNpy("/no/such/file.npy", kMostBytes);
  EXPECT_EQ(missing.status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(missing.status().message()), HasSubstr("/no/such/file.npy"));
  const std::string path = absl::StrCat(testing::TempDir(), "/npy_test_text.npy");
  ASSERT_TRUE(WriteFileAtomically(path, {"hello"}).ok());
  EXPECT_THAT(std::string(ReadNpy(path, kMostBytes).status().message()), HasSubstr(path));
}

TEST(AtomicFile, ReadsNoMoreThanItMay) {
  const std::string path = absl::StrCat(testing::TempDir(), "/atomic_file_test_bound");
  ASSERT_TRUE(WriteFileAtomically(path, {"12345"}).ok());
  EXPECT_EQ(*ReadFile(path, 5), "12345");
  EXPECT_THAT(std::string(ReadFile(path, 4).status().message()),
              HasSubstr("has more than the 4 bytes that it may have"));
  // A file without an end.
  EXPECT_EQ(ReadNpy("/dev/zero", kMostBytes).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(AtomicFile, LeavesNothingBehindWhenItFails) {
  const std::string folder = absl::StrCat(testing::TempDir(), "/atomic_file_test/a/b");
  ASSERT_TRUE(MakeFolder(folder).ok());
  EXPECT_FALSE(WriteFileAtomically(folder, {"x"}).ok());
  EXPECT_FALSE(WriteFileAtomically(folder + "/none/file", {"x"}).ok());
  EXPECT_FALSE(CheckCanWrite(folder + "/none/file").ok());
  EXPECT_FALSE(CheckCanWrite(folder).ok());
  EXPECT_TRUE(CheckCanWrite(folder + "/file").ok());
  const std::vector<std::string> before = *ListFolder(folder);
  EXPECT_TRUE(ProbeWrite(folder + "/file").ok());
  EXPECT_EQ(*ListFolder(folder), before);  // nothing is left of it
  EXPECT_FALSE(ProbeWrite(folder + "/none/file").ok());
  EXPECT_FALSE(ProbeWrite(folder).ok());
  EXPECT_TRUE(ProbeWrite("/dev/null").ok());
  const absl::Status full = ProbeWrite("/dev/full");
  EXPECT_EQ(full.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(full.message(), "cannot write /dev/full: No space left on device");
  ASSERT_TRUE(WriteFileAtomically(folder + "/file", {"one ", "two"}).ok());
  EXPECT_EQ(*ReadFile(folder + "/file", kMostBytes), "one two");
  ASSERT_TRUE(WriteFileAtomically(folder + "/file", {"three"}).ok());
  EXPECT_EQ(*ReadFile(folder + "/file", kMostBytes), "three");
  EXPECT_FALSE(MakeFolder(folder + "/file").ok());
  EXPECT_TRUE(WouldReplace(folder + "/file"));
  EXPECT_TRUE(WouldReplace(folder + "/none"));
  EXPECT_FALSE(WouldReplace(folder));
  EXPECT_FALSE(WouldReplace("/dev/null"));
  EXPECT_FALSE(WouldReplace(""));
  EXPECT_FALSE(ReadFile(folder, kMostBytes).ok());
}

}  // namespace
}  // namespace octet
