#include "trireme/dataset/recommend/dictionary.h"

#include <gtest/gtest.h>

#include <map>
#include <string>

#include "tests/harness/draw.h"
#include "tests/harness/messages.h"
#include "trireme/base/error.h"

namespace trireme::dataset {
namespace {

TEST(TextNumbers, CountDifferentTextsInTheirOrder) {
  harness::Draw draw(1);
  TextNumbers numbers;
  std::map<std::string, int64_t> expected;
  for (int i = 0; i < 20000; ++i) {
    std::string text(static_cast<size_t>(draw.below(300)), 'x');
    text += std::to_string(draw.below(30));
    const auto [known, is_new] = expected.emplace(text, numbers.size());
    EXPECT_EQ(numbers.find(text), is_new ? -1 : known->second);
    EXPECT_EQ(numbers.add(text), known->second);
  }
  EXPECT_EQ(numbers.size(), std::ssize(expected));
  for (const auto& [text, number] : expected) {
    EXPECT_EQ(numbers.find(text), number);
    EXPECT_EQ(numbers[number], text);
  }
}

TEST(TextNumbers, TakeEmptyTextsAndRefuseLongOnes) {
  TextNumbers numbers;
  // Fills a block to its last byte before the empty text.
  for (int i = 0; i < 256; ++i) {
    std::string text(4096, 'x');
    text[0] = static_cast<char>(i);
    numbers.add(text);
  }
  EXPECT_EQ(numbers.add(""), 256);
  EXPECT_EQ(numbers.add(""), 256);
  EXPECT_EQ(numbers[256], "");
  EXPECT_EQ(
      harness::message_of<ConfigError>([&] { numbers.add(std::string(4097, 'y')); }),
      "the category \"" + std::string(60, 'y') + "...\" has 4097 bytes; expected at most 4096");
}

TEST(Dictionary, GivesFrequentCategoriesRowsInTheOrderOfTheirBytes) {
  Dictionary dictionary;
  for (const char* category : {"b", "rare", "a", "c", "b", "a", "", "", "c", "a"}) {
    dictionary.count(dictionary.add(category));
  }
  dictionary.add("b of validation");
  dictionary.close(2);
  EXPECT_EQ(dictionary.num_rows(), 5);
  EXPECT_EQ(dictionary.num_categories(), 6);
  EXPECT_EQ(dictionary.row(""), 1);
  EXPECT_EQ(dictionary.row("a"), 2);
  EXPECT_EQ(dictionary.row("b"), 3);
  EXPECT_EQ(dictionary.row("c"), 4);
  EXPECT_EQ(dictionary.row("rare"), 0);
  EXPECT_EQ(dictionary.row("unknown"), 0);
  EXPECT_EQ(dictionary.row("b of validation"), 0);
  EXPECT_EQ(dictionary.category(4), "c");
}

TEST(Dictionary, AppendsCategoriesThatHaveRows) {
  Dictionary dictionary;
  EXPECT_TRUE(dictionary.append("z"));
  EXPECT_TRUE(dictionary.append("a"));
  EXPECT_FALSE(dictionary.append("z"));
  EXPECT_EQ(dictionary.row("a"), 2);
  EXPECT_EQ(dictionary.num_rows(), 3);
}

}  // namespace
}  // namespace trireme::dataset
