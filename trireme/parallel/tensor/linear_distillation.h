// Knowledge distillation: the loss of a student's last linear layer beside that of a frozen
// teacher, a few tokens at a time, so the logits of all tokens of neither model ever exist at once.
// The vocabulary may be split over the tensor axis, in the same way for both.
#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>

#include "trireme/parallel/tensor/tensor_axis.h"

namespace trireme::parallel {

// The last linear layer of a language model and its input. The width and the dtype may be any.
struct LinearHead {
  at::Tensor x;         // as the layers hold it, [..., D] or with axis.sequence [s, D]
  at::Tensor w_vD;      // [v, D], this rank's rows of the vocabulary
  at::Tensor bias_v{};  // [v]; undefined: none
  double softcap = 0;   // c: logits become c tanh(logit / c); 0: they stay
};

struct DistillationOptions {
  double temperature = 1;    // T > 0: both distributions are softmax(logits / T)
  double weight = 0.5;       // w in [0, 1]: the share of the divergence in the loss
  int64_t chunk_tokens = 0;  // as CrossEntropyOptions; 0: 64 on the CPU, on a device 2^24 logits
  TensorAxis axis{};
  int64_t first_row = 0;   // of the vocabulary, where this rank's weights begin
  int64_t vocab_size = 0;  // V; 0: this rank has the whole vocabulary
};

// Sums over the targets that are not ignored, scalars in fp64.
struct DistillationLoss {
  at::Tensor sum;            // (1 - w) cross_entropy + w T^2 divergence; differentiable, once
  at::Tensor cross_entropy;  // of the targets, at temperature 1; without a gradient
  at::Tensor divergence;     // KL(teacher || student) at temperature T; without a gradient
  int64_t count = 0;
};

// The gradient goes to the student's x, weight and bias, and to nothing of the teacher. It is
// computed here, chunk by chunk, and backward only scales it. With w = 0 the sum and its gradient
// have the bits of linear_cross_entropy(). All results are the same on every rank of the axis.
// Shapes: student.x, teacher.x of the same S tokens; targets_BT [...] int64, S of them -> scalars
// Memory:     seven times chunk_tokens * v elements in fp32 at least, and the student's gradients
// Comm:       48 bytes per token from each rank to all; for the student's x as
//             linear_cross_entropy(); with axis.sequence also (p-1)/p of the teacher's x
// Collective: every rank of the axis, with the same targets
// Throws:     ConfigError when a target is neither in [0, V) nor kIgnoredTarget
// Source:     Hinton, Vinyals, Dean 2015, arXiv:1503.02531, section 2
DistillationLoss linear_distillation(const LinearHead& student, const LinearHead& teacher,
                                     const at::Tensor& targets_BT,
                                     const DistillationOptions& options = {});

}  // namespace trireme::parallel
