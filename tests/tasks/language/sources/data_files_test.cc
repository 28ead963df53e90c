#include "trireme/tasks/language/sources/data_files.h"

#include <filesystem>
#include <fstream>
#include <string>

#include <gtest/gtest.h>

#include "tests/harness/messages.h"
#include "tests/harness/temporary_folder.h"
#include "trireme/base/error.h"
#include "trireme/base/file/file.h"
#include "trireme/dataset/prepare.h"
#include "trireme/dataset/token_files.h"

namespace trireme::tasks {
namespace {

class DataFilesTest : public ::testing::Test {
 protected:
  DataFilesTest() {
    for (const std::string name : {"code", "web"}) {
      std::ofstream(folder_ / (name + ".txt")) << std::string(3000, name.front());
      dataset::prepare({.inputs = {(folder_ / (name + ".txt")).string()},
                        .output = prefix(name),
                        .validation_fraction = 0.2});
    }
  }
  std::string prefix(const std::string& name) const { return (folder_ / name).string(); }
  TokenDataConfig blend() const {
    return {.sources = "code=" + prefix("code") + ":7,web=" + prefix("web") + ":3"};
  }
  template <typename Call>
  static void expect_error(Call&& call, std::initializer_list<std::string> words) {
    const std::string error = harness::message_of<ConfigError>(call);
    EXPECT_EQ(error.find('\n'), std::string::npos) << error;
    for (const std::string& word : words) EXPECT_NE(error.find(word), std::string::npos) << error;
  }

  harness::TemporaryFolder folder_;
};

TEST_F(DataFilesTest, AreThoseOfThePathOrOfTheSources) {
  const DataFiles one = training_files({.path = "data/code"});
  EXPECT_EQ(one.key, "data.path");
  ASSERT_EQ(one.files.size(), 1U);
  EXPECT_EQ(one.files[0].name + one.files[0].path, "data/code");
  const DataFiles two = training_files(blend());
  EXPECT_EQ(two.key, "data.sources");
  EXPECT_EQ(two.files[1], (dataset::ListedSource{"web", prefix("web"), 3}));
  EXPECT_EQ(first_prefix(blend()), prefix("code"));
  EXPECT_EQ(first_prefix({.path = ""}), "");
  expect_error([] { training_files({.path = ""}); },
               {"data.path is empty", "data.sources", "data prepare"});
}

TEST_F(DataFilesTest, OfAnEvaluationAreBesideThemOrNamed) {
  EXPECT_EQ(validation_files({.path = "data/code"}).files[0].path, "data/code.validation");
  const DataFiles beside = validation_files(blend());
  EXPECT_EQ(beside.files[1].path, prefix("web") + ".validation");
  EXPECT_EQ(beside.files[1].name, "web");
  const DataFiles named = validation_files({.path = "a", .validation_sets = "x=b,y=c"});
  EXPECT_EQ(named.key, "data.validation_sets");
  EXPECT_EQ(named.files[1].path, "c");
  std::filesystem::remove(prefix("web") + ".validation.bin");
  expect_error([&] { validation_files(blend()); },
               {"web of data.sources has no", "web.validation.bin", "data.validation_sets"});
}

TEST_F(DataFilesTest, PrefixesOfNothingAreExplained) {
  expect_error([] { check_prefixes(training_files({.path = "/nowhere/data"})); },
               {"data.path is /nowhere/data, and there is no /nowhere/data.bin"});
  expect_error([] { check_prefixes(training_files({.sources = "a=/nowhere/data:1"})); },
               {"data.sources has a=/nowhere/data, and there is no", "data prepare --output"});
  expect_error([&] { check_prefixes(training_files({.path = prefix("code") + ".idx"})); },
               {"a file; expected what its name begins with: " + prefix("code")});
  expect_error([&] { check_prefixes(training_files({.path = folder_.path().string()})); },
               {"a folder; expected the data in it: " + prefix("code") + ", " + prefix("web")});
  check_prefixes(training_files(blend()));
}

TEST_F(DataFilesTest, AllHaveOneTokenizer) {
  const DataFiles files = training_files(blend());
  EXPECT_EQ(shared_tokenizer(files, validation_files(blend()))->vocab_size(), 257);
  const DataFiles own = validation_files({.validation_sets = "own=" + prefix("code")});
  EXPECT_EQ(shared_tokenizer(files, own)->vocab_size(), 257);
  std::filesystem::remove(dataset::tokenizer_json_path(prefix("web")));
  expect_error([&] { shared_tokenizer(files, {}); }, {"web.tokenizer.json"});
}

TEST_F(DataFilesTest, ChatTemplatesAreThoseOfAnyOrOne) {
  const DataFiles files = training_files(blend());
  EXPECT_EQ(shared_chat_template(files), "");
  write_file_atomically(dataset::chat_template_path(prefix("web")), "a template");
  EXPECT_EQ(shared_chat_template(files), dataset::chat_template_path(prefix("web")));
  write_file_atomically(dataset::chat_template_path(prefix("code")), "a template");
  EXPECT_EQ(shared_chat_template(files), dataset::chat_template_path(prefix("code")));
  write_file_atomically(dataset::chat_template_path(prefix("code")), "another");
  expect_error([&] { shared_chat_template(files); },
               {"code=", "web=", "whose chat templates differ"});
}

}  // namespace
}  // namespace trireme::tasks
