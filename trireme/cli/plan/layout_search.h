// The planner's search on a run: candidates are legal when the runtime's own checks accept them.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "trireme/plan/search/search.h"
#include "trireme/train/config/config.h"

namespace trireme::cli::inline internal {

// Resolves the run on so many devices by the runtime's own checks. Its model is known: the data is
// open, or its keys say it.
// Throws: ConfigError when it cannot run there, and when the cost model does not know its task
plan::Workload resolve_on(train::RunConfig& config, int64_t num_devices);
// Its pipeline's stages, as the runtime divides them.
plan::StageLayout runtime_stages(const train::RunConfig& config);

// The run with another layout: values of the keys that the search chooses.
train::RunConfig with_layout(const train::RunConfig& run, std::span<const train::Override> chosen);
// The run with a candidate's layout.
train::RunConfig with_layout(const train::RunConfig& run, const plan::Workload& work);

// plan::search() for the model, batch and precision of `run`, whose layout does not count.
// Throws: ConfigError
plan::SearchResult search_layouts(const train::RunConfig& run, const plan::Cluster& cluster,
                                  plan::SearchOptions options);
// Why nothing fits, and what to do.
std::string describe_failure(const plan::SearchResult& found, const plan::Cluster& cluster);

}  // namespace trireme::cli::inline internal
