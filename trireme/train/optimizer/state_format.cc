#include "trireme/train/optimizer/state_format.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include "trireme/base/error.h"

namespace trireme::train {

// Blocks lie within rows, so that their scales are a tensor with a layout like the parameter's: any
// layout that cuts rows between blocks has the same codes, and a checkpoint moves between them.
//
// A code is found by the upper 16 bits of its number. They narrow it down to two or three codes,
// since none lie closer than bf16's numbers; a binary search would take three times as long.

namespace {

constexpr int kNumCodes = 256;
constexpr int kDecades = 7;  // magnitudes from 1e-7 to 1

struct Codebook {
  std::array<float, kNumCodes> values{};            // ascending
  std::array<float, kNumCodes - 1> midpoints{};     // between neighbours
  std::array<uint8_t, 1 << 16> first_candidates{};  // by the upper half of a float's bits
};

// Decade e has twice as many numbers as the one below, evenly spaced.
std::array<float, kNumCodes> code_values(bool is_positive) {
  std::array<float, kNumCodes> values{};
  size_t count = 0;
  for (int e = 0; e < kDecades; ++e) {
    const int steps = 1 << (is_positive ? e + 1 : e);
    for (int i = 0; i < steps; ++i) {
      const double fraction = 0.1 + 0.9 * (i + 0.5) / steps;
      const double value = fraction * std::pow(10.0, e + 1 - kDecades);
      values[count++] = static_cast<float>(value);
      if (!is_positive) values[count++] = static_cast<float>(-value);
    }
  }
  values[count++] = 0;
  values[count++] = 1;
  TRIREME_ASSERT(count == kNumCodes, count, " codes");
  std::ranges::sort(values);
  return values;
}

Codebook make_codebook(bool is_positive) {
  Codebook book{.values = code_values(is_positive)};
  for (size_t i = 0; i + 1 < kNumCodes; ++i) {
    book.midpoints[i] = (book.values[i] + book.values[i + 1]) / 2;
  }
  for (uint32_t upper = 0; upper < book.first_candidates.size(); ++upper) {
    const bool is_negative = upper >> 15 != 0;
    const float lowest = std::bit_cast<float>(upper << 16 | (is_negative ? 0xffffu : 0u));
    if (std::isnan(lowest)) continue;
    const auto below = std::ranges::lower_bound(book.midpoints, lowest) - book.midpoints.begin();
    book.first_candidates[upper] = static_cast<uint8_t>(below);
  }
  return book;
}

const Codebook& codebook(bool is_positive) {
  static const Codebook books[] = {make_codebook(false), make_codebook(true)};
  return books[is_positive ? 1 : 0];
}

// The nearest code; of two that are as near, the lower. Only 0 itself becomes 0 where all numbers
// are positive: a step divides by the root of a second moment.
uint8_t code_of(const Codebook& book, float value) {
  size_t code = book.first_candidates[std::bit_cast<uint32_t>(value) >> 16];
  while (code + 1 < kNumCodes && value > book.midpoints[code]) ++code;
  if (code == 0 && value > 0) code = 1;  // of both signs, 0 has another code
  return static_cast<uint8_t>(code);
}

// A block with a NaN has the scale NaN, so that it is seen.
float scale_of(const float* values) {
  float scale = 0, sum = 0;
  for (int64_t i = 0; i < kStateBlock; ++i) {
    scale = std::max(scale, std::abs(values[i]));
    sum += std::abs(values[i]);
  }
  return std::isnan(sum) ? sum : scale;
}

void encode_block(const Codebook& book, const float* values, uint8_t* codes, float* scale) {
  *scale = scale_of(values);
  const float divisor = *scale > 0 && std::isfinite(*scale) ? *scale : 1;
  for (int64_t i = 0; i < kStateBlock; ++i) codes[i] = code_of(book, values[i] / divisor);
}

at::Tensor on_device(std::span<const float> values, const at::Tensor& like) {
  at::Tensor host = at::empty({std::ssize(values)}, at::kFloat);
  std::ranges::copy(values, host.mutable_data_ptr<float>());
  return host.to(like.device());
}

constexpr int64_t kBlocksAtATime = 64;

mesh::Layout layout_of_scales(const mesh::Layout& layout) {
  return with_dim(layout, std::ssize(layout.shape()) - 1,
                  [](int64_t position, int64_t) { return position / kStateBlock; });
}

bool has_blocks(const mesh::Layout& layout) {
  const std::vector<int64_t>& shape = layout.whole_shape();
  return shape.size() >= 2 && shape.back() > 0 && shape.back() % kStateBlock == 0;
}

}  // namespace

void check_blocks(std::string_view name, const mesh::Layout& layout) {
  if (!has_blocks(layout)) return;
  for (int rank = 0; rank < layout.num_ranks(); ++rank) {
    const mesh::Box box = layout.whole_box(rank);
    const int64_t begin = box.offset.back(), end = begin + box.size.back();
    TRIREME_CHECK(begin % kStateBlock == 0 && end % kStateBlock == 0,
                  "optimizer.state_dtype is \"int8\", which keeps blocks of ", kStateBlock,
                  " elements of a row, and the rows of ", shown(std::string(name)),
                  " are cut at element ", begin % kStateBlock != 0 ? begin : end,
                  "; choose bf16, or fewer ranks that cut rows");
  }
  if (layout.outer() != nullptr) check_blocks(name, *layout.outer());
}

int64_t HeldTensor::num_bytes() const {
  return c10::multiply_integers(local_shape) * static_cast<int64_t>(c10::elementSize(dtype));
}

StateDtype format_of(at::ScalarType dtype) {
  if (dtype == at::kByte) return StateDtype::kInt8;
  return dtype == at::kBFloat16 ? StateDtype::kBf16 : StateDtype::kFp32;
}

HeldState held_state(const StateSpec& state, const parallel::Shard& shard, StateDtype format,
                     at::ScalarType wide) {
  HeldState held{.tensors = {{state.name, state.local_shape, state.layout, wide}},
                 .is_positive = state.is_positive};
  const bool is_like = state.layout.whole_shape() == shard.layout.whole_shape();
  if (!is_like || (format == StateDtype::kInt8 && !has_blocks(state.layout))) return held;
  held.format = format;
  HeldTensor& values = held.tensors.front();
  if (format == StateDtype::kBf16) values.dtype = at::kBFloat16;
  if (format == StateDtype::kInt8) {
    check_blocks(shard.name, state.layout);
    values.dtype = at::kByte;
    HeldTensor scales{state.name + "_scale", state.local_shape, layout_of_scales(state.layout),
                      at::kFloat, kStateBlock};
    scales.local_shape.back() /= kStateBlock;
    held.tensors.push_back(std::move(scales));
  }
  return held;
}

at::Tensor widened(const HeldState& state, std::span<const at::Tensor> tensors,
                   at::ScalarType wide) {
  if (state.format != StateDtype::kInt8) return tensors[0].to(wide);
  at::Tensor values = at::empty(tensors[0].sizes(), tensors[0].options().dtype(at::kFloat));
  decode_blocks(tensors[0], tensors[1], values, state.is_positive);
  return values.to(wide);
}

void narrow(const HeldState& state, const at::Tensor& values, std::span<const at::Tensor> tensors,
            const Round& round) {
  switch (state.format) {
    case StateDtype::kFp32:
      if (!values.is_same(tensors[0])) tensors[0].copy_(values);
      break;
    case StateDtype::kBf16: round(values.to(at::kFloat), tensors[0]); break;
    case StateDtype::kInt8:
      encode_blocks(values.to(at::kFloat), tensors[0], tensors[1], state.is_positive);
      break;
  }
}

void encode_blocks(const at::Tensor& values, at::Tensor codes, at::Tensor scales,
                   bool is_positive) {
  const Codebook& book = codebook(is_positive);
  TRIREME_ASSERT(values.numel() == scales.numel() * kStateBlock, values.numel(), " values and ",
                 scales.numel(), " scales");
  if (!values.is_cpu()) {
    const at::Tensor blocks = values.reshape({-1, kStateBlock});
    const at::Tensor largest = blocks.abs().amax(1, /*keepdim=*/true);
    const at::Tensor divisor =
        at::where(largest.gt(0).logical_and(largest.isfinite()), largest, at::ones_like(largest));
    const at::Tensor quotients = blocks / divisor;
    const at::Tensor nearest = at::bucketize(quotients, on_device(book.midpoints, values));
    codes.copy_(
        at::maximum(nearest, quotients.gt(0).to(nearest.scalar_type())).view(codes.sizes()));
    scales.copy_(largest.view(scales.sizes()));
    return;
  }
  const auto* from = values.const_data_ptr<float>();
  auto* to = codes.mutable_data_ptr<uint8_t>();
  auto* scale = scales.mutable_data_ptr<float>();
  at::parallel_for(0, scales.numel(), kBlocksAtATime, [&](int64_t begin, int64_t end) {
    for (int64_t block = begin; block < end; ++block) {
      encode_block(book, from + block * kStateBlock, to + block * kStateBlock, scale + block);
    }
  });
}

void decode_blocks(const at::Tensor& codes, const at::Tensor& scales, at::Tensor values,
                   bool is_positive) {
  const Codebook& book = codebook(is_positive);
  if (!codes.is_cpu()) {
    const at::Tensor units =
        on_device(book.values, codes).index_select(0, codes.reshape({-1}).to(at::kInt));
    values.copy_((units.view({-1, kStateBlock}) * scales.reshape({-1, 1})).view(values.sizes()));
    return;
  }
  const auto* from = codes.const_data_ptr<uint8_t>();
  const auto* scale = scales.const_data_ptr<float>();
  auto* to = values.mutable_data_ptr<float>();
  at::parallel_for(0, scales.numel(), kBlocksAtATime, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin * kStateBlock; i < end * kStateBlock; ++i) {
      to[i] = book.values[from[i]] * scale[i / kStateBlock];
    }
  });
}

}  // namespace trireme::train
