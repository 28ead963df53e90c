#include "trireme/model/layers/dropout.h"

#include <vector>

#include <ATen/ATen.h>
#include <ATen/Dispatch.h>
#include <ATen/core/ivalue.h>
#include <torch/csrc/autograd/custom_function.h>

#include "trireme/base/error.h"
#include "trireme/base/machine/simd.h"
#include "trireme/parallel/tensor/split_layers.h"

namespace trireme::model {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

struct Mask : torch::CustomClassHolder {
  at::Tensor rows_S;
  RandomKey key;
  double probability = 0;
  CutColumns columns;
  bool has_residual = false;

  // An element is dropped if its word is below this.
  uint32_t threshold() const { return static_cast<uint32_t>(probability * 0x1p32); }
  double scale() const { return 1 / (1 - probability); }
};

template <typename stored, typename scalar = wide_t<stored>>
TRIREME_INLINE void drop_body(const uint32_t* words, uint32_t threshold, scalar scale,
                              const stored* x, const stored* residual, stored* out, int64_t n) {
  if (residual == nullptr) {
#pragma GCC ivdep
    for (int64_t i = 0; i < n; ++i)
      out[i] = narrow<stored>(words[i] >= threshold ? widen(x[i]) * scale : scalar{0});
    return;
  }
#pragma GCC ivdep
  for (int64_t i = 0; i < n; ++i) {
    const scalar left = words[i] >= threshold ? widen(x[i]) * scale : scalar{0};
    out[i] = narrow<stored>(left + widen(residual[i]));
  }
}

#define TRIREME_DROP_KERNEL(stored, scalar)                                                   \
  TRIREME_MULTIVERSION void drop_row(const uint32_t* words, uint32_t threshold, scalar scale, \
                                     const stored* x, const stored* residual, stored* out,    \
                                     int64_t n) {                                             \
    drop_body(words, threshold, scale, x, residual, out, n);                                  \
  }
TRIREME_DROP_KERNEL(float, float)
TRIREME_DROP_KERNEL(double, double)
TRIREME_DROP_KERNEL(uint16_t, float)
TRIREME_DROP_KERNEL(fp16_t, float)
#undef TRIREME_DROP_KERNEL

at::Tensor drop_by_kernel(const at::Tensor& x, const at::Tensor& residual, const Mask& mask) {
  const int64_t width = x.size(-1);
  at::Tensor out = at::empty_like(x);
  AT_DISPATCH_FLOATING_TYPES_AND2(at::kBFloat16, at::kHalf, x.scalar_type(), "drop", [&] {
    const auto* x_data = stored_in<scalar_t>(x);
    const auto* residual_data = residual.defined() ? stored_in<scalar_t>(residual) : nullptr;
    auto* out_data = stored_out<scalar_t>(out);
    const auto scale = static_cast<wide_t<stored_t<scalar_t>>>(mask.scale());
    const uint32_t threshold = mask.threshold();
    for_each_row(
        mask.key, mask.rows_S, mask.columns.whole, [&](int64_t row, const uint32_t* words) {
          const int64_t at = row * width;
          drop_row(words + mask.columns.offset, threshold, scale, x_data + at,
                   residual_data == nullptr ? nullptr : residual_data + at, out_data + at, width);
        });
  });
  return out;
}

at::Tensor keep_on_host(const Mask& mask, int64_t width) {
  const at::Tensor keep = at::empty({mask.rows_S.numel(), width}, at::kBool);
  auto* keep_data = keep.mutable_data_ptr<bool>();
  const uint32_t threshold = mask.threshold();
  for_each_row(mask.key, mask.rows_S, mask.columns.whole, [&](int64_t row, const uint32_t* words) {
    const uint32_t* const own = words + mask.columns.offset;
    for (int64_t i = 0; i < width; ++i) keep_data[row * width + i] = own[i] >= threshold;
  });
  return keep;
}

// The same mask as of the host, by the device. Words are kept in int64.
at::Tensor keep_on_device(const Mask& mask, int64_t width) {
  const at::Tensor words = words_of_rows(mask.key, mask.rows_S, mask.columns.whole)
                               .narrow(1, mask.columns.offset, width);
  return words.ge(static_cast<int64_t>(mask.threshold()));
}

// For any device and dtype. Computes in at least fp32.
at::Tensor composed_drop(const at::Tensor& x, const at::Tensor& residual, const Mask& mask) {
  const int64_t width = x.size(-1);
  const at::Tensor keep =
      (mask.rows_S.is_cpu() ? keep_on_host(mask, width) : keep_on_device(mask, width))
          .view(x.sizes());
  const at::Tensor scaled = x.to(at::promote_types(x.scalar_type(), at::kFloat)) * mask.scale();
  const at::Tensor left = at::where(keep, scaled, 0);
  return (residual.defined() ? left + residual : left).to(x.scalar_type());
}

at::Tensor apply_mask(const at::Tensor& x, const at::Tensor& residual, const Mask& mask) {
  const bool kernel =
      x.is_cpu() && (!residual.defined() || residual.scalar_type() == x.scalar_type());
  if (!kernel) return composed_drop(x, residual, mask);
  return drop_by_kernel(x.contiguous(), residual.defined() ? residual.contiguous() : residual,
                        mask);
}

// tensors: x, then the residual if there is one.
class DropFunction : public torch::autograd::Function<DropFunction> {
 public:
  static at::Tensor forward(AutogradContext* ctx, const c10::intrusive_ptr<Mask>& mask,
                            at::TensorList tensors) {
    ctx->saved_data["mask"] = c10::IValue::make_capsule(mask);
    return apply_mask(tensors[0], mask->has_residual ? tensors[1] : at::Tensor(), *mask);
  }

  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    const auto mask = c10::static_intrusive_pointer_cast<Mask>(ctx->saved_data["mask"].toCapsule());
    variable_list result{at::Tensor(), apply_mask(grads[0], at::Tensor(), *mask)};
    if (mask->has_residual) result.push_back(grads[0]);
    return result;
  }
};

}  // namespace

