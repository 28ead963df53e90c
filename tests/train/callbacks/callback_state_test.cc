#include "trireme/train/callbacks/callback.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "tests/harness/messages.h"
#include "trireme/base/error.h"

namespace trireme::train {
namespace {

std::string refusal(const std::string& text) {
  return harness::message_of<CheckpointError>([&] { read_state(text, "mine", {"a"}); });
}

TEST(CallbackState, ReadsBackTheSameBits) {
  const StateNumbers numbers = {{"a", 0.1}, {"b", -1e308}, {"c", 5e-324}, {"d", 3}};
  EXPECT_EQ(read_state(write_state(numbers), "mine", {"a", "b", "c", "d"}), numbers);
  const StateNumbers none = {{"a", std::numeric_limits<double>::quiet_NaN()}};
  EXPECT_TRUE(std::isnan(read_state(write_state(none), "mine", {"a"}).at("a")));
}

TEST(CallbackState, RefusesWhatIsNoState) {
  EXPECT_NE(refusal("{}").find("the state of the callback mine lacks \"a\""), std::string::npos);
  EXPECT_NE(refusal("[1]").find("the state of the callback mine"), std::string::npos);
  EXPECT_NE(refusal("{\"a\": \"x\"}").find("the state of the callback mine"), std::string::npos);
  EXPECT_NE(refusal("{").find("the state of the callback mine"), std::string::npos);
}

TEST(CallbackState, CountsAreWholeAndBounded) {
  EXPECT_EQ(count_in({{"a", 7}}, "a", "mine"), 7);
  for (const double value : {-1.0, 0.5, 1e300, std::nan("")}) {
    EXPECT_NE(harness::message_of<CheckpointError>([&] {
                count_in({{"a", value}}, "a", "mine");
              }).find("the callback mine has a = "),
              std::string::npos);
  }
}

}  // namespace
}  // namespace trireme::train
