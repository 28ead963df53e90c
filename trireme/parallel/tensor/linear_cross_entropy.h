// The last linear layer and the cross-entropy in one, a few hundred tokens at a time, so the logits
// of all tokens never exist at once. The vocabulary may be split over the tensor axis; then no rank
// ever has all of a token's logits.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>

#include <ATen/core/Tensor.h>

#include "trireme/base/machine/matrix_product.h"
#include "trireme/parallel/tensor/tensor_axis.h"

namespace trireme::parallel {

// A chunk of rows of logits whose columns, the vocabulary, the ranks of a tensor axis may share.

// A rank's statistics of a row: `top`, `sum` and the target's logit. log(sum) + top is the
// log-sum-exp of its logits.
inline constexpr int64_t kNumStats = 3;

// Gathers n statistics of each row from all ranks: [C, n] fp64 -> [p, C, n].
// Comm:       8 n bytes per row from each rank to all
// Collective: every rank of the axis
at::Tensor gather_stats(const at::Tensor& mine_Cn, const TensorAxis& axis);

struct LogitRows {
  at::Tensor logits_Cv;     // fp32 or fp64
  at::Tensor targets_C;     // int64
  int64_t first_row = 0;    // of the vocabulary, where this rank's columns begin
  bool has_ignored = true;  // whether some targets may be kIgnoredTarget
};

struct RowsLoss {
  at::Tensor losses_C;     // fp64, 0 for ignored targets
  at::Tensor sum;          // scalar fp64
  at::Tensor gradient_Cv;  // softmax - onehot; zero in rows of ignored targets
};

// The loss of the rows by libtorch's operators where the tensors are: the host waits for nothing.
// gradient: the type of the gradient, which is rounded once; none if empty
// Comm:       24 bytes per row from each rank to all
// Collective: every rank of the axis
RowsLoss loss_of_rows(const LogitRows& rows, const TensorAxis& axis,
                      std::optional<at::ScalarType> gradient);

// out = beta * out + a b. Where `a` and `b` are narrower than `out`, a GPU multiplies them as they
// are and adds up in fp32.
void multiply_on_device(at::Tensor out, const ProductFactor& a, const ProductFactor& b,
                        int beta = 0);

// Targets with this value are left out of sum and count.
inline constexpr int64_t kIgnoredTarget = -100;

// The number of the other targets, which are on the CPU.
// Throws: ConfigError when one is neither in [0, vocab_size) nor kIgnoredTarget
int64_t count_targets(const at::Tensor& host_S, int64_t vocab_size);

// A loss is a sum and the number of its terms, never a mean, so that sums can be added over
// microbatches and ranks.
struct Loss {
  at::Tensor sum;     // scalar fp64 for every precision; differentiable, backward once
  int64_t count = 0;  // targets that were not ignored
};

// A loss that is another function of the tokens' cross-entropies than their sum.
struct LossOfTokens {
  at::Tensor value;     // scalar fp64
  at::Tensor slopes_S;  // [S] fp64, its derivative by each cross-entropy
};
// losses_S: [S] fp64 where x is, 0 for ignored targets; the same on every rank of the axis.
using LossFunction = std::function<LossOfTokens(const at::Tensor& losses_S)>;

struct CrossEntropyOptions {
  // Tokens whose logits exist at once. The rounding of the result depends on it. 0: 256 on the CPU,
  // on a device as many as make 2^26 logits
  int64_t chunk_tokens = 0;
  TensorAxis axis{};
  int64_t first_row = 0;   // of the vocabulary, where this rank's weight begins
  int64_t vocab_size = 0;  // V; 0: this rank has the whole vocabulary
  double softcap = 0;      // c: logits become c tanh(logit / c) before the softmax; 0: they stay
  // [v], differentiable: added to this rank's columns of the logits. Undefined: none.
  at::Tensor bias_v{};
  // Null: the sum. Otherwise the logits are computed twice if a gradient is needed: first for the
  // cross-entropies, then for their gradients, each times its slope.
  LossFunction loss{};
};

// Sum over tokens of -log softmax(x W^T + b)[target], in fp64, and the number of targets that were
// not ignored. Both are the same on every rank of the axis. If a gradient is needed it is computed
// here, chunk by chunk; backward only scales it, and runs once. The sum is in token order, whatever
// the number of threads.
// Shapes: x as the layers hold it, [..., D] or with axis.sequence [s, D]; w_vD [v, D]; targets_BT
//         [...] int64, S of them -> scalar
// Memory:     chunk_tokens * v elements, as many of their gradient where that is narrower, as many
//             again with a soft cap, and the two gradients in fp32 at least
// Comm:       24 bytes per token from each rank to all, twice that for another loss than the sum,
//             and n = S*D*itemsize in fp32 or fp64:
//             forward 2(p-1)/p * n for x's gradient; with axis.sequence 2(p-1)/p * n (x, its
//             gradient), less where a narrower x travels in its own type
// Collective: every rank of the axis, with the same targets
// Throws:     ConfigError when a target is neither in [0, V) nor kIgnoredTarget
// Source:     Wijmans et al. 2024, arXiv:2411.09009, section 4 (the idea; blocks only over tokens);
//             over ranks: Shoeybi et al. 2019, arXiv:1909.08053, section 3; the cap: Riviere et al.
//             2024, arXiv:2408.00118, section 2
Loss linear_cross_entropy(const at::Tensor& x, const at::Tensor& w_vD, const at::Tensor& targets_BT,
                          const CrossEntropyOptions& options = {});

}  // namespace trireme::parallel
