#include "trireme/dataset/recommend/feature_source.h"

#include <gtest/gtest.h>

#include <cmath>
#include <string>

#include <ATen/ATen.h>

#include "tests/dataset/recommend/features.h"
#include "tests/harness/messages.h"
#include "tests/harness/temporary_folder.h"
#include "trireme/base/error.h"
#include "trireme/base/file/file.h"

namespace trireme::dataset {
namespace {

at::Tensor numbers(const std::vector<int64_t>& values) { return at::tensor(values, at::kLong); }

// get_into() writes what get() returns over whatever was there, and nothing else.
void expect_same_into_batch(const Source& source) {
  NamedTensors batch;
  for (const auto& [name, values] : source.get(0, {})) {
    batch.emplace_back(name, at::full({source.size() + 1, values.numel()}, 77, values.options()));
  }
  for (int64_t i = 0; i < source.size(); ++i) source.get_into(i, {}, batch, i);
  for (int64_t i = 0; i < source.size(); ++i) {
    for (const auto& [name, values] : source.get(i, {})) {
      EXPECT_TRUE(at::equal(find_tensor(batch, name)[i], values)) << name << " of sample " << i;
    }
  }
  for (const auto& [name, values] : batch) {
    EXPECT_TRUE(values[source.size()].eq(77).all().item<bool>()) << name;
    EXPECT_THROW(source.get_into(0, {}, batch, source.size() + 1), InternalError);
  }
}

class FeatureSources : public ::testing::Test {
 protected:
  std::string path_of(const std::string& name) const { return (folder_ / name).string(); }
  void write(const std::string& name, const std::string& content) {
    write_file_atomically(folder_ / name, content);
  }
  // The message when the only record of a file is read, without its place.
  std::string error_of(const std::string& record, FeatureSchema schema = click_schema()) {
    write(kTrainingFile, record);
    const FeatureSource source(folder_ / kTrainingFile, schema);
    const std::string message = harness::message_of<ConfigError>([&] { source.get(0); });
    const std::string place = path_of(kTrainingFile) + ": record 0: ";
    EXPECT_EQ(message.substr(0, place.size()), place);
    return message.substr(std::min(message.size(), place.size()));
  }

