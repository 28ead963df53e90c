// A trained language model whose parts are on many ranks, to continue and to score texts: on
// tensor, pipeline and expert ranks, with copies on data ranks that have different texts.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "trireme/comm/communicator.h"
#include "trireme/mesh/device_mesh.h"
#include "trireme/model/text_model.h"
#include "trireme/tasks/language/language.h"
#include "trireme/train/config/config.h"
#include "trireme/train/state/frozen_model.h"
#include "trireme/train/state/saved_run.h"

namespace trireme::tasks {

// The config of a run whose model `num_ranks` ranks share.
// trained: the run's, as saved_language_config() reads it. layout: as for train::asked_config()
// Throws: as train::asked_config()
train::RunConfig generation_config(const train::RunConfig& trained,
                                   std::span<const train::Override> layout, int num_ranks);

class TextRanks : public model::TextModel {
 public:
  // config: from generation_config(), for as many ranks as `world` has. Its init.folder is the
  // checkpoint, which `key` names in messages; empty: the values of a new run
  // Collective: every rank of `world`, which outlives this
  // Throws:     as FrozenModel()
  TextRanks(const train::RunConfig& config, comm::Communicator& world,
            const std::string& key = "init.folder", train::Weights weights = train::Weights::kLast);

  const model::ModelConfig& config() const override;
  size_t copy() const override { return static_cast<size_t>(copy_); }
  size_t num_copies() const override { return static_cast<size_t>(num_copies_); }
  int64_t groups_at_once() const override { return num_stages_; }
  // Comm: 8 bytes all-reduced, if expert or ZeRO-3 ranks compute together
  int64_t num_groups(int64_t mine) override;
  // Comm: that of the model's layers; from stage to stage n * D hidden values; 8 bytes per text to
  //       every rank of the copy
  std::vector<int64_t> next_tokens(std::span<const model::TokenGroup> groups,
                                   const model::DrawToken& draw) override;
  // Comm: as next_tokens(), with 24 bytes per token to every rank of the copy
  std::vector<at::Tensor> token_scores(std::span<const model::TokenGroup> groups) override;

  // The texts that the copies have, on rank 0; empty elsewhere.
  // Collective: every rank
  std::vector<std::string> gather_texts(const std::string& mine) const;

 private:
  // What the last stage says of each group; empty on ranks without it.
  std::vector<at::Tensor> read(std::span<const model::TokenGroup> groups);

  std::shared_ptr<TextGroups> texts_;
  train::RunConfig config_;
  mesh::DeviceMesh mesh_;
  std::unique_ptr<train::FrozenModel> model_;
  int64_t num_stages_;
  bool is_in_step_;  // with other copies
  int64_t copy_;
  int64_t num_copies_;
  comm::Communicator& ranks_;  // of this copy
  int drawer_;                 // the rank there that draws
};

}  // namespace trireme::tasks
