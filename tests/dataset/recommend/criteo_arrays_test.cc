#include "trireme/dataset/recommend/criteo_arrays.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <limits>
#include <string>
#include <vector>

#include "tests/dataset/file/npy.h"
#include "tests/dataset/recommend/raw_recorder.h"
#include "tests/harness/messages.h"
#include "tests/harness/temporary_folder.h"
#include "tests/harness/zip.h"
#include "trireme/base/file/file.h"
#include "trireme/dataset/recommend/criteo.h"

namespace trireme::dataset {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::StartsWith;

// The day of `num_samples` samples in a folder of its own. Sample i has the numbers i + d / 16, the
// label i % 2 and the categories 100 i + t.
class CriteoArrays : public ::testing::Test {
 protected:
  void SetUp() override { write_day("day_0", 3); }

  void write_day(const std::string& day, int num_samples) {
    std::vector<float> dense;
    std::vector<int32_t> labels, categories;
    for (int i = 0; i < num_samples; ++i) {
      labels.push_back(i % 2);
      for (int d = 0; d < kCriteoDense; ++d) {
        dense.push_back(static_cast<float>(i) + static_cast<float>(d) / 16);
      }
      for (int t = 0; t < kCriteoTables; ++t) categories.push_back(100 * i + t);
    }
    put(day + kDenseArray, npy_array(NpyType::kFloat32, kCriteoDense, dense));
    put(day + kLabelArray, npy_array(NpyType::kInt32, 1, labels));
    put(day + kCategoryArray, npy_array(NpyType::kInt32, kCriteoTables, categories));
    write_multi_hot(day, num_samples);
  }
  // Array t has 1 + t % 3 columns; sample i has the categories 100 i + t + 1000 column.
  void write_multi_hot(const std::string& day, int num_samples, int more_columns = 0) {
    std::vector<harness::ZipEntry> entries;
    for (int t = 0; t < kCriteoTables; ++t) {
      const int columns = 1 + t % 3 + more_columns;
      std::vector<int32_t> ids;
      for (int i = 0; i < num_samples; ++i) {
        for (int c = 0; c < columns; ++c) ids.push_back(100 * i + t + 1000 * c);
      }
      entries.push_back({concat(t, ".npy"), npy_array(NpyType::kInt32, columns, ids)});
    }
    put(day + kMultiHotArchive, harness::make_zip(entries, /*with64=*/true).bytes);
  }
  void put(const std::string& name, const std::string& bytes) {
    write_file_atomically(folder_ / name, bytes);
  }
  // Replaces a number of a file, whose header has 128 bytes.
  template <typename Number>
  void put_number(const std::string& name, size_t index, Number number) {
    std::string bytes = read_file(folder_ / name);
    harness::put(bytes, 128 + index * sizeof(Number), number);
    put(name, bytes);
  }
  std::string path(const std::string& name = "day_0") { return (folder_ / name).string(); }

