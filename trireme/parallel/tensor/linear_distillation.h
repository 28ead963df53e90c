// Knowledge distillation: the loss of a student's last linear layer beside that of a frozen
// teacher, a few tokens at a time, so the logits of all tokens of neither model ever exist at once.
// The vocabulary may be split over the tensor axis, in the same way for both.
#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>

#include "trireme/parallel/tensor/linear_head.h"
#include "trireme/parallel/tensor/tensor_axis.h"
#include "trireme/parallel/tensor/top_outputs.h"

namespace trireme::parallel {

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

// The same beside what a teacher has said of the tokens at options.temperature: the divergence
// between both models' distributions over k + 1 classes, the teacher's k most probable tokens and
// all others as one. That never exceeds the divergence over all tokens (the log-sum inequality),
// and equals it where k is V. Training on k tokens as if the others had no probability would teach
// the student that, so the others are a class with theirs.
// Shapes:     teacher of all S tokens, on every rank of the axis
// Memory:     six times chunk_tokens * v elements in fp32 at least, and the student's gradients
// Comm:       56 bytes per token from each rank to all; for the student's x as
//             linear_cross_entropy()
// Source:     Anshumann et al. 2025, arXiv:2503.16870 (outputs kept, the bias of a cut
//             distribution); Cover and Thomas 2006, theorem 2.7.1 (the inequality)
DistillationLoss linear_distillation(const LinearHead& student, const TopOutputs& teacher,
                                     const at::Tensor& targets_BT,
                                     const DistillationOptions& options = {});

}  // namespace trireme::parallel
