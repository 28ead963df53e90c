// The batches of a step that layouts are compared on, a function of the config alone.
#pragma once

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <vector>

#include <ATen/ATen.h>

#include "tests/train/language_config.h"
#include "trireme/dataset/batch_loader.h"
#include "trireme/model/model.h"

namespace trireme::train {

// The same for pairs of answers, with what a reference says of them: [P, 2, T] and [P, 2].
inline dataset::Batch pairs_of(dataset::Batch sequences) {
  const int64_t P = sequences.size() / 2;
  for (auto& [name, tensor] : sequences.tensors) tensor = tensor.unflatten(0, {P, 2});
  sequences.first_sample /= 2;
  const at::Tensor index_P2 = at::arange(2 * P, at::kDouble)
                                  .add(static_cast<double>(2 * sequences.first_sample))
                                  .view({P, 2});
  sequences.tensors.emplace_back("reference", index_P2.mul(1.3).sin().mul(9).sub(40));
  return sequences;
}

// What a decoder reads and writes instead: the targets' first tokens, or as many as it takes.
inline void add_decoder_tokens(dataset::Batch& batch, const model::ModelConfig& model) {
  const at::Tensor written_BT = batch["targets"];
  const int64_t U = model.seq2seq.target_length, T = written_BT.size(1), V = model.vocab_size;
  const at::Tensor place_U = at::arange(U, at::kLong);
  const at::Tensor targets_BU =
      (written_BT.index_select(1, place_U.remainder(T)) + place_U.div(T, "floor")).remainder(V);
  const at::Tensor sample_B1 =
      at::arange(batch.first_sample, batch.first_sample + written_BT.size(0), at::kLong)
          .unsqueeze(1);
  batch.tensors[1].second =
      targets_BU.masked_fill((sample_B1 + place_U).remainder(7).eq(3), model::kIgnoredTarget);
  batch.tensors.emplace_back("decoder_tokens", targets_BU.mul(5).add(1).remainder(V));
}

// Sample i has i modulo 3 images, whose tokens take the place of others; one more is never read.
inline void add_images(dataset::Batch& batch, const model::VisionConfig& vision) {
  const int64_t P = vision.num_patches(), S = vision.image_size;
  const at::Tensor tokens_BT = batch["tokens"];
  tokens_BT.masked_fill_(tokens_BT.eq(vision.image_token), vision.image_token + 1);
  std::vector<at::Tensor> images;
  for (int64_t b = 0; b < tokens_BT.size(0); ++b) {
    const int64_t sample = batch.first_sample + b;
    for (int64_t image = 0; image < sample % 3; ++image) {
      tokens_BT.select(0, b).narrow(0, 1 + image * (P + 2), P).fill_(vision.image_token);
    }
    images.push_back(at::arange(9 * S * S, at::kDouble)
                         .add(static_cast<double>(sample * 1000))
                         .mul(0.37)
                         .sin()
                         .mul(2)
                         .view({3, 3, S, S}));
  }
  batch.tensors.emplace_back(
      "images", images.empty() ? at::zeros({0, 3, 3, S, S}, at::kDouble) : at::stack(images));
}

// A sample's numbers depend on its own index alone, so that layouts may group samples differently.
inline dataset::Batch sequences_of(const RunConfig& config, int64_t first, int64_t size) {
  const int64_t T = model_of(config).sequence_length, V = model_of(config).vocab_size;
  const at::Tensor stream_BT =
      at::arange(first, first + size, at::kLong).mul(T + 3).unsqueeze(1) + at::arange(T, at::kLong);
  // Documents have 1 to 6 tokens. Each begins with a token of its own, because tokens with the same
  // beginning would have the same scores, and rounding would choose which one an expert drops.
  at::Tensor begins_BT = stream_BT.remainder(6).eq(0);
  if (size > 0) begins_BT.select(1, 0).fill_(true);
  const at::Tensor documents_BT = begins_BT.cumsum(1);
  const at::Tensor tokens_BT =
      at::where(begins_BT, documents_BT, stream_BT.mul(7).add(stream_BT.square()).remainder(V));
  const at::Tensor targets_BT = stream_BT.mul(11).add(3).remainder(V).masked_fill(
      stream_BT.remainder(17).eq(2), model::kIgnoredTarget);
  dataset::Batch batch{.tensors = {{"tokens", tokens_BT}, {"targets", targets_BT}},
                       .step = 3,
                       .first_sample = first,
                       .step_size = config.train.global_batch};
  if (data_of(config).separate_documents) batch.tensors.emplace_back("documents", documents_BT);
  if (model_of(config).vision.is_on()) add_images(batch, model_of(config).vision);
  if (model_of(config).has_decoder()) add_decoder_tokens(batch, model_of(config));
  return batch;
}

// The same for texts with labels: their lengths differ, and padding follows.
inline dataset::Batch texts_of(const RunConfig& config, dataset::Batch batch) {
  const int64_t B = batch.size(), T = model_of(config).sequence_length;
  const at::Tensor index_B1 =
      at::arange(batch.first_sample, batch.first_sample + B, at::kLong).unsqueeze(1);
  const at::Tensor is_padding_BT =
      at::arange(T, at::kLong).ge(index_B1.mul(5).add(3).remainder(T).add(1));
  batch.tensors = {
      {"tokens", batch["tokens"].masked_fill(is_padding_BT, 0)},
      {"targets", index_B1.squeeze(1).mul(7).add(1).remainder(model_of(config).classes)},
      {"documents", at::zeros({B, T}, at::kLong).masked_fill(is_padding_BT, -1)}};
  return batch;
}

inline dataset::Batch batch_of(const RunConfig& config, int64_t first, int64_t size) {
  if (tasks::language_of(config).objective.is_classify())
    return texts_of(config, sequences_of(config, first, size));
  if (!tasks::language_of(config).objective.is_dpo()) return sequences_of(config, first, size);
  return pairs_of(sequences_of(config, 2 * first, 2 * size));
}

// The step's microbatches of one data rank; the last ones may be smaller or empty.
inline std::vector<dataset::Batch> batches_of(const RunConfig& config, int64_t data_rank) {
  const auto shares = config.shares.empty() ? config.equal_shares() : config.shares;
  const std::vector<int64_t>& sizes = shares.front().micro_batches;
  const int64_t M = config.microbatches_per_step(), B = sizes[static_cast<size_t>(data_rank)];
  const int64_t before = std::reduce(sizes.begin(), sizes.begin() + data_rank);
  std::vector<dataset::Batch> batches;
  for (int64_t i = 0; i < M; ++i) {
    const int64_t first = before * M + i * B;
    const int64_t size = std::clamp<int64_t>(config.train.global_batch - first, 0, B);
    batches.push_back(batch_of(config, first, size));
  }
  return batches;
}

}  // namespace trireme::train
