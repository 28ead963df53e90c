#include "trireme/tasks/language/generation/text_ranks.h"

#include <algorithm>
#include <array>
#include <iterator>
#include <string_view>
#include <utility>

#include <ATen/ATen.h>

#include "trireme/base/error.h"
#include "trireme/comm/objects.h"
#include "trireme/train/parallel/asked_layout.h"
#include "trireme/train/parallel/run_layout.h"

namespace trireme::tasks {
namespace {

// Ranks that have parts of one copy of the model, outermost first.
constexpr std::array<std::string_view, 2> kModelAxes = {"pipeline", "tensor"};
// Ranks that have copies of it.
constexpr std::array<std::string_view, 2> kCopyAxes = {"data", "shard"};

// Of what one forward of a microbatch reads.
dataset::Batch batch_of(const model::TokenGroup& group, size_t number) {
  dataset::Batch batch;
  batch.tensors.emplace_back("tokens", group.tokens_1n);
  batch.tensors.emplace_back("group", at::full({1}, static_cast<int64_t>(number), at::kLong));
  return batch;
}

}  // namespace

train::RunConfig generation_config(const train::RunConfig& trained,
                                   std::span<const train::Override> layout, int num_ranks) {
  return train::asked_config(
      trained, train::default_config(train::TaskTable(&kLanguage, 1)),
      make_reading_task(language_of(trained).model, std::make_shared<TextGroups>()), layout,
      num_ranks);
}

TextRanks::TextRanks(const train::RunConfig& config, comm::Communicator& world,
                     const std::string& key, train::Weights weights)
    : texts_(std::make_shared<TextGroups>()),
      config_(config),
      mesh_(world, train::mesh_axes(config.parallel)),
      num_stages_(config.parallel.pipeline),
      is_in_step_(config.parallel.expert > 1 || config.parallel.zero == 3),
      copy_(mesh_.position(kCopyAxes).index),
      num_copies_(mesh_.position(kCopyAxes).count),
      ranks_(train::group_of(mesh_, kModelAxes, "tensor")) {
  language_of(config_).texts = texts_;  // those of this rank: ranks may be threads of one process
  model_ = std::make_unique<train::FrozenModel>(config_, mesh_);
  if (!config_.init.folder.empty()) model_->load(key, weights);
  const bool draws =
      mesh_.coordinate("pipeline") == num_stages_ - 1 && mesh_.coordinate("tensor") == 0;
  const std::vector<int64_t> drawing = comm::all_gather_numbers(ranks_, draws ? 1 : 0);
  drawer_ = static_cast<int>(std::ranges::find(drawing, 1) - drawing.begin());
}

const model::ModelConfig& TextRanks::config() const { return language_of(config_).model; }

int64_t TextRanks::num_groups(int64_t mine) {
  if (!is_in_step_) return mine;
  return std::ranges::max(comm::all_gather_numbers(mesh_.world(), mine));
}

std::vector<at::Tensor> TextRanks::read(std::span<const model::TokenGroup> groups) {
  std::vector<at::Tensor> results;
  for (size_t begin = 0; begin < groups.size();) {
    const size_t size = std::min(groups.size() - begin, static_cast<size_t>(num_stages_));
    const std::span<const model::TokenGroup> some = groups.subspan(begin, size);
    texts_->now.assign(some.begin(), some.end());
    std::vector<dataset::Batch> batches;
    for (size_t i = 0; i < size; ++i) batches.push_back(batch_of(some[i], i));
    std::ranges::move(model_->model().scores(batches), std::back_inserter(results));
    begin += size;
  }
  texts_->now.clear();
  return results;
}

std::vector<int64_t> TextRanks::next_tokens(std::span<const model::TokenGroup> groups,
                                            const model::DrawToken& draw) {
  const std::vector<at::Tensor> logits = read(groups);
  std::vector<int64_t> drawn;
  for (size_t i = 0; i < groups.size(); ++i) {
    for (size_t run = 0; run < groups[i].cached->runs.size(); ++run) {
      const bool draws = ranks_.rank() == drawer_;
      drawn.push_back(draws ? draw(i, run, logits[i].select(0, static_cast<int64_t>(run))) : 0);
    }
  }
  if (!drawn.empty() && ranks_.size() > 1) {
    const auto count = static_cast<int64_t>(drawn.size());
    ranks_.broadcast(at::from_blob(drawn.data(), {count}, at::kLong), drawer_)->wait();
  }
  return drawn;
}

std::vector<at::Tensor> TextRanks::token_scores(std::span<const model::TokenGroup> groups) {
  std::vector<at::Tensor> scores = read(groups);
  if (ranks_.size() == 1) return scores;
  for (size_t i = 0; i < groups.size(); ++i) {
    const int64_t n = groups[i].targets_n.numel();
    if (ranks_.rank() != drawer_ && n > 0) {
      scores.resize(groups.size());
      scores[i] = at::empty({n, 3}, at::kDouble);
    }
    if (n > 0) ranks_.broadcast(scores[i], drawer_)->wait();
  }
  return scores;
}

std::vector<std::string> TextRanks::gather_texts(const std::string& mine) const {
  // Of a copy, the rank of its first stage speaks.
  const bool speaks = mesh_.coordinate("pipeline") == 0 && mesh_.coordinate("tensor") == 0;
  std::vector<std::string> texts = comm::gather_strings(mesh_.world(), speaks ? mine : "", 0);
  std::erase(texts, "");
  return texts;
}

}  // namespace trireme::tasks
