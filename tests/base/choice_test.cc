#include "trireme/base/choice.h"

#include <gtest/gtest.h>

namespace trireme {
namespace {

constexpr Choice<int> kOars[] = {{"one", 1}, {"two", 2}, {"three", 3}};

TEST(Choice, IsTheValueOfAName) {
  EXPECT_EQ(choose(kOars, "oars", "one"), 1);
  EXPECT_EQ(choose(kOars, "oars", "three"), 3);
  EXPECT_EQ(names_of(kOars), (std::vector<std::string>{"one", "two", "three"}));
}

TEST(Choice, OfAnotherNameIsRefusedWithAllThatThereAre) {
  for (const std::string name : {"", "One", "four\n"}) {
    try {
      choose(kOars, "boat.oars", name);
      ADD_FAILURE() << name;
    } catch (const ConfigError& error) {
      const std::string text = error.what();
      EXPECT_EQ(text.substr(0, 13), "boat.oars is ");
      EXPECT_NE(text.find("expected one, two or three"), std::string::npos) << text;
      EXPECT_EQ(text.find('\n'), std::string::npos) << text;
    }
  }
}

TEST(Choice, ANameThatIsNotThereIsNotFound) {
  EXPECT_EQ(find_choice(kOars, "two")->value, 2);
  EXPECT_EQ(find_choice(kOars, "four"), nullptr);
}

TEST(Choice, AValueHasItsName) {
  EXPECT_EQ(name_of(kOars, choose(kOars, "boat.oars", "two")), "two");
  EXPECT_THROW(name_of(kOars, -1), InternalError);
}

TEST(Choice, NamesAreReadAsASentence) {
  EXPECT_EQ(joined({}), "");
  EXPECT_EQ(joined({"a", "b", "c"}), "a, b, c");
  EXPECT_EQ(in_words({}), "");
  EXPECT_EQ(in_words({"a"}), "a");
  EXPECT_EQ(in_words({"a", "b"}), "a or b");
  EXPECT_EQ(in_words({"a", "b", "c"}), "a, b or c");
}

}  // namespace
}  // namespace trireme
