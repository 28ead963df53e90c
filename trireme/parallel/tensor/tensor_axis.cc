#include "trireme/parallel/tensor/tensor_axis.h"

#include <ATen/ATen.h>
#include <ATen/core/ivalue.h>
#include <torch/csrc/autograd/custom_function.h>

#include "trireme/base/error.h"

namespace trireme::parallel {
namespace {

std::vector<at::Tensor> view_parts_of(const at::Tensor& whole_SD, const TensorAxis& axis) {
  std::vector<at::Tensor> parts;
  for (int rank = 0; rank < axis.size(); ++rank) {
    const mesh::Range rows = axis.rows_of(whole_SD.size(0), rank);
    parts.push_back(whole_SD.narrow(0, rows.offset, rows.size));
  }
  return parts;
}

}  // namespace

at::Tensor view_rows(const at::Tensor& x) {
  if (x.dim() == 2) return x;
  int64_t rows = 1;
  for (int64_t d = 0; d + 1 < x.dim(); ++d) rows *= x.size(d);
  return x.reshape({rows, x.size(-1)});
}

at::Tensor empty_on(const TensorAxis& axis, at::IntArrayRef sizes,
                    const at::TensorOptions& options) {
  const bool symmetric = axis.symmetric && axis.size() > 1 && options.device().is_cpu();
  if (!symmetric) return at::empty(sizes, options);
  return axis.group->symmetric_empty(sizes, c10::typeMetaToScalarType(options.dtype()));
}

MovingRows::MovingRows(const TensorAxis& axis, at::Tensor rows, comm::WorkPtr work,
                       Clock::time_point start, std::vector<at::Tensor> keeps)
    : rows_(std::move(rows)),
      waiting_(axis.waiting),
      work_(std::move(work)),
      keeps_(std::move(keeps)) {
  if (waiting_) *waiting_ += Clock::now() - start;
}

at::Tensor MovingRows::wait() {
  if (work_) {
    const auto start = Clock::now();
    work_->wait();
    if (waiting_) *waiting_ += Clock::now() - start;
  }
  work_.reset();
  keeps_.clear();
  return rows_;
}

MovingRows gather_rows(const at::Tensor& x, int64_t num_rows, const TensorAxis& axis,
                       bool background) {
  // Collectives take dense rows.
  const at::Tensor own = view_rows(x).contiguous();
  if (!axis.sequence || axis.size() == 1) {
    TRIREME_ASSERT(own.size(0) == num_rows, own.size(0), " rows of ", num_rows);
    return MovingRows(own);
  }
  TRIREME_ASSERT(own.size(0) == axis.own_rows(num_rows).size, own.size(0), " rows on rank ",
                 axis.rank(), " of ", axis.size(), ", which holds ", axis.own_rows(num_rows).size,
                 " of ", num_rows);
  const at::Tensor whole_SD = empty_on(axis, {num_rows, own.size(1)}, own.options());
  const auto start = MovingRows::Clock::now();
  comm::WorkPtr work =
      axis.group->all_gather(view_parts_of(whole_SD, axis), own, {.background = background});
  return {axis, whole_SD, std::move(work), start, {own}};
}

MovingRows sum_rows(at::Tensor y_SD, const TensorAxis& axis, bool background) {
  if (axis.size() == 1) return MovingRows(std::move(y_SD));
  if (!axis.sequence) {
    const auto start = MovingRows::Clock::now();
    comm::WorkPtr work = axis.group->all_reduce(y_SD, {.background = background});
    return {axis, std::move(y_SD), std::move(work), start};
  }
  const int64_t own_rows = axis.own_rows(y_SD.size(0)).size;
  const at::Tensor own_sD = empty_on(axis, {own_rows, y_SD.size(1)}, y_SD.options());
  const auto start = MovingRows::Clock::now();
  comm::WorkPtr work =
      axis.group->reduce_scatter(own_sD, view_parts_of(y_SD, axis), {.background = background});
  // What the collective reads must live until it is done.
  return {axis, own_sD, std::move(work), start, {std::move(y_SD)}};
}

void multiply_gathered(const TensorAxis& axis, const at::Tensor& x, MovingRows& gathered,
                       const std::function<void(mesh::Range rows, const at::Tensor& x)>& multiply) {
  if (!axis.sequence || axis.size() == 1) {
    const at::Tensor x_SD = gathered.wait();
    return multiply({0, x_SD.size(0)}, x_SD);
  }
  const mesh::Range own = axis.own_rows(gathered.num_rows());
  const int64_t end = own.offset + own.size;
  // Its own rows need no waiting, so they are multiplied while the others arrive.
  multiply(own, view_rows(x));
  const at::Tensor x_SD = gathered.wait();
  for (const mesh::Range rows : {mesh::Range{0, own.offset}, {end, x_SD.size(0) - end}}) {
    if (rows.size > 0) multiply(rows, x_SD.narrow(0, rows.offset, rows.size));
  }
}

at::Tensor multiply_and_sum_rows(at::Tensor y_SD, const TensorAxis& axis,
                                 const std::function<void(mesh::Range rows)>& multiply) {
  std::vector<MovingRows> moving;
  for (int rank = 0; rank < axis.size(); ++rank) {
    const mesh::Range rows = axis.rows_of(y_SD.size(0), rank);
    // A part is sent as soon as it is computed, while the next one is.
    multiply(rows);
    if (axis.size() == 1 || !axis.overlaps()) continue;
    const at::Tensor part = y_SD.narrow(0, rows.offset, rows.size);
    const auto start = MovingRows::Clock::now();
    constexpr comm::Options kBehind{.background = true};
    comm::WorkPtr work = axis.sequence ? axis.group->reduce(part, rank, kBehind)
                                       : axis.group->all_reduce(part, kBehind);
    moving.emplace_back(axis, part, std::move(work), start);
  }
  if (moving.empty()) return sum_rows(std::move(y_SD), axis).wait();
  for (MovingRows& part : moving) part.wait();
  if (!axis.sequence) return y_SD;
  const mesh::Range own = axis.own_rows(y_SD.size(0));
  // A copy: a view would keep all ranks' rows alive.
  return y_SD.narrow(0, own.offset, own.size).clone();
}

at::Tensor weight_gradient(const TensorAxis& axis, const at::Tensor& weight,
                           const std::function<at::Tensor()>& compute) {
  const bool defers = axis.weight_gradients != nullptr && weight.is_leaf() &&
                      axis.weight_gradients->defer(weight, compute);
  return defers ? at::Tensor() : compute();
}

namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

struct ReplicatedCall : torch::CustomClassHolder {
  explicit ReplicatedCall(TensorAxis axis) : axis(axis) {}
  TensorAxis axis;
};

class ReplicatedWeightFunction : public torch::autograd::Function<ReplicatedWeightFunction> {
 public:
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& weight,
                            const c10::intrusive_ptr<ReplicatedCall>& call) {
    ctx->saved_data["call"] = c10::IValue::make_capsule(call);
    return weight.view_as(weight);
  }

  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    const auto call =
        c10::static_intrusive_pointer_cast<ReplicatedCall>(ctx->saved_data["call"].toCapsule());
    // Summed in fp32 at least, and rounded once.
    const at::ScalarType dtype = grads[0].scalar_type();
    const at::Tensor sum = empty_on(call->axis, grads[0].sizes(),
                                    grads[0].options().dtype(at::promote_types(dtype, at::kFloat)));
    sum.copy_(grads[0]);
    const auto start = MovingRows::Clock::now();
    MovingRows(call->axis, sum, call->axis.group->all_reduce(sum), start).wait();
    return {sum.to(dtype), at::Tensor()};
  }
};

}  // namespace

at::Tensor replicated_weight(const at::Tensor& weight, const TensorAxis& axis) {
  if (axis.size() == 1) return weight;
  return ReplicatedWeightFunction::apply(weight, c10::make_intrusive<ReplicatedCall>(axis));
}

at::Tensor weight_of_rows(const at::Tensor& weight, const TensorAxis& axis) {
  return axis.sequence ? replicated_weight(weight, axis) : weight;
}

}  // namespace trireme::parallel
