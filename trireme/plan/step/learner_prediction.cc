#include "trireme/plan/step/learner_prediction.h"

#include <algorithm>
#include <array>
#include <functional>

#include "trireme/base/error.h"
#include "trireme/parallel/learner/rounds.h"
#include "trireme/plan/cost/device_seconds.h"

namespace trireme::plan {
namespace {

constexpr int64_t kNoteBytes = 8;
// Latencies beside those of the bytes: the receiver asks before a message travels
// (comm/sized_message.h).
constexpr double kBeforeMessage = 1;
// The notes of an exchange: of each group of weights, and the learner's own with the first one.
constexpr int64_t kNotesOfGroup = 2;
constexpr int64_t kOwnNotes = 2;

// A part of a fragment that several ranks hold: `sets` sets of `replicas` ranks, each with the
// same `elements`, of which each rank sends a share.
struct SharedPart {
  int64_t elements = 0;
  int64_t replicas = 1;
  int64_t sets = 1;
};

// The trained weights of a fragment as training groups them (train/learner/learner_state.cc). The
// stages of a pipeline count as one.
std::vector<SharedPart> parts_of(const Workload& work, const LearnerWork& outer, int fragment) {
  const Axes& axes = work.axes;
  std::vector<int64_t> sizes;
  for (const ExchangedParameter& each : outer.parameters) sizes.push_back(each.elements);
  const std::vector<int> fragments =
      parallel::fragments_of(sizes, static_cast<int>(outer.fragments));
  int64_t whole = 0, cut = 0, expert = 0, cut_expert = 0;
  for (size_t i = 0; i < sizes.size(); ++i) {
    const ExchangedParameter& each = outer.parameters[i];
    if (fragments[i] != fragment || !each.is_trained) continue;
    const bool is_cut = each.is_cut && axes.tensor > 1;
    if (each.is_expert && axes.expert > 1) {
      (is_cut ? cut_expert : expert) += sizes[i];
    } else {
      (is_cut ? cut : whole) += sizes[i];
    }
  }
  const int64_t tokens = axes.token_ranks(), tensor = axes.tensor;
  const int64_t shards = work.zero == 0 ? 1 : axes.sharing();
  const int64_t of_experts = work.zero == 0 ? 1 : axes.sharing_experts();
  // ZeRO cuts what tensor ranks have in common at other places on each, so each of them sends it.
  const int64_t repeats = work.zero == 0 ? 1 : tensor;
  std::vector<SharedPart> parts = {
      {whole / shards, tokens / shards * (tensor / repeats), shards * repeats}};
  if (tensor > 1) parts.push_back({cut / tensor / shards, tokens / shards, tensor * shards});
  if (axes.expert > 1) {
    const int64_t held = expert / axes.expert + cut_expert / axes.expert / tensor;
    parts.push_back({held / of_experts, 1, tokens * tensor});
  }
  return parts;
}

using BytesOf = std::function<int64_t(int64_t num_elements)>;

// The sum over all shares of a part. They are of two sizes.
int64_t over_shares(const SharedPart& part, const BytesOf& bytes_of) {
  const int64_t size = part.elements / part.replicas, larger = part.elements % part.replicas;
  return part.sets * ((part.replicas - larger) * bytes_of(size) + larger * bytes_of(size + 1));
}

bool is_coded(const LearnerWork& outer) {
  return outer.form.code != parallel::WireCode::kFloat32 || outer.form.kept < 1;
}

// Bytes of a learner's ranks for a fragment: of its differences in the wire's form, and of numbers
// that are sent as they are.
struct Message {
  double coded = 0;
  double whole = 0;
};

Message message_of(const Workload& work, const LearnerWork& outer, int fragment,
                   const BytesOf& coded, const BytesOf& whole) {
  Message message;
  for (const SharedPart& part : parts_of(work, outer, fragment)) {
    (is_coded(outer) ? message.coded : message.whole) +=
        number(over_shares(part, is_coded(outer) ? coded : whole));
    SharedPart states = part;
    states.elements *= outer.num_states;
    message.whole += number(over_shares(states, whole));
  }
  return message;
}

// To one other learner.
Message message_of(const Workload& work, const LearnerWork& outer, int fragment) {
  const auto wide = static_cast<int64_t>(work.sizes.wide);
  return message_of(
      work, outer, fragment, [&](int64_t n) { return parallel::encoded_bytes(outer.form, n); },
      [&](int64_t n) { return n * wide; });
}

double bytes_of_notes(const Workload& work, const LearnerWork& outer) {
  const int64_t groups = 1 + (work.axes.tensor > 1 ? 1 : 0) + (work.axes.expert > 1 ? 1 : 0);
  const int64_t notes = kOwnNotes + (outer.graph ? 0 : kNotesOfGroup * groups);
  return number(work.axes.num_ranks() * (outer.learners - 1) * notes * kNoteBytes);
}

// What learners have between them: the links of a node, a network, or sites that are far apart.
struct Distances {
  struct Link {
    double rate = 0;
    double seconds = 0;
  };
  std::array<Link, 3> links{};
  int64_t ranks = 1;  // of a learner
  const Cluster& cluster;

