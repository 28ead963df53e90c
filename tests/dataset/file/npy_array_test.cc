#include "trireme/dataset/file/npy.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <numeric>

#include "tests/dataset/file/npy.h"
#include "tests/harness/messages.h"
#include "tests/harness/temporary_folder.h"

namespace trireme::dataset {
namespace {

using ::testing::HasSubstr;

const NpyForm kForm = {
    .types = {NpyType::kInt32, NpyType::kInt64}, .min_columns = 1, .max_columns = 3};

class NpyArrays : public ::testing::Test {
 protected:
  std::string error_of(const std::string& bytes, const NpyForm& form = kForm) {
    write_file_atomically(path_, bytes);
    const std::string message = harness::message_of<ConfigError>([&] { NpyArray(path_, form); });
    EXPECT_EQ(message.find('\n'), std::string::npos);
    return message.substr(std::min(message.size(), path_.string().size()));
  }
  harness::TemporaryFolder folder_;
  std::filesystem::path path_ = folder_ / "a.npy";
};

TEST_F(NpyArrays, RowsComeInTurnAcrossPieces) {
  std::vector<int64_t> numbers(3 * 50'000);  // more than four pieces
  std::iota(numbers.begin(), numbers.end(), -7);
  write_file_atomically(path_, "before" + npy_array(NpyType::kInt64, 3, numbers) + "behind");
  const auto file = std::make_shared<const InputFile>(path_);
  const NpyArray array(file, 6, file->num_bytes() - 12, "array 1", kForm);
  EXPECT_EQ(array.name(), "array 1");
  EXPECT_EQ(array.type(), NpyType::kInt64);
  EXPECT_EQ(array.num_rows(), 50'000);
  EXPECT_EQ(array.num_columns(), 3);
  NpyRows rows(array);
  for (int64_t i = 0; i < array.num_rows(); ++i) {
    const auto row = rows.next();
    ASSERT_EQ(row.size(), 24U);
    ASSERT_EQ(std::memcmp(row.data(), numbers.data() + 3 * i, 24), 0) << i;
  }
}

TEST_F(NpyArrays, OtherFormsAreRefused) {
  const auto header = [&](const char* type, const char* shape, const char* order = "False") {
    return error_of(npy_of(npy_text(type, shape, order)));
  };
  for (const char* type : {"<f4", ">i4", "|O", "<U8", "<i2"}) {
    EXPECT_EQ(header(type, "(2, 3)"),
              concat(": the numbers are of type \"", type,
                     "\"; expected <i4 or <i8: save it again with array.astype(\"<i4\")"));
  }
  EXPECT_EQ(header("<i4", "(2, 3)", "True"),
            ": the numbers are in Fortran's order; expected row after row: save it again with "
            "numpy.ascontiguousarray(array)");
  for (const char* shape : {"()", "(6,)", "(2, 4)", "(2, 0)", "(0, 3)", "(1, 2, 3)"}) {
    EXPECT_EQ(header("<i4", shape),
              concat(" has the shape ", shape,
                     "; expected a row for each sample, at least one, and 1 to 3 columns"));
  }
  EXPECT_THAT(error_of(npy_of(npy_text("<i4", "(2, 3)")), {.types = {NpyType::kInt32}}),
              HasSubstr("and 1 column"));
}

TEST_F(NpyArrays, AnotherSizeThanTheHeadersIsRefused) {
  const std::string whole = npy_array(NpyType::kInt32, 3, std::vector<int32_t>(6));
  EXPECT_EQ(error_of(whole), "");
  EXPECT_EQ(error_of(whole.substr(0, whole.size() - 1)),
            " has 23 bytes behind its header, which says 2 rows of 12 bytes: truncated or damaged; "
            "copy or prepare it again");
  EXPECT_THAT(error_of(whole + "x"), HasSubstr("has 25 bytes"));
  EXPECT_THAT(error_of(whole + std::string(12, 'x')), HasSubstr("has 36 bytes"));
  // Twelve times this is 24 modulo 2^64.
  EXPECT_THAT(error_of(npy_of(npy_text("<i4", "(4611686018427387906, 3)")) + std::string(24, 'x')),
              HasSubstr("says 4611686018427387906 rows"));
  EXPECT_THAT(error_of(""), HasSubstr("is not an array of NumPy"));
  std::filesystem::remove(path_);
  EXPECT_THAT(harness::message_of<ConfigError>([&] { NpyArray(path_, kForm); }),
              HasSubstr(path_.string()));
}

TEST_F(NpyArrays, AFileThatBecomesShorterIsNoticed) {
  write_file_atomically(path_, npy_array(NpyType::kInt32, 1, std::vector<int32_t>(1000)));
  const NpyArray array(path_, kForm);
  std::filesystem::resize_file(path_, 200);
  NpyRows rows(array);
  EXPECT_THAT(harness::message_of<ConfigError>([&] { rows.next(); }),
              HasSubstr("the data must stay as it is"));
}

}  // namespace
}  // namespace trireme::dataset
