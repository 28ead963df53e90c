// The task of recommendation: tell whether a user clicks, what class a thing is of, or which items
// fit a query. The models have tables of embeddings for the ids in the data.
#pragma once

#include <memory>

#include "trireme/tasks/recommend/recommend_config.h"
#include "trireme/train/config/config.h"
#include "trireme/train/task/task.h"

namespace trireme::tasks {

std::unique_ptr<train::Task> make_recommend_task();
inline constexpr train::TaskKind kRecommend = {
    "recommend", "predict clicks, classes or items from ids", make_recommend_task};

// The task's keys in a config of this task.
// Throws: InternalError when the config is another task's
RecommendConfig& recommend_of(train::RunConfig& config);

}  // namespace trireme::tasks