  Distances(const Cluster& of, int64_t num_ranks) : ranks(num_ranks), cluster(of) {
    const Device& device = of.device;
    links = {{{device.link_rate * device.link_share, device.link_seconds},
              {device.network_rate * device.network_share, device.network_seconds},
              {of.site_rate, of.site_seconds}}};
  }
  size_t between(int64_t a, int64_t b) const {
    const auto same = [&](int64_t devices) { return a * ranks / devices == b * ranks / devices; };
    return same(cluster.devices_per_node) ? 0 : same(cluster.site_devices()) ? 1 : 2;
  }
};

// Of the busiest learner in each round of a graph, as a mean.
double graph_seconds(const parallel::LearnerGraph& graph, const Distances& distances,
                     double bytes) {
  double seconds = 0;
  std::vector<std::array<double, 3>> sent(static_cast<size_t>(graph.num_learners)),
      received(sent.size());
  for (const parallel::GraphRound& round : graph.rounds) {
    std::ranges::fill(sent, std::array<double, 3>{});
    std::ranges::fill(received, std::array<double, 3>{});
    double transfer = 0, latency = 0;
    for (const parallel::GraphEdge& edge : round) {
      const size_t far = distances.between(edge.from, edge.to);
      const Distances::Link& link = distances.links[far];
      for (double* const sum : {&sent[static_cast<size_t>(edge.from)][far],
                                &received[static_cast<size_t>(edge.to)][far]}) {
        *sum += bytes / link.rate;
        transfer = std::max(transfer, *sum);
      }
      latency = std::max(latency, link.seconds);
    }
    seconds += transfer + (1 + kBeforeMessage) * latency;
  }
  return seconds / graph.period();
}

// message: of a rank
double exchange_seconds(const LearnerWork& outer, const Cluster& cluster, int64_t ranks,
                        const Message& message) {
  if (outer.graph) return graph_seconds(*outer.graph, {cluster, ranks}, message.whole);
  const Group group{outer.learners, ranks};
  const double p = number(outer.learners);
  double seconds = kBeforeMessage * ring_rate(cluster, group).seconds;
  // Two learners send each other whole numbers as they send coded ones: all to all at once.
  if (outer.learners == 2) {
    return seconds + all_to_all_seconds(cluster, group, p * (message.coded + message.whole));
  }
  if (is_coded(outer)) seconds += all_to_all_seconds(cluster, group, p * message.coded);
  // Each sums a part, and sends that to all. It has asked for the others' before.
  if (!is_coded(outer) || outer.num_states > 0) {
    seconds += 2 * all_to_all_seconds(cluster, group, message.whole);
  }
  return seconds;
}

// The mean over rounds of the most messages that a learner sends.
double most_messages(const parallel::LearnerGraph& graph) {
  double sum = 0;
  for (const parallel::GraphRound& round : graph.rounds) {
    std::vector<int64_t> sent(static_cast<size_t>(graph.num_learners));
    for (const parallel::GraphEdge& edge : round) ++sent[static_cast<size_t>(edge.from)];
    sum += number(std::ranges::max(sent));
  }
  return sum / graph.period();
}

}  // namespace

Cluster cluster_of_learner(const Cluster& cluster, int64_t learners) {
  const int64_t of_node = std::max<int64_t>(1, learners / cluster.nodes);
  const bool is_even = learners >= 1 &&
                       (cluster.nodes % learners == 0 || learners % cluster.nodes == 0) &&
                       cluster.devices_per_node % of_node == 0;
  TRIREME_CHECK(
      is_even, "parallel.learners is ", learners, " on ", cluster.nodes, " nodes of ",
      cluster.devices_per_node,
      " devices; the cost model places each on whole nodes, or equally many on each "
      "node: set it to a divisor of the nodes, or to a multiple that divides the devices");
  Cluster part = cluster;
  part.nodes = std::max<int64_t>(1, cluster.nodes / learners);
  part.devices_per_node /= of_node;
  return part;
}

std::vector<int> nodes_of_learners(const Cluster& cluster, int64_t learners) {
  const int64_t ranks = cluster.num_devices() / learners;
  std::vector<int> nodes;
  for (int64_t i = 0; i < learners; ++i) {
    nodes.push_back(static_cast<int>(i * ranks / cluster.devices_per_node));
  }
  return nodes;
}

double sent_bytes(const Workload& work, const LearnerWork& outer, int fragment) {
  const double notes = bytes_of_notes(work, outer);
  if (outer.graph) {
    return most_messages(*outer.graph) * message_of(work, outer, fragment).whole + notes;
  }
  const auto wide = static_cast<int64_t>(work.sizes.wide);
  const int64_t others = outer.learners - 1;
  const Message message = message_of(
      work, outer, fragment,
      [&](int64_t n) { return others * parallel::encoded_bytes(outer.form, n); },
      [&](int64_t n) { return 2 * others * n * wide / outer.learners; });
  return message.coded + message.whole + notes;
}

LearnerPrediction with_learners(const Workload& work, const LearnerWork& outer,
                                const Cluster& cluster, const StepPrediction& inner) {
  LearnerPrediction prediction{.inner = inner, .all = inner};
  const int64_t ranks = work.axes.num_ranks();
  // Where the model's stages lie one behind the other, a fragment lies on few of them.
  const double share = number(std::min(work.axes.pipeline, outer.fragments)) / number(ranks);
  for (int fragment = 0; fragment < outer.fragments; ++fragment) {
    Message message = message_of(work, outer, fragment);
    message.coded *= share;
    message.whole *= share;
    const double seconds = exchange_seconds(outer, cluster, ranks, message);
    prediction.round_bytes += sent_bytes(work, outer, fragment);
    prediction.exchange_seconds += seconds;
    prediction.exposed_seconds +=
        std::max(0.0, seconds - number(outer.delay) * inner.step_seconds());
  }
  const double latency = ring_rate(cluster, {outer.learners, ranks}).seconds;
  if (latency > 0) {
    const double alone = exchange_seconds(outer, cluster, ranks, {});
    prediction.round_trips = number(outer.fragments) * alone / (2 * latency);
  }
  StepPrediction& all = prediction.all;
  const double learners = number(outer.learners);
  all.seconds.outer = prediction.exposed_seconds / number(outer.every);
  all.tokens *= learners;
  all.model_flops *= learners;
  all.hardware_flops *= learners;
  all.num_devices *= outer.learners;
  return prediction;
}

}  // namespace trireme::plan
