#include "trireme/model/layers/batch_maker.h"

#include <utility>

#include <ATen/ATen.h>

#include "trireme/model/layers/dropout.h"

namespace trireme::model::inline internal {

BatchMaker::BatchMaker(const ModelConfig& config, const ModelAxes& axes,
                       parallel::SequenceOrder order, uint64_t seed)
    : sequence_length_(config.sequence_length),
      dropout_(config.dropout),
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
  if (training && dropout_ > 0) batch.dropout = dropout_draw(batch, *training);
  return batch;
}

// Numbers the rows that this rank's layers hold: all, or under sequence parallelism its own.
std::shared_ptr<const DropoutDraw> BatchMaker::dropout_draw(const TokenBatch& batch,
                                                            const TrainingPlace& place) const {
  const at::Tensor sequences_B =
      at::arange(place.first_sample, place.first_sample + batch.B, batch.positions_T.options());
  at::Tensor rows_S = (sequences_B.unsqueeze(1) * sequence_length_ + batch.positions_T).flatten();
  if (axes_.tensor.sequence) {
    const mesh::Range own = axes_.tensor.own_rows(rows_S.numel());
    rows_S = rows_S.narrow(0, own.offset, own.size);
  }
  return std::make_shared<const DropoutDraw>(DropoutDraw{seed_, place.step, rows_S});
}

}  // namespace trireme::model::inline internal
