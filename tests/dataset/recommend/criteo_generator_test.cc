#include "trireme/dataset/recommend/criteo_generator.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <map>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "tests/dataset/recommend/raw_recorder.h"
#include "tests/harness/messages.h"
#include "tests/harness/temporary_folder.h"
#include "trireme/base/error.h"
#include "trireme/base/file/file.h"
#include "trireme/dataset/recommend/criteo.h"
#include "trireme/dataset/recommend/criteo_arrays.h"

namespace trireme::dataset {
namespace {

class CriteoGenerator : public ::testing::Test {
 protected:
  GenerateCriteoReport generate(int64_t num_samples, double scale = 0.001, uint64_t seed = 3,
                                const std::string& name = "day_0") {
    return generate_criteo({.num_samples = num_samples,
                            .seed = seed,
                            .scale = scale,
                            .output = (folder_ / name).string()});
  }
  RawRecorder read(const std::string& name = "day_0") {
    RawRecorder recorder;
    open_criteo_text({(folder_ / name).string()})->read(recorder);
    return recorder;
  }
  harness::TemporaryFolder folder_;
};

TEST_F(CriteoGenerator, WritesWhatTheReaderReads) {
  const GenerateCriteoReport report = generate(2000);
  const RawRecorder data = read();
  EXPECT_EQ(data.samples.size(), 2000U);
  EXPECT_EQ(std::ranges::count(data.labels, 1.0), report.num_positives);
  EXPECT_EQ(report.num_bytes, data.num_bytes);
  EXPECT_EQ(harness::names_in(folder_.path()), std::vector<std::string>{"day_0"});
}

TEST_F(CriteoGenerator, ArraysHaveTheSamplesOfTheText) {
  const GenerateCriteoReport text = generate(300);
  const GenerateCriteoReport report = generate_criteo({.form = CriteoForm::kNumpy,
                                                       .num_samples = 300,
                                                       .seed = 3,
                                                       .scale = 0.001,
                                                       .output = (folder_ / "arrays").string()});
  EXPECT_EQ(report.best_auc, text.best_auc);
  EXPECT_EQ(report.num_bytes, 300 * 160 + 3 * 128);
  RawRecorder data;
  open_criteo_arrays({(folder_ / "arrays").string()})->read(data);
  const RawRecorder expected = read();
  EXPECT_EQ(data.samples, expected.samples);
  EXPECT_EQ(data.dense, expected.dense);
  EXPECT_EQ(data.labels, expected.labels);
  EXPECT_EQ(harness::names_in(folder_.path()),
            (std::vector<std::string>{"arrays_dense.npy", "arrays_labels.npy", "arrays_sparse.npy",
                                      "day_0"}));
}

TEST_F(CriteoGenerator, ASampleDependsOnlyOnItsNumberAndTheSeed) {
  generate(50);
  const std::string fifty = read_file(folder_ / "day_0");
  generate(80);
  EXPECT_TRUE(read_file(folder_ / "day_0").starts_with(fifty));
  generate(50, 0.001, 4);
  EXPECT_NE(read_file(folder_ / "day_0"), fifty);
}

TEST_F(CriteoGenerator, HasTheScaledCategoriesWithFallingFrequency) {
  generate(20000, 0.01);
  const RawRecorder data = read();
  std::vector<std::map<std::string, int>> counts(kCriteoTables);
  for (const std::string& sample : data.samples) {
    std::istringstream fields(sample.substr(1));
    std::string field;
    for (auto& column : counts) {
      std::getline(fields, field, ',');
      ++column[field];
    }
  }
  for (size_t t = 0; t < counts.size(); ++t) {
    const double rows = std::max(3.0, std::round(0.01 * static_cast<double>(kCriteoKaggleRows[t])));
    EXPECT_NEAR(counts[t][""], 800, 150) << "missing ones of column " << t;
    counts[t].erase("");
    EXPECT_LE(static_cast<double>(counts[t].size()), rows);
    if (rows > 100) continue;
    EXPECT_EQ(static_cast<double>(counts[t].size()), rows);
    // The most frequent one has the integral of x^-1.1 from 1 to 2 over that from 1 to rows + 1.
    int most = 0;
    for (const auto& [category, count] : counts[t]) most = std::max(most, count);
    const double share = (1 - std::pow(2, -0.1)) / (1 - std::pow(rows + 1, -0.1));
    EXPECT_NEAR(most, 19200 * share, 6 * std::sqrt(19200 * share * (1 - share)));
  }
}

TEST_F(CriteoGenerator, LabelsFollowTheModelWhoseQualityIsReported) {
  const GenerateCriteoReport report = generate(40000);
  EXPECT_GT(report.expected_auc, 0.7);
  EXPECT_LT(report.expected_auc, 0.9);
  // The standard deviation of an area is at most about 1 / (2 sqrt(positives)).
  EXPECT_NEAR(report.best_auc, report.expected_auc,
              2 / std::sqrt(static_cast<double>(report.num_positives)));
  EXPECT_GT(report.num_positives, 8000);
  EXPECT_LT(report.num_positives, 12000);
  EXPECT_GT(report.best_normalised_entropy, 0.6);
  EXPECT_LT(report.best_normalised_entropy, 0.95);
}

TEST_F(CriteoGenerator, OneClassHasNoArea) { EXPECT_TRUE(std::isnan(generate(1).best_auc)); }

TEST_F(CriteoGenerator, RefusesOptionsOutOfRange) {
  EXPECT_EQ(harness::message_of<ConfigError>([&] { generate(0); }),
            "num_samples is 0; expected at least 1");
  EXPECT_EQ(harness::message_of<ConfigError>([&] { generate(1, 0); }),
            "scale is 0; expected above 0 and at most 100");
  for (const char* name : {"", "no_day/", "day_0.npy"}) {
    const std::string day = folder_.path() / name;
    const auto make = [&] {
      generate_criteo({.form = CriteoForm::kNumpy, .num_samples = 1, .output = day});
    };
    EXPECT_EQ(harness::message_of<ConfigError>(make).substr(0, day.size() + 4), day + " is ");
  }
  EXPECT_TRUE(harness::names_in(folder_.path()).empty());
  generate(1, 1, 1, "new/day_0");
  EXPECT_NE(harness::message_of<Error>([&] { generate(1, 1, 1, "new/day_0/in_a_file"); }), "");
}

}  // namespace
}  // namespace trireme::dataset
