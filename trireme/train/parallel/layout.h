// How a run's config lies on its mesh: axes, groups, pipeline stages; and which combinations there
// are. Arithmetic and checks alone: nothing here allocates a tensor of the model.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "trireme/comm/communicator.h"
#include "trireme/mesh/device_mesh.h"
#include "trireme/model/family/plan.h"
#include "trireme/parallel/pipeline/schedule/schedule.h"
#include "trireme/parallel/pipeline/schedule/split.h"
#include "trireme/train/config/config.h"

namespace trireme::train {

// `shard` shares states out, `data` are its replicas; ranks of `context` have other tokens of the
// same sequences, those of `tensor` the same tokens.
std::vector<mesh::Axis> mesh_axes(const ParallelConfig& parallel);

// The ranks that share out a parameter's states: those of `shard` and `context`.
// Collective: every rank of the world on first use
comm::Communicator& shard_group_of(const mesh::DeviceMesh& mesh);

// overlap: what decides whether tensor parallelism hides its communication.
model::ModelAxes model_axes(const RunConfig& config, const mesh::DeviceMesh& mesh,
                            std::shared_ptr<const bool> overlap = nullptr);

// Which stage has what, and where it is.
struct PipelineLayout {
  std::vector<int> layers{};         // of each stage, along the model
  std::vector<int> rank_of_stage{};  // on the pipeline axis
  std::string name{};                // of the schedule
  int num_ranks = 1;
  // What the layers were split by, and are when they move.
  std::vector<parallel::LayerCost> costs{};
  parallel::SplitOptions split{};

  int num_stages() const { return static_cast<int>(rank_of_stage.size()); }
  model::ModelPart part(int stage) const;
  parallel::Schedule schedule(int64_t num_microbatches) const;
};

// Throws: ConfigError when the model does not divide into the stages that the schedule asks for
PipelineLayout pipeline_layout(const RunConfig& config);

// "data 2 x tensor 2 (sequence parallel) x pipeline 2 (1f1b, layers 3+3)": the axes of more than
// one rank.
std::string describe_layout(const RunConfig& config);

// Whether a tensor group, neighbours in world rank, lies on several hosts. hosts[r]: the identity
// of world rank r's.
bool tensor_crosses_hosts(std::span<const std::string> hosts, int tensor_ranks);

// A feature that does not go with some axes when they have more than one rank.
struct LayoutRule {
  std::string feature;  // the setting
  std::vector<std::string> axes;
  bool (*is_used)(const RunConfig& config);
  std::string reason;
  std::string remedy;
};
// All that check_layout() knows; docs/layouts.md is written from them.
std::vector<LayoutRule> layout_rules();

// Whether the config's features, model and axes go together; the vocabulary must be known.
// Throws: ConfigError: the key, its value, the reason, and what to do
void check_layout(const RunConfig& config);

}  // namespace trireme::train
