#include "trireme/train/task/keys.h"

#include <gtest/gtest.h>

#include "tests/harness/messages.h"
#include "trireme/base/error.h"

namespace trireme::train {
namespace {

struct First {
  TRIREME_KEYS_BEGIN(First)
  TRIREME_KEY(int64_t, size, 3, kMustStay, "a number", Range{1, 5})
  TRIREME_KEY(bool, fast, true, kMayChange, "a choice")
  TRIREME_KEYS_END()
};

struct Second {
  TRIREME_KEYS_BEGIN(Second)
  TRIREME_KEY(double, rate, 0.5, kMayChange, "another number", Range{0, 1})
  TRIREME_KEYS_END()
};

TEST(Keys, KeepTheOrderOfSectionsAndTheirPartsTogether) {
  First first, again;
  Second part;
  Keys keys;
  keys.add("a", first);
  keys.add("b", again);
  keys.add("a", part);
  const std::vector<Field> fields = keys.take();
  std::vector<std::string> names;
  for (const Field& field : fields) names.push_back(field.key);
  EXPECT_EQ(names, (std::vector<std::string>{"a.size", "a.fast", "a.rate", "b.size", "b.fast"}));
}

TEST(Keys, PointToTheValues) {
  First first;
  Keys keys;
  keys.add("a", first);
  const std::vector<Field> fields = keys.take();
  *std::get<int64_t*>(fields[0].value) = 4;
  EXPECT_EQ(first.size, 4);
  EXPECT_EQ(fields[0].meaning, "a number");
  EXPECT_TRUE(fields[0].range.contains(5));
  EXPECT_FALSE(fields[0].range.contains(6));
  EXPECT_EQ(fields[1].on_resume, OnResume::kMayChange);
}

TEST(Keys, RefuseTwoKeysOfOneName) {
  First first, again;
  Keys keys;
  keys.add("a", first);
  keys.add("a", again);
  EXPECT_NE(harness::message_of<ConfigError>([&] { keys.take(); }).find("a.size is declared twice"),
            std::string::npos);
}

}  // namespace
}  // namespace trireme::train
