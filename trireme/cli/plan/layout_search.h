// The planner's search on a run: candidates are legal when the runtime's own checks accept them.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "trireme/plan/search/search.h"
#include "trireme/train/config/config.h"

namespace trireme::cli {

// Resolves the run on `num_devices` devices with the runtime's own checks. The model must be known,
// from open data or from its keys. With learners, what one of them does.
// Throws: ConfigError when it cannot run there, and when the cost model does not know its task
plan::Workload resolve_on(train::RunConfig& config, int64_t num_devices);
// Bytes per second to and from the memory of a device's host, as copies reach on PCIe 4 x16.
inline constexpr double kHostLinkRate = 20e9;
// Sets the rates of [offload]. On a host, states and inputs of blocks leave the device's memory and
// pass its link in every step, as those on a disk pass the disk. A CPU is its own host.
void set_offload(const train::OffloadConfig& offload, plan::Workload& work, plan::Cluster& cluster);
// Its pipeline's stages, as the runtime divides them.
plan::StageLayout runtime_stages(const train::RunConfig& config);

// The run with another layout: values of the keys that the search chooses.
train::RunConfig with_layout(const train::RunConfig& run, std::span<const train::Override> chosen);
// The run with a candidate's layout.
train::RunConfig with_layout(const train::RunConfig& run, const plan::Workload& work);

// plan::search() for the model, batch and precision of `run`, whose layout does not count. With
// learners, for the layout of each: the best are predicted
// with all, and those that are too large as one of them.
// Throws: ConfigError
plan::SearchResult search_layouts(const train::RunConfig& run, plan::Cluster cluster,
                                  plan::SearchOptions options);
// Why nothing fits, and what to do.
std::string describe_failure(const plan::SearchResult& found, const plan::Cluster& cluster);

}  // namespace trireme::cli
