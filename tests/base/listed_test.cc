#include "trireme/base/words.h"

#include <gtest/gtest.h>

namespace trireme {
namespace {

TEST(Listed, SaysHowManyThereAreAndTheFirst) {
  EXPECT_EQ(listed("missing", {}), "");
  EXPECT_EQ(listed("missing", {"a"}), "; 1 missing: a");
  EXPECT_EQ(listed("missing", {"e", "d", "c", "b", "a"}), "; 5 missing: a, b, c, d, e");
  EXPECT_EQ(listed("surplus", {"a", "b", "c", "d", "e", "f"}), "; 6 surplus: a, b, c, d, e, ...");
}

}  // namespace
}  // namespace trireme