  harness::TemporaryFolder folder_;
};

TEST_F(FeatureSources, ReadNumbersIdsLengthsAndLabel) {
  write(kTrainingFile,
        click_record(1, {0.5, -2}, 4, {7, 99}, 2) + click_record(0, {3, 0}, 0, {5, 5, 5}, 0));
  const FeatureSource source(folder_ / kTrainingFile, click_schema());
  ASSERT_EQ(source.size(), 2);
  const NamedTensors first = source.get(0);
  ASSERT_EQ(first.size(), 4U);
  EXPECT_TRUE(at::equal(find_tensor(first, "dense"), at::tensor({0.5F, -2.0F})));
  EXPECT_TRUE(at::equal(find_tensor(first, "ids"), numbers({4, 7, 99, 0})));
  EXPECT_TRUE(at::equal(find_tensor(first, "lengths"), numbers({1, 2})));
  EXPECT_TRUE(at::equal(find_tensor(first, "label"), at::tensor({1.0F})));
  const NamedTensors second = source.get(1);
  EXPECT_TRUE(at::equal(find_tensor(second, "ids"), numbers({0, 0, 0, 0})));
  EXPECT_TRUE(at::equal(find_tensor(second, "lengths"), numbers({1, 0})));
  expect_same_into_batch(source);
}

TEST_F(FeatureSources, ReadClassesAsWholeNumbers) {
  FeatureSchema schema{
      .dense = {"x"}, .label = LabelKind::kClass, .classes = {"a", "b", "c"}, .num_training = 1};
  write(kTrainingFile, bytes_of<int32_t>({2}) + bytes_of<float>({1}));
  const FeatureSource source(folder_ / kTrainingFile, schema);
  expect_same_into_batch(source);
  const NamedTensors sample = source.get(0);
  ASSERT_EQ(sample.size(), 2U);
  EXPECT_TRUE(at::equal(find_tensor(sample, "label"), numbers({2})));
  EXPECT_EQ(error_of(bytes_of<int32_t>({3}) + bytes_of<float>({1}), schema),
            "label is 3; expected 0 to 2");
}

TEST_F(FeatureSources, ReadTheItemOfAPairFromTheCatalogue) {
  const auto item = [](uint32_t id, std::vector<uint32_t> tags, uint16_t num_tags) {
    tags.resize(2);
    return bytes_of<uint32_t>({id}) + bytes_of(tags) + bytes_of<uint16_t>({num_tags, 0});
  };
  write(kItemsFile, item(3, {8}, 1) + item(0, {}, 0) + item(2, {1, 4}, 2));
  write(kTrainingFile, bytes_of<uint32_t>({2, 6}) + bytes_of<uint32_t>({0, 1}));
  write(kSchemaFile, to_json(pair_schema()));
  const FeatureData data = open_features(folder_.path());
  EXPECT_EQ(data.schema, pair_schema());
  EXPECT_EQ(data.validation, nullptr);
  ASSERT_EQ(data.items->size(), 3);
  expect_same_into_batch(*data.training);
  EXPECT_TRUE(at::equal(find_tensor(data.items->get(0), "ids"), numbers({3, 8, 0})));
  EXPECT_TRUE(at::equal(find_tensor(data.items->get(1), "lengths"), numbers({1, 0})));
  const NamedTensors sample = data.training->get(0);
  ASSERT_EQ(sample.size(), 3U);
  EXPECT_TRUE(at::equal(find_tensor(sample, "ids"), numbers({6, 2, 1, 4})));
  EXPECT_TRUE(at::equal(find_tensor(sample, "lengths"), numbers({1, 1, 2})));
  EXPECT_TRUE(at::equal(find_tensor(sample, "item"), numbers({2})));
  EXPECT_TRUE(at::equal(find_tensor(data.training->get(1), "ids"), numbers({1, 3, 8, 0})));

  write(kTrainingFile, bytes_of<uint32_t>({3, 6}) + bytes_of<uint32_t>({0, 7}));
  const auto again = open_features(folder_.path()).training;
  EXPECT_EQ(harness::message_of<ConfigError>([&] { again->get(0); }),
            path_of(kTrainingFile) + ": record 0: item is 3; expected 0 to 2");
  EXPECT_EQ(harness::message_of<ConfigError>([&] { again->get(1); }),
            path_of(kTrainingFile) +
                ": record 1: query has the id 7; expected 0 to 6, the rows of its table");
}

TEST_F(FeatureSources, NameThePlaceOfABadValue) {
  EXPECT_EQ(error_of(click_record(0.5, {0, 0}, 0, {}, 0)), "label is 0.5; expected 0 or 1");
  EXPECT_EQ(error_of(click_record(NAN, {0, 0}, 0, {}, 0)), "label is nan; expected 0 or 1");
  EXPECT_EQ(error_of(click_record(1, {0, NAN}, 0, {}, 0)),
            "price is nan; expected a finite number");
  EXPECT_EQ(error_of(click_record(1, {-INFINITY, 0}, 0, {}, 0)),
            "age is -inf; expected a finite number");
  EXPECT_EQ(error_of(click_record(1, {0, 0}, 5, {}, 0)),
            "user has the id 5; expected 0 to 4, the rows of its table");
  EXPECT_EQ(error_of(click_record(1, {0, 0}, 0, {1, 100}, 2)),
            "words has the id 100; expected 0 to 99, the rows of its table");
  EXPECT_EQ(error_of(click_record(1, {0, 0}, 0, {1, 1, 1}, 4)), "words has 4 ids; expected 0 to 3");
}

TEST_F(FeatureSources, RefuseFilesOfAnotherSize) {
  const auto error = [&](const std::string& content, int64_t num_samples = 0) {
    write(kTrainingFile, content);
    return harness::message_of<ConfigError>(
        [&] { FeatureSource(folder_ / kTrainingFile, click_schema(), nullptr, num_samples); });
  };
  const std::string record = click_record(1, {0, 0}, 0, {}, 0);
  const std::string path = path_of(kTrainingFile);
  EXPECT_EQ(error(""), path +
                           " has 0 bytes; expected whole records of 32 bytes, as in "
                           "features.json; prepare the data again");
  EXPECT_EQ(error(record + "x"), path +
                                     " has 33 bytes; expected whole records of 32 bytes, as in "
                                     "features.json; prepare the data again");
  EXPECT_EQ(error(record, 2), path + " has 1 samples and features.json 2; prepare the data again");
  EXPECT_NE(
      harness::message_of<ConfigError>([&] { FeatureSource(folder_ / "none", click_schema()); }),
      "");
}

TEST_F(FeatureSources, SayWhenTheFileBecomesShorter) {
  const std::string record = click_record(1, {0, 0}, 0, {}, 0);
  write(kTrainingFile, record + record);
  const FeatureSource source(folder_ / kTrainingFile, click_schema());
  std::filesystem::resize_file(folder_ / kTrainingFile, 40);
  source.get(0);
  const std::string message = harness::message_of<ConfigError>([&] { source.get(1); });
  EXPECT_NE(message.find("the data must stay as it is during a run"), std::string::npos) << message;
}

}  // namespace
}  // namespace trireme::dataset
