// One model on a mesh: this rank's pipeline stages, each with its own data parallelism, run by one
// schedule. Without a pipeline there is one stage on the same code path.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "trireme/comm/hierarchical/host_identity.h"
#include "trireme/dataset/batch_loader.h"
#include "trireme/mesh/device_mesh.h"
#include "trireme/mesh/probe.h"
#include "trireme/model/layers/recompute.h"
#include "trireme/parallel/pipeline/run/executor.h"
#include "trireme/train/config/config.h"
#include "trireme/train/parallel/remote_teacher.h"
#include "trireme/train/parallel/run_layout.h"
#include "trireme/train/parallel/stage_ddp.h"
#include "trireme/train/profile/spans.h"
#include "trireme/train/task/task.h"

namespace trireme::train {

// Thread safety: one thread drives it. The mesh and the config must outlive it.
class ParallelModel {
 public:
  // Builds this rank's part of the task's model. overlap: see parallel::TensorAxis.
  // Collective: every rank of the world, with the same config
  // Throws:     ConfigError, CommError
  ParallelModel(const RunConfig& config, const mesh::DeviceMesh& mesh,
                std::shared_ptr<parallel::GradientHook> hook,
                std::shared_ptr<const bool> overlap = nullptr);
  ~ParallelModel();

  const mesh::DeviceMesh& mesh() const { return mesh_; }
  // The same ranks, with an axis "expert" over which experts are distributed. Null without it.
  const mesh::DeviceMesh* expert_mesh() const { return expert_mesh_.get(); }
  // Whether it is a parameter that the expert axis splits.
  bool is_expert(const std::string& name) const;
  // The number of parameters of the whole model that are trained.
  int64_t num_trained() const { return num_trained_; }
  // The layout of a whole parameter over the axes that split it.
  const mesh::Layout& layout_of(const std::string& parameter) const;
  // The same, and this rank's number in it.
  std::pair<mesh::Layout, int> place_of(const std::string& parameter) const;
  // This rank's part of every parameter it holds, stage by stage.
  const std::vector<parallel::Shard>& shards() const { return shards_; }
  // Whether this rank is the first of those that hold the same part as this shard.
  bool counts(const parallel::Shard& shard) const;
  const PipelineLayout& layout() const { return layout_; }
  const ModelTraits& traits() const { return traits_; }
  // The whole parameters of this rank's stages. With ZeRO-3 they have memory only while in use.
  std::vector<std::pair<std::string, at::Tensor>> parameters() const;
  // The modules' tensors that are not parameters, such as a batch norm's running statistics. They
  // have the same values on every rank that has the stage.
  std::vector<std::pair<std::string, at::Tensor>> buffers() const;

  // Starts a step with these microbatches. Returns the number of terms that the loss sums over,
  // on all ranks.
  // Collective: every rank, with the same number of microbatches
  int64_t begin_step(const std::vector<dataset::Batch>& batches);
  // The number of terms in place of begin_step()'s, where other ranks than this model's mesh have
  // more of them.
  void use_global_count(int64_t count) { global_count_ = count; }
  // The ranks that sum their gradients read one of so many equal parts of a step's samples.
  void use_parts_of_step(int64_t num_parts) { num_parts_of_step_ = num_parts; }
  // Tells the stages the next step's microbatches, in the next forward_backward().
  void announce(std::vector<dataset::Batch> next) { next_batches_ = std::move(next); }
  // Where recomputed blocks keep their inputs from forward to backward; null: in memory.
  void set_input_store(std::shared_ptr<model::InputStore> store) {
    input_store_ = std::move(store);
  }
  // Who gets the probes of training's forwards and backwards; null: nobody.
  void use_probes(verify::ProbeSink* sink) { probes_ = sink; }
  // From now on `teacher`, a frozen model on the same mesh, reads every microbatch first, and its
  // outputs are inputs of this model's last stage (Task::make_teacher).
  // Memory: its outputs for all microbatches of the call, on the ranks that have the last stage
  void use_teacher(std::shared_ptr<ParallelModel> teacher);
  // The same for a teacher on other ranks. Again once it is connected.
  void use_teacher(std::shared_ptr<RemoteTeacher> teacher);
  // Of a teacher for others: StageModel::head(), and what its last stage writes without dropout, by
  // name and microbatch.
  std::vector<at::Tensor> head() { return stages_.back().model->head(); }
  std::map<std::string, std::vector<at::Tensor>> outputs(
      const std::vector<dataset::Batch>& batches);
  // Forward and backward of every microbatch. The gradients, times `scale`, are reduced when it
  // returns. Returns sums over this rank's own terms: for each microbatch the loss, then the states
  // of the task's metrics; 0 unless it has the last stage.
  // Comm:       that of the model's layers, of PipelineExecutor::run() and of
  //             DistributedDataParallel::backward(); with a new number of microbatches also that of
  //             making an executor
  // Collective: every rank of the world, as for all functions below until num_terms()
  std::vector<double> forward_backward(const std::vector<dataset::Batch>& batches, double scale);
  // Sums the counts of the layers of all ranks in the step, see ModelTraits::num_counts.
  // Comm: with counts, 8 bytes for each all-reduced
  std::vector<double> sum_counts();
  // Lets the layers learn the sums. Only in a step whose weights change. Not collective.
  void use_counts(std::span<const double> counts);
  // The embedding tables of this rank's stages.
  const std::vector<StageTables>& tables() const { return tables_; }
  // Brings the optimizer's new weights to the ranks that need them.
  void end_step();
  // The same for all weights, when others than those that are trained may have changed.
  void spread_weights();
  // Gives batch norms the running statistics that they had at begin_step(), when the step is left
  // out. Not collective.
  void undo_statistics();
  // Only the forward, without dropout. Otherwise as forward_backward().
  std::vector<double> evaluate(const std::vector<dataset::Batch>& batches);
  // The same for what the last stage says of each sample, see TaskTraits::num_scores.
  // Shapes: -> [samples, num_scores] fp64 on the CPU for each microbatch; empty without that stage
  std::vector<at::Tensor> scores(const std::vector<dataset::Batch>& batches);
  // The metrics of evaluations since begin_evaluation(), see
  // TaskTraits::evaluation_metrics.
  void begin_evaluation() {
    for (Stage& stage : stages_) stage.model->begin_evaluation();
  }
  std::vector<double> finish_evaluation();
  // The number of terms that this rank's losses sum over, one number per batch.
  std::vector<double> num_terms(const std::vector<dataset::Batch>& batches) const;

