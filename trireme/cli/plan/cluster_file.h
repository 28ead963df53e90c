// A CLUSTER file: read, written, or made of what the ranks of a group measure of themselves.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "trireme/cli/plan/device_rates.h"
#include "trireme/comm/communicator.h"
#include "trireme/plan/device/cluster.h"
#include "trireme/train/config/config.h"

namespace trireme::cli {

// A run and a cluster as two files and overrides describe them.
struct PlanningCase {
  train::RunConfig config;  // as read, not resolved
  plan::Cluster cluster;
};
// Overrides of the sections [cluster], [device], [network], [price] and [failures] are the
// cluster's, all others the run's. Does not look at the data.
// Throws: ConfigError, also for a run that a cluster of GPUs cannot have
PlanningCase load_files(const std::string& config, const std::string& cluster,
                        const std::vector<std::string>& overrides, const train::Offer& offer);
// Throws: ConfigError naming the key
plan::Cluster read_cluster(const std::string& path,
                           std::span<const train::Override> overrides = {});
// The content of a CLUSTER file that says `file`.
std::string cluster_toml(plan::ClusterFile& file);
// The keys of a CLUSTER file, for --help.
std::string describe_cluster_keys();

// Each rank is a device, with an equal part of its host's memory.
plan::ClusterFile cluster_of(const DeviceRates& rates, int num_ranks, int num_hosts);

// Whether the ranks have to measure themselves: they compute on CPUs that no file describes.
bool need_measuring(const train::RunConfig& config);

// Facts that the ranks of a run measure about themselves.
struct RankFacts {
  int num_hosts = 1;
  DeviceRates rates{};  // of CPUs, when no file says them
};
// options: of the measurements, if they need them.
// Collective: every rank of `group`
// Returns nothing when any rank's options.stop says so
std::optional<RankFacts> measure_ranks(const train::RunConfig& config, comm::Communicator& group,
                                       const MeasureOptions& options);

// One device for each rank of the run: those of parallel.cluster, or a GPU's by its name, or CPUs
// with the measured rates.
// Throws: ConfigError when the file cannot be used, the GPU is not known, or the ranks cannot be
//         divided equally over the hosts
plan::Cluster cluster_of_ranks(const train::RunConfig& config, const RankFacts& facts,
                               int num_ranks);
// The same before there are ranks, on this host and with built-in rates: good enough to find a
// layout that is legal.
plan::Cluster assumed_cluster(const train::RunConfig& config, int num_ranks);

}  // namespace trireme::cli
