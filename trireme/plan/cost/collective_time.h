// Seconds that a group of ranks takes to communicate, over a node's links and the network between
// nodes.
#pragma once

#include <cstdint>

#include "trireme/plan/device/cluster.h"

namespace trireme::plan {

// Equally spaced ranks: `ranks` of them, `stride` apart in world rank.
struct Group {
  int64_t ranks = 1;
  int64_t stride = 1;

  // Its ranks on one node.
  int64_t per_node(const Cluster& cluster) const;
  bool is_on_one_node(const Cluster& cluster) const;
};

// The busiest link's rate per rank, and the latency of one message, in a ring over the group. Ranks
// on one node share the node's connections, so several rings use all of them.
struct RingRate {
  double bytes_per_second = 0;
  double seconds = 0;
};
RingRate ring_rate(const Cluster& cluster, const Group& group);

// `bytes`: of the whole tensor. Rings for much data, trees for little.
// Source: Thakur et al. 2005, doi:10.1177/1094342005051521
double all_gather_seconds(const Cluster& cluster, const Group& group, double bytes);
inline double reduce_scatter_seconds(const Cluster& cluster, const Group& group, double bytes) {
  return all_gather_seconds(cluster, group, bytes);
}
double all_reduce_seconds(const Cluster& cluster, const Group& group, double bytes);

// `bytes`: what a rank sends to all together, to itself too.
double all_to_all_seconds(const Cluster& cluster, const Group& group, double bytes);

// One message to the next rank of the group.
double send_seconds(const Cluster& cluster, const Group& group, double bytes);

}  // namespace trireme::plan
