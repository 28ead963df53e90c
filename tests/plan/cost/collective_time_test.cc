#include "trireme/plan/cost/device_seconds.h"

#include <gtest/gtest.h>

namespace trireme::plan {
namespace {

Cluster two_nodes_of_four() {
  Cluster cluster;
  cluster.nodes = 2;
  cluster.devices_per_node = 4;
  cluster.device.link_rate = 100e9;
  cluster.device.network_rate = 10e9;
  cluster.device.link_share = cluster.device.network_share = 1;
  cluster.device.link_seconds = cluster.device.network_seconds = 0;
  return cluster;
}

TEST(CollectiveTime, OneRankTakesNone) {
  const Cluster cluster = two_nodes_of_four();
  EXPECT_EQ(all_reduce_seconds(cluster, {1, 1}, 1e9), 0);
  EXPECT_EQ(all_to_all_seconds(cluster, {1, 4}, 1e9), 0);
}

TEST(CollectiveTime, ARingMovesItsShareOfTheBytes) {
  const Cluster cluster = two_nodes_of_four();
  EXPECT_DOUBLE_EQ(all_gather_seconds(cluster, {4, 1}, 1e9), 0.75 * 1e9 / 100e9);
  EXPECT_DOUBLE_EQ(all_reduce_seconds(cluster, {4, 1}, 1e9), 2 * 0.75 * 1e9 / 100e9);
}

TEST(CollectiveTime, RanksOfANodeShareItsConnections) {
  const Cluster cluster = two_nodes_of_four();
  EXPECT_DOUBLE_EQ(ring_rate(cluster, {8, 1}).bytes_per_second, 40e9);  // four rings
  EXPECT_DOUBLE_EQ(ring_rate(cluster, {4, 2}).bytes_per_second, 20e9);
  EXPECT_DOUBLE_EQ(ring_rate(cluster, {2, 4}).bytes_per_second, 10e9);
  EXPECT_DOUBLE_EQ(ring_rate(cluster, {2, 2}).bytes_per_second, 100e9);  // in one node
}

TEST(CollectiveTime, OversubscribedLeavesAreSlower) {
  Cluster cluster = two_nodes_of_four();
  cluster.leaf_nodes = 1;
  cluster.oversubscription = 4;
  EXPECT_DOUBLE_EQ(ring_rate(cluster, {2, 4}).bytes_per_second, 2.5e9);
  EXPECT_DOUBLE_EQ(ring_rate(cluster, {4, 1}).bytes_per_second, 100e9);
}

TEST(CollectiveTime, LatencyIsOfARingOrATree) {
  Cluster cluster = two_nodes_of_four();
  cluster.device.network_seconds = 1;
  EXPECT_DOUBLE_EQ(all_gather_seconds(cluster, {2, 4}, 0), 1);
  cluster.nodes = 1024;
  EXPECT_DOUBLE_EQ(all_gather_seconds(cluster, {1024, 4}, 0), 20);
}

TEST(CollectiveTime, AllToAllLeavesTheNodeWithItsShare) {
  const Cluster cluster = two_nodes_of_four();
  EXPECT_DOUBLE_EQ(all_to_all_seconds(cluster, {4, 1}, 1e9), 0.75 * 1e9 / 100e9);
  EXPECT_DOUBLE_EQ(all_to_all_seconds(cluster, {8, 1}, 1e9), 0.5 * 1e9 / 10e9);
}

TEST(CollectiveTime, ASendGoesOverTheLinkOrTheNetwork) {
  const Cluster cluster = two_nodes_of_four();
  EXPECT_DOUBLE_EQ(send_seconds(cluster, {2, 1}, 1e9), 0.01);
  EXPECT_DOUBLE_EQ(send_seconds(cluster, {2, 4}, 1e9), 0.1);
}

// tests/comm/hierarchical/round_trips_test.cc counts the same latencies.
TEST(CollectiveTime, SumsInRankOrderVisitOneNodeAfterTheOther) {
  Cluster cluster = two_nodes_of_four();
  cluster.device.sums_in_rank_order = true;
  EXPECT_DOUBLE_EQ(all_reduce_seconds(cluster, {8, 1}, 4e9), 1.5 * 0.1);
  EXPECT_DOUBLE_EQ(reduce_scatter_seconds(cluster, {8, 1}, 4e9), 0.1);
  EXPECT_DOUBLE_EQ(all_gather_seconds(cluster, {8, 1}, 4e9), 0.5 * 0.1);
  EXPECT_EQ(all_reduce_seconds(cluster, {4, 1}, 1e9), 2 * 0.75 * 1e9 / 100e9) << "on one node";
  cluster.device.network_seconds = 1;
  EXPECT_DOUBLE_EQ(small_call_seconds(cluster, {8, 1}), 2);
  EXPECT_DOUBLE_EQ(all_reduce_seconds(cluster, {8, 1}, 0), 7);
  EXPECT_DOUBLE_EQ(all_reduce_seconds(cluster, {8, 1}, 4e9, 3), 1.5 * 0.1 + 3 * 7);
  EXPECT_DOUBLE_EQ(reduce_scatter_seconds(cluster, {8, 1}, 0, 2), 2 * 5);
  EXPECT_DOUBLE_EQ(all_gather_seconds(cluster, {8, 1}, 0), 4);
  cluster.nodes = 3;
  EXPECT_DOUBLE_EQ(all_reduce_seconds(cluster, {12, 1}, 0), 8);
  EXPECT_DOUBLE_EQ(reduce_scatter_seconds(cluster, {12, 1}, 0), 6);
  EXPECT_DOUBLE_EQ(all_gather_seconds(cluster, {12, 1}, 0), 4);
  EXPECT_EQ(small_call_seconds(two_nodes_of_four(), {8, 1}), 0);
}

TEST(CollectiveTime, SitesAreFartherApartThanNodes) {
  Cluster cluster = two_nodes_of_four();
  cluster.nodes = 4;
  cluster.site_nodes = 2;
  cluster.site_rate = 1e6;
  cluster.site_seconds = 0.5;
  EXPECT_DOUBLE_EQ(ring_rate(cluster, {8, 1}).bytes_per_second, 40e9);  // on one site
  EXPECT_DOUBLE_EQ(ring_rate(cluster, {16, 1}).bytes_per_second, 8e6);  // eight rings
  EXPECT_DOUBLE_EQ(ring_rate(cluster, {2, 8}).bytes_per_second, 1e6);
  EXPECT_DOUBLE_EQ(ring_rate(cluster, {2, 8}).seconds, 0.5);
  EXPECT_DOUBLE_EQ(all_to_all_seconds(cluster, {16, 1}, 1e6), 0.5 * 1e6 / 1e6 + 0.5);
  EXPECT_DOUBLE_EQ(all_to_all_seconds(cluster, {8, 1}, 1e9), 0.5 * 1e9 / 10e9);
  EXPECT_DOUBLE_EQ(send_seconds(cluster, {2, 8}, 1e6), 1.5);
  EXPECT_DOUBLE_EQ(send_seconds(cluster, {2, 4}, 1e9), 1e9 / 10e9);
}

}  // namespace
}  // namespace trireme::plan
