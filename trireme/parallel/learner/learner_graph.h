// A communication graph of learners as data: who receives from whom, with which weight, in rounds
// that repeat. Pure functions make it (here, base_graph.h, graph_file.h), graph_check.h says what
// it does, and mixing.h runs it. It knows nothing of tensors.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace trireme::parallel {

// Limit on learners, so that a check with one value per pair of learners stays cheap.
inline constexpr int kMostLearners = 1024;
// The smallest share of its own value that a learner keeps in a round. With it, a graph reaches
// consensus when the union of its rounds is connected.
inline constexpr double kLeastKept = 1e-6;

// `to` receives the value of `from`.
struct GraphEdge {
  int from = 0;
  int to = 0;
  double weight = 0;
  bool operator==(const GraphEdge&) const = default;
};
// Sorted by (to, from), each pair at most once. In a round, all learners exchange at once.
using GraphRound = std::vector<GraphEdge>;

enum class MixingKind {
  // What a learner receives weighs as much as what it gives: every round keeps the mean. What a
  // learner keeps is 1 - the sum of the weights that it receives.
  kDoublyStochastic,
  // Some learner receives more or less than it gives. What a learner keeps is 1 - the sum of the
  // weights that it gives. Push-sum weights (mixing.h) correct the bias.
  kColumnStochastic,
};

struct LearnerGraph {
  std::string name;  // with what was made in place of what was asked for, for people to read
  int num_learners = 0;
  MixingKind kind = MixingKind::kDoublyStochastic;
  std::vector<GraphRound> rounds;  // at least one; round t of a run is rounds[t % period()]
  bool operator==(const LearnerGraph&) const = default;

  int period() const { return static_cast<int>(rounds.size()); }
  const GraphRound& round(int64_t number) const {
    return rounds[static_cast<size_t>(number % period())];
  }
  // What each learner keeps of its own value in a round.
  std::vector<double> kept(const GraphRound& round) const;
  // Differs between graphs that mix differently. For comparison between ranks.
  std::string fingerprint() const;
};

// Sorts the edges of each round and finds out the kind of the graph.
// Throws: ConfigError when the number of learners is not from 1 to kMostLearners, there is no
//         round, an edge is a loop, occurs twice or leaves the learners, a weight is not above 0
//         and finite, or a learner keeps less than kLeastKept
LearnerGraph make_graph(std::string name, int num_learners, std::vector<GraphRound> rounds);

// Everyone receives from everyone, each with weight 1/n. Exact after one round.
LearnerGraph make_complete_graph(int num_learners);
// Each receives from both neighbours, all with weight 1/3 (two learners: 1/2).
LearnerGraph make_ring_graph(int num_learners);
// rows x columns, with rows the largest divisor up to the square root. Each receives from its
// neighbours in four directions with weight 1/5; neighbours that coincide count once. A prime
// number of learners is a ring, and the name says so.
LearnerGraph make_torus_graph(int num_learners);
// Each receives from the learners 1, 2, 4, ... before it, all with equal weights.
// Source: Assran et al. 2019, arXiv:1811.10792; Ying et al. 2021, arXiv:2110.13363
LearnerGraph make_exponential_graph(int num_learners);
// In round m each receives from the learner 2^m before it, with weight 1/2. Exact after k rounds
// for 2^k learners.
// Throws: ConfigError for other numbers of learners, for which it is never exact
// Source: Assran et al. 2019; Ying et al. 2021
LearnerGraph make_one_peer_graph(int num_learners);

// All learners of a host average; then learner t of a host takes part in an edge of `across`, whose
// learners are the hosts, together with learner t of the other host. If hosts have different
// numbers of learners, a host's surplus learners take no part, and the learners of a host average
// again after each round of `across`. Otherwise it is exact when `across` is.
// hosts: the host of each learner, by a number. Learners of a host need not be consecutive.
// Throws: ConfigError when `across` is for another number of hosts, or when unequal hosts and an
//         `across` that is not symmetric would lose the mean
LearnerGraph make_host_graph(const std::vector<int>& hosts, const LearnerGraph& across);

// The number of distinct hosts.
int count_hosts_of(const std::vector<int>& hosts);

}  // namespace trireme::parallel
