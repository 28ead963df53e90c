// Scores of samples with labels: clicks, or classes.
#pragma once

#include <memory>

#include "trireme/comm/communicator.h"
#include "trireme/tasks/recommend/scores.h"

namespace trireme::tasks::inline internal {

// Clicks: the cross-entropy of the logistic function, and the exact area under the ROC curve of
// fp32 scores. Classes: the cross-entropy of softmax.
// group: the ranks with the other samples; null for one rank. Must outlive the scores.
std::unique_ptr<Scores> make_label_scores(const RecommendProblem& problem,
                                          comm::Communicator* group);

}  // namespace trireme::tasks::inline internal
