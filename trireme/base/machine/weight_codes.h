// Frozen weights in fewer bits. The 64 numbers of a block, one after the other in a row, share an
// fp32 scale, and each is a code of 4 or 8 bits.
#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>

#include "trireme/base/choice.h"

namespace trireme {

enum class WeightFormat {
  kRun,   // as the run's other weights
  kBf16,  // a bf16 each, without scales
  kInt8,  // scale * code, of the codes -127 to 127
  kNf4,   // scale * one of 16 quantiles of the normal distribution
};
inline constexpr Choice<WeightFormat> kWeightFormats[] = {{"run", WeightFormat::kRun},
                                                          {"bf16", WeightFormat::kBf16},
                                                          {"int8", WeightFormat::kInt8},
                                                          {"nf4", WeightFormat::kNf4}};

inline constexpr int64_t kCodesPerScale = 64;

inline bool has_scales(WeightFormat format) {
  return format == WeightFormat::kInt8 || format == WeightFormat::kNf4;
}
// The numbers whose codes an element holds.
inline int64_t numbers_per_code(WeightFormat format) {
  return format == WeightFormat::kNf4 ? 2 : 1;
}
// The type of the codes. kRun has none.
at::ScalarType dtype_of_codes(WeightFormat format);

// A matrix [rows, columns] as codes.
struct WeightCodes {
  WeightFormat format = WeightFormat::kRun;
  // [rows, columns / numbers_per_code]; nf4: the even column's code in the upper 4 bits. Undefined:
  // there are none.
  at::Tensor codes{};
  at::Tensor scales{};  // [rows, columns / 64] fp32, where the format has them

  bool defined() const { return codes.defined(); }
  int64_t rows() const { return codes.size(0); }
  int64_t columns() const { return codes.size(1) * numbers_per_code(format); }
  WeightCodes narrow_rows(int64_t first, int64_t count) const;
};

// nf4 has the codes and scales of bitsandbytes, bit for bit: the scale is the block's largest
// magnitude, and of two equally near quantiles a number gets the lower. int8: the largest magnitude
// / 127, and the code nearest to number / scale, ties to even.
// Shapes: weights [rows, columns], columns a multiple of 64 where the format has scales
// Throws: ConfigError when a number is not finite; InternalError for another shape
// Source: Dettmers et al. 2023, arXiv:2305.14314, section 3 and appendix E; int8: Dettmers et al.
//         2022, arXiv:2110.02861, section 2.1, with evenly spaced codes
WeightCodes encode(const at::Tensor& weights, WeightFormat format);

// code * scale in fp32, then rounded to the dtype: [rows, columns].
at::Tensor decode(const WeightCodes& codes, at::ScalarType dtype);

}  // namespace trireme
