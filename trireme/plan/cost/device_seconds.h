// Seconds that devices take: one for work of a shape, and a group of them to communicate.
#pragma once

#include <cstdint>

#include "trireme/plan/cost/layer_costs.h"
#include "trireme/plan/device/cluster.h"
#include "trireme/plan/device/device.h"

namespace trireme::plan {

// Seconds that a device takes for work of a shape.

// A roofline: a product is bound by arithmetic, whose share of the peak falls with narrow
// dimensions, or by reading and writing its matrices.
// Source: Williams et al. 2009, doi:10.1145/1498765.1498785
double product_seconds(const Device& device, const Product& product, double itemsize);

// Time to read and write `elements` numbers in total.
double elementwise_seconds(const Device& device, double elements, double itemsize);

// Forward of a fused attention, which skips what is masked, or of a composed one, which stores its
// scores. Their backward takes 2.5 and 2 times as long.
// Source: Dao 2023, arXiv:2307.08691, section 4
double attention_seconds(const Device& device, const AttentionCore& core, double itemsize,
                         bool is_fused);
inline double attention_backward_factor(bool is_fused) { return is_fused ? 2.5 : 2; }

// Seconds that a group of ranks takes to communicate, over a node's links and the network between
// nodes.

// Equally spaced ranks: `ranks` of them, `stride` apart in world rank.
struct Group {
  int64_t ranks = 1;
  int64_t stride = 1;

  // Its ranks on one node.
  int64_t per_node(const Cluster& cluster) const;
  bool is_on_one_node(const Cluster& cluster) const;
  // Its ranks on one site.
  int64_t per_site(const Cluster& cluster) const;
  bool is_on_one_site(const Cluster& cluster) const;
};

// The busiest link's rate per rank, and the latency of one message, in a ring over the group. Ranks
// on one node share the node's connections, so several rings use all of them.
struct RingRate {
  double bytes_per_second = 0;
  double seconds = 0;
};
RingRate ring_rate(const Cluster& cluster, const Group& group);

// `bytes`: of the whole tensor. Rings for much data, trees for little. Between nodes whose sums
// keep rank order: what goes over the busiest direction of a line, and the latencies that follow
// one another in each of `num_calls` calls (device_seconds.cc).
// Source: Thakur et al. 2005, doi:10.1177/1094342005051521
double all_gather_seconds(const Cluster& cluster, const Group& group, double bytes,
                          double num_calls = 1);
double reduce_scatter_seconds(const Cluster& cluster, const Group& group, double bytes,
                              double num_calls = 1);
double all_reduce_seconds(const Cluster& cluster, const Group& group, double bytes,
                          double num_calls = 1);
// A call whose data travel while the ranks' calls are compared, such as the sum of a few numbers.
double small_call_seconds(const Cluster& cluster, const Group& group);

// `bytes`: what a rank sends to all together, to itself too.
double all_to_all_seconds(const Cluster& cluster, const Group& group, double bytes);

// One message to the next rank of the group.
double send_seconds(const Cluster& cluster, const Group& group, double bytes);

}  // namespace trireme::plan
