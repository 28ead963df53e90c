#include "trireme/parallel/data/compression/power_sgd_hook.h"

#include <tuple>
#include <utility>
#include <vector>

#include <ATen/ATen.h>

#include "trireme/base/error.h"
#include "trireme/base/random/random.h"
#include "trireme/parallel/data/compression/wire.h"

namespace trireme::parallel {
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
    if (options_.rank * (rows + columns) >= rows * columns) continue;
    feedback_.add_gradient(gradient);
    q_[gradient.name] = at::empty({columns, options_.rank},
                                  gradient.options.dtype(compute_dtype(gradient.options)));
    start(gradient.name, q_[gradient.name]);
  }
}

// Draws the same Q on every rank.
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
  int64_t num_bytes = all_reduce_together(others, group) + all_reduce_together(ps, group);

  for (size_t j = 0; j < matrices.size(); ++j) {
    const at::Tensor& gradient = bucket.gradients[matrices[j].index];
    at::Tensor& m = matrices[j].m;
    // LAPACK may refuse a NaN. Replaced by zero it would be lost, but M itself carries it into Q.
    ps[j] = std::get<0>(at::linalg_qr(ps[j].nan_to_num(0, 0, 0)));
    const at::Tensor mine = m.t().mm(ps[j]);
    qs[j].copy_(mine);
    m.addmm_(ps[j], mine.t(), 1, -1);
    feedback_.keep(bucket.names[matrices[j].index], m.view(gradient.sizes()));
  }
  num_bytes += all_reduce_together(qs, group);

  for (size_t j = 0; j < matrices.size(); ++j) {
    const at::Tensor& gradient = bucket.gradients[matrices[j].index];
    gradient.copy_(ps[j].mm(qs[j].t()).view(gradient.sizes()));
    if (!qs[j].isfinite().all().item<bool>()) start(bucket.names[matrices[j].index], qs[j]);
  }
  return num_bytes;
}

std::vector<HookState> PowerSgdHook::state() const {
  std::vector<HookState> result = feedback_.state();
  for (const auto& [name, q] : q_) result.push_back({"q." + name, q, /*same_on_ranks=*/true});
  return result;
}

}  // namespace trireme::parallel
