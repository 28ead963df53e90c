#include "trireme/cli/plan/shard_arguments.h"

#include <algorithm>

#include "trireme/cli/command_options.h"

namespace trireme::cli {

void add_shard_files(CLI::App& command, ShardArguments& arguments, const std::string& config_help) {
  command.add_option("config", arguments.config, config_help)->required();
  command
      .add_option("cluster", arguments.cluster,
                  "CLUSTER file, which describes the cluster (docs/guide/planner.md)")
      ->required();
  command.add_flag("--auto", arguments.automatic, "find the placements");
}

void add_shard_bounds(CLI::App& command, ShardArguments& arguments, const std::string& samples_name,
                      const std::string& samples_help) {
  command
      .add_option("--memory", arguments.memory_gib,
                  "bound on a rank's states and kept activations, in GiB; 0 = none. Default: the "
                  "device's memory")
      ->check(within({0, 1e6}));
  command.add_option(samples_name, arguments.samples, samples_help)->check(within({1, 1 << 24}));
}

plan::ShardOptions shard_options(const plan::Cluster& cluster, const plan::ShardAxes& axes,
                                 at::ScalarType dtype, double memory_gib) {
  const auto itemsize = static_cast<double>(c10::elementSize(dtype));
  const plan::Device& device = cluster.device;
  const double free_bytes =
      std::max(0.0, (device.memory_bytes - device.reserved_bytes) / (1 + device.fragmentation));
  return {.cluster = cluster,
          .axes = axes,
          .state_bytes = itemsize < 4 ? 2 * itemsize + 3 * 4 : 4 * itemsize,
          .memory_bytes = memory_gib >= 0 ? memory_gib * (1 << 30) : free_bytes};
}

}  // namespace trireme::cli
