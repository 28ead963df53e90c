#include "trireme/dataset/file/npy.h"

#include <gtest/gtest.h>

#include "tests/dataset/file/npy.h"
#include "tests/harness/temporary_folder.h"

namespace trireme::dataset {
namespace {

TEST(NpyWriter, TheReaderReadsWhatItWrites) {
  const harness::TemporaryFolder folder;
  const std::vector<int64_t> numbers = {1, -2, 3, int64_t{1} << 40};
  NpyWriter writer(folder / "a.npy", NpyType::kInt64, 2, 2);
  const auto bytes = std::as_bytes(std::span(numbers));
  writer.add(bytes.subspan(0, 16));
  writer.add(bytes.subspan(16));
  EXPECT_FALSE(std::filesystem::exists(folder / "a.npy"));
  const std::string expected = npy_array(NpyType::kInt64, 2, numbers);
  EXPECT_EQ(writer.finish(), std::ssize(expected));
  EXPECT_EQ(read_file(folder / "a.npy"), expected);
}

TEST(NpyWriter, RowsTooManyOrTooFewAreABug) {
  const harness::TemporaryFolder folder;
  const std::vector<float> row = {1, 2};
  NpyWriter writer(folder / "a.npy", NpyType::kFloat32, 1, 2);
  EXPECT_THROW(writer.finish(), InternalError);
  EXPECT_THROW(writer.add(std::as_bytes(std::span(row).subspan(1))), InternalError);
  writer.add(std::as_bytes(std::span(row)));
  EXPECT_THROW(writer.add(std::as_bytes(std::span(row))), InternalError);
}

}  // namespace
}  // namespace trireme::dataset
