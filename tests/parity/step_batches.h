// The batches of a step that layouts are compared on, a function of the config alone.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include <ATen/ATen.h>

#include "tests/train/language_config.h"
#include "trireme/dataset/batch_loader.h"
#include "trireme/model/model.h"

namespace trireme::train {

inline dataset::Batch batch_of(const RunConfig& config, int64_t first, int64_t size) {
  const int64_t T = model_of(config).sequence_length, V = model_of(config).vocab_size;
  const at::Tensor stream = at::arange(first * (T + 3), first * (T + 3) + size * T, at::kLong);
  const at::Tensor tokens_BT = stream.mul(7).add(stream.square()).remainder(V).view({size, T});
  at::Tensor targets_BT = stream.mul(11).add(3).remainder(V).view({size, T}).clone();
  if (targets_BT.numel() > 2) targets_BT.view({-1})[2] = model::kIgnoredTarget;
  dataset::Batch batch{.tensors = {{"tokens", tokens_BT}, {"targets", targets_BT}},
                       .step = 3,
                       .first_sample = first,
                       .step_size = config.train.global_batch};
  // Of 1 to 6 tokens; they do not end where sequences do.
  if (data_of(config).separate_documents) {
    batch.tensors.emplace_back("documents", stream.remainder(6).eq(0).cumsum(0).view({size, T}));
  }
  return batch;
}

// The step's microbatches of one data rank; the last ones may be smaller or empty.
inline std::vector<dataset::Batch> batches_of(const RunConfig& config, int64_t data_rank) {
  const int64_t M = config.microbatches_per_step(), B = config.train.micro_batch;
  std::vector<dataset::Batch> batches;
  for (int64_t i = 0; i < M; ++i) {
    const int64_t first = (data_rank * M + i) * B;
    const int64_t size = std::clamp<int64_t>(config.train.global_batch - first, 0, B);
    batches.push_back(batch_of(config, first, size));
  }
  return batches;
}

}  // namespace trireme::train
