// What `trireme shard` shows of a plan: equal blocks of a model in one line.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "trireme/plan/shard/shard_plan.h"

namespace trireme::cli {

// Path with its numbers left out: "model.layers.*.mlp".
std::string general_path(std::string_view path);

// Axes of a cluster: "data=8,tensor=8", the outer one first; "": its nodes and the devices of each,
// named data and tensor.
// Throws: ConfigError for other than one or two axes, sizes below 2, and more ranks than devices
plan::ShardAxes parse_shard_axes(std::string_view text, const plan::Cluster& cluster);

// Lines for people: parameters by splits, and redistributions by operator, module and reason.
std::string show(const spmd::Graph& graph, const plan::ShardPlan& plan,
                 const plan::ShardAxes& axes);
nlohmann::json to_json(const spmd::Graph& graph, const plan::ShardPlan& plan,
                       const plan::ShardAxes& axes);

}  // namespace trireme::cli
