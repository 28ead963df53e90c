#include "trireme/dataset/recommend/feature_journal.h"

#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "tests/harness/messages.h"
#include "tests/harness/temporary_folder.h"
#include "trireme/base/error.h"
#include "trireme/base/file/file.h"
#include "trireme/dataset/recommend/criteo_generator.h"
#include "trireme/dataset/recommend/prepare_features.h"

namespace trireme::dataset {
namespace {

namespace fs = std::filesystem;

class FeatureJournals : public ::testing::Test {
 protected:
  static constexpr int64_t kSamples = 2000;

  PrepareFeaturesOptions options(const std::string& output) {
    return {.inputs = {(folder_ / "in").string()},
            .output = (folder_ / output).string(),
            .min_count = 3,
            .validation_fraction = 0.2,
            .journal_bytes = 20'000};
  }
  void generate() {
    generate_criteo({.num_samples = kSamples, .scale = 1e-3, .output = (folder_ / "in").string()});
  }
  std::map<std::string, std::string> content(const std::string& output) {
    std::map<std::string, std::string> files;
    for (const std::string& name : harness::names_in(folder_ / output))
      files[name] = read_file(folder_ / output / name);
    return files;
  }
  // Fails after a share of both passes as a full disk does.
  void interrupt(const PrepareFeaturesOptions& interrupted, double share) {
    const std::string error = harness::message_of<Error>([&] {
      prepare_features(interrupted, [share](int64_t done, int64_t total) {
        if (static_cast<double>(done) >= share * static_cast<double>(total)) throw Error("no room");
      });
    });
    EXPECT_TRUE(error.starts_with("no room")) << error;
  }
  fs::path work(const std::string& output) const { return folder_ / ("." + output + ".tmp"); }
  harness::TemporaryFolder folder_;
};

TEST_F(FeatureJournals, AreReadAsTheyWereWritten) {
  const FeatureJournal journal{.identity = {.high = 1, .low = 2},
                               .num_bytes = 100,
                               .num_categories = {4, 0},
                               .num_samples = 9,
                               .num_training = 7,
                               .num_validation = 2,
                               .num_ids = 30,
                               .num_rare_ids = 5};
  EXPECT_FALSE(has_feature_journal(folder_.path()));
  write_feature_journal(folder_.path(), journal);
  EXPECT_TRUE(has_feature_journal(folder_.path()));
  EXPECT_EQ(read_feature_journal(folder_.path(), journal.identity), journal);
  EXPECT_EQ(read_feature_journal(folder_.path(), {.high = 1, .low = 3}), std::nullopt);
  const std::string text = read_file(folder_ / "journal.json");
  for (const auto& [from, to] : std::map<std::string, std::string>{
           {"\"training\":7", "\"training\":8"}, {"\"ids\":30", "\"ids\":-1"}, {"{", "["}}) {
    std::string damaged = text;
    damaged.replace(damaged.find(from), from.size(), to);
    write_file_atomically(folder_ / "journal.json", damaged);
    EXPECT_EQ(read_feature_journal(folder_.path(), journal.identity), std::nullopt) << damaged;
  }
  remove_feature_journal(folder_.path());
  EXPECT_FALSE(has_feature_journal(folder_.path()));
}

TEST_F(FeatureJournals, ThePreparationGoesOnWithTheSameBytesWhereverItWasInterrupted) {
  generate();
  const PrepareFeaturesReport whole = prepare_features(options("whole"));
  EXPECT_FALSE(whole.is_resumed);
  for (const double share : {0.3, 0.5, 0.505, 0.55, 0.8, 0.99}) {
    interrupt(options("out"), share);
    EXPECT_EQ(fs::exists(work("out")), share > 0.5) << share;
    if (share > 0.6) interrupt(options("out"), share);  // again, at the same place
    const PrepareFeaturesReport report = prepare_features(options("out"));
    EXPECT_EQ(report.is_resumed, share > 0.5) << share;
    EXPECT_EQ(report.num_resumed > 0, share > 0.54) << share;
    EXPECT_LT(report.num_resumed, kSamples);
    EXPECT_EQ(report.schema, whole.schema);
    EXPECT_EQ(report.num_categories, whole.num_categories);
    EXPECT_EQ(report.num_ids, whole.num_ids);
    EXPECT_EQ(report.num_rare_ids, whole.num_rare_ids);
    EXPECT_EQ(content("out"), content("whole")) << share;
    EXPECT_FALSE(fs::exists(work("out")));
    fs::remove_all(folder_ / "out");
  }
}

TEST_F(FeatureJournals, PairsHashesAndTablesGoOnToo) {
  std::string pairs = "query*\titem\titem.tags*\n", table = "age,city,clicked\n";
  for (int i = 0; i < 3000; ++i) {
    pairs += concat("u", i % 7, "|u", i % 11, "\titem", i % 40, "\tt", i % 5, "\n");
    table += concat(i % 90, ".25,c", i % 13, ",", i % 3 == 0 ? "yes" : "no", "\n");
  }
  write_file_atomically(folder_ / "pairs", pairs);
  write_file_atomically(folder_ / "table", table);
  PrepareFeaturesOptions of_pairs = options("out");
  of_pairs.format = RawFormat::kPairs;
  of_pairs.inputs = {(folder_ / "pairs").string()};
  PrepareFeaturesOptions of_hashes = of_pairs;
  of_hashes.ids = CategoryIds::kHash;
  of_hashes.min_count = 1;
  PrepareFeaturesOptions of_table = options("out");
  of_table.format = RawFormat::kCsv;
  of_table.inputs = {(folder_ / "table").string()};
  of_table.columns = {.numeric = {"age:standard"},
                      .category = {"city"},
                      .label = "clicked",
                      .label_kind = LabelKind::kClass};
  for (const PrepareFeaturesOptions& interrupted : {of_pairs, of_hashes, of_table}) {
    PrepareFeaturesOptions whole = interrupted;
    whole.output = (folder_ / "whole").string();
    prepare_features(whole);
    interrupt(interrupted, 0.9);
    EXPECT_GT(prepare_features(interrupted).num_resumed, 0);
    EXPECT_EQ(content("out"), content("whole"));
    fs::remove_all(folder_ / "out");
    fs::remove_all(folder_ / "whole");
  }
}

TEST_F(FeatureJournals, AnotherInputOptionOrADamagedFileBeginsAnew) {
  generate();
  prepare_features(options("whole"));
  const auto expected = content("whole");
  const std::vector<std::function<void(PrepareFeaturesOptions&)>> changes = {
      [&](PrepareFeaturesOptions&) { fs::resize_file(work("out") / "train.bin", 100); },
      [&](PrepareFeaturesOptions&) { fs::remove(work("out") / "dictionary.txt"); },
      [&](PrepareFeaturesOptions&) { write_file_atomically(work("out") / "journal.json", "{"); },
      [&](PrepareFeaturesOptions&) {
        const auto time = fs::last_write_time(folder_ / "in");
        fs::last_write_time(folder_ / "in", time + std::chrono::seconds(1));
      },
      [](PrepareFeaturesOptions& changed) { changed.seed = 2; }};
  for (size_t i = 0; i < changes.size(); ++i) {
    interrupt(options("out"), 0.9);
    PrepareFeaturesOptions changed = options("out");
    changes[i](changed);
    EXPECT_FALSE(prepare_features(changed).is_resumed) << i;
    EXPECT_EQ(content("out") == expected, changed.seed == options("out").seed) << i;
    fs::remove_all(folder_ / "out");
  }
}

TEST_F(FeatureJournals, OneThatDoesNotFitTheInputIsRefusedOnce) {
  generate();
  interrupt(options("out"), 0.9);
  const fs::path journal = work("out") / "journal.json";
  const std::string key = "\"bytes\":";
  std::string text = read_file(journal);
  text.insert(text.find(key) + key.size(), "1");
  write_file_atomically(journal, text);
  EXPECT_THROW(prepare_features(options("out")), ConfigError);
  EXPECT_FALSE(fs::exists(work("out")));
  EXPECT_FALSE(prepare_features(options("out")).is_resumed);
}

TEST_F(FeatureJournals, AWriteOfOneThatWasCutShortLeavesNothingInTheOutput) {
  generate();
  prepare_features(options("whole"));
  interrupt(options("out"), 0.9);
  write_file_atomically(work("out") / ".journal.json.0123abcd.tmp", "{");
  PrepareFeaturesOptions last = options("out");
  last.journal_bytes = int64_t{1} << 30;  // it writes none itself
  EXPECT_GT(prepare_features(last).num_resumed, 0);
  EXPECT_EQ(content("out"), content("whole"));
}

// What an option that is wrong says is no reason to lose hours of work.
TEST_F(FeatureJournals, ARefusedCallLeavesTheWorkOfAnEarlierOne) {
  generate();
  interrupt(options("out"), 0.9);
  PrepareFeaturesOptions wrong = options("out");
  wrong.inputs = {(folder_ / "nothing").string()};
  EXPECT_THROW(prepare_features(wrong), ConfigError);
  EXPECT_GT(prepare_features(options("out")).num_resumed, 0);
}

}  // namespace
}  // namespace trireme::dataset