  // The loss and the metrics' states over all microbatches of all data ranks, of what
  // forward_backward() or evaluate() returned.
  // Collective: every rank of the world
  std::vector<double> sums_over_batches(std::vector<double> mine) const;
  // The sum of one number per microbatch, see numerics/loss_sum.h.
  // Collective: every rank of the world
  double sum_over_batches(std::vector<double> mine) const;

  // The sum of squares of each parameter's gradient, in the order of the whole model, see
  // gradient_norm.h. Without the embedding tables.
  // Collective: every rank of the world
  std::vector<double> gradient_squares() const;
  const std::vector<std::string>& parameter_names() const { return names_; }

  // How long communication on any axis has delayed the last step, a teacher's included.
  std::chrono::nanoseconds communication_time() const;
  // The part of the model itself, by axis. "data" has the sums of gradients and batch norms and
  // the gathering of weights.
  std::map<std::string_view, std::chrono::nanoseconds> communication_by_axis() const;
  // The part of it in which the tensor axis's layers waited, and when forward_backward() ran them.
  std::chrono::nanoseconds tensor_waiting() const { return *waiting_.at("tensor"); }
  Span layers_window() const { return window_; }
  // The part in which it waited for a teacher on other ranks. Empty without one.
  std::optional<std::chrono::nanoseconds> teacher_waiting() const {
    return remote_teacher_ ? std::optional(remote_teacher_->waited()) : std::nullopt;
  }
  // Over all stages in the last step; otherwise as in DistributedDataParallel.
  int64_t gradient_bytes() const;
  double microbatch_squares() const;
  parallel::DataParallelMemory memory() const;
  // The profile of the last step's run of the schedule.
  const parallel::PipelineProfile& pipeline_profile() const { return profile_; }

 private:
  struct Stage {
    int number = 0;
    std::unique_ptr<StageModel> model;
    std::unique_ptr<StageDdp> ddp;
  };

  // A running statistic, and its value at the last begin_step().
  struct Statistic {
    at::Tensor now;
    at::Tensor before{};
  };

  void check_plan() const;
  void clear_places() {
    places_.clear();
    probed_.clear();
  }
  void add_stage(int number, const model::ModelAxes& axes,
                 const std::shared_ptr<parallel::GradientHook>& hook);
  std::vector<parallel::PipelineStage> describe_stages();
  parallel::PipelineExecutor& executor(int64_t num_microbatches);
  std::vector<dataset::Batch> taught(std::vector<dataset::Batch> batches) const;
  Stage* find_stage(int number);

  const mesh::DeviceMesh& mesh_;
  std::unique_ptr<mesh::DeviceMesh> expert_mesh_;
  comm::HostGroups expert_hosts_;  // of the expert axis
  const RunConfig& config_;
  ModelTraits traits_;
  std::map<std::string, mesh::Layout> parameter_layouts_;  // of the whole model
  size_t num_sums_ = 1;                                    // of a microbatch
  std::vector<std::string> names_;                         // in the model's order
  std::set<std::string> frozen_;                           // of them, those that are not trained
  int64_t num_trained_ = 0;
  PipelineLayout layout_;
  std::vector<Stage> stages_;  // of this rank
  std::vector<parallel::Shard> shards_;
  std::vector<StageTables> tables_;
  std::vector<Statistic> statistics_;
  parallel::DeferredWork deferred_;
  std::unique_ptr<parallel::WeightGradients> weight_gradients_;
  std::map<int, std::unique_ptr<parallel::PipelineExecutor>> executors_;  // by microbatches
  int64_t global_count_ = 0;
  int64_t num_parts_of_step_ = 1;
  std::vector<dataset::Batch> next_batches_;
  std::vector<model::TrainingPlace> places_;  // by microbatch; empty in evaluation
  std::vector<verify::ProbeContext> probed_;  // by microbatch; empty: nobody listens
  verify::ProbeSink* probes_ = nullptr;
  parallel::PipelineProfile profile_;
  bool in_turn_ = false;  // ranks have read the last batches in turn
  std::shared_ptr<model::InputStore> input_store_;
  std::shared_ptr<ParallelModel> teacher_;             // on the same ranks; null: none
  std::shared_ptr<RemoteTeacher> remote_teacher_;      // on others; null: none
  std::chrono::nanoseconds teacher_waited_before_{0};  // this step
  Span window_;
  // Sums of how long this rank waits in this step for communication within layers, by axis.
  std::map<std::string_view, std::shared_ptr<std::chrono::nanoseconds>> waiting_;
};

}  // namespace trireme::train
