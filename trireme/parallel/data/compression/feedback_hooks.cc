#include "trireme/parallel/data/compression/feedback_hooks.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <tuple>
#include <utility>
#include <vector>

#include <ATen/ATen.h>

#include "trireme/base/error.h"
#include "trireme/base/random/random.h"
#include "trireme/parallel/data/compression/wire.h"

namespace trireme::parallel {

void ErrorFeedback::add_gradient(const GradientSpec& gradient) {
  residuals_[gradient.name] = {
      at::zeros(gradient.shape, gradient.options.dtype(compute_dtype(gradient.options))),
      gradient.num_ranks, gradient.rank};
}

at::Tensor ErrorFeedback::corrected(const std::string& name, const at::Tensor& gradient) const {
  return residuals_.at(name).value + gradient;
}

void ErrorFeedback::keep(const std::string& name, const at::Tensor& residual) {
  // A gradient that overflowed once would stay in the residual for ever.
  at::nan_to_num_out(residuals_.at(name).value, residual, 0, 0, 0);
}

std::vector<HookState> ErrorFeedback::state() const {
  std::vector<HookState> result;
  for (const auto& [name, residual] : residuals_) {
    result.push_back({.name = concat(kResidual, ".", name),
                      .tensor = residual.value,
                      .parameter = name,
                      .num_ranks = residual.num_ranks,
                      .rank = residual.rank});
  }
  return result;
}

namespace {

// All ranks' tensors: [ranks, k].
at::Tensor gather_rows(comm::Communicator& group, const at::Tensor& mine) {
  const at::Tensor all = at::empty({group.size(), mine.numel()}, mine.options());
  group.all_gather(all.unbind(0), mine)->wait();
  return all;
}

}  // namespace

TopKHook::TopKHook(double ratio) : ratio_(ratio) {
  TRIREME_CHECK(ratio > 0 && ratio <= 1, "the ratio of gradients to send is ", ratio,
                "; expected more than 0 and at most 1");
}

void TopKHook::prepare(std::span<const GradientSpec> gradients) {
  for (const GradientSpec& gradient : gradients) feedback_.add_gradient(gradient);
}

int64_t TopKHook::num_sent(int64_t num_elements) const {
  TRIREME_CHECK(num_elements <= std::numeric_limits<int32_t>::max(), "a parameter has ",
                num_elements, " elements; top-k sends places of 32 bits");
  return std::min(num_elements,
                  static_cast<int64_t>(std::ceil(ratio_ * static_cast<double>(num_elements))));
}

int64_t TopKHook::all_reduce(const GradientBucket& bucket, comm::Communicator& group) {
  std::vector<at::Tensor> indices, values;  // for each gradient: [k] int64, [k]
  for (size_t i = 0; i < bucket.gradients.size(); ++i) {
    const at::Tensor& gradient = bucket.gradients[i];
    at::Tensor rest = feedback_.corrected(bucket.names[i], gradient);
    const at::Tensor flat = rest.view(-1);
    indices.push_back(std::get<1>(at::topk(flat.abs(), num_sent(flat.numel()), /*dim=*/0,
                                           /*largest=*/true, /*sorted=*/false)));
    // In the gradient's dtype, and what the rounding loses goes into the residual.
    values.push_back(flat.index_select(0, indices[i]).to(gradient.scalar_type()));
    flat.index_add_(0, indices[i], values[i].to(flat.scalar_type()), -1);
    feedback_.keep(bucket.names[i], rest);
  }
  const at::Tensor mine = at::cat(values);
  const at::Tensor all_indices = gather_rows(group, at::cat(indices).to(at::kInt));
  const at::Tensor all_values = gather_rows(group, mine).to(compute_dtype(bucket.flat.options()));
  int64_t begin = 0;
  for (size_t i = 0; i < bucket.gradients.size(); ++i) {
    const int64_t count = indices[i].numel();
    const at::Tensor sum = at::zeros({bucket.gradients[i].numel()}, all_values.options());
    for (int r = 0; r < group.size(); ++r) {
      // A rank's indices are distinct, so each element gets one term per rank, in rank order.
      sum.index_add_(0, all_indices.select(0, r).narrow(0, begin, count),
                     all_values.select(0, r).narrow(0, begin, count));
    }
    bucket.gradients[i].copy_(sum.view(bucket.gradients[i].sizes()));
    begin += count;
  }
  return (group.size() - 1) * mine.numel() *
         static_cast<int64_t>(sizeof(int32_t) + mine.element_size());
}

namespace {

// The rows and columns of a gradient as a matrix.
std::pair<int64_t, int64_t> matrix_of(at::IntArrayRef shape) {
  if (shape.empty()) return {1, 1};
  int64_t columns = 1;
  for (const int64_t length : shape.slice(1)) columns *= length;
  return {shape[0], columns};
}

// Reduces all tensors of one dtype in one call, in place.
int64_t all_reduce_together(const std::vector<at::Tensor>& tensors, comm::Communicator& group) {
  if (tensors.empty()) return 0;
  std::vector<at::Tensor> flats;
  for (const at::Tensor& tensor : tensors) flats.push_back(tensor.reshape(-1));
  const at::Tensor together = at::cat(flats);
  const int64_t num_bytes = counted_all_reduce(together, group);
  int64_t begin = 0;
  for (const at::Tensor& tensor : tensors) {
    tensor.copy_(together.narrow(0, begin, tensor.numel()).view(tensor.sizes()));
    begin += tensor.numel();
  }
  return num_bytes;
}

}  // namespace

PowerSgdHook::PowerSgdHook(const PowerSgdOptions& options) : options_(options) {
  TRIREME_CHECK(options.rank >= 1, "PowerSGD's rank is ", options.rank, "; expected at least 1");
}

void PowerSgdHook::prepare(std::span<const GradientSpec> gradients) {
  for (const GradientSpec& gradient : gradients) {
    const auto [rows, columns] = matrix_of(gradient.shape);
    // A matrix that would not become smaller is sent as it is.
    if (options_.rank * (rows + columns) >= rows * columns) continue;
    feedback_.add_gradient(gradient);
    q_[gradient.name] = at::empty({columns, options_.rank},
                                  gradient.options.dtype(compute_dtype(gradient.options)));
    start(gradient.name, q_[gradient.name]);
  }
}

// Draws the same Q on every rank.
// The same on every rank: P = M Q is summed, which means nothing with different Q.
void PowerSgdHook::start(const std::string& name, const at::Tensor& q) const {
  const RandomKey key = random_key(options_.seed, "powersgd/" + name);
  std::vector<double> values;
  for (int64_t i = 0; i < q.numel(); ++i) {
    values.push_back(random_normal(key, static_cast<uint64_t>(i)));
  }
  q.copy_(at::tensor(values, at::kDouble).view(q.sizes()));
}

int64_t PowerSgdHook::all_reduce(const GradientBucket& bucket, comm::Communicator& group) {
  struct Matrix {
    size_t index;  // in the bucket
    at::Tensor m;  // [R, C] gradient + residual
  };
  std::vector<Matrix> matrices;
  std::vector<at::Tensor> ps, qs, others;
  for (size_t i = 0; i < bucket.gradients.size(); ++i) {
    const auto q = q_.find(bucket.names[i]);
    if (q == q_.end()) {
      others.push_back(bucket.gradients[i]);
      continue;
    }
    const at::Tensor corrected = feedback_.corrected(bucket.names[i], bucket.gradients[i]);
    matrices.push_back({i, corrected.view({corrected.size(0), -1})});
    ps.push_back(matrices.back().m.mm(q->second));
    qs.push_back(q->second);
  }
  // Two calls for all matrices together, and not two for each.
  int64_t num_bytes = all_reduce_together(others, group) + all_reduce_together(ps, group);

  for (size_t j = 0; j < matrices.size(); ++j) {
    const at::Tensor& gradient = bucket.gradients[matrices[j].index];
    at::Tensor& m = matrices[j].m;
    // LAPACK may refuse a NaN. Replaced by zero it would be lost, but M itself carries it into Q.
    ps[j] = std::get<0>(at::linalg_qr(ps[j].nan_to_num(0, 0, 0)));
    // Before the sum over ranks: the residual is what this rank's own part has lost.
    const at::Tensor mine = m.t().mm(ps[j]);
    qs[j].copy_(mine);
    m.addmm_(ps[j], mine.t(), 1, -1);
    feedback_.keep(bucket.names[matrices[j].index], m.view(gradient.sizes()));
  }
  num_bytes += all_reduce_together(qs, group);

  for (size_t j = 0; j < matrices.size(); ++j) {
    const at::Tensor& gradient = bucket.gradients[matrices[j].index];
    gradient.copy_(ps[j].mm(qs[j].t()).view(gradient.sizes()));
    // Q is the start of the next step, and NaN would stay in it.
    if (!qs[j].isfinite().all().item<bool>()) start(bucket.names[matrices[j].index], qs[j]);
  }
  return num_bytes;
}

std::vector<HookState> PowerSgdHook::state() const {
  std::vector<HookState> result = feedback_.state();
  for (const auto& [name, q] : q_)
    result.push_back({.name = "q." + name, .tensor = q, .same_on_ranks = true});
  return result;
}

WarmUpHook::WarmUpHook(std::shared_ptr<GradientHook> hook, int64_t steps)
    : hook_(std::move(hook)), steps_left_(at::full({1}, steps, at::kLong)) {}

void WarmUpHook::begin_step() {
  // Once per step: all buckets of a step must take the same way.
  is_warming_up_ = steps_left_.item<int64_t>() > 0;
  if (is_warming_up_) {
    steps_left_ -= 1;
  } else {
    hook_->begin_step();
  }
}

int64_t WarmUpHook::all_reduce(const GradientBucket& bucket, comm::Communicator& group) {
  return is_warming_up_ ? counted_all_reduce(bucket.flat, group) : hook_->all_reduce(bucket, group);
}

std::vector<HookState> WarmUpHook::state() const {
  std::vector<HookState> result = hook_->state();
  result.insert(result.begin(), {kStepsLeft, steps_left_, /*same_on_ranks=*/true});
  return result;
}

}  // namespace trireme::parallel
