// The divergence of a student's rows of logits from its teacher's distribution. The ranks of a
// tensor axis may share the columns, which are the vocabulary.
#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>

#include "trireme/parallel/tensor/linear_cross_entropy.h"
#include "trireme/parallel/tensor/top_outputs.h"

namespace trireme::parallel {

// Rows whose logits exist at once: `asked`, or for 0 64 on the CPU and on a device as many as make
// 2^24 logits; at least 1 and at most num_rows.
int64_t chunk_rows(int64_t asked, int64_t num_rows, int64_t num_columns, at::Device device);

// Log-probabilities among this rank's columns, and the log of what these sum up to.
struct LogRows {
  at::Tensor log_Cv;
  at::Tensor log_sum_C;  // fp64
};
LogRows log_rows(const at::Tensor& logits_Cv, double temperature);

// Which columns of this rank some tokens are.
struct TokenColumns {
  at::Tensor is_here_Ck;  // whether the token is among them
  at::Tensor column_Ck;   // its column; of another token any
  at::Tensor is_top_Cv;   // whether a column is one of the tokens
};
TokenColumns columns_of(const at::Tensor& tokens_Ck, int64_t first_row, int64_t num_columns);

// log of what the other columns' probabilities sum up to, among this rank's. [C] fp64; -inf: none.
at::Tensor log_rest_of_rows(const LogRows& rows, const TokenColumns& columns);

struct StudentRows {
  at::Tensor logits_Cv;  // fp32 or fp64
  double temperature = 1;
  bool wants_gradient = false;
};

// KL(teacher || student) of each row at the temperature. The gradient is by logits / T: the
// student's probabilities less the teacher's.
// Comm:       24 bytes per row from each rank to all
// Collective: every rank of the axis
RowsLoss divergence_from_logits(const StudentRows& student, const at::Tensor& teacher_Cv,
                                const TensorAxis& axis);

// The same between the distributions over k + 1 classes: the k tokens, and all others as one.
// first_row: of the vocabulary, where this rank's columns begin
// Comm: 32 bytes per row from each rank to all
RowsLoss divergence_from_top(const StudentRows& student, const TopOutputs& teacher,
                             int64_t first_row, const TensorAxis& axis);

}  // namespace trireme::parallel
