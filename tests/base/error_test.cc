#include "trireme/base/error.h"

#include <functional>
#include <string>

#include <gtest/gtest.h>

namespace trireme {
namespace {

// The text of the `E` that `fn` throws; fails the test when it throws anything else.
template <typename E>
std::string message_of(const std::function<void()>& fn) {
  try {
    fn();
  } catch (const E& error) {
    return error.what();
  }
  ADD_FAILURE() << "nothing was thrown";
  return {};
}

TEST(Error, ConcatJoinsAsStreamsPrint) {
  EXPECT_EQ(concat("a", 1, ' ', 2.5, std::string("b")), "a1 2.5b");
  EXPECT_EQ(concat(), "");
}

TEST(Error, CheckThrowsConfigErrorWithTheMessageAlone) {
  const int heads = 3;
  const auto check = [&] { TRIREME_CHECK(heads == 4, "model.heads is ", heads, "; expected 4"); };
  EXPECT_EQ(message_of<ConfigError>(check), "model.heads is 3; expected 4");
  EXPECT_NO_THROW(TRIREME_CHECK(heads == 3, "unused"));
}

TEST(Error, CheckOpAppendsBothOperands) {
  const auto check = [] { TRIREME_CHECK_OP(1 + 2, ==, 4, "sizes differ"); };
  EXPECT_EQ(message_of<ConfigError>(check), "sizes differ (3 vs 4)");
}

TEST(Error, CheckOpEvaluatesEachOperandOnce) {
  int calls = 0;
  TRIREME_CHECK_OP(++calls, ==, 1, "evaluated more than once");
  EXPECT_EQ(calls, 1);
}

TEST(Error, AssertThrowsInternalErrorNamingConditionAndPlace) {
  const auto check = [] { TRIREME_ASSERT(1 == 2, "value ", 7); };
  const std::string text = message_of<InternalError>(check);
  EXPECT_NE(text.find("`1 == 2`"), std::string::npos) << text;
  EXPECT_NE(text.find("error_test.cc:"), std::string::npos) << text;
  EXPECT_NE(text.find(": value 7"), std::string::npos) << text;
}

TEST(Error, AssertNeedsNoMessage) {
  const std::string text = message_of<InternalError>([] { TRIREME_ASSERT(false); });
  EXPECT_FALSE(text.ends_with(": ")) << text;
}

TEST(Error, MessagesAreOneLine) {
  const std::string text = message_of<InternalError>([] { TRIREME_ASSERT(false, "reason"); });
  EXPECT_EQ(text.find('\n'), std::string::npos);
}

TEST(Error, ChecksNestInAnIfWithoutBraces) {
  bool reached_else = false;
  if (reached_else)
    TRIREME_CHECK(false, "unreachable");
  else
    reached_else = true;
  EXPECT_TRUE(reached_else);
}

TEST(Error, EveryTypeIsAnErrorAndNoneIsAnother) {
  EXPECT_THROW(throw ConfigError("x"), Error);
  EXPECT_THROW(throw CommError("x"), Error);
  EXPECT_THROW(throw CheckpointError("x"), Error);
  EXPECT_THROW(throw InternalError("x"), Error);
  EXPECT_FALSE((std::is_base_of_v<ConfigError, CheckpointError>));
}

}  // namespace
}  // namespace trireme
