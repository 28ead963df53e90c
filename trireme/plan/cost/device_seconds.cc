#include "trireme/plan/cost/device_seconds.h"

#include <algorithm>
#include <cmath>

namespace trireme::plan {
namespace {

// Number of times that composed attention reads or writes a score in the forward pass: by the
// product with the keys, masked softmax, dropout and its mask, and the product with the values.
constexpr double kPassesOverScores = 6;

// Sums in rank order between nodes (comm/hierarchical/hierarchical_collectives.cc), in latencies
// and in bytes over the busiest direction of a node's line.
// First each call is compared with the other nodes': they ask for it, and it comes.
constexpr double kToCompare = 2;
// Data are sent once their receiver has asked for them.
constexpr double kToAsk = 1;
constexpr double kToSend = 1;

// What is between the nodes of a group: none if their sums are not in rank order.
struct Visits {
  double nodes = 1;
  RingRate line{};

  Visits(const Cluster& cluster, const Group& group) {
    if (!cluster.device.sums_in_rank_order || group.is_on_one_node(cluster)) return;
    nodes =
        std::ceil(static_cast<double>(group.ranks) / static_cast<double>(group.per_node(cluster)));
    line = ring_rate(cluster, group);
  }
  bool are_some() const { return nodes > 1; }
  double seconds(double bytes, double latencies, double num_calls) const {
    return bytes / line.bytes_per_second + num_calls * latencies * line.seconds;
  }
  // Partial sums of all blocks go from node to node, and the last node sends each to its owner.
  double latencies_of_sum() const { return kToAsk + (nodes - 1) * kToSend + kToSend; }
  // Each node sends its blocks to every other one.
  double share_gathered() const { return (nodes - 1) / nodes; }
};

}  // namespace

double product_seconds(const Device& device, const Product& product, double itemsize) {
  if (product.rows <= 0 || product.columns <= 0 || product.inner <= 0) return 0;
  const double half_size = device.half_size_of(itemsize);
  const auto share = [](double size, double half) { return size / (size + half); };
  const double columns = product.columns / (device.is_asynchronous ? 1 : product.num_weights);
  const double rate = device.peak(itemsize) * device.product_share *
                      share(product.rows, device.half_rows_of(itemsize)) *
                      share(columns, half_size) * share(product.inner, half_size);
  const double elements = product.rows * product.inner + product.inner * product.columns +
                          product.rows * product.columns;
  const double moved = elements * product.count * itemsize;
  return std::max(product.flops() / rate, moved / (device.memory_rate * device.memory_share));
}

double elementwise_seconds(const Device& device, double elements, double itemsize) {
  return elements * itemsize / device.elementwise_rate(itemsize);
}

double attention_seconds(const Device& device, const AttentionCore& core, double itemsize,
                         bool is_fused) {
  // A fused kernel leaves out the scores that causality masks.
  const double share = core.is_causal ? 0.5 : 1;
  if (is_fused) {
    const double slower = 1 + device.attention_half_size_of(itemsize) / core.keys;
    return slower * share * core.flops() / device.attention_rate(itemsize);
  }
  // Both products have a narrow dimension, the head's.
  const Product one{core.keys, core.keys, core.width, core.heads * core.queries / core.keys};
  return 2 * product_seconds(device, one, itemsize) +
         elementwise_seconds(device, kPassesOverScores * core.scores(), itemsize);
}

int64_t Group::per_node(const Cluster& cluster) const {
  return std::clamp<int64_t>(cluster.devices_per_node / stride, 1, ranks);
}

bool Group::is_on_one_node(const Cluster& cluster) const {
  return (ranks - 1) * stride < cluster.devices_per_node;
}

int64_t Group::per_site(const Cluster& cluster) const {
  return std::clamp<int64_t>(cluster.site_devices() / stride, 1, ranks);
}

bool Group::is_on_one_site(const Cluster& cluster) const {
  return (ranks - 1) * stride < cluster.site_devices();
}

RingRate ring_rate(const Cluster& cluster, const Group& group) {
  const Device& device = cluster.device;
  const double in_node = device.link_rate * device.link_share;
  if (group.is_on_one_node(cluster)) return {in_node, device.link_seconds};
  double out =
      device.network_rate * device.network_share * static_cast<double>(group.per_node(cluster));
  const int64_t leaf = cluster.leaf_nodes * cluster.devices_per_node;
  if (leaf > 0 && (group.ranks - 1) * group.stride >= leaf) out /= cluster.oversubscription;
  if (group.is_on_one_site(cluster)) return {std::min(in_node, out), device.network_seconds};
  const double far = cluster.site_rate * static_cast<double>(group.per_site(cluster));
  return {std::min({in_node, out, far}), cluster.site_seconds};
}

double all_gather_seconds(const Cluster& cluster, const Group& group, double bytes,
                          double num_calls) {
  if (group.ranks == 1) return 0;
  if (const Visits visits(cluster, group); visits.are_some()) {
    return visits.seconds(visits.share_gathered() * bytes, kToCompare + kToAsk + kToSend,
                          num_calls);
  }
  const auto p = static_cast<double>(group.ranks);
  const RingRate rate = ring_rate(cluster, group);
  const double ring = (p - 1) * rate.seconds, tree = 2 * std::ceil(std::log2(p)) * rate.seconds;
  return (p - 1) / p * bytes / rate.bytes_per_second + std::min(ring, tree);
}

double reduce_scatter_seconds(const Cluster& cluster, const Group& group, double bytes,
                              double num_calls) {
  if (const Visits visits(cluster, group); visits.are_some()) {
    return visits.seconds(bytes, kToCompare + visits.latencies_of_sum(), num_calls);
  }
  return all_gather_seconds(cluster, group, bytes);
}

double all_reduce_seconds(const Cluster& cluster, const Group& group, double bytes,
                          double num_calls) {
  if (const Visits visits(cluster, group); visits.are_some()) {
    const double gather = kToAsk + kToSend;
    return visits.seconds((1 + visits.share_gathered()) * bytes,
                          kToCompare + visits.latencies_of_sum() + gather, num_calls);
  }
  return 2 * all_gather_seconds(cluster, group, bytes);
}

double small_call_seconds(const Cluster& cluster, const Group& group) {
  const Visits visits(cluster, group);
  return visits.are_some() ? visits.seconds(0, kToCompare, 1) : 0;
}

double all_to_all_seconds(const Cluster& cluster, const Group& group, double bytes) {
  if (group.ranks == 1) return 0;
  const auto p = static_cast<double>(group.ranks);
  const auto local = static_cast<double>(group.per_node(cluster));
  const Device& device = cluster.device;
  const double in_node = bytes * (local - 1) / p / (device.link_rate * device.link_share);
  if (group.is_on_one_node(cluster)) return in_node + device.link_seconds;
  const double out = bytes * (p - local) / p / (device.network_rate * device.network_share);
  if (group.is_on_one_site(cluster)) return std::max(in_node, out) + device.network_seconds;
  const auto near = static_cast<double>(group.per_site(cluster));
  const double far = bytes * (p - near) / p / cluster.site_rate;
  return std::max({in_node, out, far}) + cluster.site_seconds;
}

double send_seconds(const Cluster& cluster, const Group& group, double bytes) {
  const Device& device = cluster.device;
  if (group.stride >= cluster.site_devices()) {
    return bytes / cluster.site_rate + cluster.site_seconds;
  }
  const bool is_near = group.stride < cluster.devices_per_node;
  return is_near ? bytes / (device.link_rate * device.link_share) + device.link_seconds
                 : bytes / (device.network_rate * device.network_share) + device.network_seconds;
}

}  // namespace trireme::plan
