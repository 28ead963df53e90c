#include "trireme/train/parallel/stage_balance.h"

#include "trireme/base/error.h"
#include "trireme/parallel/pipeline/schedule/split.h"
#include "trireme/train/numerics/loss_sum.h"

namespace trireme::train {

StageBalance::StageBalance(PipelineLayout layout, const mesh::DeviceMesh& mesh)
    : layout_(std::move(layout)), mesh_(mesh), sums_(layout_.layers.size()) {}

void StageBalance::add(const parallel::PipelineProfile& profile) {
  for (size_t stage = 0; stage < sums_.size(); ++stage) {
    if (layout_.rank_of_stage[stage] != mesh_.coordinate("pipeline")) continue;
    sums_[stage] += profile.stage_costs(static_cast<int>(stage)).total();
  }
  ++num_steps_;
}

std::optional<std::vector<int>> StageBalance::better_layers(double threshold) {
  if (num_steps_ == 0) return std::nullopt;
  const std::vector<double> all = gather(mesh_.world(), sums_);
  const size_t num_stages = sums_.size();
  // Each stage is on one rank of every pipeline.
  const int num_pipelines = mesh_.world().size() / mesh_.size("pipeline");
  stage_seconds_.assign(num_stages, 0.0);
  for (size_t i = 0; i < all.size(); ++i) {
    stage_seconds_[i % num_stages] += all[i] / static_cast<double>(num_pipelines * num_steps_);
  }
  sums_.assign(num_stages, 0.0);
  num_steps_ = 0;
  std::vector<int> layers =
      parallel::rebalance(layout_.layers, stage_seconds_, threshold, layout_.costs, layout_.split);
  if (layers == layout_.layers) return std::nullopt;
  return layers;
}

std::string to_text(const std::vector<int>& layers) {
  std::string text;
  for (const int count : layers) text += concat(text.empty() ? "" : ",", count);
  return text;
}

}  // namespace trireme::train
