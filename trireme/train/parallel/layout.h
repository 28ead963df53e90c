// Places a run's config on its mesh: axes, groups, pipeline stages. Defines which combinations are
// allowed. Pure arithmetic and checks; never allocates a tensor of the model.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "trireme/comm/communicator.h"
#include "trireme/mesh/device_mesh.h"
#include "trireme/model/family/parts.h"
#include "trireme/parallel/pipeline/schedule/schedule.h"
#include "trireme/parallel/pipeline/schedule/split.h"
#include "trireme/train/config/config.h"

namespace trireme::train::inline internal {

// `shard` ranks shard states; `data` ranks are their replicas. `context` ranks have other tokens of
// the same sequences, `tensor` ranks the same tokens.
std::vector<mesh::Axis> mesh_axes(const ParallelConfig& parallel);

// The same ranks as they share out experts: `expert` neighbours among those with other tokens hold
// other experts, and each of the `data` groups of them holds all.
// Source: Liu et al. 2025, arXiv:2504.14960 (parallel folding)
std::vector<mesh::Axis> expert_mesh_axes(const ParallelConfig& parallel);

// The ranks over which a parameter's states are sharded: those of `shard` and `context`.
// Collective: every rank of the world, on first use
comm::Communicator& shard_group_of(const mesh::DeviceMesh& mesh);

// overlap: whether tensor parallelism hides its communication; see TensorAxis.
// Collective: every rank of the world, on first use
model::ModelAxes model_axes(const RunConfig& config, const mesh::DeviceMesh& mesh,
                            std::shared_ptr<const bool> overlap = nullptr);

// The layers and ranks of a pipeline's stages.
struct PipelineLayout {
  std::vector<int> layers{};         // of each stage, along the model
  std::vector<int> rank_of_stage{};  // on the pipeline axis
  std::string name{};                // of the schedule
  int num_ranks = 1;
  // The layers' costs, for splitting them and for moving them later.
  std::vector<parallel::LayerCost> costs{};
  parallel::SplitOptions split{};

  int num_stages() const { return static_cast<int>(rank_of_stage.size()); }
  model::ModelPart part(int stage) const;
  parallel::Schedule schedule(int64_t num_microbatches) const;
};

// Throws: ConfigError when the model cannot be divided into the stages that the schedule requires
PipelineLayout pipeline_layout(const RunConfig& config);

// "data 2 x tensor 2 (sequence parallel) x pipeline 2 (1f1b, layers 3+3)": axes with more than one
// rank.
std::string describe_layout(const RunConfig& config);

// Whether a tensor group, whose members are neighbours in world rank, spans several hosts.
// hosts[r]: the identity of world rank r's host.
bool tensor_crosses_hosts(std::span<const std::string> hosts, int tensor_ranks);

// A feature that is incompatible with some axes when they have more than one rank.
struct LayoutRule {
  std::string feature;  // the setting
  std::vector<std::string> axes;
  bool (*is_used)(const RunConfig& config);
  std::string reason;
  std::string remedy;
};
// The rules that check_layout() uses. docs/layouts.md is written from them.
std::vector<LayoutRule> layout_rules();

// Checks that the config's features, model and axes are compatible. The task's data must be open.
// Throws: ConfigError with the key, its value, the reason, and what to do
void check_layout(const RunConfig& config);

}  // namespace trireme::train::inline internal
