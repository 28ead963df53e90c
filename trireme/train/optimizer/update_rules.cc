#include "trireme/train/optimizer/update_rules.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>

#include "trireme/base/error.h"
#include "trireme/base/patterns.h"
#include "trireme/train/numerics/gradient_norm.h"
#include "trireme/train/optimizer/adamw_pass.h"
#include "trireme/train/optimizer/elementwise.h"

namespace trireme::train {

std::vector<StateSpec> AdamWRule::state_of(const parallel::Shard& shard) const {
  return {state_like(shard, "exp_avg"), state_like(shard, "exp_avg_sq", /*is_positive=*/true)};
}

void AdamWRule::update(std::span<const UpdateItem> items, double learning_rate,
                       int64_t step) const {
  std::vector<UpdateItem> others;
  for (const UpdateItem& item : items) {
    if (!has_adamw_pass(item)) {
      others.push_back(item);
      continue;
    }
    adamw_pass(item, {.rate = learning_rate * item.rate_scale,
                      .beta1 = beta1_,
                      .beta2 = beta2_,
                      .epsilon = epsilon_,
                      .step = step});
  }
  if (others.empty()) return;
  // The kernel requires [] fp32 on the device of the weights; exact below 2^24.
  const at::Tensor step_number = at::full({}, step, others[0].weights.options().dtype(at::kFloat));
  update_elementwise(others, [&](PieceBatch& batch) {
    const std::vector<at::Tensor> steps(batch.weights.size(), step_number);
    at::_fused_adamw_(batch.weights, batch.gradients, batch.state[0], batch.state[1], {}, steps,
                      learning_rate * batch.rate_scale, beta1_, beta2_, batch.weight_decay,
                      epsilon_, /*amsgrad=*/false, /*maximize=*/false);
  });
}

std::vector<StateSpec> SgdRule::state_of(const parallel::Shard& shard) const {
  if (momentum_ == 0) return {};
  return {state_like(shard, "momentum_buffer")};
}

void SgdRule::update(std::span<const UpdateItem> items, double learning_rate, int64_t) const {
  update_elementwise(items, [&](PieceBatch& batch) {
    const std::vector<at::Tensor> none;
    // With a buffer of zeros, the first step is the same as with torch's is_first_step.
    at::_fused_sgd_(batch.weights, batch.gradients, momentum_ == 0 ? none : batch.state[0],
                    batch.weight_decay, momentum_, learning_rate * batch.rate_scale,
                    /*dampening=*/0.0, nesterov_ && momentum_ != 0, /*maximize=*/false,
                    /*is_first_step=*/false);
  });
}

std::vector<StateSpec> LionRule::state_of(const parallel::Shard& shard) const {
  return {state_like(shard, "exp_avg")};
}

// Every operation rounds once, and there is no multiply-add to fuse. ATen's vector and scalar loops
// therefore agree, and not even a tensor's last elements depend on how it is cut.
void LionRule::update(std::span<const UpdateItem> items, double learning_rate, int64_t) const {
  update_elementwise(items, [&](PieceBatch& batch) {
    const double rate = learning_rate * batch.rate_scale;
    for (size_t i = 0; i < batch.weights.size(); ++i) {
      const at::Tensor& gradient = batch.gradients[i];
      const at::Tensor& exp_avg = batch.state[0][i];
      const at::Tensor direction =
          at::mul(exp_avg, beta1_).add_(at::mul(gradient, 1 - beta1_)).sign_();
      if (batch.weight_decay != 0) batch.weights[i].mul_(1 - rate * batch.weight_decay);
      batch.weights[i].sub_(direction.mul_(rate));
      exp_avg.mul_(beta2_).add_(at::mul(gradient, 1 - beta2_));
    }
  });
}

std::vector<StateSpec> LambRule::state_of(const parallel::Shard& shard) const {
  return {state_like(shard, "exp_avg"), state_like(shard, "exp_avg_sq", /*is_positive=*/true)};
}

at::Tensor LambRule::adam_step(const UpdateItem& item, int64_t step) const {
  const at::Tensor gradient = converted_gradient(item);
  const at::Tensor& exp_avg = item.state[0];
  const at::Tensor& exp_avg_sq = item.state[1];
  at::Tensor scratch = at::mul(gradient, 1 - beta1_);
  exp_avg.mul_(beta1_).add_(scratch);
  at::mul_out(scratch, gradient, gradient);
  exp_avg_sq.mul_(beta2_).add_(scratch.mul_(1 - beta2_));

  const auto t = static_cast<double>(step);
  at::div_out(scratch, exp_avg_sq, at::scalar_tensor(1 - std::pow(beta2_, t), at::kDouble));
  scratch.sqrt_().add_(epsilon_);
  return at::div(exp_avg, scratch.mul_(1 - std::pow(beta1_, t)));
}

at::Tensor LambRule::update_one(const UpdateItem& item, double rate, int64_t step) const {
  const at::Tensor weights = item.weights.detach();
  const at::Tensor direction = adam_step(item, step);
  if (item.weight_decay != 0) direction.add_(at::mul(weights, item.weight_decay));
  const at::Tensor ratio = trust_ratio(l2_norm(weights), l2_norm(direction));
  weights.sub_(direction.mul_(ratio.mul(rate)));
  return ratio;
}

void LambRule::update(std::span<const UpdateItem> items, double learning_rate, int64_t step) const {
  const c10::NoGradGuard no_grad;
  for (const UpdateItem& item : items) {
    if (item.weights.numel() > 0) update_one(item, learning_rate * item.rate_scale, step);
  }
}

namespace {

constexpr double kTrustCoefficient = 0.001;

}  // namespace

std::vector<StateSpec> LarsRule::state_of(const parallel::Shard& shard) const {
  return {state_like(shard, "momentum_buffer")};
}

void LarsRule::update(std::span<const UpdateItem> items, double learning_rate, int64_t) const {
  const c10::NoGradGuard no_grad;
  for (const UpdateItem& item : items) {
    if (item.weights.numel() == 0) continue;
    const at::Tensor weights = item.weights.detach();
    const at::Tensor gradient = converted_gradient(item);
    const at::Tensor weight_norm = l2_norm(weights);
    const at::Tensor gradient_norm = l2_norm(gradient);
    const at::Tensor decayed_norm = at::add(gradient_norm, at::mul(weight_norm, item.weight_decay));
    const at::Tensor ratio = trust_ratio(at::mul(weight_norm, kTrustCoefficient), decayed_norm);
    const at::Tensor direction = at::mul(weights, item.weight_decay).add_(gradient);
    const at::Tensor& buffer = item.state[0];
    buffer.mul_(momentum_).add_(direction.mul_(ratio.mul(learning_rate * item.rate_scale)));
    weights.sub_(buffer);
  }
}

namespace {

constexpr double kA = 3.4445, kB = -4.7750, kC = 2.0315;
constexpr int kIterations = 5;
constexpr double kSmallestNorm = 1e-7;
constexpr double kAdamWRms = 0.2;  // root mean square of a typical AdamW step

void update_matrix(const UpdateItem& item, const MuonOptions& options, double rate) {
  const at::Tensor weights = item.weights.detach();
  const at::Tensor gradient = converted_gradient(item);
  const at::Tensor& buffer = item.state[0];
  const double momentum = options.momentum;
  const at::Tensor fresh = at::mul(gradient, 1 - momentum);
  buffer.mul_(momentum).add_(fresh);
  const at::Tensor step =
      orthogonalize(options.nesterov ? at::mul(buffer, momentum).add_(fresh) : buffer);
  if (item.weight_decay != 0) weights.mul_(1 - rate * item.weight_decay);
  const auto longer = static_cast<double>(std::max(weights.size(0), weights.size(1)));
  weights.sub_(at::mul(step, rate * kAdamWRms * std::sqrt(longer)));
}

}  // namespace

at::Tensor orthogonalize(const at::Tensor& matrix) {
  // Transposed if tall, so that the products have the size of the shorter side.
  const bool is_tall = matrix.size(0) > matrix.size(1);
  at::Tensor x = at::div(matrix, l2_norm(matrix).clamp_min_(kSmallestNorm));
  if (is_tall) x = x.t().contiguous();
  for (int i = 0; i < kIterations; ++i) {
    const at::Tensor gram = at::mm(x, x.t());
    const at::Tensor polynomial = at::addmm(gram, gram, gram, kB, kC);
    x = at::addmm(x, polynomial, x, kA, 1);
  }
  return is_tall ? x.t() : x;
}

MuonRule::MuonRule(const MuonOptions& options)
    : options_(options), adamw_(options.beta1, options.beta2, options.epsilon) {}

std::vector<StateSpec> MuonRule::state_of(const parallel::Shard& shard) const {
  const auto names_it = [&](const std::string& pattern) { return matches(pattern, shard.name); };
  const bool is_matrix = shard.layout.shape().size() == 2 && !is_expert_bias(shard.layout);
  const bool has_matrices = is_matrix || is_expert_stack(shard.layout);
  if (!has_matrices || std::ranges::any_of(options_.adamw_patterns, names_it)) {
    return adamw_.state_of(shard);
  }
  return {state_like(shard, "momentum_buffer")};
}

void MuonRule::update(std::span<const UpdateItem> items, double learning_rate, int64_t step) const {
  const c10::NoGradGuard no_grad;
  std::vector<UpdateItem> others;
  for (const UpdateItem& item : items) {
    // An item has no name, but its states show what state_of() chose.
    if (item.state.size() != 1) {
      others.push_back(item);
    } else if (item.weights.numel() > 0) {
      update_matrix(item, options_, learning_rate * item.rate_scale);
    }
  }
  adamw_.update(others, learning_rate, step);
}

namespace {

constexpr double kDecayPower = -0.8;         // beta2 = 1 - step^kDecayPower
constexpr double kSmallestWeightRms = 1e-3;  // epsilon_2: a step for weights that are zero
constexpr double kLargestUpdateRms = 1.0;    // d

// A factor has the parameter's shape except for one dimension of length 1.
StateSpec factor_of(const parallel::Shard& shard, const std::string& name, int64_t reduced_dim) {
  std::vector<int64_t> local_shape = shard.weights.sizes().vec();
  local_shape[reduced_dim] = std::min<int64_t>(local_shape[reduced_dim], 1);
  return {name, local_shape, with_length_one(shard.layout, reduced_dim)};
}

bool is_factored(const std::vector<int64_t>& global_shape) {
  int64_t numel = 1;
  for (int64_t length : global_shape) numel *= length;
  return global_shape.size() >= 2 && numel > 0;
}

// epsilon_1: the lower bound of a second moment.
double epsilon_of(const at::Tensor& tensor) {
  return tensor.scalar_type() == at::kDouble ? std::numeric_limits<double>::epsilon()
                                             : std::numeric_limits<float>::epsilon();
}

// average = decay * average + (1 - decay) * value
void blend(const at::Tensor& average, at::Tensor value, double decay) {
  average.mul_(decay).add_(value.mul_(1 - decay));
}

// The rule's estimate of the second moment, in a new tensor. Updates its factors.
at::Tensor second_moment(const UpdateItem& item, const at::Tensor& gradient, double decay) {
  at::Tensor squared = at::mul(gradient, gradient);
  if (item.state.size() == 1) {
    blend(item.state[0], squared, decay);
    return item.state[0].clone();
  }
  const at::Tensor& row_var = item.state[0];  // [..., R, 1]
  const at::Tensor& col_var = item.state[1];  // [..., 1, C]
  blend(row_var, squared.mean(-1, /*keepdim=*/true), decay);
  blend(col_var, squared.mean(-2, /*keepdim=*/true), decay);
  at::mul_out(squared, row_var, col_var);
  return squared.div_(row_var.mean(-2, /*keepdim=*/true).clamp_min_(epsilon_of(squared)));
}

void update_one(const UpdateItem& item, double learning_rate, double decay) {
  const double rate = learning_rate * item.rate_scale;
  const at::Tensor weights = item.weights.detach();
  const at::Tensor gradient = converted_gradient(item);
  const at::Tensor scale = root_mean_square(weights).clamp_min_(kSmallestWeightRms).mul_(rate);
  if (item.weight_decay != 0) weights.mul_(1 - rate * item.weight_decay);

  const double epsilon = epsilon_of(weights);
  at::Tensor update = second_moment(item, gradient, decay);
  update.clamp_min_(epsilon * epsilon).rsqrt_().mul_(gradient);
  const at::Tensor clip = root_mean_square(update).div_(kLargestUpdateRms).clamp_min_(1.0);
  weights.sub_(update.mul_(at::div(scale, clip)));
}

}  // namespace

std::vector<StateSpec> AdafactorRule::state_of(const parallel::Shard& shard) const {
  const auto num_dims = std::ssize(shard.layout.shape());
  if (!is_factored(shard.layout.shape()) || is_expert_bias(shard.layout))
    return {state_like(shard, "variance", /*is_positive=*/true)};
  const at::IntArrayRef sizes = shard.weights.sizes();
  const bool has_whole_matrices =
      sizes.slice(sizes.size() - 2) ==
      at::IntArrayRef(shard.layout.whole_shape()).slice(sizes.size() - 2);
  TRIREME_ASSERT(shard.is_whole() || shard.weights.numel() == 0 ||
                     (is_expert_stack(shard.layout) && has_whole_matrices),
                 "a part of ", shard.name);
  return {factor_of(shard, "row_var", num_dims - 1), factor_of(shard, "col_var", num_dims - 2)};
}

void AdafactorRule::update(std::span<const UpdateItem> items, double learning_rate,
                           int64_t step) const {
  const c10::NoGradGuard no_grad;
  const double decay = 1 - std::pow(static_cast<double>(step), kDecayPower);
  for (const UpdateItem& item : items) {
    if (item.weights.numel() > 0) update_one(item, learning_rate, decay);
  }
}

}  // namespace trireme::train
