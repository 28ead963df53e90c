// Places a run's config on its mesh: axes, groups, pipeline stages. Defines which combinations are
// allowed. Pure arithmetic and checks; never allocates a tensor of the model.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/comm/communicator.h"
#include "trireme/mesh/device_mesh.h"
#include "trireme/model/family/parts.h"
#include "trireme/parallel/pipeline/schedule/schedule.h"
#include "trireme/parallel/pipeline/schedule/split.h"
#include "trireme/train/config/config.h"

namespace trireme::train {

// `shard` ranks shard states; `data` ranks are their replicas. `context` ranks have different
// tokens of the same sequences, `tensor` ranks the same tokens.
std::vector<mesh::Axis> mesh_axes(const ParallelConfig& parallel);

// The same ranks on the axes of the experts. Among the ranks with different tokens, `expert`
// neighbours hold different experts; each of the `data` groups of such neighbours holds them all.
// Source: Liu et al. 2025, arXiv:2504.14960 (parallel folding)
std::vector<mesh::Axis> expert_mesh_axes(const ParallelConfig& parallel);

// The ranks among which ZeRO divides a parameter's states: those of `shard` and `context`.
// Collective: every rank of the world, on first use
comm::Communicator& shard_group_of(const mesh::DeviceMesh& mesh);
// The axes whose ranks hold the same weights, and do not share their states: `data`. Without ZeRO
// also those that would share them.
std::vector<std::string_view> replica_axes(int64_t zero);
// The ranks along `axes` that there are on the mesh, or those of `fallback` if there is only one.
// Collective: every rank of the world, on first use
comm::Communicator& group_of(const mesh::DeviceMesh& mesh, std::span<const std::string_view> axes,
                             std::string_view fallback);
// The axes that cut weights and add ranks: `tensor`.
std::vector<std::string_view> cutting_axes();

// The axes whose ranks read other samples.
std::vector<std::string_view> sample_axes();

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
  std::vector<model::ModelPart> parts() const;  // of all stages
  parallel::Schedule schedule(int64_t num_microbatches) const;
};

// Throws: ConfigError when the model cannot be divided into the stages that the schedule requires
PipelineLayout pipeline_layout(const RunConfig& config);

// The config of a model that is not trained, of this task and on the ranks of `run`.
RunConfig frozen_config(const RunConfig& run, std::unique_ptr<Task> task);
// The config of the frozen model that a run's task names (Task::make_teacher), on the same ranks.
// Empty without one there. Its stages are split by their own costs.
std::optional<RunConfig> teacher_config(const RunConfig& config);
// The same of a copy of a teacher on ranks of its own (parallel.teachers): one stage, on the tensor
// axis alone.
std::optional<RunConfig> remote_teacher_config(const RunConfig& config);

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
// The rules that check_layout() uses. docs/reference/layouts.md is written from them.
std::vector<LayoutRule> layout_rules();

// Checks that the config's features, model, teacher and axes are compatible. The task's data must
// be open.
// Throws: ConfigError with the key, its value, the reason, and what to do
void check_layout(const RunConfig& config);

// The number of an elastic job's ranks that take part in training.
// The policy for the mesh when ranks leave and join: only the data axis shrinks and grows, whatever
// parallel.data says. All other axes stay what the config says, so the ranks are a multiple of
// tensor * context * pipeline. parallel.zero and parallel.shard = 0 shard over the data ranks that
// there are; another parallel.shard stays and must divide them, and so must parallel.expert those
// of data and context. The global batch stays, and so do its samples.
// Returns the largest number of ranks, at most `available`, for which the config is valid. The
// others are spares. Every rank finds the same.
// Throws: ConfigError when there is none, with what is wrong with `available` ranks
int largest_world(const RunConfig& config, int available);

}  // namespace trireme::train
