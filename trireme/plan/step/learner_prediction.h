// A prediction for learners: the step of one of them, the bytes that they exchange, and how long
// training waits for these. Arithmetic on the same rounds, wire forms and graphs that training has.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "trireme/parallel/learner/learner_graph.h"
#include "trireme/parallel/learner/wire_form.h"
#include "trireme/plan/step/step_prediction.h"

namespace trireme::plan {

struct ExchangedParameter {
  int64_t elements = 0;    // of the whole parameter
  bool is_trained = true;  // others are not sent, but count where the model is cut into fragments
  bool is_cut = false;     // by the tensor axis
  bool is_expert = false;  // divided by the expert axis
};

// What learners exchange, and when.
struct LearnerWork {
  int64_t learners = 2;
  std::vector<ExchangedParameter> parameters{};  // in the model's order
  int64_t every = 1;
  int64_t fragments = 1;
  int64_t delay = 0;
  parallel::WireForm form{};
  int64_t num_states = 0;  // numbers of the optimizer's states, of each weight, that are averaged
  // Of neighbours that send each other weights; none: all send all what they have changed.
  std::optional<parallel::LearnerGraph> graph{};
};

// The part of the cluster that a learner has: learners lie on it one behind the other, each on
// whole nodes or several on each node.
// Throws: ConfigError when nodes and devices cannot be divided like that
Cluster cluster_of_learner(const Cluster& cluster, int64_t learners);
// The node of each learner's first rank.
std::vector<int> nodes_of_learners(const Cluster& cluster, int64_t learners);

// What the ranks of a learner send to others for one fragment, as `outer_bytes` of the metrics
// counts it. Exact without pipeline and ZeRO; these cut blocks of a scale at other places. Of a
// graph the learner that sends most, as a mean over the rounds.
// work: of a learner
double sent_bytes(const Workload& work, const LearnerWork& outer, int fragment);

struct LearnerPrediction {
  StepPrediction inner{};  // of one learner, in a step without an exchange
  StepPrediction all{};    // of all learners, with the exchange as a mean over the steps of a round
  double round_bytes = 0;  // that the ranks of a learner send
  double exchange_seconds = 0;  // of all fragments of a round, hidden or not
  double exposed_seconds = 0;   // of these, those for which training waits
  double round_trips = 0;       // of a round's exchanges, one after the other
};

// A fragment's exchange begins with the end of a step, and is exposed as far as it takes longer
// than the `delay` steps behind which it travels. Its arithmetic is not counted.
// work, inner: of a learner; cluster: of all
LearnerPrediction with_learners(const Workload& work, const LearnerWork& outer,
                                const Cluster& cluster, const StepPrediction& inner);

}  // namespace trireme::plan
