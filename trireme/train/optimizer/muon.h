// Muon: the step of a hidden layer's matrix is its momentum, made orthogonal; a parameter of all
// experts has a matrix for each. AdamW updates all other parameters (embeddings, the output
// layer's, norms, biases).
#pragma once

#include <string>
#include <vector>

#include "trireme/train/optimizer/adamw.h"
#include "trireme/train/optimizer/update_rule.h"

namespace trireme::train::inline internal {

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

}  // namespace trireme::train::inline internal