  RawRecorder read(bool is_multi_hot = false, const std::vector<std::string>& days = {"day_0"}) {
    std::vector<std::string> paths;
    for (const std::string& day : days) paths.push_back(path(day));
    const auto data = is_multi_hot ? open_criteo_multi_hot(paths) : open_criteo_arrays(paths);
    RawRecorder recorder;
    data->read(recorder);
    EXPECT_EQ(recorder.num_bytes, data->num_bytes());
    return recorder;
  }
  // Without the folder in front.
  std::string error_of(bool is_multi_hot = false,
                       const std::vector<std::string>& days = {"day_0"}) {
    std::string message = harness::message_of<ConfigError>([&] { read(is_multi_hot, days); });
    EXPECT_EQ(message.find('\n'), std::string::npos);
    const std::string folder = path("");
    for (size_t at = 0; (at = message.find(folder)) != std::string::npos;) {
      message.erase(at, folder.size());
    }
    return message;
  }
  harness::TemporaryFolder folder_;
};

TEST_F(CriteoArrays, HaveASampleInEachRow) {
  write_day("day_1", 2);
  const RawRecorder data = read(false, {"day_1", "day_0"});
  EXPECT_EQ(data.labels, (std::vector<double>{0, 1, 0, 1, 0}));
  EXPECT_EQ(data.groups, (std::vector<uint64_t>{0, 1, 2, 3, 4}));
  EXPECT_EQ(data.dense[1][3], 1.1875F);
  EXPECT_EQ(data.dense[4][12], 2.75F);
  EXPECT_THAT(data.samples[0], StartsWith(":,00000001,00000002,"));  // 0 is a missing one
  EXPECT_THAT(data.samples[4], EndsWith(",000000e0,000000e1"));
}

// TorchRec writes int64. Earlier releases wrote int32, where numbers from 2^31 on are negative.
TEST_F(CriteoArrays, CategoriesHave32Bits) {
  put_number<int32_t>("day_0_sparse.npy", 1, -1);
  EXPECT_THAT(read().samples[0], StartsWith(":,ffffffff,00000002,"));
  std::vector<int64_t> wide(3 * kCriteoTables, 7);
  wide[1] = 0xffffffff;
  put("day_0_sparse.npy", npy_array(NpyType::kInt64, kCriteoTables, wide));
  EXPECT_THAT(read().samples[0], StartsWith(":00000007,ffffffff,00000007,"));
  for (const int64_t wrong : {int64_t{-1}, int64_t{1} << 32, std::numeric_limits<int64_t>::min()}) {
    put_number("day_0_sparse.npy", 2 * kCriteoTables + 5, wrong);
    EXPECT_EQ(error_of(), concat("day_0_sparse.npy: row 2, column 5 (C6) is ", wrong,
                                 "; expected a category from 0 to 4294967295: replace it, or "
                                 "prepare the array again"));
  }
}

TEST_F(CriteoArrays, MultiHotSamplesHaveAsManyCategoriesAsTheArrayHasColumns) {
  const RawRecorder data = read(true);
  EXPECT_THAT(data.samples[0], StartsWith(":,00000001|000003e9,00000002|000003ea|000007d2,"));
  EXPECT_THAT(data.samples[2], EndsWith(",000000e1|000004c9"));
  const auto schema = open_criteo_multi_hot({path()})->schema();
  EXPECT_EQ(schema.tables[2].min_ids, 3);
  EXPECT_EQ(schema.tables[2].max_ids, 3);
  EXPECT_EQ(schema.tables[3].max_ids, 1);
}

TEST_F(CriteoArrays, WrongNumbersAreRefusedWithTheirPlace) {
  for (const float wrong :
       {std::numeric_limits<float>::quiet_NaN(), -std::numeric_limits<float>::infinity()}) {
    put_number("day_0_dense.npy", 2 * kCriteoDense + 4, wrong);
    EXPECT_EQ(error_of(), concat("day_0_dense.npy: row 2, column 4 (I5) is ", wrong,
                                 "; expected a finite number: replace it, or prepare the array "
                                 "again"));
  }
  write_day("day_0", 3);
  put_number<int32_t>("day_0_labels.npy", 1, -1);
  EXPECT_EQ(error_of(),
            "day_0_labels.npy: row 1, column 0 (label) is -1; expected 0 or 1: leave out days "
            "without labels, such as Kaggle's test set");
  std::string zip = read_file(folder_ / "day_0_sparse_multi_hot.npz");
  const size_t array = zip.find("\x93NUMPY", zip.find("2.npy"));
  harness::put<int32_t>(zip, array + 128 + 4 * 7, -2);
  put("day_0_sparse_multi_hot.npz", zip);
  put_number<int32_t>("day_0_labels.npy", 1, 1);
  EXPECT_EQ(error_of(true),
            "day_0_sparse_multi_hot.npz, array 2: row 2, column 1 (C3) is -2; expected a category "
            "from 0 to 4294967295: replace it, or prepare the array again");
}

TEST_F(CriteoArrays, ADayIsWhole) {
  put("day_0_labels.npy", npy_array(NpyType::kInt32, 1, std::vector<int32_t>(4)));
  EXPECT_EQ(error_of(),
            "day_0_labels.npy has 4 rows and day_0_dense.npy 3; expected one for each sample: "
            "prepare that day again");
  write_day("day_0", 3);
  write_multi_hot("day_0", 2);
  EXPECT_THAT(error_of(true), HasSubstr("array 0 has 2 rows and day_0_dense.npy 3"));
  for (const char* missing : {"day_0_dense.npy", "day_0_labels.npy", "day_0_sparse.npy"}) {
    write_day("day_0", 3);
    std::filesystem::remove(folder_ / missing);
    EXPECT_THAT(error_of(), HasSubstr(missing));
  }
  EXPECT_EQ(
      error_of(true, {"day_0", "day_7"}),
      "day_7_dense.npy is not a file; a day has three: _dense.npy, _labels.npy and _sparse.npy "
      "or _sparse_multi_hot.npz");
  std::filesystem::remove(folder_ / "day_0_sparse_multi_hot.npz");
  EXPECT_THAT(error_of(true), HasSubstr("day_0_sparse_multi_hot.npz"));
  EXPECT_EQ(error_of(false, {"day_0_dense.npy"}),
            "day_0_dense.npy is one array; expected what the names of a day's arrays begin with, "
            "such as numpy/day_0 for numpy/day_0_dense.npy");
  EXPECT_THAT(error_of(false, {"."}), HasSubstr(" is a folder; expected what the names"));
}

TEST_F(CriteoArrays, OtherArraysAreRefused) {
  put("day_0_dense.npy", npy_array(NpyType::kFloat32, 12, std::vector<float>(36)));
  EXPECT_THAT(error_of(), HasSubstr("shape (3, 12); expected a row for each sample, at least one, "
                                    "and 13 columns"));
  write_day("day_0", 3);
  put("day_0_sparse.npy", npy_of(npy_text("|O", "(3, 26)")));
  EXPECT_THAT(error_of(), HasSubstr("day_0_sparse.npy: the numbers are of type \"|O\""));
}

TEST_F(CriteoArrays, OtherArchivesAreRefused) {
  const std::string array = npy_array(NpyType::kInt32, 1, std::vector<int32_t>(3));
  std::vector<harness::ZipEntry> entries;
  for (int t = 0; t < kCriteoTables; ++t) entries.push_back({concat("arr_", t, ".npy"), array});
  const auto error = [&] {
    put("day_0_sparse_multi_hot.npz", harness::make_zip(entries).bytes);
    return error_of(true);
  };
  EXPECT_EQ(
      error(),
      "day_0_sparse_multi_hot.npz has no array 0 but \"arr_0.npy\"; expected 26, named 0 to 25");
  entries.pop_back();
  EXPECT_EQ(error(), "day_0_sparse_multi_hot.npz has 25 arrays; expected 26, named 0 to 25");
  put("day_0_sparse_multi_hot.npz", array);
  EXPECT_THAT(error_of(true), HasSubstr("does not end as a zip archive of numpy.savez"));
  write_day("day_1", 3);
  write_day("day_0", 3);
  write_multi_hot("day_1", 3, /*more_columns=*/1);
  EXPECT_EQ(error_of(true, {"day_0", "day_1"}),
            "day_1_sparse_multi_hot.npz, array 0 has 2 columns and day_0_sparse_multi_hot.npz, "
            "array 0 1; expected as many on each day: prepare the days alike");
}

}  // namespace
}  // namespace trireme::dataset
