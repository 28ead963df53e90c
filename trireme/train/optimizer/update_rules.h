// The update rules that optimizer.name chooses from.
#pragma once

#include <string>
#include <vector>

#include "trireme/train/optimizer/update_rule.h"

namespace trireme::train {

// Adafactor: estimates the second moment of a matrix from the means of its rows and columns, so the
// state of an [R, C] matrix is R + C numbers. No first moment.

// States of a parameter with two or more dimensions, factored over the last two: row_var [..., R,
// 1] and col_var [..., 1, C], on the parameter's owner. State of a vector: variance, like the
// parameter. As in torch's Adafactor, decay is 1 - step^-0.8, updates are clipped at a root mean
// square of d = 1, and steps are relative to the root mean square of the weights. Unlike in torch,
// the given learning rate is used unchanged at every step, and not bounded by 1 / sqrt(step).
// Source: Shazeer & Stern 2018, arXiv:1804.04235, algorithms 4 and 5
class AdafactorRule : public UpdateRule {
 public:
  // Throws: InternalError when this rank has only a part of the parameter, neither all nor nothing
  std::vector<StateSpec> state_of(const parallel::Shard& shard) const override;
  void update(std::span<const UpdateItem> items, double learning_rate, int64_t step) const override;
  bool needs_whole_parameters() const override { return true; }
};

// AdamW: the step is the first moment over the root of the second. Weight decay is separate.

// States: exp_avg, exp_avg_sq, like the parameter.
// Source: Kingma & Ba 2015, arXiv:1412.6980; Loshchilov & Hutter 2019, arXiv:1711.05101
class AdamWRule : public UpdateRule {
 public:
  AdamWRule(double beta1, double beta2, double epsilon)
      : beta1_(beta1), beta2_(beta2), epsilon_(epsilon) {}

  std::vector<StateSpec> state_of(const parallel::Shard& shard) const override;
  void update(std::span<const UpdateItem> items, double learning_rate, int64_t step) const override;
  bool needs_whole_parameters() const override { return false; }

 private:
  double beta1_;
  double beta2_;
  double epsilon_;
};

// LAMB: AdamW's step, scaled per layer to the norm of the weights. For very large batches.

// States: exp_avg, exp_avg_sq, like the parameter. With r the Adam step plus decay times weights,
// weights -= rate * |weights| / |r| * r. The ratio is 1 if a norm is 0.
// Source: You et al. 2020, arXiv:1904.00962, algorithm 2, with phi(z) = z
class LambRule : public UpdateRule {
 public:
  LambRule(double beta1, double beta2, double epsilon)
      : beta1_(beta1), beta2_(beta2), epsilon_(epsilon) {}

  std::vector<StateSpec> state_of(const parallel::Shard& shard) const override;
  void update(std::span<const UpdateItem> items, double learning_rate, int64_t step) const override;
  bool needs_whole_parameters() const override { return true; }
  // The update of one item that has elements. Returns its ratio of norms, a number.
  at::Tensor update_one(const UpdateItem& item, double rate, int64_t step) const;

 private:
  // The Adam step of `item`, without the learning rate. Updates its moments.
  at::Tensor adam_step(const UpdateItem& item, int64_t step) const;

  double beta1_;
  double beta2_;
  double epsilon_;
};

// LARS: SGD with momentum whose rate follows, per layer, the norm of the weights over that of the
// gradient. For convolutional networks on very large batches.

// State: momentum_buffer, like the parameter; it holds steps, including the learning rate.
//   buffer = momentum * buffer + rate * ratio * (gradient + decay * weights);  weights -= buffer
//   ratio = 0.001 * |weights| / (|gradient| + decay * |weights|), 1 for 0 / x and x / 0
// Source: You et al. 2017, arXiv:1708.03888, algorithm 1, trust coefficient 0.001
class LarsRule : public UpdateRule {
 public:
  explicit LarsRule(double momentum) : momentum_(momentum) {}

  std::vector<StateSpec> state_of(const parallel::Shard& shard) const override;
  void update(std::span<const UpdateItem> items, double learning_rate, int64_t step) const override;
  bool needs_whole_parameters() const override { return true; }

 private:
  double momentum_;
};

// Lion: the step is the sign of an average of gradient and momentum, so every weight moves by the
// learning rate. Needs a rate about ten times smaller than AdamW's, and ten times its decay.

// State: exp_avg, like the parameter.
// Source: Chen et al. 2023, arXiv:2302.06675, algorithm 2
class LionRule : public UpdateRule {
 public:
  LionRule(double beta1, double beta2) : beta1_(beta1), beta2_(beta2) {}

  std::vector<StateSpec> state_of(const parallel::Shard& shard) const override;
  void update(std::span<const UpdateItem> items, double learning_rate, int64_t step) const override;
  bool needs_whole_parameters() const override { return false; }

 private:
  double beta1_;
  double beta2_;
};

// Muon: the step of a hidden layer's matrix is its momentum, made orthogonal; a parameter of all
// experts has a matrix for each. AdamW updates all other parameters (embeddings, the output
// layer's, norms, biases).
struct MuonOptions {
  double momentum = 0.95;
  bool nesterov = true;
  // Names of matrices that AdamW updates.
  std::vector<std::string> adamw_patterns{};
  double beta1 = 0.9;  // for AdamW
  double beta2 = 0.95;
  double epsilon = 1e-8;
};

// State of a matrix: momentum_buffer. State of what AdamW updates: exp_avg, exp_avg_sq. All like
// the parameter. A step is scaled by 0.2 sqrt(max(rows, columns)) to the size of AdamW's, so one
// learning rate serves both.
// Source: Jordan et al. 2024, "Muon: An optimizer for hidden layers in neural networks"; scale and
//         decay: Liu et al. 2025, arXiv:2502.16982, section 2.2
class MuonRule : public UpdateRule {
 public:
  explicit MuonRule(const MuonOptions& options);

  std::vector<StateSpec> state_of(const parallel::Shard& shard) const override;
  void update(std::span<const UpdateItem> items, double learning_rate, int64_t step) const override;
  bool needs_whole_parameters() const override { return true; }

 private:
  MuonOptions options_;
  AdamWRule adamw_;
};

// Keeps the singular vectors and brings the singular values near 1 (0.7 to 1.2 unless they were
// tiny). Five Newton-Schulz steps of the quintic 3.4445 x - 4.7750 x^3 + 2.0315 x^5, in the
// matrix's dtype.
// Shapes: [R, C] -> [R, C]
// Source: Jordan et al. 2024
at::Tensor orthogonalize(const at::Tensor& matrix);

// Stochastic gradient descent with momentum. The decay is part of the gradient, as in torch's SGD.

// State: momentum_buffer, like the parameter; none if momentum is 0.
// Source: Polyak 1964; Nesterov 1983; in this form Sutskever et al. 2013, "On the importance of
//         initialization and momentum in deep learning"
class SgdRule : public UpdateRule {
 public:
  SgdRule(double momentum, bool nesterov) : momentum_(momentum), nesterov_(nesterov) {}

  std::vector<StateSpec> state_of(const parallel::Shard& shard) const override;
  void update(std::span<const UpdateItem> items, double learning_rate, int64_t step) const override;
  bool needs_whole_parameters() const override { return false; }

 private:
  double momentum_;
  bool nesterov_;
};

}  // namespace trireme::train
