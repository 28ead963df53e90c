#include "trireme/dataset/recommend/prepare_features.h"

#include <gtest/gtest.h>

#include <map>
#include <set>
#include <string>
#include <vector>

#include <ATen/ATen.h>

#include "tests/harness/messages.h"
#include "tests/harness/temporary_folder.h"
#include "trireme/base/error.h"
#include "trireme/base/file/file.h"
#include "trireme/dataset/recommend/criteo_generator.h"
#include "trireme/dataset/recommend/dictionary.h"
#include "trireme/dataset/recommend/feature_source.h"

namespace trireme::dataset {
namespace {

using Strings = std::vector<std::string>;

std::vector<int64_t> numbers(const at::Tensor& tensor) {
  const auto* const begin = tensor.const_data_ptr<int64_t>();
  return {begin, begin + tensor.numel()};
}

class PrepareFeatures : public ::testing::Test {
 protected:
  PrepareFeaturesOptions options(RawFormat format, const std::string& output = "out") {
    return {.format = format,
            .inputs = {(folder_ / "in").string()},
            .output = (folder_ / output).string()};
  }
  void put(const std::string& text, const std::string& name = "in") {
    write_file_atomically(folder_ / name, text);
  }
  FeatureData open(const std::string& name = "out") { return open_features(folder_ / name); }
  harness::TemporaryFolder folder_;
};

TEST_F(PrepareFeatures, RareCategoriesShareRowZero) {
  put("query\titem\nb\tx\nb\ty\na\tx\nc\tz\nc\tx\n");
  auto two = options(RawFormat::kPairs);
  two.min_count = 2;
  const PrepareFeaturesReport report = prepare_features(two);
  EXPECT_EQ(report.num_categories, (std::vector<int64_t>{3, 3}));
  EXPECT_EQ(report.num_rare_ids, 1);
  const FeatureData data = open();
  EXPECT_EQ(data.schema, report.schema);
  EXPECT_EQ(data.schema.tables[0].rows, 3);  // rare, b, c
  EXPECT_EQ(data.schema.tables[1].rows, 2);  // rare, x
  EXPECT_EQ(data.items->size(), 3);
  const std::vector<std::vector<int64_t>> ids = {{1, 1}, {1, 0}, {0, 1}, {2, 0}, {2, 1}};
  const std::vector<int64_t> items = {0, 1, 0, 2, 0};
  for (int64_t i = 0; i < 5; ++i) {
    const NamedTensors sample = data.training->get(i);
    EXPECT_EQ(numbers(find_tensor(sample, "ids")), ids[static_cast<size_t>(i)]);
    EXPECT_EQ(numbers(find_tensor(sample, "item"))[0], items[static_cast<size_t>(i)]);
  }
  EXPECT_EQ(read_file(folder_ / "out/items.txt"), "x\ny\nz\n");
  EXPECT_EQ(read_file(folder_ / "out/dictionary.txt"), "b\nc\nx\n");
}

TEST_F(PrepareFeatures, ListsAreAsLongAsTheLongest) {
  put("query*\titem\titem.tags*\na|b|a\tx\tt\n\tx\tignored\nb\ty\t\n");
  prepare_features(options(RawFormat::kPairs));
  const FeatureData data = open();
  EXPECT_EQ(data.schema.tables[0].max_ids, 3);
  EXPECT_EQ(data.schema.tables[2].max_ids, 1);
  const NamedTensors first = data.training->get(0);
  EXPECT_EQ(numbers(find_tensor(first, "ids")), (std::vector<int64_t>{1, 2, 1, 1, 1}));
  EXPECT_EQ(numbers(find_tensor(first, "lengths")), (std::vector<int64_t>{3, 1, 1}));
  EXPECT_EQ(numbers(find_tensor(data.training->get(1), "lengths")),
            (std::vector<int64_t>{0, 1, 1}));
  EXPECT_EQ(numbers(find_tensor(data.training->get(2), "ids")),
            (std::vector<int64_t>{2, 2, 0, 0, 0}));
}

// The first pass has not seen the categories of new lines.
TEST_F(PrepareFeatures, InputThatGrowsMeanwhileIsRefused) {
  const std::string text = "query\titem\na\tx\nb\tx\n";
  put(text);
  const auto grow = [&](int64_t done, int64_t /*total*/) {
    if (done == std::ssize(text)) OutputFile(folder_ / "in", /*append=*/true).write("c\tx\n");
  };
  EXPECT_EQ(
      harness::message_of<ConfigError>([&] { prepare_features(options(RawFormat::kPairs), grow); }),
      "the input had 19 bytes when it was read first and 23 the second time; expected files "
      "that stay as they are: prepare it again");
  EXPECT_EQ(harness::names_in(folder_.path()), std::vector<std::string>{"in"});
}

// Not after all samples.
TEST_F(PrepareFeatures, AWrongColumnIsFoundFirst) {
  put("query\tquery\titem\na\ttoo few columns\n");
  EXPECT_EQ(harness::message_of<ConfigError>([&] { prepare_features(options(RawFormat::kPairs)); }),
            "the input: table \"query\" occurs twice; expected different names");
}

TEST_F(PrepareFeatures, TheSameInputHasTheSameBytes) {
  generate_criteo({.num_samples = 3000, .scale = 1e-3, .output = (folder_ / "in").string()});
  for (const char* name : {"one", "two"}) {
    auto both = options(RawFormat::kCriteo, name);
    both.validation_fraction = 0.2;
    both.min_count = 3;
    int64_t last = 0;
    int64_t all = 0;
    prepare_features(both, [&](int64_t done, int64_t total) {
      EXPECT_GE(done, last);
      last = done;
      all = total;
    });
    EXPECT_EQ(last, all);
  }
  const Strings names = harness::names_in(folder_ / "one");
  EXPECT_EQ(names, (Strings{"dictionary.txt", "features.json", "train.bin", "validation.bin"}));
  for (const std::string& name : names) {
    EXPECT_EQ(read_file(folder_ / "one" / name), read_file(folder_ / "two" / name)) << name;
  }
  const FeatureData data = open("one");
  EXPECT_EQ(data.schema.num_training + data.schema.num_validation, 3000);
  EXPECT_NEAR(static_cast<double>(data.schema.num_validation), 600, 120);
  int64_t num_rare = 0;
  std::map<int64_t, int64_t> counts;  // of the rows of C1 in training
  for (int64_t i = 0; i < data.training->size(); ++i) {
    const auto ids = numbers(find_tensor(data.training->get(i), "ids"));
    ASSERT_EQ(ids.size(), 26U);
    ++counts[ids[0]];
    for (const int64_t id : ids) num_rare += id == 0 ? 1 : 0;
  }
  EXPECT_GT(num_rare, 0);
  for (const auto& [row, count] : counts) EXPECT_TRUE(row == 0 || count >= 3) << row;
  EXPECT_EQ(find_tensor(data.validation->get(0), "dense").numel(), 13);
}

TEST_F(PrepareFeatures, TextAndArraysOfTheSameSamplesHaveTheSameBytes) {
  for (const auto& [form, format] : {std::pair{CriteoForm::kText, RawFormat::kCriteo},
                                     {CriteoForm::kNumpy, RawFormat::kCriteoNumpy}}) {
    generate_criteo(
        {.form = form, .num_samples = 3000, .scale = 1e-3, .output = (folder_ / "in").string()});
    for (const CategoryIds ids : {CategoryIds::kRows, CategoryIds::kHash}) {
      auto both = options(format, concat(name_of(kRawFormats, format), name_of(kCategoryIds, ids)));
      both.ids = ids;
      both.min_count = ids == CategoryIds::kRows ? 3 : 1;
      both.validation_fraction = 0.2;
      prepare_features(both);
    }
  }
  for (const std::string ids : {"rows", "hash"}) {
    for (const std::string& name : harness::names_in(folder_ / ("criteo" + ids))) {
      EXPECT_EQ(read_file(folder_ / ("criteo" + ids) / name),
                read_file(folder_ / ("criteo-numpy" + ids) / name))
          << name << " of " << ids;
    }
  }
}

TEST_F(PrepareFeatures, ADictionaryGivesNewDataTheRowsOfTheOld) {
  put("query*\titem\na|b\tx\nb\ty\n");
  prepare_features(options(RawFormat::kPairs, "old"));
  put("query*\titem\nb|new|a|b\tnew item\n\tx\n");
  auto more = options(RawFormat::kPairs, "new");
  more.dictionary = (folder_ / "old").string();
  const PrepareFeaturesReport report = prepare_features(more);
  const FeatureData data = open("new");
  EXPECT_EQ(data.schema.tables, open("old").schema.tables);
  EXPECT_EQ(data.items->size(), 3);
  EXPECT_EQ(read_file(folder_ / "new/items.txt"), "x\ny\nnew item\n");
  EXPECT_EQ(read_file(folder_ / "new/dictionary.txt"), read_file(folder_ / "old/dictionary.txt"));
  const NamedTensors first = data.training->get(0);
  EXPECT_EQ(numbers(find_tensor(first, "ids")), (std::vector<int64_t>{2, 0, 0}))
      << "b, an unknown one, and the first two only; the item is new";
  EXPECT_EQ(numbers(find_tensor(first, "item")), std::vector<int64_t>{2});
  EXPECT_EQ(numbers(find_tensor(data.training->get(1), "item")), std::vector<int64_t>{0});
  EXPECT_EQ(report.num_rare_ids, 1);

  put("query\titem\na\tx\n");
  more.output = (folder_ / "third").string();
  EXPECT_EQ(harness::message_of<ConfigError>([&] { prepare_features(more); }), "")
      << "one value is a list of one";
}

TEST_F(PrepareFeatures, HashesNeedNoDictionary) {
  put("query*\titem\titem.kind\na|b\tx\tk\n\tx\tk\nb\ty\t\n");
  auto hashed = options(RawFormat::kPairs, "old");
  hashed.ids = CategoryIds::kHash;
  const PrepareFeaturesReport report = prepare_features(hashed);
  EXPECT_EQ(report.num_rare_ids, 0);
  const FeatureData data = open("old");
  EXPECT_EQ(data.schema, report.schema);
  EXPECT_EQ(data.schema.min_count, 0);
  for (const FeatureTable& table : data.schema.tables) {
    EXPECT_TRUE(table.is_hashed);
    EXPECT_EQ(table.rows, 0);
  }
  EXPECT_EQ(read_file(folder_ / "old/dictionary.txt"), "");
  const NamedTensors first = data.training->get(0);
  // XXH3 of "a" and so on.
  const std::vector<int64_t> ids = {hash_of("a"), hash_of("b"), hash_of("x"), hash_of("k")};
  EXPECT_EQ(hash_of("a"), static_cast<int64_t>(0xe6c632b61e964e1f));
  EXPECT_EQ(numbers(find_tensor(first, "ids")), ids);
  EXPECT_EQ(numbers(find_tensor(data.training->get(1), "lengths")),
            (std::vector<int64_t>{0, 1, 1}));

  // New data has the same hashes, and new items come after the old ones.
  put("query*\titem\titem.kind\nnew\tz\tk\na\tx\tk\n");
  auto more = options(RawFormat::kPairs, "new");
  more.dictionary = (folder_ / "old").string();
  prepare_features(more);
  const FeatureData added = open("new");
  EXPECT_EQ(added.schema.tables, data.schema.tables);
  EXPECT_EQ(added.items->size(), 3);
  EXPECT_EQ(numbers(find_tensor(added.training->get(0), "ids")),
            (std::vector<int64_t>{hash_of("new"), hash_of("z"), hash_of("k"), 0}));
  EXPECT_EQ(numbers(find_tensor(added.training->get(1), "item")), std::vector<int64_t>{0});
}

TEST_F(PrepareFeatures, RefusesADictionaryOfOtherFeatures) {
  put("query\titem\na\tx\n");
  prepare_features(options(RawFormat::kPairs, "old"));
  put("query.name\titem\na\tx\n");
  auto more = options(RawFormat::kPairs, "new");
  more.dictionary = (folder_ / "old").string();
  EXPECT_EQ(harness::message_of<ConfigError>([&] { prepare_features(more); }),
            (folder_ / "old").string() +
                " has other features than the input; expected a dictionary of the same kind of "
                "data");
}

TEST_F(PrepareFeatures, SectionsOfPackagesAreClasses) {
  auto sections = options(RawFormat::kDebianSection);
  sections.inputs = {TRIREME_DEBIAN_PACKAGES};
  sections.min_count = 2;
  prepare_features(sections);
  const FeatureData data = open();
  EXPECT_EQ(data.training->size(), 205);
  EXPECT_GT(data.schema.classes.size(), 10U);
  std::set<int64_t> classes;
  for (int64_t i = 0; i < 205; ++i) {
    classes.insert(numbers(find_tensor(data.training->get(i), "label"))[0]);
  }
  EXPECT_EQ(classes.size(), data.schema.classes.size());
  put("Package: a\nSection: unheard-of\n");
  auto more = options(RawFormat::kDebianSection, "new");
  more.dictionary = (folder_ / "out").string();
  EXPECT_EQ(harness::message_of<ConfigError>([&] { prepare_features(more); }),
            concat("the class \"unheard-of\" is not in the dictionary; expected one of its ",
                   data.schema.classes.size(), " classes"));
}

TEST_F(PrepareFeatures, DependenciesOfAPackageAreAllOfOnePart) {
  auto pairs = options(RawFormat::kDebian);
  pairs.inputs = {TRIREME_DEBIAN_PACKAGES};
  pairs.validation_fraction = 0.2;
  prepare_features(pairs);
  const FeatureData data = open();
  const auto queries = [&](const Source& source) {
    std::set<std::vector<int64_t>> all;
    for (int64_t i = 0; i < source.size(); ++i) {
      const NamedTensors sample = source.get(i, std::nullopt);
      std::vector<int64_t> ids = numbers(find_tensor(sample, "ids"));
      const std::vector<int64_t> lengths = numbers(find_tensor(sample, "lengths"));
      ids.resize(static_cast<size_t>(lengths[0] + lengths[1] + lengths[2] + lengths[3]));
      all.insert(ids);
    }
    return all;
  };
  const auto training = queries(*data.training);
  for (const auto& query : queries(*data.validation)) {
    EXPECT_FALSE(query.size() > 6 && training.contains(query))
        << "too many words for a coincidence";
  }
}

TEST_F(PrepareFeatures, LeavesNothingBehindWhenItFails) {
  put("query\titem\na\tx\nb\n");
  EXPECT_NE(harness::message_of<ConfigError>([&] { prepare_features(options(RawFormat::kPairs)); }),
            "");
  put("query\titem\n");
  EXPECT_EQ(harness::message_of<ConfigError>([&] { prepare_features(options(RawFormat::kPairs)); }),
            "no sample is for training; give more data");
  put("query\titem\na\tx\nb\ty\n");
  auto little = options(RawFormat::kPairs);
  little.validation_fraction = 1e-9;
  EXPECT_NE(harness::message_of<ConfigError>([&] { prepare_features(little); }), "");
  EXPECT_EQ(harness::names_in(folder_.path()), Strings{"in"});
  prepare_features(options(RawFormat::kPairs));
  EXPECT_NE(harness::message_of<ConfigError>([&] {
              prepare_features(options(RawFormat::kPairs));
            }).find("is not empty"),
            std::string::npos);
}

TEST_F(PrepareFeatures, RefusesOptionsOutOfRange) {
  auto none = options(RawFormat::kPairs);
  none.inputs.clear();
  EXPECT_EQ(harness::message_of<ConfigError>([&] { prepare_features(none); }),
            "no input: name files with --input");
  auto zero = options(RawFormat::kPairs);
  zero.min_count = 0;
  EXPECT_EQ(harness::message_of<ConfigError>([&] { prepare_features(zero); }),
            "min_count is 0; expected at least 1");
  auto hashed = options(RawFormat::kPairs);
  hashed.ids = CategoryIds::kHash;
  hashed.min_count = 2;
  EXPECT_EQ(harness::message_of<ConfigError>([&] { prepare_features(hashed); }),
            "min_count is 2 and ids are hashes, which are not counted; leave it out and train with "
            "tables.open_min_uses");
}

}  // namespace
}  // namespace trireme::dataset
