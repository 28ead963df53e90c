#include "trireme/model/layers/batch_maker.h"

#include <algorithm>
#include <utility>

#include <ATen/ATen.h>

#include "trireme/model/layers/philox.h"

namespace trireme::model {

BatchMaker::BatchMaker(const ModelConfig& config, const ModelAxes& axes,
                       parallel::SequenceOrder order, uint64_t seed)
    : sequence_length_(std::max(config.sequence_length, config.seq2seq.target_length)),
      drops_(config.dropout > 0 || (config.lora.is_on() && config.lora.dropout > 0)),
      jitter_(config.sparse.experts > 0 ? config.sparse.router_jitter : 0),
      axes_(axes),
      order_(order),
      seed_(seed) {}

std::shared_ptr<const parallel::ContextParallel> BatchMaker::context_of(int64_t T) const {
  if (axes_.context == nullptr) return nullptr;
  return std::make_shared<const parallel::ContextParallel>(
      parallel::ContextParallel{.group = *axes_.context,
                                .split = parallel::SequenceSplit(T, axes_.context->size(), order_),
                                .form = axes_.context_form,
                                .ring = axes_.ring});
}

TokenBatch BatchMaker::make(int64_t B, int64_t T, parallel::AttentionReach reach, at::Device device,
                            const std::optional<TrainingPlace>& training) const {
  TokenBatch batch{.B = B, .causal = reach.causal, .documents_BT = std::move(reach.documents_BT)};
  batch.context = context_of(T);
  batch.positions_T = batch.context ? batch.context->positions().to(device)
                                    : at::arange(T, at::device(device).dtype(at::kLong));
  batch.T = batch.positions_T.numel();
  batch.training = training;
  if (axes_.tensor.sequence) batch.held_rows = axes_.tensor.own_rows(batch.B * batch.T);
  if (!training || (!drops_ && jitter_ == 0)) return batch;
  const at::Tensor rows_S = rows_of(batch, *training);
  const auto draw = [&](const at::Tensor& rows, const at::Tensor& whole_rows = {}) {
    return std::make_shared<const RandomDraw>(RandomDraw{seed_, training->step, rows, whole_rows});
  };
  if (jitter_ > 0) batch.jitter = draw(rows_S);
  if (!drops_) return batch;
  // Dropout's rows are those that this rank's layers hold: under sequence parallelism its own.
  const mesh::Range own = axes_.tensor.sequence ? axes_.tensor.own_rows(rows_S.numel())
                                                : mesh::Range{0, rows_S.numel()};
  batch.dropout = draw(rows_S.narrow(0, own.offset, own.size), rows_S);
  return batch;
}

at::Tensor BatchMaker::rows_of(const TokenBatch& batch, const TrainingPlace& place) const {
  const at::Tensor sequences_B =
      at::arange(place.first_sample, place.first_sample + batch.B, batch.positions_T.options());
  return (sequences_B.unsqueeze(1) * sequence_length_ + batch.positions_T).flatten();
}

}  // namespace trireme::model
