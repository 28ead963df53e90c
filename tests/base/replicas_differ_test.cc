#include "trireme/base/replicas_differ.h"

#include <gtest/gtest.h>

namespace trireme {
namespace {

TEST(ReplicasDiffer, IsRecognisedWithinOtherText) {
  for (const ReplicasDiffer& found :
       {ReplicasDiffer{"layers.0.weight", {3}, true}, ReplicasDiffer{"w", {0, 12, 5}, false},
        ReplicasDiffer{"a \"quoted\" name; with more", {1}, true}}) {
    EXPECT_EQ(parse_replicas_differ(to_string(found)), found);
    EXPECT_EQ(parse_replicas_differ("the checkpoint is refused: " + to_string(found) + " (more)"),
              found);
  }
}

TEST(ReplicasDiffer, OtherTextIsNone) {
  for (const char* text :
       {"", "replicas differ", "replicas differ: \"w\"", "rank 1 died",
        "replicas differ: \"w\" has different bits on rank ",
        "replicas differ: \"w\" has different bits on rank -1; check",
        "replicas differ: \"w\" has different bits on rank 99999999999; check"}) {
    EXPECT_FALSE(parse_replicas_differ(text)) << text;
  }
}

}  // namespace
}  // namespace trireme
