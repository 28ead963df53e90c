// The form in which learners send differences: all elements or the largest, in 32 bits or fewer.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include <ATen/core/Tensor.h>

#include "trireme/base/random/random.h"
#include "trireme/parallel/learner/wire/block_code.h"

namespace trireme::parallel {

struct WireForm {
  WireCode code = WireCode::kFloat32;
  WireRounding rounding = WireRounding::kNearest;  // of kInt8, kInt4 and kInt2
  // The share of elements that are sent, those of largest magnitude; the others count as 0.
  double kept = 1;
};

// Throws: ConfigError unless 0 < kept <= 1, and rounding is stochastic only for a code that rounds
void check_wire_form(const WireForm& form);

// ceil(kept * num_elements), at least one of any.
int64_t num_kept(const WireForm& form, int64_t num_elements);
// Bytes of a tensor of `num_elements`, whatever its values.
int64_t encoded_bytes(const WireForm& form, int64_t num_elements);

// The index of the first NaN or infinity; -1 for none.
int64_t first_not_finite(const at::Tensor& x);

// The codes of the elements that are sent (block_code.h: blocks of 256 of these), then, if not all
// are sent, their indices (index_code.h).
// key:    of stochastic rounding; each sender and each call should have another one
// Shapes: x [n] fp32 -> [encoded_bytes(form, n)] uint8
// Throws: ConfigError with the first index at which x is not finite; before anything is sent
at::Tensor encode(const WireForm& form, const at::Tensor& x, RandomKey key = {});
// Shapes: bytes [encoded_bytes(form, num_elements)] uint8 -> [num_elements] fp32, finite
// Throws: CommError when the size differs or the bytes cannot be encode()'s
at::Tensor decode(const WireForm& form, const at::Tensor& bytes, int64_t num_elements);

// The sum of what was encoded, added in fp32 in the order given: all who add the same bytes in the
// order of ranks have the same bits.
// Shapes: encoded[i] [encoded_bytes(form, num_elements)] uint8, at least one -> [num_elements] fp32
// Throws: as decode()
at::Tensor sum_encoded(const WireForm& form, std::span<const at::Tensor> encoded,
                       int64_t num_elements);

}  // namespace trireme::parallel
