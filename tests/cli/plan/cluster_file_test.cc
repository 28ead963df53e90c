#include "trireme/cli/plan/cluster_file.h"

#include <gmock/gmock.h>

#include "tests/harness/messages.h"
#include "tests/harness/ranks.h"
#include "tests/harness/temporary_folder.h"
#include "tests/train/language_config.h"
#include "trireme/base/error.h"
#include "trireme/base/file/file.h"

namespace trireme::cli {
namespace {

using testing::AllOf;
using testing::HasSubstr;

constexpr DeviceRates kRates{.single = {3e10, 20},
                             .half = {2e10, 40, 90},
                             .attention = {1.5e10, 100},
                             .half_attention = {5e9, 200},
                             .head = 2.4e10,
                             .half_head = 1e10,
                             .loss_bytes = 3e9,
                             .update_bytes = 4e9,
                             .half_update_bytes = 5e9,
                             .memory_bytes = 9e9,
                             .half_memory_bytes = 6e9,
                             .launch_seconds = 5e-6,
                             .link_bytes = 4e9,
                             .link_seconds = 2e-6,
                             .resident_bytes = 1 << 28};

TEST(ClusterFile, HasTheMeasuredRates) {
  plan::ClusterFile file = cluster_of(kRates, 4, 2);
  const plan::Cluster cluster = plan::make_cluster(file);
  EXPECT_EQ(cluster.nodes, 2);
  EXPECT_EQ(cluster.devices_per_node, 2);
  EXPECT_DOUBLE_EQ(cluster.device.peak_single, 3e10);
  EXPECT_DOUBLE_EQ(cluster.device.attention_share, 0.5);
  EXPECT_DOUBLE_EQ(cluster.device.half_size_of(2), 40);
  EXPECT_DOUBLE_EQ(cluster.device.attention_rate(2), 5e9);
  EXPECT_DOUBLE_EQ(cluster.device.attention_rate(4), 1.5e10);
  EXPECT_DOUBLE_EQ(cluster.device.half_rows_of(2), 90);
  EXPECT_DOUBLE_EQ(cluster.device.half_rows_of(4), 20);
  EXPECT_DOUBLE_EQ(cluster.device.attention_half_size_of(2), 200);
  EXPECT_DOUBLE_EQ(cluster.device.attention_half_size_of(4), 100);
  EXPECT_DOUBLE_EQ(cluster.device.head_rate(2), 1e10);
  EXPECT_DOUBLE_EQ(cluster.device.head_rate(4), 2.4e10);
  EXPECT_DOUBLE_EQ(cluster.device.loss_rate(), 3e9);
  EXPECT_DOUBLE_EQ(cluster.device.update_rate(2), 5e9);
  EXPECT_DOUBLE_EQ(cluster.device.update_rate(4), 4e9);
  EXPECT_DOUBLE_EQ(cluster.device.memory_rate, 9e9);
  EXPECT_DOUBLE_EQ(cluster.device.elementwise_rate(2), 6e9);
  EXPECT_DOUBLE_EQ(cluster.device.elementwise_rate(4), 9e9);
  EXPECT_DOUBLE_EQ(cluster.device.link_rate, 4e9);
  EXPECT_DOUBLE_EQ(cluster.device.network_rate, 4e9);
  EXPECT_DOUBLE_EQ(cluster.device.reserved_bytes, 1 << 28);
}

TEST(ClusterFile, IsReadBackAsWritten) {
  const harness::TemporaryFolder folder;
  plan::ClusterFile file = cluster_of(kRates, 3, 1);
  const std::string path = folder / "cluster.toml";
  OutputFile(path).write(cluster_toml(file));
  const plan::Cluster expected = plan::make_cluster(file), found = read_cluster(path);
  EXPECT_EQ(found.num_devices(), 3);
  EXPECT_EQ(found.device.peak_single, expected.device.peak_single);
  EXPECT_EQ(found.device.link_seconds, expected.device.link_seconds);
  EXPECT_EQ(found.device.memory_bytes, expected.device.memory_bytes);
}

TEST(ClusterFile, OfARunHasADeviceForEachRank) {
  const harness::TemporaryFolder folder;
  train::RunConfig config = train::language_config();
  config.parallel.cluster = folder / "cluster.toml";
  OutputFile(config.parallel.cluster)
      .write("[cluster]\ndevice = \"cpu\"\nnodes = 8\ndevices_per_node = 4\n");
  EXPECT_EQ(cluster_of_ranks(config, {}, 2).devices_per_node, 2);
  EXPECT_EQ(cluster_of_ranks(config, {}, 12).nodes, 3);
  EXPECT_EQ(assumed_cluster(config, 12).nodes, 3);
  EXPECT_THAT(
      harness::message_of<ConfigError>([&] { cluster_of_ranks(config, {}, 6); }),
      AllOf(HasSubstr("nodes of 4 devices"), HasSubstr("the 6 ranks"), HasSubstr("cluster.toml")));
  config.parallel.cluster.clear();
  EXPECT_THAT(harness::message_of<ConfigError>(
                  [&] { cluster_of_ranks(config, {.num_hosts = 2, .rates = kRates}, 3); }),
              HasSubstr("3 ranks on 2 hosts"));
}

TEST(ClusterFile, RanksThatAFileDescribesMeasureNothing) {
  train::RunConfig config = train::language_config();
  harness::run_ranks(2, [&](comm::Communicator& group) {
    train::RunConfig described = config;
    described.parallel.cluster = "cluster.toml";
    EXPECT_EQ(measure_ranks(described, group, {.seconds = 1e-6})->rates.memory_bytes, 0);
    const RankFacts facts = *measure_ranks(config, group, {.seconds = 1e-6});
    EXPECT_EQ(facts.num_hosts, 1);
    EXPECT_GT(facts.rates.memory_bytes, 0);
  });
}

}  // namespace
}  // namespace trireme::cli
