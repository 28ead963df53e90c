#include "trireme/plan/device/cluster.h"

#include <gtest/gtest.h>

#include "trireme/base/error.h"

namespace trireme::plan {
namespace {

TEST(Cluster, WithoutChangesHasTheBuiltInDevice) {
  ClusterFile file;
  file.cluster.device = "h100-sxm";
  file.cluster.nodes = 3;
  const Cluster cluster = make_cluster(file);
  EXPECT_EQ(cluster.num_devices(), 24);
  EXPECT_EQ(cluster.device.peak_half, device_named("h100-sxm").peak_half);
  EXPECT_EQ(cluster.device.network_rate, device_named("h100-sxm").network_rate);
}

TEST(Cluster, GivenRatesReplaceTheBuiltInOnes) {
  ClusterFile file;
  file.device.half_teraflops = 2;
  file.device.memory_gib = 3;
  file.device.step_milliseconds = 4;
  file.network.node_gb_per_second = 6.25;
  file.network.link_microseconds = 7;
  const Cluster cluster = make_cluster(file);
  EXPECT_EQ(cluster.device.peak_half, 2e12);
  EXPECT_EQ(cluster.device.memory_bytes, 3.0 * (1 << 30));
  EXPECT_DOUBLE_EQ(cluster.device.step_seconds, 4e-3);
  EXPECT_EQ(cluster.device.network_rate, 6.25e9);
  EXPECT_DOUBLE_EQ(cluster.device.link_seconds, 7e-6);
  EXPECT_EQ(cluster.device.peak_single, device_named("cpu").peak_single);
}

TEST(Cluster, SitesHaveABandwidth) {
  ClusterFile file;
  file.cluster.nodes = 4;
  EXPECT_EQ(make_cluster(file).site_devices(), 32);
  file.network.site_nodes = 2;
  EXPECT_THROW(make_cluster(file), ConfigError);
  file.network.site_gb_per_second = 0.001;
  file.network.site_microseconds = 50'000;
  const Cluster cluster = make_cluster(file);
  EXPECT_EQ(cluster.site_devices(), 16);
  EXPECT_DOUBLE_EQ(cluster.site_rate, 1e6);
  EXPECT_DOUBLE_EQ(cluster.site_seconds, 0.05);
}

}  // namespace
}  // namespace trireme::plan
