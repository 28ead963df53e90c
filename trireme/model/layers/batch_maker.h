// Makes the batches that layers read: which tokens of the sequences this rank has, and where
// dropout draws its masks.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include <ATen/core/Tensor.h>

#include "trireme/model/family/model_config.h"
#include "trireme/model/family/plan.h"

namespace trireme::model {

class BatchMaker {
 public:
  // order: of the tokens on the context axis. Dropout and jitter draw with `seed`.
  BatchMaker(const ModelConfig& config, const ModelAxes& axes, parallel::SequenceOrder order,
             uint64_t seed);

  // The split of sequences of T tokens over the context axis. Null without one.
  std::shared_ptr<const parallel::ContextParallel> context_of(int64_t T) const;
  // The batch of B sequences of T tokens. training: empty for a forward that draws nothing.
  TokenBatch make(int64_t B, int64_t T, parallel::AttentionReach reach, at::Device device,
                  const std::optional<TrainingPlace>& training) const;

 private:
  // The numbers of the batch's tokens in the step's global batch.
  at::Tensor rows_of(const TokenBatch& batch, const TrainingPlace& place) const;

  int64_t sequence_length_;
  bool drops_;  // some layers of the model
  double jitter_;
  ModelAxes axes_;
  parallel::SequenceOrder order_;
  uint64_t seed_;
};

}  // namespace trireme::model
