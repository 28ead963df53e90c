#include "trireme/parallel/learner/learner_graph.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <map>
#include <set>
#include <span>
#include <tuple>
#include <utility>

#include "trireme/base/error.h"
#include "trireme/base/file/file.h"

namespace trireme::parallel {
namespace {

void check_count(int num_learners) {
  TRIREME_CHECK(num_learners >= 1 && num_learners <= kMostLearners, "a graph has ", num_learners,
                " learners; expected 1 to ", kMostLearners);
}

std::vector<double> received(int num_learners, const GraphRound& round) {
  std::vector<double> sums(static_cast<size_t>(num_learners), 0);
  for (const GraphEdge& edge : round) sums[static_cast<size_t>(edge.to)] += edge.weight;
  return sums;
}

std::vector<double> given(int num_learners, const GraphRound& round) {
  std::vector<double> sums(static_cast<size_t>(num_learners), 0);
  for (const GraphEdge& edge : round) sums[static_cast<size_t>(edge.from)] += edge.weight;
  return sums;
}

void sort_edges(const std::string& name, int num_learners, int number, GraphRound& round) {
  for (const GraphEdge& edge : round) {
    const auto is_learner = [&](int learner) { return learner >= 0 && learner < num_learners; };
    TRIREME_CHECK(is_learner(edge.from) && is_learner(edge.to) && edge.from != edge.to, name,
                  ", round ", number, ", has an edge from learner ", edge.from, " to ", edge.to,
                  "; expected two different learners from 0 to ", num_learners - 1);
    TRIREME_CHECK(std::isfinite(edge.weight) && edge.weight > 0, name, ", round ", number,
                  ", has weight ", edge.weight, " from learner ", edge.from, " to ", edge.to,
                  "; expected a number above 0 and below 1");
  }
  const auto ends = [](const GraphEdge& edge) { return std::pair(edge.to, edge.from); };
  std::ranges::sort(round, {}, ends);
  const auto twice = std::ranges::adjacent_find(round, {}, ends);
  TRIREME_CHECK(twice == round.end(), name, ", round ", number, ", has the edge from learner ",
                twice->from, " to ", twice->to, " twice; expected once");
}

// The sums round each addition, so equal ones may differ in their last digits.
bool keeps_the_mean(int num_learners, const GraphRound& round) {
  constexpr double kRounding = 1e-12;
  const auto in = received(num_learners, round), out = given(num_learners, round);
  return std::ranges::equal(in, out,
                            [](double a, double b) { return std::abs(a - b) < kRounding; });
}

}  // namespace

std::vector<double> LearnerGraph::kept(const GraphRound& round) const {
  std::vector<double> sums = kind == MixingKind::kDoublyStochastic ? received(num_learners, round)
                                                                   : given(num_learners, round);
  for (double& sum : sums) sum = 1 - sum;
  return sums;
}

std::string LearnerGraph::fingerprint() const {
  TextWriter text;
  text << num_learners;
  for (const GraphRound& round : rounds) {
    text << ';';
    for (const GraphEdge& edge : round) {
      text << edge.from << '>' << edge.to << ':' << std::bit_cast<uint64_t>(edge.weight) << ' ';
    }
  }
  const std::string all = text.str();
  return checksum(std::as_bytes(std::span(all)));
}

LearnerGraph make_graph(std::string name, int num_learners, std::vector<GraphRound> rounds) {
  check_count(num_learners);
  TRIREME_CHECK(!rounds.empty(), name, " has no round; expected at least one");
  LearnerGraph graph{.name = std::move(name), .num_learners = num_learners, .rounds = {}};
  for (size_t i = 0; i < rounds.size(); ++i) {
    sort_edges(graph.name, num_learners, static_cast<int>(i), rounds[i]);
    if (!keeps_the_mean(num_learners, rounds[i])) graph.kind = MixingKind::kColumnStochastic;
  }
  graph.rounds = std::move(rounds);
  for (size_t i = 0; i < graph.rounds.size(); ++i) {
    const std::vector<double> kept = graph.kept(graph.rounds[i]);
    const auto least = std::ranges::min_element(kept);
    const bool gives = graph.kind == MixingKind::kColumnStochastic;
    TRIREME_CHECK(*least >= kLeastKept, graph.name, ", round ", i, ", leaves learner ",
                  least - kept.begin(), " ", *least, " of its own value; expected at least ",
                  kLeastKept, ": the weights that a learner ", gives ? "gives" : "receives",
                  " must sum to less than 1");
  }
  return graph;
}

namespace {

// Each learner receives from those at the same distances before it, all with equal weights.
GraphRound circle(int num_learners, const std::set<int>& distances) {
  GraphRound round;
  const double weight = 1.0 / static_cast<double>(distances.size() + 1);
  for (int to = 0; to < num_learners; ++to) {
    for (const int distance : distances) {
      round.push_back({(to - distance + num_learners) % num_learners, to, weight});
    }
  }
  return round;
}

// All members receive from all.
void add_complete(const std::vector<int>& members, GraphRound& round) {
  const double weight = 1.0 / static_cast<double>(members.size());
  for (const int to : members) {
    for (const int from : members) {
      if (from != to) round.push_back({from, to, weight});
    }
  }
}

std::string of_learners(std::string_view name, int num_learners) {
  return concat(name, " of ", num_learners, num_learners == 1 ? " learner" : " learners");
}

}  // namespace

LearnerGraph make_complete_graph(int num_learners) {
  check_count(num_learners);
  std::vector<int> all;
  for (int i = 0; i < num_learners; ++i) all.push_back(i);
  GraphRound round;
  add_complete(all, round);
  return make_graph(of_learners("complete graph", num_learners), num_learners, {round});
}

LearnerGraph make_ring_graph(int num_learners) {
  check_count(num_learners);
  std::set<int> distances{1 % num_learners, num_learners - 1};
  distances.erase(0);  // of a single learner
  return make_graph(of_learners("ring", num_learners), num_learners,
                    {circle(num_learners, distances)});
}

LearnerGraph make_torus_graph(int num_learners) {
  check_count(num_learners);
  int rows = static_cast<int>(std::sqrt(num_learners));
  while (num_learners % rows != 0) --rows;
  if (rows == 1) {
    LearnerGraph ring = make_ring_graph(num_learners);
    ring.name += concat(" (no torus: ", num_learners, " has no divisor for its rows)");
    return ring;
  }
  const int columns = num_learners / rows;
  GraphRound round;
  for (int to = 0; to < num_learners; ++to) {
    const int row = to / columns, column = to % columns;
    const std::set<int> neighbours{
        ((row + 1) % rows) * columns + column, ((row + rows - 1) % rows) * columns + column,
        row * columns + (column + 1) % columns, row * columns + (column + columns - 1) % columns};
    const double weight = 1.0 / static_cast<double>(neighbours.size() + 1);
    for (const int from : neighbours) round.push_back({from, to, weight});
  }
  return make_graph(of_learners(concat("torus ", rows, " x ", columns), num_learners), num_learners,
                    {round});
}

LearnerGraph make_exponential_graph(int num_learners) {
  check_count(num_learners);
  std::set<int> distances;
  for (int distance = 1; distance < num_learners; distance *= 2) distances.insert(distance);
  return make_graph(of_learners("exponential graph", num_learners), num_learners,
                    {circle(num_learners, distances)});
}

LearnerGraph make_one_peer_graph(int num_learners) {
  check_count(num_learners);
  TRIREME_CHECK(std::has_single_bit(static_cast<unsigned>(num_learners)),
                "the one-peer exponential graph is for 2, 4, 8, ... learners and not for ",
                num_learners, "; the base-2 graph takes any number, with one peer in each round");
  std::vector<GraphRound> rounds;
  for (int distance = 1; distance < num_learners; distance *= 2) {
    rounds.push_back(circle(num_learners, {distance}));
  }
  if (rounds.empty()) rounds.emplace_back();  // a single learner
  return make_graph(of_learners("one-peer exponential graph", num_learners), num_learners, rounds);
}

namespace {

// The learners of each host; hosts in the order of their numbers.
std::vector<std::vector<int>> members_of(const std::vector<int>& hosts) {
  std::map<int, std::vector<int>> by_number;
  for (size_t i = 0; i < hosts.size(); ++i) by_number[hosts[i]].push_back(static_cast<int>(i));
  std::vector<std::vector<int>> members;
  for (auto& [number, learners] : by_number) members.push_back(std::move(learners));
  return members;
}

}  // namespace

int count_hosts_of(const std::vector<int>& hosts) {
  return static_cast<int>(std::set<int>(hosts.begin(), hosts.end()).size());
}

LearnerGraph make_host_graph(const std::vector<int>& hosts, const LearnerGraph& across) {
  check_count(static_cast<int>(std::min(hosts.size(), size_t{kMostLearners} + 1)));
  const std::vector<std::vector<int>> members = members_of(hosts);
  TRIREME_CHECK(static_cast<int>(members.size()) == across.num_learners, "the learners are on ",
                members.size(), " hosts, but the graph between hosts (", across.name, ") has ",
                across.num_learners, "; expected one learner of it per host");
  GraphRound within;
  for (const std::vector<int>& learners : members) add_complete(learners, within);
  const auto size_of = [](const std::vector<int>& learners) { return learners.size(); };
  const bool is_even =
      std::ranges::adjacent_find(members, std::ranges::not_equal_to(), size_of) == members.end();
  std::vector<GraphRound> rounds;
  // Learners that are alone on their hosts have nobody to average with.
  if (!within.empty()) rounds.push_back(within);
  for (const GraphRound& between : across.rounds) {
    GraphRound round;
    for (const GraphEdge& edge : between) {
      const auto& from = members[static_cast<size_t>(edge.from)];
      const auto& to = members[static_cast<size_t>(edge.to)];
      for (size_t t = 0; t < std::min(from.size(), to.size()); ++t) {
        round.push_back({from[t], to[t], edge.weight});
      }
    }
    if (!round.empty() || rounds.empty()) rounds.push_back(std::move(round));
    if (!is_even && !within.empty()) rounds.push_back(within);
  }
  const int count = static_cast<int>(hosts.size());
  LearnerGraph graph =
      make_graph(concat("host graph: ", of_learners("averages", count), " within ", members.size(),
                        members.size() == 1 ? " host, " : " hosts, ", across.name, " between them"),
                 count, std::move(rounds));
  TRIREME_CHECK(
      graph.kind == MixingKind::kDoublyStochastic || across.kind == MixingKind::kColumnStochastic,
      "hosts with different numbers of learners need a symmetric graph between hosts, but ",
      across.name, " has edges in one direction; expected a ring, torus or base graph");
  return graph;
}

}  // namespace trireme::parallel
