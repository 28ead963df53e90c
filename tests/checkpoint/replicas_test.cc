#include "trireme/checkpoint/write/save_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace trireme::checkpoint {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

std::vector<size_t> minority_of(std::vector<std::string_view> digests) { return minority(digests); }

TEST(Replicas, TheMinorityDiffers) {
  EXPECT_THAT(minority_of({"a", "a", "a"}), ElementsAre());
  EXPECT_THAT(minority_of({"a", "b", "a"}), ElementsAre(1));
  EXPECT_THAT(minority_of({"b", "a", "a", "c"}), ElementsAre(0, 3));
  EXPECT_THAT(minority_of({"b", "a"}), ElementsAre(0));
  EXPECT_THAT(minority_of({}), ElementsAre());
}

TEST(Replicas, TheMessageSaysWhenThereIsNoMajority) {
  const std::vector<int> ranks{2, 5};
  EXPECT_THAT(replicas_differ("w", ranks, 5), HasSubstr("\"w\" has different bits on rank 2, 5;"));
  EXPECT_THAT(replicas_differ("w", ranks, 5), Not(HasSubstr("majority")));
  EXPECT_THAT(replicas_differ("w", ranks, 4), HasSubstr("there is no majority"));
}

}  // namespace
}  // namespace trireme::checkpoint
