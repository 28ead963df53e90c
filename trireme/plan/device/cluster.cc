#include "trireme/plan/device/cluster.h"

#include "trireme/base/error.h"

namespace trireme::plan {
namespace {

void replace(double& value, double given, double unit = 1) {
  if (given > 0) value = given * unit;
}

}  // namespace

Cluster make_cluster(const ClusterFile& file) {
  TRIREME_CHECK((file.network.site_nodes > 0) == (file.network.site_gb_per_second > 0),
                "network.site_nodes is ", file.network.site_nodes,
                " and network.site_gb_per_second ", file.network.site_gb_per_second,
                "; expected both, of sites that are far apart, or neither");
  Cluster cluster{.device = device_named(file.cluster.device),
                  .nodes = file.cluster.nodes,
                  .devices_per_node = file.cluster.devices_per_node,
                  .attention = file.cluster.attention,
                  .expert_skew = file.cluster.expert_skew,
                  .leaf_nodes = file.network.leaf_nodes,
                  .oversubscription = file.network.oversubscription,
                  .site_nodes = file.network.site_nodes,
                  .site_rate = 1e9 * file.network.site_gb_per_second,
                  .site_seconds = 1e-6 * file.network.site_microseconds,
                  .price = file.price,
                  .failures = file.failures};
  Device& device = cluster.device;
  const DeviceConfig& given = file.device;
  replace(device.peak_half, given.half_teraflops, 1e12);
  replace(device.peak_single, given.single_teraflops, 1e12);
  replace(device.memory_bytes, given.memory_gib, 1 << 30);
  replace(device.memory_rate, given.memory_gb_per_second, 1e9);
  replace(device.product_share, given.product_share);
  replace(device.half_size, given.half_size);
  replace(device.attention_share, given.attention_share);
  replace(device.bf16_half_size, given.bf16_half_size);
  replace(device.bf16_attention_share, given.bf16_attention_share);
  replace(device.attention_half_size, given.attention_half_size);
  replace(device.bf16_half_rows, given.bf16_half_rows);
  replace(device.bf16_attention_half_size, given.bf16_attention_half_size);
  replace(device.head_share, given.head_share);
  replace(device.bf16_head_share, given.bf16_head_share);
  replace(device.loss_share, given.loss_share);
  replace(device.update_share, given.update_share);
  replace(device.bf16_update_share, given.bf16_update_share);
  replace(device.bf16_memory_share, given.bf16_memory_share);
  replace(device.memory_share, given.memory_share);
  replace(device.launch_seconds, given.launch_microseconds, 1e-6);
  replace(device.step_seconds, given.step_milliseconds, 1e-3);
  replace(device.reserved_bytes, given.reserved_gib, 1 << 30);
  replace(device.disk_rate, given.disk_gb_per_second, 1e9);
  replace(device.host_memory_rate, given.host_memory_gb_per_second, 1e9);
  replace(device.watts, given.watts);
  const NetworkConfig& network = file.network;
  replace(device.link_rate, network.link_gb_per_second, 1e9);
  replace(device.network_rate, network.node_gb_per_second, 1e9);
  replace(device.link_share, network.link_share);
  replace(device.network_share, network.node_share);
  replace(device.link_seconds, network.link_microseconds, 1e-6);
  replace(device.network_seconds, network.node_microseconds, 1e-6);
  return cluster;
}

}  // namespace trireme::plan
