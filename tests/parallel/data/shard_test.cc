#include "trireme/parallel/data/shard.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

namespace trireme::parallel {
namespace {

TEST(Shard, KnowsWhetherItIsWhole) {
  const mesh::Layout layout({1, 6, 5}, {{"shard", 2}}, {mesh::Placement::sharded(1, {0, 2, 6})});
  const Shard second{.name = "w", .weights = at::zeros({1, 4, 5}), .layout = layout, .rank = 1};
  EXPECT_FALSE(second.is_whole());
  const Shard whole{.name = "w", .weights = at::zeros({7}), .layout = {{7}, {{"shard", 1}}}};
  EXPECT_TRUE(whole.is_whole());
}

}  // namespace
}  // namespace trireme::parallel
