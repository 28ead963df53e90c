// What `shard` is asked, by trireme and by programs with annotated tasks.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <c10/core/ScalarType.h>
#include <CLI/CLI.hpp>

#include "trireme/plan/shard/shard_problem.h"

namespace trireme::cli {

struct ShardArguments {
  std::string config;
  std::string cluster;
  double memory_gib = -1;  // below 0: the device's
  int64_t samples = 0;     // 0: those that the config says
  bool automatic = false;
  bool json = false;
  std::vector<std::string> overrides{};  // as typed
};

// Both files, the first with this help, and --auto.
void add_shard_files(CLI::App& command, ShardArguments& arguments, const std::string& config_help);
// --memory, and the samples of a forward under this name.
void add_shard_bounds(CLI::App& command, ShardArguments& arguments, const std::string& samples_name,
                      const std::string& samples_help);

// States are weights, gradients and Adam's two; below fp32 with masters in fp32.
// memory_gib: that states and activations may take; below 0: what the device has for them
plan::ShardOptions shard_options(const plan::Cluster& cluster, const plan::ShardAxes& axes,
                                 at::ScalarType dtype, double memory_gib = -1);

}  // namespace trireme::cli
