#include "trireme/dataset/text/file_texts.h"

#include <algorithm>
#include <set>

#include "tests/dataset/data.h"
#include "trireme/dataset/text/text_split.h"

namespace trireme::dataset {
namespace {

class FileTextsOf : public testing::Test {
 protected:
  std::vector<Document> documents() const {
    return find_documents({.inputs = {folder_ / "in"}, .as_text = true});
  }
  void write(const std::string& name, const std::string& text) const {
    write_text(folder_ / "in" / name, text);
  }
  static std::set<std::string> names_of(const std::vector<Document>& documents) {
    std::set<std::string> names;
    for (const Document& document : documents) names.insert(document.name);
    return names;
  }
  TemporaryFolder folder_;
};

TEST_F(FileTextsOf, HaveTheDigestsOfTheirTexts) {
  std::string large;
  while (std::ssize(large) < DocumentReader::kPieceBytes * 2)
    large += concat("line ", large.size(), " of a large file\n");
  const std::vector<std::string> texts = {"one", large, large + "x", std::string("\xff\0\n", 3)};
  for (size_t i = 0; i < texts.size(); ++i) write(std::to_string(i), texts[i]);
  const std::vector<Digest> digests = digests_of(documents());
  ASSERT_EQ(digests.size(), texts.size());
  for (size_t i = 0; i < texts.size(); ++i) EXPECT_EQ(digests[i], digest_of_text(texts[i])) << i;
  EXPECT_EQ(std::set<Digest>(digests.begin(), digests.end()).size(), texts.size());
}

TEST_F(FileTextsOf, ThatCameBeforeAreRemoved) {
  for (const char* name : {"a", "b", "c", "d", "e"}) write(name, name[0] % 2 == 0 ? "even" : name);
  std::vector<Document> some = documents();
  std::vector<Digest> digests = digests_of(some);
  EXPECT_EQ(remove_repeated(some, digests), 1);
  EXPECT_EQ(names_of(some), (std::set<std::string>{"a", "b", "c", "e"}));
  EXPECT_EQ(digests, digests_of(some));
  EXPECT_EQ(remove_repeated(some, digests), 0);
}

TEST_F(FileTextsOf, AreSplitByTextWhateverTheirNames) {
  for (int i = 0; i < 200; ++i) write(concat(1000 + i), concat("text ", i / 2));
  const auto validation_of = [&](double fraction) {
    const std::vector<Document> all = documents();
    const FileSplit split = split_files_by_text(all, digests_of(all), fraction, 1);
    EXPECT_EQ(split.training.size() + split.validation.size(), all.size());
    EXPECT_FALSE(split.training.empty());
    EXPECT_FALSE(split.validation.empty());
    std::set<Digest> texts;
    for (const Digest& text : digests_of(split.validation)) texts.insert(text);
    for (const Digest& text : digests_of(split.training)) EXPECT_EQ(texts.count(text), 0U);
    return texts;
  };
  const std::set<Digest> before = validation_of(0.3);
  // Binomial: 30 texts expected, standard deviation 4.6; the seed is fixed.
  EXPECT_NEAR(static_cast<double>(before.size()), 30, 22);
  EXPECT_EQ(validation_of(1e-9).size(), 1U);
  EXPECT_EQ(validation_of(1 - 1e-9).size(), 99U);
  std::filesystem::remove_all(folder_ / "in");
  for (int i = 0; i < 100; ++i) write(concat("other ", 1000 - i), concat("text ", i));
  EXPECT_EQ(validation_of(0.3), before);
  std::filesystem::remove_all(folder_ / "in");
  write("a", "same");
  write("b", "same");
  const std::vector<Document> same = documents();
  expect_config_error([&] { split_files_by_text(same, digests_of(same), 0.5, 1); },
                      {"has 1 text", "too few"});
}

}  // namespace
}  // namespace trireme::dataset
