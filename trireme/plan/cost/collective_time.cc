#include "trireme/plan/cost/collective_time.h"

#include <algorithm>
#include <cmath>

namespace trireme::plan {

int64_t Group::per_node(const Cluster& cluster) const {
  return std::clamp<int64_t>(cluster.devices_per_node / stride, 1, ranks);
}

bool Group::is_on_one_node(const Cluster& cluster) const {
  return (ranks - 1) * stride < cluster.devices_per_node;
}

RingRate ring_rate(const Cluster& cluster, const Group& group) {
  const Device& device = cluster.device;
  const double in_node = device.link_rate * device.link_share;
  if (group.is_on_one_node(cluster)) return {in_node, device.link_seconds};
  double out =
      device.network_rate * device.network_share * static_cast<double>(group.per_node(cluster));
  const int64_t leaf = cluster.leaf_nodes * cluster.devices_per_node;
  if (leaf > 0 && (group.ranks - 1) * group.stride >= leaf) out /= cluster.oversubscription;
  return {std::min(in_node, out), device.network_seconds};
}

double all_gather_seconds(const Cluster& cluster, const Group& group, double bytes) {
  if (group.ranks == 1) return 0;
  const auto p = static_cast<double>(group.ranks);
  const RingRate rate = ring_rate(cluster, group);
  const double ring = (p - 1) * rate.seconds, tree = 2 * std::ceil(std::log2(p)) * rate.seconds;
  return (p - 1) / p * bytes / rate.bytes_per_second + std::min(ring, tree);
}

double all_reduce_seconds(const Cluster& cluster, const Group& group, double bytes) {
  return 2 * all_gather_seconds(cluster, group, bytes);
}

double all_to_all_seconds(const Cluster& cluster, const Group& group, double bytes) {
  if (group.ranks == 1) return 0;
  const auto p = static_cast<double>(group.ranks);
  const auto local = static_cast<double>(group.per_node(cluster));
  const Device& device = cluster.device;
  const double in_node = bytes * (local - 1) / p / (device.link_rate * device.link_share);
  if (group.is_on_one_node(cluster)) return in_node + device.link_seconds;
  const double out = bytes * (p - local) / p / (device.network_rate * device.network_share);
  return std::max(in_node, out) + device.network_seconds;
}

double send_seconds(const Cluster& cluster, const Group& group, double bytes) {
  const Device& device = cluster.device;
  const bool is_near = group.stride < cluster.devices_per_node;
  return is_near ? bytes / (device.link_rate * device.link_share) + device.link_seconds
                 : bytes / (device.network_rate * device.network_share) + device.network_seconds;
}

}  // namespace trireme::plan