at::Tensor drop(const at::Tensor& x, const at::Tensor& residual, const at::Tensor& rows_S,
                RandomKey key, double probability, std::optional<CutColumns> columns) {
  TRIREME_ASSERT(probability >= 0 && probability < 1, "dropout of ", probability);
  TRIREME_ASSERT(x.dim() > 0 && x.numel() == rows_S.numel() * x.size(-1), "dropout of ", x.sizes(),
                 " with ", rows_S.numel(), " rows");
  TRIREME_ASSERT(!residual.defined() || residual.sizes() == x.sizes(), "dropout of ", x.sizes(),
                 " added to ", residual.sizes());
  const CutColumns own = columns.value_or(CutColumns{.whole = x.size(-1)});
  TRIREME_ASSERT(own.offset >= 0 && own.offset + x.size(-1) <= own.whole, "dropout of columns ",
                 own.offset, " to ", own.offset + x.size(-1), " of ", own.whole);
  auto mask = c10::make_intrusive<Mask>();
  mask->rows_S = rows_S.contiguous();
  mask->key = key;
  mask->probability = probability;
  mask->columns = own;
  mask->has_residual = residual.defined();
  std::vector<at::Tensor> tensors{x};
  if (residual.defined()) tensors.push_back(residual);
  return DropFunction::apply(mask, at::TensorList(tensors));
}

bool Dropout::drops(const TokenBatch& batch) const {
  return probability_ > 0 && batch.dropout != nullptr;
}

RandomKey Dropout::key(const RandomDraw& draw) const {
  return random_key(draw.seed, concat("dropout/", draw.step, "/", place_));
}

at::Tensor Dropout::forward(const at::Tensor& x, const TokenBatch& batch) const {
  return drops(batch) ? forward(x, batch.dropout->rows_S, batch) : x;
}

at::Tensor Dropout::forward(const at::Tensor& x, const at::Tensor& rows_S,
                            const TokenBatch& batch) const {
  return drops(batch) ? drop(x, {}, rows_S, key(*batch.dropout), probability_) : x;
}

at::Tensor Dropout::forward(const at::Tensor& x, const CutColumns& columns,
                            const TokenBatch& batch) const {
  if (!drops(batch)) return x;
  const RandomDraw& draw = *batch.dropout;
  const bool is_whole =
      draw.whole_rows_S.defined() && x.numel() != draw.rows_S.numel() * x.size(-1);
  return drop(x, {}, is_whole ? draw.whole_rows_S : draw.rows_S, key(draw), probability_, columns);
}

at::Tensor Dropout::add(const at::Tensor& x, const at::Tensor& residual,
                        const TokenBatch& batch) const {
  if (!drops(batch)) return residual.defined() ? residual + x : x;
  return drop(x, residual, batch.dropout->rows_S, key(*batch.dropout), probability_);
}

at::Tensor Dropout::close_branch(const at::Tensor& x_f, const parallel::LinearWeight& layer,
                                 const at::Tensor& residual, const parallel::TensorAxis& axis,
                                 const TokenBatch& batch) const {
  if (!drops(batch)) return parallel::row_linear(x_f, layer, residual, axis);
  return add(parallel::row_linear(x_f, layer, {}, axis), residual, batch);
}

}  // namespace trireme::model
