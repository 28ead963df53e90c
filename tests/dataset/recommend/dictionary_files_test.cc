#include "trireme/dataset/recommend/dictionary.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/dataset/recommend/features.h"
#include "tests/harness/messages.h"
#include "tests/harness/temporary_folder.h"
#include "trireme/base/error.h"
#include "trireme/base/file/file.h"

namespace trireme::dataset {
namespace {

FeatureSchema schema_of(int64_t first_rows, int64_t second_rows) {
  FeatureSchema schema = click_schema();
  schema.tables[0].rows = first_rows;
  schema.tables[1].rows = second_rows;
  return schema;
}

class DictionaryFiles : public ::testing::Test {
 protected:
  std::string error_of(const std::string& text, const FeatureSchema& schema) {
    write_file_atomically(path_, text);
    const std::string message =
        harness::message_of<ConfigError>([&] { read_dictionaries(path_, schema); });
    return message.substr(std::min(message.size(), path_.string().size()));
  }
  harness::TemporaryFolder folder_;
  std::filesystem::path path_ = folder_ / "dictionary.txt";
};

TEST_F(DictionaryFiles, HaveALineForEachRowOfEachTable) {
  std::vector<Dictionary> dictionaries(2);
  for (const char* category : {"", "b"}) dictionaries[0].append(category);
  for (const char* category : {"a", "b", "c d"}) dictionaries[1].append(category);
  write_dictionaries(path_, dictionaries);
  EXPECT_EQ(read_file(path_), "\nb\na\nb\nc d\n");
  const std::vector<Dictionary> again = read_dictionaries(path_, schema_of(3, 4));
  EXPECT_EQ(again[0].row("b"), 2);
  EXPECT_EQ(again[0].row(""), 1);
  EXPECT_EQ(again[1].row("c d"), 3);
}

// bzip2's files begin like this name, gzip's with those two bytes.
TEST_F(DictionaryFiles, MayBeginLikeACompressedFile) {
  for (const char* first : {"BZhang", "\x1f\x8b"}) {
    std::vector<Dictionary> dictionaries(2);
    dictionaries[0].append(first);
    write_dictionaries(path_, dictionaries);
    EXPECT_EQ(read_dictionaries(path_, schema_of(2, 1))[0].row(first), 1);
    TextNumbers names;
    names.add(first);
    write_item_names(path_, names);
    EXPECT_EQ(read_item_names(path_, 1)[0], first);
  }
}

TEST_F(DictionaryFiles, MayBeOfTablesWithoutCategories) {
  write_dictionaries(path_, std::vector<Dictionary>(2));
  EXPECT_EQ(read_dictionaries(path_, schema_of(1, 1))[1].num_rows(), 1);
}

TEST_F(DictionaryFiles, AreRefusedWithOtherLines) {
  EXPECT_EQ(error_of("a\n", schema_of(2, 2)), " has 1 lines; expected 2, as in features.json");
  EXPECT_EQ(error_of("a\nb\nc\n", schema_of(2, 2)), " has more than the 2 lines of features.json");
  EXPECT_EQ(error_of("a\na\n", schema_of(3, 1)), ": the category \"a\" of user occurs twice");
  EXPECT_EQ(error_of("", schema_of(2, 1)), " is empty; expected lines of text");
}

TEST_F(DictionaryFiles, NameItems) {
  TextNumbers names;
  names.add("b");
  names.add("a");
  write_item_names(path_, names);
  EXPECT_EQ(read_item_names(path_, 2).find("a"), 1);
  EXPECT_NE(harness::message_of<ConfigError>([&] { read_item_names(path_, 3); }), "");
  names.add("c\r");
  EXPECT_NE(harness::message_of<ConfigError>([&] { write_item_names(path_, names); }), "");
}

}  // namespace
}  // namespace trireme::dataset
