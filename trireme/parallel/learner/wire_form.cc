#include "trireme/parallel/learner/wire_form.h"

#include <algorithm>
#include <cmath>

#include <ATen/ATen.h>

#include "trireme/base/error.h"
#include "trireme/parallel/learner/wire/index_code.h"

namespace trireme::parallel {
namespace {

bool sends_all(const WireForm& form, int64_t num_elements) {
  return num_kept(form, num_elements) == num_elements;
}

void add_decoded(const WireForm& form, const at::Tensor& bytes, const at::Tensor& sum) {
  const int64_t size = sum.numel(), count = num_kept(form, size);
  if (bytes.scalar_type() != at::kByte || bytes.dim() != 1 ||
      bytes.numel() != encoded_bytes(form, size)) {
    throw CommError(concat("a coded difference of ", size, " elements has ", bytes.nbytes(),
                           " bytes; expected ", encoded_bytes(form, size)));
  }
  const int64_t value_bytes = coded_bytes(form.code, count);
  const at::Tensor values = decode_values(form.code, bytes.narrow(0, 0, value_bytes), count);
  if (count == size) {
    sum.add_(values);
  } else {
    const at::Tensor rest = bytes.narrow(0, value_bytes, bytes.numel() - value_bytes);
    // Distinct indices, so the order in which they are added does not matter.
    sum.index_add_(0, decode_indices(rest, count, size), values);
  }
}

}  // namespace

void check_wire_form(const WireForm& form) {
  TRIREME_CHECK(form.kept > 0 && form.kept <= 1, "the share of elements to send is ", form.kept,
                "; expected more than 0 and at most 1");
  const bool rounds =
      form.code == WireCode::kInt8 || form.code == WireCode::kInt4 || form.code == WireCode::kInt2;
  TRIREME_CHECK(rounds || form.rounding == WireRounding::kNearest,
                "stochastic rounding is for int8, int4 and int2; expected nearest for others");
}

int64_t num_kept(const WireForm& form, int64_t num_elements) {
  const double share = std::ceil(form.kept * static_cast<double>(num_elements));
  return std::clamp(static_cast<int64_t>(share), std::min<int64_t>(num_elements, 1), num_elements);
}

int64_t encoded_bytes(const WireForm& form, int64_t num_elements) {
  const int64_t count = num_kept(form, num_elements);
  return coded_bytes(form.code, count) +
         (count == num_elements ? 0 : index_bytes(count, num_elements));
}

int64_t first_not_finite(const at::Tensor& x) {
  const at::Tensor is_finite = x.isfinite();
  if (is_finite.all().item<bool>()) return -1;
  return is_finite.logical_not().nonzero()[0].item<int64_t>();
}

at::Tensor encode(const WireForm& form, const at::Tensor& x, RandomKey key) {
  check_wire_form(form);
  TRIREME_ASSERT(x.dim() == 1 && x.scalar_type() == at::kFloat, "a difference of dtype ",
                 x.scalar_type(), " and ", x.dim(), " dimensions");
  const int64_t bad = first_not_finite(x);
  TRIREME_CHECK(bad < 0, "the difference to send is ", x[std::max<int64_t>(bad, 0)].item<float>(),
                " at element ", bad, " of ", x.numel(),
                "; expected finite numbers: lower the learning rate, or look for bad data");
  if (sends_all(form, x.numel())) return encode_values(form.code, form.rounding, x, key);
  const at::Tensor indices = choose_largest(x, num_kept(form, x.numel()));
  return at::cat({encode_values(form.code, form.rounding, x.index_select(0, indices), key),
                  encode_indices(indices, x.numel())});
}

at::Tensor decode(const WireForm& form, const at::Tensor& bytes, int64_t num_elements) {
  return sum_encoded(form, {&bytes, 1}, num_elements);
}

at::Tensor sum_encoded(const WireForm& form, std::span<const at::Tensor> encoded,
                       int64_t num_elements) {
  TRIREME_ASSERT(!encoded.empty(), "no difference to add");
  const at::Tensor sum = at::zeros({num_elements}, encoded[0].options().dtype(at::kFloat));
  for (const at::Tensor& bytes : encoded) add_decoded(form, bytes, sum);
  return sum;
}

}  // namespace trireme::parallel
