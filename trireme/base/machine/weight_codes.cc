#include "trireme/base/machine/weight_codes.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

#include <ATen/ATen.h>
#include <ATen/Dispatch.h>
#include <ATen/Parallel.h>

#include "trireme/base/error.h"
#include "trireme/base/machine/simd.h"

namespace trireme {
namespace {

constexpr int64_t kLargestInt8 = 127;
constexpr int64_t kNumbersAtOnce = int64_t{1} << 22;
constexpr int64_t kNumbersPerTask = int64_t{1} << 15;

constexpr std::array<float, 16> kQuantiles = {-1.0F,
                                              -0.6961928009986877F,
                                              -0.5250730514526367F,
                                              -0.39491748809814453F,
                                              -0.28444138169288635F,
                                              -0.18477343022823334F,
                                              -0.09105003625154495F,
                                              0.0F,
                                              0.07958029955625534F,
                                              0.16093020141124725F,
                                              0.24611230194568634F,
                                              0.33791524171829224F,
                                              0.44070982933044434F,
                                              0.5626170039176941F,
                                              0.7229568362236023F,
                                              1.0F};

// The two numbers of each byte.
constexpr std::array<float, 512> kPairs = [] {
  std::array<float, 512> pairs{};
  for (size_t byte = 0; byte < 256; ++byte) {
    pairs[2 * byte] = kQuantiles[byte >> 4];
    pairs[2 * byte + 1] = kQuantiles[byte & 15];
  }
  return pairs;
}();

template <typename stored>
TRIREME_INLINE void decode_nf4(const uint8_t* codes, const float* scales, stored* out,
                               int64_t blocks) {
  for (int64_t block = 0; block < blocks; ++block) {
    const float scale = scales[block];
    for (int64_t i = 0; i < kCodesPerScale / 2; ++i) {
      const float* const pair = kPairs.data() + 2 * size_t{codes[i]};
      out[2 * i] = narrow<stored>(static_cast<wide_t<stored>>(pair[0] * scale));
      out[2 * i + 1] = narrow<stored>(static_cast<wide_t<stored>>(pair[1] * scale));
    }
    codes += kCodesPerScale / 2;
    out += kCodesPerScale;
  }
}

template <typename stored>
TRIREME_INLINE void decode_int8(const int8_t* codes, const float* scales, stored* out,
                                int64_t blocks) {
  for (int64_t block = 0; block < blocks; ++block) {
    const float scale = scales[block];
#pragma GCC ivdep
    for (int64_t i = 0; i < kCodesPerScale; ++i) {
      out[i] = narrow<stored>(static_cast<wide_t<stored>>(static_cast<float>(codes[i]) * scale));
    }
    codes += kCodesPerScale;
    out += kCodesPerScale;
  }
}

#define TRIREME_DECODERS(stored)                                                                  \
  TRIREME_MULTIVERSION void decode_blocks(const uint8_t* codes, const float* scales, stored* out, \
                                          int64_t blocks) {                                       \
    decode_nf4(codes, scales, out, blocks);                                                       \
  }                                                                                               \
  TRIREME_MULTIVERSION void decode_blocks(const int8_t* codes, const float* scales, stored* out,  \
                                          int64_t blocks) {                                       \
    decode_int8(codes, scales, out, blocks);                                                      \
  }
TRIREME_DECODERS(float)
TRIREME_DECODERS(double)
TRIREME_DECODERS(uint16_t)
#undef TRIREME_DECODERS

template <typename code_t>
at::Tensor decode_on_host(const WeightCodes& packed, at::ScalarType dtype) {
  const at::Tensor codes = packed.codes.contiguous(), scales = packed.scales.contiguous();
  at::Tensor out = at::empty({packed.rows(), packed.columns()}, codes.options().dtype(dtype));
  constexpr int64_t kElements = kCodesPerScale / (std::is_same_v<code_t, uint8_t> ? 2 : 1);
  AT_DISPATCH_FLOATING_TYPES_AND(at::kBFloat16, dtype, "decode", [&] {
    const auto* from = codes.const_data_ptr<code_t>();
    const auto* scale = scales.const_data_ptr<float>();
    auto* to = stored_out<scalar_t>(out);
    at::parallel_for(0, scales.numel(), kNumbersPerTask / kCodesPerScale,
                     [&](int64_t begin, int64_t end) {
                       decode_blocks(from + begin * kElements, scale + begin,
                                     to + begin * kCodesPerScale, end - begin);
                     });
  });
  return out;
}

// For any device, and fp16.
at::Tensor composed_decode(const WeightCodes& packed, at::ScalarType dtype) {
  at::Tensor numbers;
  if (packed.format == WeightFormat::kNf4) {
    const at::Tensor both =
        at::stack({packed.codes.bitwise_right_shift(4), packed.codes.bitwise_and(15)}, 2);
    const at::Tensor quantiles =
        at::tensor(at::ArrayRef<float>(kQuantiles.data(), kQuantiles.size()))
            .to(packed.codes.device());
    numbers = quantiles.index_select(0, both.flatten().to(at::kInt));
  } else {
    numbers = packed.codes.to(at::kFloat);
  }
  return (numbers.view({packed.scales.numel(), kCodesPerScale}) * packed.scales.reshape({-1, 1}))
      .view({packed.rows(), packed.columns()})
      .to(dtype);
}

// The codes of some rows, [rows, columns] in fp32.
WeightCodes encode_rows(const at::Tensor& weights, WeightFormat format) {
  const at::Tensor blocks = weights.view({-1, kCodesPerScale});
  const at::Tensor largest = blocks.abs().amax(1, /*keepdim=*/true);
  TRIREME_CHECK(at::isfinite(largest).all().item<bool>(),
                "a weight to be frozen in fewer bits is not finite");
  const auto as_rows = [&](const at::Tensor& flat) { return flat.view({weights.size(0), -1}); };
  if (format == WeightFormat::kInt8) {
    const at::Tensor scales = largest / static_cast<double>(kLargestInt8);
    const at::Tensor codes = (blocks / scales.clamp_min(1e-38)).round_().clamp_(-127, 127);
    return {format, as_rows(codes.to(at::kChar)), as_rows(scales)};
  }
  std::vector<float> middles;
  for (size_t i = 0; i + 1 < kQuantiles.size(); ++i) {
    middles.push_back((kQuantiles[i] + kQuantiles[i + 1]) / 2);
  }
  const at::Tensor scaled = (blocks * largest.clamp_min(1e-38).reciprocal_()).clamp_(-1, 1);
  const at::Tensor quantiles =
      at::bucketize(scaled, at::tensor(middles).to(weights.device()), /*out_int32=*/true)
          .to(at::kByte)
          .view({-1, 2});
  return {format, as_rows(quantiles.select(1, 0) * 16 + quantiles.select(1, 1)), as_rows(largest)};
}

}  // namespace

at::ScalarType dtype_of_codes(WeightFormat format) {
  switch (format) {
    case WeightFormat::kRun: break;
    case WeightFormat::kBf16: return at::kBFloat16;
    case WeightFormat::kInt8: return at::kChar;
    case WeightFormat::kNf4: return at::kByte;
  }
  TRIREME_ASSERT(false, "weights without codes");
}

WeightCodes WeightCodes::narrow_rows(int64_t first, int64_t count) const {
  const auto rows = [&](const at::Tensor& whole) {
    return whole.defined() ? whole.narrow(0, first, count) : whole;
  };
  return {format, rows(codes), rows(scales)};
}

WeightCodes encode(const at::Tensor& weights, WeightFormat format) {
  if (!has_scales(format)) return {format, weights.to(dtype_of_codes(format))};
  const int64_t rows = weights.size(0), columns = weights.size(1);
  TRIREME_ASSERT(columns % kCodesPerScale == 0, "rows of ", columns, " numbers are not blocks of ",
                 kCodesPerScale);
  WeightCodes all{format,
                  at::empty({rows, columns / numbers_per_code(format)},
                            weights.options().dtype(dtype_of_codes(format))),
                  at::empty({rows, columns / kCodesPerScale}, weights.options().dtype(at::kFloat))};
  const int64_t at_once = std::max<int64_t>(kNumbersAtOnce / std::max<int64_t>(columns, 1), 1);
  for (int64_t row = 0; row < rows && columns > 0; row += at_once) {
    const int64_t count = std::min(at_once, rows - row);
    const WeightCodes part =
        encode_rows(weights.narrow(0, row, count).to(at::kFloat).contiguous(), format);
    const WeightCodes place = all.narrow_rows(row, count);
    place.codes.copy_(part.codes);
    place.scales.copy_(part.scales);
  }
  return all;
}

at::Tensor decode(const WeightCodes& codes, at::ScalarType dtype) {
  if (!has_scales(codes.format)) return codes.codes.to(dtype);
  if (!codes.codes.is_cpu() || dtype == at::kHalf) return composed_decode(codes, dtype);
  return codes.format == WeightFormat::kNf4 ? decode_on_host<uint8_t>(codes, dtype)
                                            : decode_on_host<int8_t>(codes, dtype);
}

}  // namespace trireme
