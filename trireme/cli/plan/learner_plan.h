// Runs with learners in the words of the cost model.
#pragma once

#include <optional>

#include "trireme/plan/step/learner_prediction.h"
#include "trireme/train/config/config.h"

namespace trireme::cli {

// Throws: ConfigError when there are learners whose outer.method the cost model does not know, or
//         that are runs of their own
void check_known_method(const train::RunConfig& config);

// What the learners of a run exchange. Nothing when there is one.
// config: with the model known and the layout of a learner in its keys
// Throws: as check_known_method() and make_named_graph()
std::optional<plan::LearnerWork> learner_work(const train::RunConfig& config,
                                              const plan::Cluster& cluster);

// What a rank keeps per weight for exchanges, in bytes: the common weights, their momentum, what
// messages lose, and of a delayed fragment what travels while it computes. 0 without learners.
double outer_bytes_per_weight(const train::RunConfig& config, double wide_bytes);

struct RunPrediction {
  plan::StepPrediction step{};  // of the whole run
  std::optional<plan::LearnerPrediction> learners{};
};
// work: of a learner, resolved; layout: of its pipeline
// Throws: ConfigError, as predict_step() and cluster_of_learner()
RunPrediction predict_run(const train::RunConfig& config, const plan::Workload& work,
                          const plan::Cluster& cluster, const plan::StageLayout& layout);

}  // namespace trireme::cli
