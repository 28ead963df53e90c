// Probes of tensors whose rows are a batch's tokens, however its axes hold them.
#pragma once

#include <cstdint>
#include <string_view>

#include <ATen/core/Tensor.h>

#include "trireme/mesh/probe.h"
#include "trireme/model/family/plan.h"

namespace trireme::model {

// Which of the B sequences' tokens those at these positions are.
// positions_T: of this rank's tokens in their sequence; length: of the whole sequence
verify::ProbeRows rows_of_tokens(int64_t B, const at::Tensor& positions_T, int64_t length);
// The same for `num_rows` rows of a batch: all of this rank's tokens, those that it holds between
// layers under sequence parallelism, or one for each sequence.
verify::ProbeRows rows_of_tokens(const TokenBatch& batch, int64_t num_rows);

// verify::probe() for a tensor with such rows, in training.
// Shapes: x [B, T, D], or its rows as the tensor axis holds them; B rows behind those, which belong
//         to the sequences, such as conditioning, go on as they are
at::Tensor probe_tokens(std::string_view name, const at::Tensor& x, const TokenBatch& batch);

}  // namespace trireme::model
